//! [`DirectorySource`]: a directory of the host as a tree, or one file of it.
//!
//! `build` and `diff` scan it. The same directory always gives the same entries in the same order.
//! No symbolic link below the directory is followed. A file that changes or vanishes between the
//! scan and the end of its reading is an error that names it ([`Error::Changed`],
//! [`Error::Vanished`]). Other file systems and the kernel's own can be left out, with a
//! warning.

mod beneath;
mod feed;
mod single;
mod walk;
mod xattrs;

pub(crate) use beneath::open as open_beneath;
pub use single::FileSource;

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::entry::{Contents, Data};
use crate::error::{Error, Result};
use crate::source::{Opened, Sink, Source};

/// A directory of the host as a tree.
///
/// The walk visits each directory's names in the order of their bytes, so its entries do not depend
/// on the order in which the host lists them. It follows no symbolic link.
#[derive(Debug)]
pub struct DirectorySource {
    root: PathBuf,
    top: OwnedFd,
    one_file_system: bool,
    without_xattrs: bool,
    /// The device and the inode number of a file that is left out.
    left_out: Option<(u64, u64)>,
    /// The only name that is read, if not all are.
    only: Option<Box<[u8]>>,
}

impl DirectorySource {
    /// Opens a directory. A symbolic link in this path is followed.
    ///
    /// # Errors
    /// [`Error::Io`] with the path, if it cannot be opened or is no directory.
    pub fn new(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(&root, flags, Mode::empty())
            .map_err(|error| Error::io(root.to_string_lossy(), error))?;
        Ok(Self {
            root,
            top,
            one_file_system: false,
            without_xattrs: false,
            left_out: None,
            only: None,
        })
    }

    /// Leaves out files on other file systems. The directories on which these are mounted remain,
    /// and are empty.
    #[must_use]
    pub fn one_file_system(mut self, yes: bool) -> Self {
        self.one_file_system = yes;
        self
    }

    /// Reads no extended attributes and ACLs.
    #[must_use]
    pub fn without_xattrs(mut self, yes: bool) -> Self {
        self.without_xattrs = yes;
        self
    }

    /// Leaves out the file with this path of the host, with a warning, wherever the directory has
    /// it: the file that the tree is written to. A path without a file leaves out nothing.
    #[must_use]
    pub fn leave_out(mut self, output: &Path) -> Self {
        let found = rustix::fs::stat(output).ok();
        self.left_out = found.map(|stat| (stat.st_dev, stat.st_ino));
        self
    }

    /// Returns the host's path of a member, for messages.
    fn name(&self, path: &[u8]) -> String {
        self.root
            .join(Path::new(std::ffi::OsStr::from_bytes(path)))
            .to_string_lossy()
            .into_owned()
    }

    fn error(&self, path: &[u8], error: rustix::io::Errno) -> Error {
        match error {
            rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => Error::Vanished {
                name: self.name(path),
            },
            error => Error::io(self.name(path), error),
        }
    }
}

impl Source for DirectorySource {
    fn scan(&self, sink: &mut dyn Sink) -> Result<()> {
        feed::scan(self, sink)
    }

    fn open(&self, path: &[u8], contents: &Contents) -> Result<Opened> {
        let changed = || Error::Changed {
            name: self.name(path),
        };
        let Data::HostFile { identity, .. } = contents.data else {
            return Err(changed());
        };
        // The open must not block, in case the file has become a FIFO.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = beneath::open(&self.top, path, flags).map_err(|error| match error {
            // A symbolic link has replaced the file or a directory above it.
            rustix::io::Errno::LOOP => changed(),
            error => self.error(path, error),
        })?;
        Ok(Opened::own(file.into(), identity))
    }
}

#[cfg(test)]
mod tests;
