//! The CPUs that the threads of a mount run on.
//!
//! The transports read them when they start, and bind threads with them. Only CPUs that the process
//! may use are chosen. Binding is for speed: where the system refuses it, the thread runs on any
//! CPU.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that the process may use.
#[derive(Clone)]
pub(super) struct Cpus(CpuSet);

impl Cpus {
    /// Returns the CPUs of the calling thread.
    pub(super) fn of_this_thread() -> Self {
        Self(sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()))
    }

    /// Returns their numbers; that of the first CPU if nothing is known.
    pub(super) fn numbers(&self) -> Vec<usize> {
        let allowed: Vec<_> = (0..CpuSet::MAX_CPU)
            .filter(|&number| self.0.is_set(number))
            .collect();
        if allowed.is_empty() { vec![0] } else { allowed }
    }

    /// Lets the calling thread run on all of them: a thread begins with the CPUs of the thread that
    /// has started it.
    pub(super) fn run_on_any(&self) {
        // Where that is not allowed, the thread works all the same.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Binds the calling thread to this CPU.
pub(super) fn run_on(number: usize) {
    let mut cpu = CpuSet::new();
    cpu.set(number);
    // Where that is not allowed, or the CPU is off, the thread works all the same, only slower.
    let _ = sched_setaffinity(None, &cpu);
}

/// Returns the numbers of the CPUs that the system lists as `which`: the CPUs that are `online`, or
/// `possible`.
pub(super) fn listed(which: &str) -> io::Result<Vec<u16>> {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{which}"))?;
    numbers(text.trim()).ok_or(io::ErrorKind::InvalidData.into())
}

/// Returns the numbers in a list such as `0-3,8`.
fn numbers(list: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers("0-2,5,8-9"), Some(vec![0, 1, 2, 5, 8, 9]));
        for bad in ["", "x", "0-", "0,,2", "70000"] {
            assert_eq!(numbers(bad), None, "{bad}");
        }
    }
}
