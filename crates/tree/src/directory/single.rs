//! [`FileSource`]: one file of the host as a tree.
//!
//! The command makes one where a source is a file that is no archive. It reads the file as a
//! directory with that name alone would be read, so attributes and changes are handled alike.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::{DirectorySource, feed};
use crate::entry::{Contents, Entry};
use crate::error::{Error, Result};
use crate::source::{Opened, Sink, Source};

/// One file of the host as a tree: an entry of the given name, in a root of which nothing is said.
#[derive(Debug)]
pub struct FileSource {
    directory: DirectorySource,
    /// The name on the host, and that of the entry.
    host_name: Box<[u8]>,
    name: Box<[u8]>,
}

impl FileSource {
    /// Opens the directory of the file. A symbolic link in its path is followed, the last component
    /// included. `name` is the entry's name.
    ///
    /// # Errors
    /// An error of the host.
    pub fn new(file: &Path, name: &[u8], without_xattrs: bool) -> Result<Self> {
        let real = file
            .canonicalize()
            .map_err(|error| Error::io(file.to_string_lossy(), error))?;
        let (Some(parent), Some(host_name)) = (real.parent(), real.file_name()) else {
            return Err(Error::io(file.to_string_lossy(), rustix::io::Errno::ISDIR));
        };
        let mut directory = DirectorySource::new(parent)?.without_xattrs(without_xattrs);
        let host_name: Box<[u8]> = host_name.as_bytes().into();
        directory.only = Some(host_name.clone());
        Ok(Self {
            directory,
            host_name,
            name: name.into(),
        })
    }
}

impl Source for FileSource {
    fn scan(&self, sink: &mut dyn Sink) -> Result<()> {
        feed::scan(
            &self.directory,
            &mut Renamed {
                sink,
                name: &self.name,
            },
        )
    }

    fn open(&self, _: &[u8], contents: &Contents) -> Result<Opened> {
        self.directory.open(&self.host_name, contents)
    }
}

/// A sink that gives the entry its name.
struct Renamed<'a> {
    sink: &'a mut dyn Sink,
    name: &'a [u8],
}

impl Sink for Renamed<'_> {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.sink.entry(Entry {
            path: self.name.to_vec(),
            ..entry
        })
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.sink.remove(path)
    }

    fn clear(&mut self, path: &[u8]) -> Result<()> {
        self.sink.clear(path)
    }

    fn warn(&mut self, message: String) {
        self.sink.warn(message);
    }
}
