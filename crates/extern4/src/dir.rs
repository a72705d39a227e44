//! Directories and their entries.
//!
//! [`Session::read_dir`](crate::Session::read_dir) returns the iterator, and
//! [`walk`](crate::Session::walk) the entries, to programs and to the command. A listing has each
//! name that is there throughout exactly once, and perhaps names that come or go meanwhile.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extern4_vfs as vfs;
use vfs::{Attr, FileType, LookupFlags, OpenFile};

use crate::error::{Error, Result};
use crate::listing::Listing;
use crate::metadata::Metadata;
use crate::session::bytes;

/// One entry of a directory or a walk.
pub struct DirEntry {
    /// The session, standing in the directory that has the entry.
    pub(crate) parent: Arc<vfs::Session>,
    pub(crate) path: PathBuf,
    /// The length in bytes of the entry's name in `parent`, which ends `path`.
    pub(crate) name_len: usize,
    pub(crate) depth: usize,
    pub(crate) ino: u64,
    pub(crate) kind: Option<FileType>,
    pub(crate) attr: Option<Attr>,
}

impl DirEntry {
    /// Returns the path, starting with the one that the walk or listing was asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path as a buffer, starting with the one that the walk or listing was asked for.
    pub fn into_path(self) -> PathBuf {
        self.path
    }

    /// Returns the last component of the path.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(self.name())
    }

    fn name(&self) -> &[u8] {
        let path = bytes(&self.path);
        &path[path.len() - self.name_len..]
    }

    /// Returns the number of directories between the start and this entry: 0 for the start itself.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the inode number.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Returns the type. Where the directory stores types, the call reads it from there, at no
    /// cost.
    ///
    /// # Errors
    /// `EIO` or [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the inode has to be read;
    /// `ENOENT` if the entry is gone by then.
    pub fn file_type(&self) -> Result<FileType> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata()?.file_type()),
        }
    }

    /// Returns the attributes of the entry itself, even if it is a symbolic link.
    ///
    /// # Errors
    /// As [`file_type`](Self::file_type), and `EACCES` if the caller may not search the directory.
    pub fn metadata(&self) -> Result<Metadata> {
        match self.attr {
            Some(attr) => Ok(Metadata(attr)),
            None => self
                .parent
                .stat(self.name(), LookupFlags::NOFOLLOW)
                .map(Metadata)
                .map_err(|e| Error::vfs("stat", &self.path, e)),
        }
    }

    /// Removes the entry from its directory: a file, a symbolic link, or a directory that is empty.
    ///
    /// # Errors
    /// The errors of [`remove_file`](crate::Session::remove_file) and
    /// [`remove_dir`](crate::Session::remove_dir).
    pub fn remove(&self) -> Result<()> {
        let parent = self.parent();
        let removed = if self.file_type()? == FileType::Directory {
            parent.remove_dir(self.file_name())
        } else {
            parent.remove_file(self.file_name())
        };
        removed.map_err(|error| error.at(&self.path))
    }

    /// Returns a view of the volume that stands in the directory of this entry. From there,
    /// [`file_name`](Self::file_name) alone leads to the entry, however long its path is.
    pub fn parent(&self) -> crate::Session {
        crate::Session::new(vfs::Session::clone(&self.parent))
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirEntry")
            .field("path", &self.path)
            .field("ino", &self.ino)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Joins as [`Path::join`] does, in memory that is allocated once.
fn join(directory: &Path, name: &OsStr) -> PathBuf {
    let mut path = PathBuf::with_capacity(directory.as_os_str().len() + 1 + name.len());
    path.push(directory);
    path.push(name);
    path
}

/// An iterator over the entries of a directory; see
/// [`Session::read_dir`](crate::Session::read_dir).
pub struct ReadDir {
    path: PathBuf,
    listing: Listing,
}

impl ReadDir {
    pub(crate) fn new(session: &vfs::Session, directory: OpenFile, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            listing: Listing::new(session, directory),
        }
    }

    /// Fetches the attributes along with the entries, which is cheaper than one query for each.
    pub fn with_metadata(mut self) -> Self {
        self.listing.with_metadata = true;
        self
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let parent = Arc::clone(&self.listing.session);
        let found = match self.listing.next(bytes(&self.path))? {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(DirEntry {
            parent,
            path: join(&self.path, OsStr::from_bytes(found.name)),
            name_len: found.name.len(),
            depth: 1,
            ino: found.ino,
            kind: found.kind,
            attr: found.attr.copied(),
        }))
    }
}

/// Returns whether `name` is one step down. Names in volumes may be something else.
pub fn is_step(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    !matches!(bytes, b"" | b"." | b"..") && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
}

#[cfg(test)]
mod tests {
    use super::is_step;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn only_plain_names_are_steps() {
        for name in ["", ".", "..", "a/b", "/", "a\0b"] {
            assert!(!is_step(OsStr::from_bytes(name.as_bytes())), "{name:?}");
        }
        assert!(is_step(OsStr::new("...")));
        assert!(is_step(OsStr::from_bytes(b"\xff\n")));
    }
}
