//! How many of a kind are left, where many threads take some and give them back: free blocks, say.
//!
//! A thread takes from a pool on a line of its own, which is filled from what is shared a lot at a time. So taking a few, and
//! giving back what was not needed, costs one locked instruction on a line that nobody else uses as long as there is plenty.
//!
//! # Why an answer is exact
//! While there is little, what lies in the pools of others counts, and so does that some of it is kept for a few. Then the
//! pools are closed, and everything is decided on the shared count, under its lock:
//!
//! 1. The shared count, and whether the pools are open, change under the lock only.
//! 2. While the pools are open, more is shared than is kept. Who would take the shared count below that mark closes them first.
//!    So who takes from a pool never takes what is kept, and need not ask.
//! 3. To close a pool is to swap its count for `CLOSED`; what was in it is shared from then on. A pool changes by single
//!    atomic operations on its word, so each addition to it came before, and was found, or finds the pool closed, and goes to the
//!    shared count. Nothing is lost or counted twice.
//! 4. Taking fails only when all pools are closed. What is not in the shared count then is in the hands of threads.
//!
//! # Orderings
//! Everything in a pool's word is in the word, so its operations are relaxed. The rest is under the lock.

use crate::primitive::{AtomicU64, Mutex, MutexGuard, Ordering::Relaxed, capacity};
use crate::thread_slots::ThreadSlots;

/// In place of the count of a pool that nothing can be put into.
const CLOSED: u64 = u64::MAX;

/// What a thread takes from the shared count for its pool at a time. A pool holds twice as much at most.
const LOT: u64 = capacity(256, 2);
/// Pools are closed where less would stay shared beyond what is kept, and opened again at twice that. In models they open
/// and close all the time.
const PLENTY: u64 = capacity(16 * LOT, 1);

/// How many are left.
#[derive(Debug)]
pub struct Supply {
    /// One for each thread, and the shared slot for threads that have none.
    pools: ThreadSlots<Pool>,
    shared: Mutex<Shared>,
    /// The most that a caller must leave.
    kept: u64,
}

/// A count, or `CLOSED`.
#[derive(Debug)]
struct Pool(AtomicU64);

impl Default for Pool {
    /// Closed, since a thread may come when all are.
    fn default() -> Self {
        Self(AtomicU64::new(CLOSED))
    }
}

#[derive(Debug)]
struct Shared {
    left: u64,
    /// Whether there is plenty, and threads have pools.
    is_open: bool,
}

impl Supply {
    /// Creates a supply of `left`, of which the last `kept` are not for all callers.
    pub fn new(left: u64, kept: u64) -> Self {
        let shared = Mutex::new(Shared { left: 0, is_open: false });
        let supply = Self { pools: ThreadSlots::new(), shared, kept };
        supply.share(left);
        supply
    }

    /// Takes `count`, if as many stay as the caller must leave: `must_leave` returns `kept` or
    /// less.
    #[inline]
    pub fn take(&self, count: u64, must_leave: impl FnOnce() -> u64) -> bool {
        let less = |pool: u64| if pool == CLOSED { None } else { pool.checked_sub(count) };
        self.own().fetch_update(Relaxed, Relaxed, less).is_ok() || self.take_shared(count, must_leave)
    }

    /// Gives back `count`, or adds them.
    #[inline]
    pub fn give(&self, count: u64) {
        let more = |pool: u64| pool.checked_add(count).filter(|&pool| pool <= 2 * LOT);
        if self.own().fetch_update(Relaxed, Relaxed, more).is_err() {
            self.share(count);
        }
    }

    /// How many are left, but for those that change hands at this moment.
    pub fn left(&self) -> u64 {
        let shared = self.lock();
        let in_pools = self.pools.iter().map(|pool| pool.0.load(Relaxed)).filter(|&pool| pool != CLOSED);
        shared.left + in_pools.sum::<u64>()
    }

    /// Whether `count` could be taken if there were `more`.
    pub fn would_do(&self, more: u64, count: u64, must_leave: impl FnOnce() -> u64) -> bool {
        self.is_enough(self.left().saturating_add(more), count, must_leave)
    }

    fn is_enough(&self, left: u64, count: u64, must_leave: impl FnOnce() -> u64) -> bool {
        left.checked_sub(count).is_some_and(|rest| rest >= self.kept || rest >= must_leave())
    }

