//! A file in a tree, and its place there.
//!
//! `walk` makes them, `whole` adds them up, and the writers show them.

use std::ffi::OsString;
use std::path::PathBuf;

use extern4::{FileType, Metadata};

/// A file.
pub(super) struct TreeFile {
    pub(super) name: OsString,
    /// The path in the volume, by way of the links that were followed.
    pub(super) path: PathBuf,
    pub(super) ino: u64,
    pub(super) kind: FileType,
    /// The attributes, where they were needed and could be read.
    pub(super) metadata: Option<Metadata>,
    pub(super) link: Option<Link>,
}

/// The other end of a symbolic link.
pub(super) struct Link {
    pub(super) target: Vec<u8>,
    /// The attributes of what it leads to.
    pub(super) metadata: Option<Metadata>,
}

/// A file with its place in the tree.
pub(super) struct Item {
    pub(super) entry: TreeFile,
    /// 0 for the directory that is shown.
    pub(super) depth: usize,
    /// Whether no other file of its directory follows.
    pub(super) is_last: bool,
    /// Whether files in it follow.
    pub(super) has_children: bool,
    /// A directory with a name that makes everything in it match.
    pub(super) is_matched: bool,
    /// Why a directory is not shown.
    pub(super) note: Option<String>,
    /// The bytes that are shown as its size.
    pub(super) size: u64,
}

impl TreeFile {
    /// Returns whether it is a directory, or a link to one.
    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory || self.leads_to_directory()
    }

    /// Returns whether it is a link to a directory.
    pub(super) fn leads_to_directory(&self) -> bool {
        self.link
            .as_ref()
            .and_then(|link| link.metadata.as_ref())
            .is_some_and(Metadata::is_dir)
    }
}
