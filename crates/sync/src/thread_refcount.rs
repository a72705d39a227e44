//! Counts of users that enter and exit often: files open for writing, changes in progress, inodes
//! in use.
//!
//! The VFS gates changes by it, `jbd2` its handles, and `thread_arc` is built on it.
//!
//! A user [enters](ThreadRefcount::enter) and [exits](ThreadRefcount::exit) by a plain store to a
//! line of its thread. It may exit on another thread than it entered on. The rare caller of
//! [`count`](ThreadRefcount::count) executes a barrier on every thread of the process
//! ([`membarrier`](crate::membarrier)) and adds up.
//!
//! # The handshake
//! 1. A user enters, then loads a flag.
//! 2. The closing thread sets the flag, then counts.
//!
//! At least one of the two sees the other: the count includes the user, or the user sees the flag.
//! The flag itself may be `Relaxed`: `light_fence` in `enter` pairs with `heavy_fence` in `count`.
//!
//! # Why a count of zero is true
//! Each thread has two counts, of entries and of exits. `count` reads all exits before all entries.
//! If it reads an exit, it also reads the entry of the same user, on whichever thread that was:
//! exits are stored by `Release` and loaded by `Acquire`. This holds for a new segment of slots
//! too, since the segment is published before the entry. So the result is at least the number of
//! users at some moment between the two readings. A result of zero means that there was none at
//! that moment. The result is too high by users that enter, see the flag, and exit.

use crate::primitive::membarrier::{heavy_fence, publish, read_published};
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::thread_slots::ThreadSlots;

/// A count of users.
#[derive(Debug)]
pub struct ThreadRefcount(ThreadSlots<Slot>);

#[derive(Debug)]
struct Slot {
    entered: AtomicU64,
    exited: AtomicU64,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            entered: AtomicU64::new(0),
            exited: AtomicU64::new(0),
        }
    }
}

impl ThreadRefcount {
    /// Creates a count of no users.
    pub fn new() -> Self {
        Self(ThreadSlots::new())
    }

    /// Adds one user. Loads after this see all stores before a [`count`](Self::count) that misses
    /// the user.
    #[inline]
    pub fn enter(&self) {
        self.step(|slot| &slot.entered);
    }

    /// Removes one user, on any thread. Loads after this see all stores before a
    /// [`count`](Self::count) that still includes the user.
    #[inline]
    pub fn exit(&self) {
        self.step(|slot| &slot.exited);
    }

    #[inline(always)]
    fn step(&self, count: impl Fn(&Slot) -> &AtomicU64) {
        if let Some(slot) = self.0.own() {
            let count = count(slot);
            // Relaxed: no other thread stores here. `publish` stores by Release, which pairs with
            // `read_published` in `count`.
            publish(count, count.load(Ordering::Relaxed).wrapping_add(1));
        } else {
            // Release: pairs with `read_published` in `count`. SeqCst: stands for `light_fence`,
            // and pairs with `heavy_fence` in `count`.
            count(self.0.shared()).fetch_add(1, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }

    /// Returns the number of entries so far, wrapping. Concurrent ones may be missing.
    pub fn entered(&self) -> u64 {
        // Relaxed: callers draw no conclusion about other memory from it.
        self.0.iter().fold(0, |sum, slot| {
            sum.wrapping_add(slot.entered.load(Ordering::Relaxed))
        })
    }

    /// Returns the number of users: at least as many as there were at some moment of this call.
    /// `None` if the system has no memory for the barrier.
    pub fn count(&self) -> Option<u64> {
        if !heavy_fence() {
            return None;
        }
        let sum = |count: fn(&Slot) -> &AtomicU64| {
            self.0.iter().fold(0_u64, |sum, slot| {
                sum.wrapping_add(read_published(count(slot)))
            })
        };
        // Exits first: the module docs say why.
        let exited = sum(|slot| &slot.exited);
        Some(sum(|slot| &slot.entered).wrapping_sub(exited))
    }
}

impl Default for ThreadRefcount {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_user_may_exit_on_another_thread() {
        let holders = &ThreadRefcount::new();
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| (0..10).for_each(|_| holders.enter()));
            }
        });
        assert_eq!(holders.count(), Some(1000));
        (0..1000).for_each(|_| holders.exit());
        assert_eq!(holders.count(), Some(0));
    }

    #[test]
    fn a_user_sees_the_flag_or_is_counted() {
        for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
            let holders = &ThreadRefcount::new();
            let shut = &AtomicBool::new(false);
            let (saw, counted) = std::thread::scope(|scope| {
                let user = scope.spawn(|| {
                    holders.enter();
                    shut.load(Ordering::Relaxed)
                });
                shut.store(true, Ordering::Relaxed);
                let counted = holders.count().unwrap();
                (user.join().unwrap(), counted)
            });
            assert!(saw || counted == 1);
        }
    }
}
