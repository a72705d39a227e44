//! The CPUs that the threads of a mount run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that the process may use.
#[derive(Clone)]
pub(super) struct Cpus(CpuSet);

impl Cpus {
    /// Those of the calling thread.
    pub(super) fn of_this_thread() -> Self {
        Self(sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()))
    }

    /// Their numbers; that of the first CPU if nothing is known.
    pub(super) fn numbers(&self) -> Vec<usize> {
        let allowed: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&number| self.0.is_set(number)).collect();
        if allowed.is_empty() { vec![0] } else { allowed }
    }

    /// Lets the calling thread run on all of them: a thread begins with the CPUs of the one that has started it.
    pub(super) fn run_on_any(&self) {
        // Where that is not allowed, it works all the same.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Has the calling thread run on this CPU.
pub(super) fn run_on(number: usize) {
    let mut cpu = CpuSet::new();
    cpu.set(number);
    // Where that is not allowed, or the CPU is off, it works all the same, only slower.
    let _ = sched_setaffinity(None, &cpu);
}
