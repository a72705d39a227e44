//! Directories: their entries, and walks over whole trees.

use std::ffi::OsStr;
use std::path::Path;

use extern4_vfs::FileType;

use crate::error::Result;
use crate::metadata::Metadata;

/// The entries of a directory; see [`Session::read_dir`](crate::Session::read_dir).
pub struct ReadDir {}

/// One entry of a directory or a walk.
pub struct DirEntry {}

/// A walk over a tree; see [`Session::walk`](crate::Session::walk).
pub struct Walk {}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;
    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;
    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}

impl Walk {
    /// Does not descend into the directory that was returned last.
    pub fn skip_subtree(&mut self) {
        todo!()
    }
}

impl DirEntry {
    /// The path, starting with the one the walk or listing was asked for.
    pub fn path(&self) -> &Path {
        todo!()
    }
    /// The last component of the path.
    pub fn file_name(&self) -> &OsStr {
        todo!()
    }
    /// How many directories below the start: 0 for the start itself.
    pub fn depth(&self) -> usize {
        todo!()
    }
    /// The inode number.
    pub fn ino(&self) -> u64 {
        todo!()
    }
    /// The type; read from the directory itself where it keeps it, so that it costs nothing.
    pub fn file_type(&self) -> Result<FileType> {
        todo!()
    }
    /// The attributes of the entry itself, even if it is a symbolic link.
    pub fn metadata(&self) -> Result<Metadata> {
        todo!()
    }
}