    #[inline(always)]
    fn own(&self) -> &AtomicU64 {
        &self.pools.own().unwrap_or(self.pools.shared()).0
    }

    #[cold]
    fn take_shared(&self, count: u64, must_leave: impl FnOnce() -> u64) -> bool {
        let shared = &mut *self.lock();
        if shared.is_open {
            // Not for who takes more than a pool is for.
            let lot = if count < LOT { LOT } else { 0 };
            let rest = shared.left.checked_sub(count + lot);
            if let Some(rest) = rest.filter(|&rest| rest >= self.kept.saturating_add(PLENTY)) {
                shared.left = rest;
                self.open_own();
                self.own().fetch_add(lot, Relaxed);
                return true;
            }
            self.close(shared);
        }
        let enough = self.is_enough(shared.left, count, must_leave);
        if enough {
            shared.left -= count;
        }
        self.open_if_plenty(shared);
        enough
    }

    #[cold]
    fn share(&self, count: u64) {
        let shared = &mut *self.lock();
        shared.left += count;
        self.open_if_plenty(shared);
        if shared.is_open {
            self.open_own();
        }
    }

    /// Opens the thread's pool, which is closed while pools are open only if it is new. Locks: `shared`.
    fn open_own(&self) {
        let _ = self.own().compare_exchange(CLOSED, 0, Relaxed, Relaxed);
    }

    fn close(&self, shared: &mut Shared) {
        shared.is_open = false;
        for pool in self.pools.iter().filter(|pool| pool.0.load(Relaxed) != CLOSED) {
            shared.left += pool.0.swap(CLOSED, Relaxed);
        }
    }

    fn open_if_plenty(&self, shared: &mut Shared) {
        if !shared.is_open && shared.left >= self.kept.saturating_add(2 * PLENTY) {
            shared.is_open = true;
            self.pools.iter().for_each(|pool| pool.0.store(0, Relaxed));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("nothing panics under it")
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn all_can_be_taken_though_others_have_pools() {
        const LEFT: u64 = 10 * PLENTY;
        let supply = &Supply::new(LEFT, 0);
        let touch = || {
            assert!(supply.take(1, || 0));
            supply.give(1);
        };
        std::thread::scope(|scope| (0..8).for_each(|_| _ = scope.spawn(touch)));
        assert_eq!(supply.left(), LEFT);
        assert!(!supply.take(LEFT + 1, || 0));
        assert!(supply.take(LEFT, || 0) && !supply.take(1, || 0));
        supply.give(3);
        assert!(supply.take(1, || 0) && supply.take(2, || 0) && !supply.take(1, || 0));
    }

    #[test]
    fn what_is_kept_is_for_some() {
        const ALL: u64 = 3 * PLENTY;
        let supply = Supply::new(ALL, 100);
        assert!(supply.take(1, || 100), "from a pool");
        assert!(!supply.take(ALL - 100, || 100) && supply.take(ALL - 101, || 100));
        assert!(!supply.take(1, || 100) && supply.take(1, || 10));
        // Blocks that come back are kept first of all.
        supply.give(1);
        assert!(!supply.take(1, || 100));
        supply.give(1);
        assert!(supply.take(1, || 100) && !supply.take(1, || 100));
        assert!(!supply.take(91, || 10) && supply.take(90, || 10) && !supply.take(1, || 10));
        assert!(supply.take(10, || 0) && !supply.take(1, || 0));
    }

    #[test]
    fn a_pool_is_small() {
        let supply = Supply::new(100 * PLENTY, 0);
        for _ in 0..10 * LOT {
            supply.give(1);
            assert!(supply.own().load(Relaxed) <= 2 * LOT);
        }
        for _ in 0..100 * LOT {
            assert!(supply.take(1, || 0));
            assert!(supply.own().load(Relaxed) <= 2 * LOT);
        }
        assert_eq!(supply.left(), 100 * PLENTY - 90 * LOT);
    }

    #[test]
    fn nothing_is_lost_where_there_is_little() {
        let supply = &Supply::new(2 * PLENTY + 7, 0);
        let work = || {
            let mut held = 0;
            for round in 0..20_000 {
                let count = 1 + round % 300;
                if supply.take(count, || 0) {
                    held += count;
                } else {
                    supply.give(std::mem::take(&mut held));
                }
            }
            supply.give(held);
        };
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(work)));
        assert_eq!(supply.left(), 2 * PLENTY + 7);
    }
}
