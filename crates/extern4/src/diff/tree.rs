//! The trees that are compared.
//!
//! A caller makes them, and `compare` lists them and opens their files.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4_tree::{Contents, Entry, Source};

use super::contents::OpenFile;
use super::fault::Error;
use super::listing::Listing;
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
    Volume { volume: Volume, top: Session },
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
        Self { root: Root::Volume { volume: volume.clone(), top }, has_whole_seconds }
    }

    /// Takes any source: a directory of the host, an archive, an image of a container.
    pub fn source(source: impl Source + 'static) -> Self {
        Self { root: Root::Source(Box::new(source)), has_whole_seconds: false }
    }

    /// Sets whether times of the tree may lack their fraction of a second, as those of many
    /// archives do. Such a time equals any other one in the same second.
    pub fn whole_seconds(mut self, whole_seconds: bool) -> Self {
        self.has_whole_seconds = whole_seconds;
        self
    }

    /// Lists the tree.
    pub(super) fn list(&self) -> Listing {
        match &self.root {
            Root::Volume { top, .. } => Listing::of_volume(top),
            Root::Source(source) => Listing::of_source(&**source),
        }
    }

    /// Opens a regular file.
    pub(super) fn open<'e>(&self, entry: &'e Entry, contents: &'e Contents) -> Result<OpenFile<'e>, Error> {
        match &self.root {
            Root::Volume { top, .. } => {
                let (session, rest) = top.approach(Path::new(OsStr::from_bytes(&entry.path)))?;
                Ok(OpenFile::Volume(session.open(rest)?))
            }
            Root::Source(source) => {
                let opened = source.open(&entry.path, contents)?;
                Ok(OpenFile::Source { opened, path: &entry.path, data: &contents.data })
            }
        }
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.root {
            Root::Volume { .. } => "volume",
            Root::Source(_) => "source",
        };
        f.debug_struct("Tree").field("root", &what).finish_non_exhaustive()
    }
}
