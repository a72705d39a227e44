//! Times of the VFS as times of the format, and back.

use extern4_disk::time::Timestamp;
use extern4_vfs::Timespec;

pub(crate) fn timestamp(time: Timespec) -> Timestamp {
    Timestamp { seconds: time.sec, nanos: time.nsec }
}

/// Returns the present in seconds since 1970, as `i_dtime` and the superblock have it.
pub(crate) fn now_seconds() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |time| seconds(time.as_secs().cast_signed()))
}

/// Returns the seconds of `time`; never 0, which stands for no time.
pub(crate) fn seconds(time: i64) -> u32 {
    u32::try_from(time.max(1)).unwrap_or(u32::MAX)
}

pub(crate) fn timespec(time: Timestamp) -> Timespec {
    Timespec { sec: time.seconds, nsec: time.nanos }
}
