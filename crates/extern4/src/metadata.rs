//! The attributes that the library reports for a file, as `stat` gives them.
//!
//! A [`Metadata`] is a copy of one moment; later changes of the file do not show in it. Sessions,
//! files and directory entries return it. The numbers are the numbers that Linux shows for the same
//! volume.

use std::time::{Duration, SystemTime};

use extern4_vfs::{Attr, FileFlags, FileType, Rdev, Timespec};

/// The attributes of a file, as `stat` gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(pub(crate) Attr);

impl Metadata {
    /// Returns the type of the file.
    pub fn file_type(&self) -> FileType {
        self.0.kind
    }

    /// Returns whether the file is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.kind == FileType::Directory
    }

    /// Returns whether the file is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind == FileType::Regular
    }

    /// Returns whether the file is a symbolic link. Only metadata read without following links can
    /// say so.
    pub fn is_symlink(&self) -> bool {
        self.0.kind == FileType::Symlink
    }

    /// Returns the size in bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "the name std::fs::Metadata uses"
    )]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Returns type and permission bits together, as `st_mode` has them.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.kind.mode_bits() | self.0.mode)
    }

    /// Returns the owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Returns the group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Returns the inode number.
    pub fn ino(&self) -> u64 {
        self.0.ino
    }

    /// Returns the inode generation.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Returns the number of hard links.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Returns the allocated space, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Returns the preferred size of a read or write, in bytes.
    pub fn blksize(&self) -> u32 {
        self.0.blksize
    }

    /// Returns the device that a device node stands for.
    pub fn rdev(&self) -> Rdev {
        self.0.rdev
    }

    /// Returns the time of the last read.
    pub fn atime(&self) -> Timespec {
        self.0.atime
    }

    /// Returns the time of the last change of the contents.
    pub fn mtime(&self) -> Timespec {
        self.0.mtime
    }

    /// Returns the time of the last change of the inode.
    pub fn ctime(&self) -> Timespec {
        self.0.ctime
    }

    /// Returns the time of creation, where the volume stores it.
    pub fn btime(&self) -> Option<Timespec> {
        self.0.btime
    }

    /// Returns the time of the last change of the contents, as the standard library's type.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Returns the time of the last read, as the standard library's type.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Returns the time of creation, as the standard library's type; `None` where the volume does
    /// not store it.
    pub fn created(&self) -> Option<SystemTime> {
        self.0.btime.map(system_time)
    }

    /// Returns the inode flags, as `lsattr` shows them.
    pub fn flags(&self) -> FileFlags {
        self.0.flags
    }

    /// Returns the project id.
    pub fn project(&self) -> u32 {
        self.0.project
    }
}

/// Returns `time` as the standard library's type.
pub fn system_time(time: Timespec) -> SystemTime {
    let whole = Duration::from_secs(time.sec.unsigned_abs());
    let base = if time.sec < 0 {
        SystemTime::UNIX_EPOCH - whole
    } else {
        SystemTime::UNIX_EPOCH + whole
    };
    base + Duration::from_nanos(u64::from(time.nsec))
}
