//! The facts about a file to copy that are known before it is read.

use std::io;

use extern4_vfs::{FileFlags, FileType, Rdev, Timespec};

use crate::copy::failure::CopyError;

/// The identity of a file, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::copy) enum Id {
    /// Device and inode number on the host.
    Host(u64, u64),
    /// Index of the open volume, and inode number.
    Volume(usize, u64),
}

/// The facts about a file that are known before it is read.
pub(in crate::copy) struct Node {
    pub(in crate::copy) id: Id,
    pub(in crate::copy) kind: FileType,
    pub(in crate::copy) mode: u32,
    pub(in crate::copy) uid: u32,
    pub(in crate::copy) gid: u32,
    pub(in crate::copy) links: u64,
    pub(in crate::copy) rdev: Rdev,
    pub(in crate::copy) size: u64,
    /// About how many bytes are not holes.
    pub(in crate::copy) stored: u64,
    pub(in crate::copy) atime: Timespec,
    pub(in crate::copy) mtime: Timespec,
    /// The inode flags and the project of a file of a volume.
    pub(in crate::copy) flags: Option<(FileFlags, u32)>,
}

impl Node {
    pub(in crate::copy) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_cast,
    reason = "these fields have other types elsewhere"
)]
pub(super) fn host_node(found: &rustix::fs::Stat) -> Result<Node, CopyError> {
    use rustix::fs::FileType as Host;
    let kind = match Host::from_raw_mode(found.st_mode) {
        Host::RegularFile => FileType::Regular,
        Host::Directory => FileType::Directory,
        Host::Symlink => FileType::Symlink,
        Host::CharacterDevice => FileType::CharDevice,
        Host::BlockDevice => FileType::BlockDevice,
        Host::Fifo => FileType::Fifo,
        Host::Socket => FileType::Socket,
        Host::Unknown => return Err(CopyError::Host(io::ErrorKind::Unsupported.into())),
    };
    let time = |sec: i64, nsec: u64| Timespec {
        sec,
        nsec: u32::try_from(nsec).unwrap_or(0),
    };
    let size = u64::try_from(found.st_size).unwrap_or(0);
    Ok(Node {
        id: Id::Host(found.st_dev, found.st_ino),
        kind,
        mode: found.st_mode & 0o7777,
        uid: found.st_uid,
        gid: found.st_gid,
        links: u64::from(found.st_nlink),
        rdev: Rdev {
            major: rustix::fs::major(found.st_rdev),
            minor: rustix::fs::minor(found.st_rdev),
        },
        size,
        stored: size.min(
            u64::try_from(found.st_blocks)
                .unwrap_or(0)
                .saturating_mul(512),
        ),
        atime: time(found.st_atime, found.st_atime_nsec as u64),
        mtime: time(found.st_mtime, found.st_mtime_nsec as u64),
        flags: None,
    })
}
