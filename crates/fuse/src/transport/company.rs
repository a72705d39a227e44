//! Whether those who ask for something run on the CPU of a thread that looks for requests.
//!
//! The answer is best made where it is waited for: to wake somebody from another CPU takes longer than most requests take. So a thread
//! that looks for requests lets others have its CPU between two looks, and learns from how long that takes whether there are any.
//!
//! Who is alone on its CPU heeds those that are not:
//!
//! * If there are none, whoever asks runs where none of those that look does. Then it looks without pause.
//! * If they find requests of one who asks, and of nobody else, it leaves those to them, unless one waits for longer than a request
//!   takes: then they are kept by something.
//! * If several ask, they take turns on one CPU, for the scheduler holds this one for busy as long as a thread looks without end here,
//!   and so does not bring one of them for a second and longer. To a CPU that is idle most of the time it does within milliseconds. So
//!   this thread naps between two looks.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::thread::sched_yield;

use super::lookout::{Accompanied, Finds, Lookout};

/// Between two looks, unless others have had the CPU.
const GLANCE: Duration = Duration::from_micros(30);
/// Who has not been asked for its CPU for so many glances is alone: a millisecond.
const LONG: u32 = 32;
/// Between two looks of who leaves its CPU to the scheduler: so long that it counts as idle, and so short that nobody waits long if those
/// who found the last requests are kept by them.
const NAP: Duration = Duration::from_micros(200);
/// What finding a request and answering it mostly takes.
const MOMENT: Duration = Duration::from_micros(5);
/// If to let others have the CPU takes longer, they have had it.
const SWITCH: Duration = Duration::from_nanos(800);

/// The others on the CPU of a thread that looks for requests.
#[derive(Default)]
pub(super) struct Company {
    /// They had it not long ago. The lookout counts those who say so.
    is_there: bool,
    /// Glances since they had it.
    glances: u32,
    /// What had been found by threads in company when this one last asked.
    found: Finds,
}

impl Company {
    /// Others had the CPU not long ago.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    /// Lets others have the CPU, and returns at once when they have had it: one may have asked for something. `is_asked` says whether
    /// there is a request.
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

    /// The thread does not look any more, and so knows nothing of others.
    pub(super) fn part(&mut self, lookout: &Lookout) {
        self.note(lookout, false);
    }

    /// Offers the CPU to others, and notes whether they have had it.
    fn others_had_it(&mut self, lookout: &Lookout, offer: Duration) -> bool {
        // Who was not alone a moment ago, and has to wait for its CPU, mostly waits for one who asks: to make sure is not worth a system call.
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

/// Whether a request waits, and still does after a moment.
fn is_needed(is_asked: impl Fn() -> bool) -> bool {
    is_asked() && (others_had_it(MOMENT, has_switched()) || is_asked())
}

/// Offers the CPU to others for that long, or until they have had it; whether they have. `is_true` is asked where it seems so: an
/// interrupt, or the host, takes as long now and then.
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

/// Tells whether others have had the CPU of the calling thread since this was called.
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
        // Fewer if something else wanted this CPU meanwhile.
        assert!(looks.get() == 3 || company.is_there(), "{}", looks.get());
    }
}
