//! CPU sharing: detects whether callers run on the CPU of a polling thread.
//!
//! An answer is best made on the CPU of its caller: waking a thread from another CPU takes longer
//! than most requests. So a polling thread yields its CPU between two polls, and learns from the
//! time that this takes whether other threads run there. A thread that has its CPU alone takes
//! account of the threads that share theirs:
//!
//! * If there are none, the callers run on CPUs without a polling thread. The thread then polls
//!   without pause.
//! * If those threads find the requests of a single caller, the thread leaves requests to them. It
//!   steps in if a request waits for longer than a request takes: then something delays them.
//! * If there are several callers, they may share one CPU. As long as a thread polls without pause
//!   here, the scheduler treats this CPU as busy. It then moves no caller to it for a second and
//!   longer. It moves one to a CPU that is idle most of the time within milliseconds. So this
//!   thread naps between two polls.
//!
//! The polling threads of `channel` call it between two polls. It is a heuristic: a wrong guess
//! costs time, and no request is lost or answered twice.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::thread::sched_yield;

use super::pollers::{Finds, Pollers, SharingThreads};

/// The time between two polls, unless others have had the CPU.
const GLANCE: Duration = Duration::from_micros(30);
/// A thread is alone on its CPU after this many polls between which no other thread took it: a
/// millisecond.
const LONG: u32 = 32;
/// The time between two polls of a thread that leaves its CPU to the scheduler. It is so long that
/// the CPU counts as idle. It is so short that no request waits long if something delays the
/// threads that found the last ones.
const NAP: Duration = Duration::from_micros(200);
/// The usual time to find a request and answer it.
const MOMENT: Duration = Duration::from_micros(5);
/// A yield that takes longer than this has let another thread run.
const SWITCH: Duration = Duration::from_nanos(800);

/// The other threads on the CPU of a polling thread.
#[derive(Default)]
pub(super) struct CpuSharing {
    /// Others had the CPU not long ago. [`Pollers`] counts the threads that have set this.
    is_shared: bool,
    /// Polls since others had the CPU.
    glances: u32,
    /// The requests found by threads that share their CPU, when this thread last asked.
    found: Finds,
}

impl CpuSharing {
    /// Returns whether others had the CPU not long ago.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Yields the CPU to others, and returns at once when they have had it: one of them may have
    /// sent a request. `is_asked` returns whether there is a request.
    pub(super) fn yield_cpu(&mut self, pollers: &Pollers, is_asked: impl Fn() -> bool) {
        loop {
            let others = if self.is_shared {
                None
            } else {
                Some(pollers.sharing(&mut self.found))
            };
            let offer = match others {
                None | Some(SharingThreads::Idle | SharingThreads::OneCaller) => GLANCE,
                Some(SharingThreads::None) => Duration::ZERO,
                Some(SharingThreads::SeveralCallers) => {
                    std::thread::sleep(NAP);
                    Duration::ZERO
                }
            };
            let had_it = self.others_had_it(pollers, offer);
            if had_it || others != Some(SharingThreads::OneCaller) || is_needed(&is_asked) {
                return;
            }
        }
    }

    /// Ends polling. The thread then no longer knows whether others share its CPU.
    pub(super) fn end(&mut self, pollers: &Pollers) {
        self.note(pollers, false);
    }

    /// Offers the CPU to others, and records whether they have had it.
    fn others_had_it(&mut self, pollers: &Pollers, offer: Duration) -> bool {
        // A thread that shared its CPU at the last poll and waits for it now mostly waits for a
        // caller. So a system call to verify that does not pay.
        let is_sure = self.is_shared && self.glances == 0;
        let had_it = if is_sure {
            others_had_it(offer, || true)
        } else {
            others_had_it(offer, has_switched())
        };
        self.glances = if had_it {
            0
        } else {
            self.glances.saturating_add(1)
        };
        self.note(pollers, had_it || self.is_shared && self.glances < LONG);
        had_it
    }

    fn note(&mut self, pollers: &Pollers, is_shared: bool) {
        if self.is_shared != is_shared {
            self.is_shared = is_shared;
            pollers.note_sharing(is_shared);
        }
    }
}

/// Returns whether a request waits and this thread should take it: it still waits after a moment,
/// or another thread has had the CPU meanwhile.
fn is_needed(is_asked: impl Fn() -> bool) -> bool {
    is_asked() && (others_had_it(MOMENT, has_switched()) || is_asked())
}

/// Offers the CPU to others for up to `offer`; returns whether they have had it. Where it seems so,
/// `is_true` verifies it: an interrupt, or the host, takes as long now and then.
fn others_had_it(offer: Duration, is_true: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    let mut before = start;
    loop {
        sched_yield();
        let mut now = Instant::now();
        if now - before > SWITCH {
            if is_true() {
                return true;
            }
            now = Instant::now();
        }
        if now - start >= offer {
            return false;
        }
        before = now;
    }
}

/// Returns a function that reports whether others have had the CPU of the calling thread since this
/// call.
fn has_switched() -> impl Fn() -> bool {
    let switches = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        Some(usage.voluntary_context_switches() + usage.involuntary_context_switches())
    };
    let before = switches();
    move || switches() != before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::cpus::{Cpus, run_on};
    use extern4_sync::primitive::{AtomicBool, Ordering};
    use std::cell::Cell;

    const LONG_ENOUGH: Duration = Duration::from_secs(60);

    #[test]
    fn a_thread_notices_that_it_shares_its_cpu() {
        let cpu = Cpus::of_this_thread().numbers()[0];
        let ended = AtomicBool::new(false);
        let pollers = Pollers::new().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                run_on(cpu);
                while !ended.load(Ordering::Relaxed) {
                    sched_yield();
                }
            });
            let poller = scope.spawn(|| {
                run_on(cpu);
                let mut sharing = CpuSharing::default();
                let start = Instant::now();
                while !sharing.is_shared() && start.elapsed() < LONG_ENOUGH {
                    sharing.yield_cpu(&pollers, || false);
                }
                sharing.is_shared()
            });
            let is_shared = poller.join();
            ended.store(true, Ordering::Relaxed);
            assert!(is_shared.unwrap(), "another was there all the time");
        });
    }

    #[test]
    fn requests_of_one_caller_are_left_to_threads_on_its_cpu_while_they_find_them() {
        let pollers = Pollers::new().unwrap();
        pollers.note_sharing(true);
        let find = || {
            pollers.begin();
            pollers.end(Some(1));
        };
        let mut sharing = CpuSharing::default();
        find();
        pollers.sharing(&mut sharing.found);
        find();
        let looks = Cell::new(0);
        let is_asked = || {
            looks.set(looks.get() + 1);
            if looks.get() < 3 {
                find();
            }
            false
        };
        sharing.yield_cpu(&pollers, is_asked);
        // Fewer if another thread wanted this CPU meanwhile.
        assert!(looks.get() == 3 || sharing.is_shared(), "{}", looks.get());
    }
}
