//! Conversions between times of the VFS, times of the format and seconds.
//!
//! The format stores seconds and nanoseconds with an epoch, which `extern4_disk::time` encodes and
//! range-checks. The conversions here lose nothing. Seconds for `i_dtime` and the superblock are
//! clamped to 1 and `u32::MAX`, because 0 means "no time" there. Modules that load, store or delete
//! inodes call these functions.

use extern4_disk::time::Timestamp;
use extern4_vfs::Timespec;

pub(crate) fn timestamp(time: Timespec) -> Timestamp {
    Timestamp {
        seconds: time.sec,
        nanos: time.nsec,
    }
}

/// Returns the current time in seconds since 1970, as `i_dtime` and the superblock store it.
pub(crate) fn now_seconds() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |time| seconds(time.as_secs().cast_signed()))
}

/// Returns `time` as the format stores it in 32 bits; never 0, which means no time.
pub(crate) fn seconds(time: i64) -> u32 {
    u32::try_from(time.max(1)).unwrap_or(u32::MAX)
}

pub(crate) fn timespec(time: Timestamp) -> Timespec {
    Timespec {
        sec: time.seconds,
        nsec: time.nanos,
    }
}
