//! What the library tells of a file.

use std::time::{Duration, SystemTime};

use extern4_vfs::{Attr, FileFlags, FileType, Rdev, Timespec};

/// The attributes of a file, as `stat` gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(pub(crate) Attr);

impl Metadata {
    /// The type of the file.
    pub fn file_type(&self) -> FileType {
        self.0.kind
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.kind == FileType::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind == FileType::Regular
    }

    /// Whether it is a symbolic link; only ever true of metadata that did not follow it.
    pub fn is_symlink(&self) -> bool {
        self.0.kind == FileType::Symlink
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "the name std::fs::Metadata uses")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Type and permission bits together, as `st_mode` has them.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.kind.mode_bits() | self.0.mode)
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.0.ino
    }

    /// Inode generation.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Number of hard links.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Space taken, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Preferred size of a read or write in bytes.
    pub fn blksize(&self) -> u32 {
        self.0.blksize
    }

    /// Which device a device node stands for.
    pub fn rdev(&self) -> Rdev {
        self.0.rdev
    }

    /// Last read.
    pub fn atime(&self) -> Timespec {
        self.0.atime
    }

    /// Last change of the contents.
    pub fn mtime(&self) -> Timespec {
        self.0.mtime
    }

    /// Last change of the inode.
    pub fn ctime(&self) -> Timespec {
        self.0.ctime
    }

    /// Creation, where the volume keeps it.
    pub fn btime(&self) -> Option<Timespec> {
        self.0.btime
    }

    /// Last change of the contents, as the standard library's type.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Last read, as the standard library's type.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Creation, as the standard library's type; `None` where the volume does not keep it.
    pub fn created(&self) -> Option<SystemTime> {
        self.0.btime.map(system_time)
    }

    /// Inode flags, as `lsattr` shows them.
    pub fn flags(&self) -> FileFlags {
        self.0.flags
    }

    /// Project id.
    pub fn project(&self) -> u32 {
        self.0.project
    }

    /// All attributes as one plain struct.
    pub fn attr(&self) -> &Attr {
        &self.0
    }
}

/// `time` as the standard library's type.
pub fn system_time(time: Timespec) -> SystemTime {
    let whole = Duration::from_secs(time.sec.unsigned_abs());
    let base = if time.sec < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
    base + Duration::from_nanos(u64::from(time.nsec))
}
