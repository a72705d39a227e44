//! The history of a volume, as its superblock notes it.
//!
//! `Info` has it. Times are seconds since 1970; 0 means never.

pub use extern4_disk::superblock::ErrorRecord;
use extern4_disk::superblock::Superblock;

/// Times, mounts, checks and errors. Times are in seconds since 1970; 0 means never.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// When the volume was made.
    pub made: u64,
    /// When it was mounted last.
    pub mounted: u64,
    /// When it was written last.
    pub written: u64,
    /// When it was checked last.
    pub checked: u64,
    /// Seconds between checks; 0 for no limit.
    pub check_interval: u32,
    /// Mounts since the last check.
    pub mount_count: u16,
    /// Mounts between checks; `None` for no limit.
    pub max_mount_count: Option<u16>,
    /// Bytes that were written in the life of the volume.
    pub lifetime_writes_bytes: u64,
    /// Errors that were found since the last check.
    pub error_count: u32,
    /// The first of them.
    pub first_error: Option<ErrorRecord>,
    /// The last of them.
    pub last_error: Option<ErrorRecord>,
}

impl History {
    pub(super) fn of(superblock: &Superblock) -> Self {
        Self {
            made: superblock.made_time(),
            mounted: superblock.mount_time(),
            written: superblock.write_time(),
            checked: superblock.check_time(),
            check_interval: superblock.check_interval(),
            mount_count: superblock.mount_count(),
            max_mount_count: superblock.max_mount_count(),
            lifetime_writes_bytes: superblock.kbytes_written().saturating_mul(1024),
            error_count: superblock.error_count(),
            first_error: superblock.first_error(),
            last_error: superblock.last_error(),
        }
    }
}
