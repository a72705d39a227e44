//! A volume as an oracle saw it: every path with all its attributes and the content's digest.
//!
//! A field that an oracle cannot know is `None` and is not compared. So one [`diff`] serves the
//! kernel's mount, which knows everything, and `debugfs`, which does not.
//!
//! Tests read the same volume with extern4 into a [`Tree`] and compare.

mod content;
mod debugfs;
mod diff;
mod mount;

use std::collections::BTreeMap;

pub use content::{Content, ContentDigest};
pub use debugfs::from_debugfs;
pub use diff::{assert_same, diff};
pub use mount::from_mount;

/// A whole volume by absolute path; the root is `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Every entry, `.` and `..` excepted.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of stat(2)")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
}

impl Kind {
    /// Returns the kind in the `S_IFMT` bits of a mode.
    pub fn of_mode(mode: u32) -> Option<Kind> {
        Some(match mode & 0o170000 {
            0o100000 => Kind::File,
            0o040000 => Kind::Directory,
            0o120000 => Kind::Symlink,
            0o020000 => Kind::CharDevice,
            0o060000 => Kind::BlockDevice,
            0o010000 => Kind::Fifo,
            0o140000 => Kind::Socket,
            _ => return None,
        })
    }
}

/// A moment: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970-01-01, negative before.
    pub sec: i64,
    /// Nanoseconds, below a thousand million.
    pub nsec: u32,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type, with the target of a link and the number of a device.
    pub kind: Kind,
    /// The twelve permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Number of names.
    pub nlink: Option<u64>,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: Option<u64>,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// Time of the last access; `None` if the oracle does not tell it.
    pub atime: Option<Time>,
    /// Last change of content.
    pub mtime: Option<Time>,
    /// Last change of attributes.
    pub ctime: Option<Time>,
    /// Birth, where the inode has room for it.
    pub btime: Option<Option<Time>>,
    /// Inode number, from 1.
    pub ino: u64,
    /// The flags that lsattr(1) shows, for files and directories.
    pub flags: Option<u32>,
    /// Extended attributes with full names, access control lists among them.
    pub xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Where a symbolic link points.
    pub link: Option<Vec<u8>>,
    /// The content of a file.
    pub content: Option<Content>,
}

impl Tree {
    /// Returns the number of entries, the root included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps what a volume has that is built of the tree: not `lost+found`, inode numbers, times of
    /// access and change, flags, and the sizes of directories.
    pub fn as_built(mut self) -> Self {
        self.entries.remove(&b"/lost+found"[..]);
        for (path, entry) in &mut self.entries {
            (
                entry.atime,
                entry.ctime,
                entry.btime,
                entry.flags,
                entry.blocks,
            ) = Default::default();
            entry.ino = 0;
            if entry.kind == Kind::Directory {
                entry.size = 0;
            }
            if path == b"/" {
                entry.nlink = None;
            }
        }
        self
    }

    /// Returns whether the oracle saw not even a root.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Returns `dir` and `name` as one path.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend(name);
    path
}
