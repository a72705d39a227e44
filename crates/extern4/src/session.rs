//! A view of a volume with the rights of one caller.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use extern4_vfs::{Acl, AclKind};

use crate::dir::{ReadDir, Walk};
use crate::error::Result;
use crate::file::File;
use crate::metadata::Metadata;

/// A view of a volume with the rights of one caller: its user, groups and capabilities, its root and its working
/// directory. Cheap to clone, and usable from any number of threads.
///
/// Relative paths start at the session's working directory, which is its root at first.
#[derive(Clone)]
pub struct Session {}

/// What [`Session::access`] asks for; the bits may be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub u8);

impl Access {
    /// It exists.
    pub const EXISTS: Access = Access(0);
    /// It may be executed, or searched if it is a directory.
    pub const EXECUTE: Access = Access(1);
    /// It may be written.
    pub const WRITE: Access = Access(2);
    /// It may be read.
    pub const READ: Access = Access(4);
}

impl std::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

#[expect(unused_variables, reason = "sketch")]
impl Session {
    /// The attributes of what `path` leads to, symbolic links followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        todo!()
    }
    /// The attributes of `path` itself, even if it is a symbolic link.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        todo!()
    }
    /// Whether `path` leads to anything. A path that may not be searched is an error, not a no.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        todo!()
    }
    /// Whether the caller may use `path` so; `EACCES` if not.
    pub fn access(&self, path: impl AsRef<Path>, access: Access) -> Result<()> {
        todo!()
    }
    /// Opens a file for reading.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        todo!()
    }
    /// The whole contents of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        todo!()
    }
    /// The entries of a directory, without `.` and `..`, in the directory's own order.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        todo!()
    }
    /// The target of a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        todo!()
    }
    /// The path with every symbolic link, `.` and `..` resolved, from the session's root.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        todo!()
    }
    /// The value of an extended attribute, symbolic links followed; `None` if there is none of that name.
    pub fn getxattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        todo!()
    }
    /// The same of `path` itself, even if it is a symbolic link.
    pub fn lgetxattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        todo!()
    }
    /// The names of the extended attributes, symbolic links followed.
    pub fn listxattr(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        todo!()
    }
    /// The same of `path` itself, even if it is a symbolic link.
    pub fn llistxattr(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        todo!()
    }
    /// An ACL, symbolic links followed; `None` if there is none beyond the mode bits.
    pub fn acl(&self, path: impl AsRef<Path>, kind: AclKind) -> Result<Option<Acl>> {
        todo!()
    }
    /// Everything under `path` and `path` itself, a directory before its entries; symbolic links are not followed,
    /// directories come in the order of their inode numbers' position on the volume.
    pub fn walk(&self, path: impl AsRef<Path>) -> Walk {
        todo!()
    }
}
