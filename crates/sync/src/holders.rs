//! How many are inside: files open for writing, changes under way, references.
//!
//! Who comes or goes adds to a count on a line of its own thread, with a plain store. Who wants to know the number adds the
//! counts up, after a barrier that every thread of the process executes ([`asymmetric`](crate::asymmetric)). It does not
//! matter which thread somebody leaves on.
//!
//! # The handshake
//! Who [enters](Holders::enter) looks at a flag after that; who closes the door sets the flag and [counts](Holders::count)
//! after that. Then one of the two sees the other: the count has who entered, or who entered sees the flag.
//!
//! # Why a count of zero is true
//! A thread's entries and exits are two counts, and the exits of all are read before the entries of all. Each exit that
//! is read has its entry among the entries: it came before, wherever it was made, and exits are stored by `Release` and loaded by
//! `Acquire`. That holds also where the entry is in a segment of slots that was missing a moment before: the segment was published
//! before the entry. So what is counted is not less than who was inside between the two readings; if it is zero, nobody was at that
//! moment. It may be more: somebody who entered only to see the flag and leave.

use crate::asymmetric::{announce, heavy, seen};
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::thread_slots::ThreadSlots;

/// Counts who is inside.
#[derive(Debug)]
pub struct Holders(ThreadSlots<Slot>);

#[derive(Debug)]
struct Slot {
    entered: AtomicU64,
    left: AtomicU64,
}

impl Default for Slot {
    fn default() -> Self {
        Self { entered: AtomicU64::new(0), left: AtomicU64::new(0) }
    }
}

impl Holders {
    /// Nobody.
    pub fn new() -> Self {
        Self(ThreadSlots::new())
    }

    /// Counts one more. What is loaded after this is not older than what was stored before a count that misses it.
    #[inline]
    pub fn enter(&self) {
        self.step(|slot| &slot.entered);
    }

    /// Counts one less, on any thread. What is loaded after this is not older than what was stored before a count that still has
    /// it.
    #[inline]
    pub fn leave(&self) {
        self.step(|slot| &slot.left);
    }

    #[inline(always)]
    fn step(&self, count: impl Fn(&Slot) -> &AtomicU64) {
        if let Some(slot) = self.0.own() {
            let count = count(slot);
            // Relaxed: nobody else stores here.
            announce(count, count.load(Ordering::Relaxed).wrapping_add(1));
        } else {
            // Release: as `announce`. SeqCst: LIGHT.
            count(self.0.shared()).fetch_add(1, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }

    /// How many have entered so far, wrapping. Some who enter at the same time may be missing.
    pub fn entered(&self) -> u64 {
        // Relaxed: nothing is concluded from it.
        self.0.iter().fold(0, |sum, slot| sum.wrapping_add(slot.entered.load(Ordering::Relaxed)))
    }

    /// How many are inside: no fewer than there were at some moment of this call. `None` if the system has no memory for the
    /// barrier.
    pub fn count(&self) -> Option<u64> {
        if !heavy() {
            return None;
        }
        let sum = |count: fn(&Slot) -> &AtomicU64| {
            self.0.iter().fold(0_u64, |sum, slot| sum.wrapping_add(seen(count(slot))))
        };
        // In this order.
        let left = sum(|slot| &slot.left);
        Some(sum(|slot| &slot.entered).wrapping_sub(left))
    }
}

impl Default for Holders {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn who_leaves_on_another_thread_is_gone() {
        let holders = &Holders::new();
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| (0..10).for_each(|_| holders.enter()));
            }
        });
        assert_eq!(holders.count(), Some(1000));
        (0..1000).for_each(|_| holders.leave());
        assert_eq!(holders.count(), Some(0));
    }

    #[test]
    fn who_comes_sees_the_flag_or_is_counted() {
        for _ in 0..2000 {
            let (holders, shut) = (&Holders::new(), &AtomicBool::new(false));
            let (saw, counted) = std::thread::scope(|scope| {
                let comer = scope.spawn(|| {
                    holders.enter();
                    shut.load(Ordering::Relaxed)
                });
                shut.store(true, Ordering::Relaxed);
                let counted = holders.count().unwrap();
                (comer.join().unwrap(), counted)
            });
            assert!(saw || counted == 1);
        }
    }
}
