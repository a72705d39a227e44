//! The trees that are compared.
//!
//! A caller makes them, and `compare` lists them and opens their files.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4_tree::{DirectorySource, Entry, Error as SourceError, Kind, Source};
use extern4_vfs::Errno;

use super::contents::OpenFile;
use super::fault::Error;
use super::listing::Listing;
use crate::error::ErrorKind;
use crate::session::Session;
use crate::volume::Volume;

/// The size of an inode that has room for whole seconds only.
const SMALL_INODE: u16 = 128;

/// A tree to compare: a directory of a volume, or another source.
pub struct Tree {
    pub(super) root: Root,
    pub(super) has_whole_seconds: bool,
}

/// Where a tree is.
pub(super) enum Root {
    Volume {
        volume: Volume,
        top: Session,
    },
    Directory {
        path: PathBuf,
        source: DirectorySource,
    },
    Source(Box<dyn Source>),
}

impl Tree {
    /// Takes the directory of a volume in which the session stands: the root, unless
    /// [`Session::at`] chose another one.
    ///
    /// Where both trees are in volumes that may be copies of each other, a session of the superuser
    /// lets [`compare`](super::compare) compare by blocks, which takes less time.
    pub fn volume(volume: &Volume, top: Session) -> Self {
        let has_whole_seconds = volume.ext4().superblock().geometry().inode_size() == SMALL_INODE;
        Self {
            root: Root::Volume {
                volume: volume.clone(),
                top,
            },
            has_whole_seconds,
        }
    }

    /// Takes a directory of the host.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn directory(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let source = DirectorySource::new(&path)?;
        Ok(Self {
            root: Root::Directory { path, source },
            has_whole_seconds: false,
        })
    }

    /// Takes any source, such as an archive or an image of a container.
    pub fn source(source: impl Source + 'static) -> Self {
        Self {
            root: Root::Source(Box::new(source)),
            has_whole_seconds: false,
        }
    }

    /// Sets whether times of the tree may lack their fraction of a second, as times in many
    /// archives do. Such a time equals any other one in the same second.
    pub fn whole_seconds(mut self, whole_seconds: bool) -> Self {
        self.has_whole_seconds = whole_seconds;
        self
    }

    /// Lists the tree.
    pub(super) fn list(&self) -> Listing {
        match &self.root {
            Root::Volume { top, .. } => Listing::of_volume(top),
            Root::Directory { source, .. } => Listing::of_source(source),
            Root::Source(source) => Listing::of_source(&**source),
        }
    }

    /// Opens a regular file.
    pub(super) fn open<'e>(&self, entry: &'e Entry) -> Result<OpenFile<'e>, Error> {
        let source: &dyn Source = match &self.root {
            Root::Volume { top, .. } => return open_in_volume(top, &entry.path),
            Root::Directory { source, .. } => source,
            Root::Source(source) => &**source,
        };
        open_in_source(source, entry)
    }
}

/// Opens a file below the directory in which a session stands.
pub(super) fn open_in_volume(top: &Session, path: &[u8]) -> Result<OpenFile<'static>, Error> {
    let (session, rest) = top.approach(Path::new(OsStr::from_bytes(path)))?;
    let file = session.open(rest)?;
    if !file.metadata().is_file() {
        return Err(crate::Error::new(ErrorKind::Os(Errno::EINVAL), "open")
            .at(rest)
            .into());
    }
    Ok(OpenFile::of_volume(file))
}

/// Opens a regular file of a source.
pub(super) fn open_in_source<'e>(
    source: &dyn Source,
    entry: &'e Entry,
) -> Result<OpenFile<'e>, Error> {
    let Kind::File(contents) = &entry.kind else {
        let name = String::from_utf8_lossy(&entry.path).into_owned();
        return Err(SourceError::Io {
            name,
            source: std::io::ErrorKind::InvalidInput.into(),
        }
        .into());
    };
    Ok(OpenFile::of_source(
        source.open(&entry.path, contents)?,
        &entry.path,
        contents,
    ))
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.root {
            Root::Volume { .. } => "volume",
            Root::Directory { .. } => "directory",
            Root::Source(_) => "source",
        };
        f.debug_struct("Tree")
            .field("root", &what)
            .finish_non_exhaustive()
    }
}
