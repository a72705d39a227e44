//! Attributes of inodes and totals of file systems, as `stat` and `statfs` return them.
//!
//! These are plain values that a caller gets as copies of one moment. A file system fills an `Attr`
//! when it reads an inode; `Session::stat`, `OpenFile::stat` and `statfs` return them. Types and
//! flags have Linux's numbers, and bits that Linux does not know never turn into a file type.

use std::time::{Duration, SystemTime};

/// The type of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileType {
    /// A regular file.
    #[default]
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
}

impl FileType {
    /// Returns the `S_IFMT` bits of a mode for this type.
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// Returns the type that the `S_IFMT` bits of `mode` encode; `None` if they encode none.
    pub const fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns whether this is a directory.
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Directory)
    }

    /// Returns whether this is a regular file.
    pub const fn is_file(self) -> bool {
        matches!(self, Self::Regular)
    }

    /// Returns whether this is a symbolic link.
    pub const fn is_symlink(self) -> bool {
        matches!(self, Self::Symlink)
    }
}

/// A moment: seconds since 1970-01-01 00:00 UTC, which may be negative, and nanoseconds of that
/// second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timespec {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999, counted forward from `sec` also before the epoch.
    pub nsec: u32,
}

impl From<SystemTime> for Timespec {
    fn from(time: SystemTime) -> Self {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Self {
                sec: seconds(after),
                nsec: after.subsec_nanos(),
            },
            Err(error) => {
                let before = error.duration();
                match before.subsec_nanos() {
                    0 => Self {
                        sec: -seconds(before),
                        nsec: 0,
                    },
                    // Nanoseconds count forward.
                    nsec => Self {
                        sec: -seconds(before) - 1,
                        nsec: 1_000_000_000 - nsec,
                    },
                }
            }
        }
    }
}

/// A device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rdev {
    /// Major number: which driver.
    pub major: u32,
    /// Minor number: which of the driver's devices.
    pub minor: u32,
}

bitflags::bitflags! {
    /// Inode flags as `FS_IOC_GETFLAGS` and `lsattr` show them; the values are Linux's
    /// `FS_*_FL`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FileFlags: u32 {
        /// Synchronous updates.
        const SYNC = 0x0000_0008;
        /// May not be changed, renamed, linked to or deleted.
        const IMMUTABLE = 0x0000_0010;
        /// May only be appended to.
        const APPEND = 0x0000_0020;
        /// `dump(8)` leaves it out.
        const NODUMP = 0x0000_0040;
        /// Access times are not kept.
        const NOATIME = 0x0000_0080;
        /// The contents are encrypted.
        const ENCRYPT = 0x0000_0800;
        /// Names in this directory are looked up without regard to case.
        const CASEFOLD = 0x4000_0000;
        /// The contents are protected by fs-verity.
        const VERITY = 0x0010_0000;
        /// Contents are mapped from the device itself, where that is memory.
        const DAX = 0x0200_0000;
        /// New children inherit the project id.
        const PROJINHERIT = 0x2000_0000;
        /// Every other bit is kept as the file system has it.
        const _ = !0;
    }
}

/// Returns the bits of `mode` that `chmod` sets: permissions, set-id bits and sticky bit.
pub fn permission_bits(mode: u32) -> u16 {
    // OK: twelve bits fit.
    (mode & 0o7777) as u16
}

/// The attributes of a directory that change with the names in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in `Attr`")]
pub struct NamesAttr {
    pub nlink: u32,
    pub size: u64,
    pub blocks: u64,
    pub mtime: Timespec,
    pub ctime: Timespec,
    pub flags: FileFlags,
}

/// The attributes of an inode, as `statx` reports them.
// In C's order, so that fields which `InodeAttrs` keeps in one word are adjacent here, and one
// store writes them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number, unique in the file system.
    pub ino: u64,
    /// The user who owns the file.
    pub uid: u32,
    /// The group of the file.
    pub gid: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Distinguishes the inode from earlier ones with the same number.
    pub generation: u32,
    /// Which device a device node stands for; zero for other types.
    pub rdev: Rdev,
    /// Size in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
    /// Inode flags, as `lsattr` shows them.
    pub flags: FileFlags,
    /// Time of the last read, by the mount's rules for access times.
    pub atime: Timespec,
    /// Last change of the contents.
    pub mtime: Timespec,
    /// Last change of the attributes or contents.
    pub ctime: Timespec,
    /// Creation, where the file system keeps it.
    pub btime: Option<Timespec>,
    /// Project id; zero where the file system keeps none.
    pub project: u32,
    /// Permission bits, set-id bits and sticky bit: `0o7777` at most.
    pub mode: u16,
    /// Type of the file.
    pub kind: FileType,
}

/// Totals of a file system, as `statfs` returns them; sizes are in blocks of `block_size` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks in all, without the file system's own structures.
    pub blocks: u64,
    /// Free blocks, with the reserve for root.
    pub blocks_free: u64,
    /// Free blocks that users without privilege may take.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Inodes that no file uses.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Magic number of the type of file system, as in `linux/magic.h`.
    pub magic: u32,
    /// Identifier of this file system.
    pub fsid: u64,
}
