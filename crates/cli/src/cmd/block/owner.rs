//! The purpose of a block, in words.
//!
//! `block` prints it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::info::{BlockOwner, Use};

/// Returns the purpose in words, for people. `name` is how a path is printed.
pub(super) fn text(owner: &BlockOwner, name: impl FnOnce(&Path) -> String) -> String {
    match owner {
        BlockOwner::None => "no owner".to_owned(),
        BlockOwner::Descriptors => "superblock or group descriptors".to_owned(),
        BlockOwner::BlockBitmap(group) => format!("block bitmap of group {group}"),
        BlockOwner::InodeBitmap(group) => format!("inode bitmap of group {group}"),
        BlockOwner::InodeTable(inodes) => {
            format!("inode table, inodes {} to {}", inodes.start(), inodes.end())
        }
        BlockOwner::Inode { ino, used, path } => {
            let what = match used {
                Use::Data {
                    logical,
                    unwritten: false,
                } => format!("block {logical}"),
                Use::Data {
                    logical,
                    unwritten: true,
                } => format!("block {logical}, unwritten,"),
                Use::Map { level, logical } => {
                    format!("map from block {logical} on, level {level},")
                }
                Use::Xattr => "extended attributes".to_owned(),
            };
            match path {
                Some(path) => format!("{what} of inode {ino}, {}", name(path)),
                None => format!("{what} of inode {ino}"),
            }
        }
    }
}

/// Returns the purpose as one word, for scripts.
pub(super) fn word(owner: &BlockOwner) -> &'static str {
    match owner {
        BlockOwner::None => "none",
        BlockOwner::Descriptors => "descriptors",
        BlockOwner::BlockBitmap(_) => "block_bitmap",
        BlockOwner::InodeBitmap(_) => "inode_bitmap",
        BlockOwner::InodeTable(_) => "inode_table",
        BlockOwner::Inode { used, .. } => match used {
            Use::Data { .. } => "data",
            Use::Map { .. } => "map",
            Use::Xattr => "xattr",
        },
    }
}

/// Returns the inode that a block belongs to.
pub(super) fn ino(owner: &BlockOwner) -> Option<u32> {
    match owner {
        BlockOwner::Inode { ino, .. } => Some(*ino),
        _ => None,
    }
}

/// Returns a path of that inode.
pub(super) fn path(owner: &BlockOwner) -> Option<&[u8]> {
    match owner {
        BlockOwner::Inode {
            path: Some(path), ..
        } => Some(path.as_os_str().as_bytes()),
        _ => None,
    }
}
