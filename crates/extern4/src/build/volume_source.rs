//! A directory of a volume as a source of builds.
//!
//! The command `build` reads a source that is an ext volume through it. A file that cannot be read
//! ends the build with an error that names it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extern4_tree::{
    Contents, Entry, Error as TreeError, Kind, Opened, ReadAt, Result as TreeResult, Sink, Source,
};

use super::tree_walk::{TreeFile, TreeWalk, Unreadable};
use crate::error::{Error, Result};
use crate::file::File;
use crate::session::Session;

/// A directory of a volume as a tree: all that the session may see, with owners, modes, times,
/// links, devices, holes, extended attributes, inode flags and projects.
///
/// The entries come in the order of a [`TreeWalk`].
pub struct VolumeSource {
    top: Session,
}

impl VolumeSource {
    /// Takes the directory in which the session stands: the volume's root, unless
    /// [`Session::at`] chose another one.
    pub fn new(session: Session) -> Self {
        Self { top: session }
    }
}

impl Source for VolumeSource {
    fn scan(&self, sink: &mut dyn Sink) -> TreeResult<()> {
        let unreadable = |Unreadable { path, error }| failed(&path, error);
        for file in TreeWalk::new(&self.top)
            .map_err(unreadable)?
            .without(sink.unwanted())
        {
            let file = file.map_err(unreadable)?;
            sink.entry(entry(file)?)?;
        }
        Ok(())
    }

    fn open(&self, path: &[u8], _: &Contents) -> TreeResult<Opened> {
        let file = open(&self.top, path).map_err(|error| failed(path, error))?;
        Ok(Opened::other(Arc::new(file)))
    }
}

impl ReadAt for File {
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let done = self.read_at(buf, offset)?;
            if done == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf = &mut buf[done..];
            offset += done as u64;
        }
        Ok(())
    }
}

/// Returns the error at a path of the source.
fn failed(path: &[u8], error: Error) -> TreeError {
    TreeError::Source(Box::new(
        error.at(&Path::new("/").join(OsStr::from_bytes(path))),
    ))
}

fn open(top: &Session, path: &[u8]) -> Result<File> {
    let (session, rest) = top.approach(Path::new(OsStr::from_bytes(path)))?;
    session.open(rest)
}

/// Returns the file's entry, with the places of its holes.
fn entry(file: TreeFile) -> TreeResult<Entry> {
    if !matches!(file.entry.kind, Kind::File(_)) {
        return Ok(file.entry);
    }
    let contents = file.open().and_then(|opened| file.contents(&opened));
    let contents = contents.map_err(|error| failed(&file.entry.path, error))?;
    Ok(Entry {
        kind: Kind::File(contents),
        ..file.entry
    })
}
