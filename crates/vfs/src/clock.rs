//! The clock that changes of files are stamped with.
//!
//! Creation, writing, renames, links and changes of attributes read the time here, once a call, and
//! pass it to the file system. So all files that one call changes get the same time. The time may
//! be as old as the kernel's last tick, as with Linux. It goes backwards when the system's clock
//! does.

use rustix::time::{ClockId, clock_gettime};

use crate::attr::Timespec;

/// The clock of the kernel's last tick, which is 1 to 10 ms old at most. Linux stamps files with
/// it, too, and reading it takes less time than reading the exact clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::RealtimeCoarse;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Realtime;

/// Returns the present moment. In models time stands still, so that each run takes the same course.
pub(crate) fn now() -> Timespec {
    if cfg!(feature = "loom") {
        return Timespec {
            sec: 1_000_000_000,
            nsec: 0,
        };
    }
    let now = clock_gettime(CLOCK);
    // It is from 0 to 999,999,999.
    Timespec {
        sec: now.tv_sec,
        nsec: u32::try_from(now.tv_nsec).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn it_is_the_time_of_the_system() {
        let exact = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let now = now();
        let now = Duration::new(now.sec.try_into().unwrap(), now.nsec);
        // A busy machine may delay the kernel's tick, and this thread between the two readings.
        assert!(
            now.abs_diff(exact) < Duration::from_secs(60),
            "{now:?} {exact:?}"
        );
    }
}
