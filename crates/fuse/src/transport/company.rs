//! CPU sharing: detects whether callers run on the CPU of a polling thread.
//!
//! An answer is best made on the CPU of its caller: waking a thread from another CPU takes longer
//! than most requests. So a polling thread yields its CPU between two polls, and learns from the
//! time that this takes whether other threads run there. A thread without such company takes
//! account of the threads that have it:
//!
//! * If there are none, the callers run on CPUs without a polling thread. The thread then polls
//!   without pause.
//! * If those threads find the requests of a single caller, the thread leaves requests to them. It
//!   steps in if a request waits for longer than a request takes: then something delays them.
//! * If there are several callers, they may share one CPU. As long as a thread polls without pause
//!   here, the scheduler treats this CPU as busy. It then moves no caller to it for a second and
//!   longer. It moves one to a CPU that is idle most of the time within milliseconds. So this
//!   thread naps between two polls.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::thread::sched_yield;

use super::lookout::{Accompanied, Finds, Lookout};

/// The time between two polls, unless others have had the CPU.
const GLANCE: Duration = Duration::from_micros(30);
/// A thread is alone on its CPU after this many glances in which no other thread took it: a
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
pub(super) struct Company {
    /// Others had the CPU not long ago. The lookout counts the threads that have set this.
    is_there: bool,
    /// Glances since others had the CPU.
    glances: u32,
    /// The requests found by threads in company, when this thread last asked.
    found: Finds,
}

impl Company {
    /// Returns whether others had the CPU not long ago.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    /// Yields the CPU to others, and returns at once when they have had it: one of them may have
    /// sent a request. `is_asked` returns whether there is a request.
    pub(super) fn step_aside(&mut self, lookout: &Lookout, is_asked: impl Fn() -> bool) {
        loop {
            let others = if self.is_there { None } else { Some(lookout.accompanied(&mut self.found)) };
            let offer = match others {
                None | Some(Accompanied::Idle | Accompanied::AskedByOne) => GLANCE,
                Some(Accompanied::Nobody) => Duration::ZERO,
                Some(Accompanied::AskedBySeveral) => {
                    std::thread::sleep(NAP);
                    Duration::ZERO
                }
            };
            let had_it = self.others_had_it(lookout, offer);
            if had_it || others != Some(Accompanied::AskedByOne) || is_needed(&is_asked) {
                return;
            }
        }
    }

    /// Ends polling: the thread then knows nothing of others.
    pub(super) fn part(&mut self, lookout: &Lookout) {
        self.note(lookout, false);
    }

    /// Offers the CPU to others, and records whether they have had it.
    fn others_had_it(&mut self, lookout: &Lookout, offer: Duration) -> bool {
        // A thread that had company a moment ago and has to wait for its CPU mostly waits for a
        // caller. Making sure is not worth a system call.
        let is_sure = self.is_there && self.glances == 0;
        let had_it =
            if is_sure { others_had_it(offer, || true) } else { others_had_it(offer, has_switched()) };
        self.glances = if had_it { 0 } else { self.glances.saturating_add(1) };
        self.note(lookout, had_it || self.is_there && self.glances < LONG);
        had_it
    }

    fn note(&mut self, lookout: &Lookout, is_there: bool) {
        if self.is_there != is_there {
            self.is_there = is_there;
            lookout.note_company(is_there);
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
    fn who_shares_its_cpu_is_not_alone() {
        let cpu = Cpus::of_this_thread().numbers()[0];
        let ended = AtomicBool::new(false);
        let lookout = Lookout::new().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                run_on(cpu);
                while !ended.load(Ordering::Relaxed) {
                    sched_yield();
                }
            });
            let looker = scope.spawn(|| {
                run_on(cpu);
                let (mut company, start) = (Company::default(), Instant::now());
                while !company.is_there() && start.elapsed() < LONG_ENOUGH {
                    company.step_aside(&lookout, || false);
                }
                company.is_there()
            });
            let is_there = looker.join();
            ended.store(true, Ordering::Relaxed);
            assert!(is_there.unwrap(), "another was there all the time");
        });
    }

    #[test]
    fn what_one_asks_for_is_left_to_those_beside_him_while_they_find_it() {
        let lookout = Lookout::new().unwrap();
        lookout.note_company(true);
        let find = || {
            lookout.begin();
            lookout.end(Some(1));
        };
        let mut company = Company::default();
        find();
        lookout.accompanied(&mut company.found);
        find();
        let looks = Cell::new(0);
        let is_asked = || {
            looks.set(looks.get() + 1);
            if looks.get() < 3 {
                find();
            }
            false
        };
        company.step_aside(&lookout, is_asked);
        // Fewer if another thread wanted this CPU meanwhile.
        assert!(looks.get() == 3 || company.is_there(), "{}", looks.get());
    }
}
