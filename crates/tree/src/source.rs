//! [`Source`] and [`Sink`]: the interface between trees that are read and their consumers.
//!
//! Directories, archives, images, manifests, volumes and [`Entries`](crate::Entries) are sources.
//! The builder of volumes and the listings of `diff` are sinks. A source passes entries in an order
//! in which the target of a hard link comes first. After the scan it opens contents, from several
//! threads at once. [`Opened::check_unchanged`] reports a host file that has changed since.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::entry::{Contents, Entry, Identity};
use crate::error::{Error, Result};

/// A consumer of a tree. It gets the entries in the order of their source. Each call overlays
/// earlier ones.
pub trait Sink {
    /// Consumes an entry.
    ///
    /// A later entry replaces an earlier one of the same path. Two directories merge, and the later
    /// one's metadata wins. A directory that does not precede an entry in it is implied. A sink
    /// that does not have the target of a hard link returns [`Error::NoTarget`].
    fn entry(&mut self, entry: Entry) -> Result<()>;

    /// Removes an entry and all below it, if there is one: a whiteout.
    fn remove(&mut self, path: &[u8]) -> Result<()>;

    /// Removes all entries below a directory, and keeps the directory. It is called for an opaque
    /// directory of a layer.
    fn clear(&mut self, path: &[u8]) -> Result<()>;

    /// Consumes a warning about something that is left out or altered.
    fn warn(&mut self, message: String);

    /// Returns a test for directories that the sink will leave out, if there may be any. A source
    /// may then skip their attributes and contents. It still passes the directory itself.
    fn unwanted(&self) -> Option<Unwanted> {
        None
    }
}

/// A test whether the sink will leave out a directory, given by its path in the source.
pub type Unwanted = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// A tree that can be read.
pub trait Source: Send + Sync {
    /// Passes the whole tree to the sink. A source that spools its contents can be scanned only
    /// once.
    fn scan(&self, sink: &mut dyn Sink) -> Result<()>;

    /// Opens the contents of a file, given by its path in the source. Several threads may call it
    /// at the same time.
    ///
    /// A file of the host may have been replaced since the scan. Once its bytes are read,
    /// [`Opened::check_unchanged`] tells.
    fn open(&self, path: &[u8], contents: &Contents) -> Result<Opened>;
}

/// Bytes that can be read at any offset, by several threads at the same time.
pub trait ReadAt: Send + Sync {
    /// Fills the buffer from an offset on. The end of the bytes is an error.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|at| self.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The open contents of an entry.
pub struct Opened {
    bytes: Bytes,
    base: u64,
    identity: Option<Identity>,
}

/// The bytes that hold the contents of an entry.
enum Bytes {
    /// A file of the host, opened for one entry.
    Own(File),
    /// A file of the host with the contents of many entries.
    Shared(Arc<File>),
    /// Bytes of another kind.
    Other(Arc<dyn ReadAt>),
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file();
        let base = self.base;
        f.debug_struct("Opened")
            .field("file", &file)
            .field("base", &base)
            .finish_non_exhaustive()
    }
}

impl Opened {
    /// Returns contents in a store: position `p` is the byte `p + base` of the file, modulo 2^64.
    pub fn store(file: Arc<File>, base: u64) -> Self {
        Self {
            bytes: Bytes::Shared(file),
            base,
            identity: None,
        }
    }

    /// Returns contents in a file of the entry's own, with the identity that the scan found.
    pub fn own(file: File, identity: Identity) -> Self {
        Self {
            bytes: Bytes::Own(file),
            base: 0,
            identity: Some(identity),
        }
    }

    /// Returns contents that are not in a host file. Positions are offsets in the bytes.
    pub fn other(bytes: Arc<dyn ReadAt>) -> Self {
        Self {
            bytes: Bytes::Other(bytes),
            base: 0,
            identity: None,
        }
    }

    /// Returns the host's file that holds the contents, if one does.
    pub fn file(&self) -> Option<&File> {
        match &self.bytes {
            Bytes::Own(file) => Some(file),
            Bytes::Shared(file) => Some(file),
            Bytes::Other(_) => None,
        }
    }

    /// Returns the host's file with the contents of many entries, if one holds these.
    pub(crate) fn shared(&self) -> Option<&Arc<File>> {
        match &self.bytes {
            Bytes::Shared(file) => Some(file),
            _ => None,
        }
    }

    /// Returns the file's offset for a position: that of [`Data::Stored`](crate::Data::Stored) or
    /// of a [`Piece`](crate::Piece), or the offset in a [`Data::HostFile`](crate::Data::HostFile).
    pub fn offset(&self, position: u64) -> u64 {
        // The positions of a source's stores follow one another, so a base may be a negative
        // number, modulo 2^64.
        position.wrapping_add(self.base)
    }

    /// Fills the buffer from a position on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the contents end before; the error of reading.
    pub fn read_exact_at(&self, buf: &mut [u8], position: u64) -> io::Result<()> {
        let offset = self.offset(position);
        match &self.bytes {
            Bytes::Own(file) => FileExt::read_exact_at(file, buf, offset),
            Bytes::Shared(file) => FileExt::read_exact_at(&**file, buf, offset),
            Bytes::Other(bytes) => bytes.read_exact_at(buf, offset),
        }
    }

    /// Returns an error if the host's file has changed since the scan. The caller calls it after
    /// reading.
    ///
    /// # Errors
    /// [`Error::Changed`], or the error of asking the host.
    pub fn check_unchanged(&self, path: &[u8]) -> Result<()> {
        let (Some(expected), Some(file)) = (self.identity, self.file()) else {
            return Ok(());
        };
        match Identity::of(file) {
            Ok(now) if now == expected => Ok(()),
            Ok(_) => Err(Error::Changed {
                name: crate::error::shown(path),
            }),
            Err(error) => Err(Error::io(crate::error::shown(path), error)),
        }
    }
}

impl Identity {
    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// The error of `fstat(2)`.
    pub fn of(file: &File) -> std::io::Result<Self> {
        Ok(Self::of_stat(&rustix::fs::fstat(file)?))
    }

    pub(crate) fn of_stat(stat: &rustix::fs::Stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            mtime: crate::Time {
                secs: stat.st_mtime,
                nanos: stat.st_mtime_nsec as u32,
            },
            size: stat.st_size as u64,
        }
    }
}
