//! Statistics counters that each thread adds to alone, so that counting costs a load and a store.
//!
//! A thread adds to its own slot ([`thread_slots`](crate::thread_slots)), which has one writer at a
//! time. Threads without a slot add to the shared one, with locked additions. No
//! addition is lost. A sum counts each addition that happened before it, and may or may not count
//! concurrent ones.
//!
//! An [`IdAllocator`] makes ids out of such a count and the number of the slot, so no two calls
//! return the same id.
//!
//! The caches of `block`, `vfs` and `ext4` count hits and misses here. The dentry cache takes its
//! ids from an [`IdAllocator`].

use crate::primitive::{AtomicU64, Ordering};
use crate::thread_slots::{LIMIT, ThreadSlots, thread_number};

/// `N` counters with one slot for each thread.
#[derive(Debug)]
pub struct ThreadCounter<const N: usize>(ThreadSlots<Counts<N>>);

#[derive(Debug)]
struct Counts<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> ThreadCounter<N> {
    /// Creates counters at zero.
    pub fn new() -> Self {
        Self(ThreadSlots::new())
    }

    /// Adds to each counter, wrapping.
    #[inline(always)]
    pub fn add(&self, counts: [u64; N]) {
        // Relaxed, all: counts order no other memory.
        if let Some(slot) = self.0.own() {
            for (sum, count) in slot.0.iter().zip(counts) {
                if count > 0 {
                    sum.store(
                        sum.load(Ordering::Relaxed).wrapping_add(count),
                        Ordering::Relaxed,
                    );
                }
            }
        } else {
            for (sum, count) in self.0.shared().0.iter().zip(counts) {
                if count > 0 {
                    sum.fetch_add(count, Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns everything added so far, wrapping.
    pub fn sum(&self) -> [u64; N] {
        self.0.iter().fold([0; N], |sums, slot| {
            std::array::from_fn(|index| {
                sums[index].wrapping_add(slot.0[index].load(Ordering::Relaxed))
            })
        })
    }
}

impl<const N: usize> Default for ThreadCounter<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// An allocator of ids: returns each number once, in no order.
#[derive(Debug, Default)]
pub struct IdAllocator(ThreadSlots<AtomicU64>);

impl IdAllocator {
    /// Creates an allocator.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a number that no other call returns, in the first 2^49 calls of each thread.
    #[inline]
    pub fn take(&self) -> u64 {
        // Relaxed, all: only uniqueness matters. A slot has one writer at a time.
        let (slot, count) = match self.0.own() {
            Some(own) => {
                let count = own.load(Ordering::Relaxed);
                own.store(count + 1, Ordering::Relaxed);
                (thread_number(), count)
            }
            None => (LIMIT, self.0.shared().fetch_add(1, Ordering::Relaxed)),
        };
        count * (LIMIT as u64 + 1) + slot as u64
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_addition_of_any_thread_is_lost() {
        let counter = &ThreadCounter::<2>::new();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(move || (0..1000).for_each(|n| counter.add([1, n & 1])));
                }
            });
        }
        assert_eq!(counter.sum(), [200_000, 100_000]);
    }

    #[test]
    fn no_number_is_returned_twice() {
        const EACH: usize = 5000;
        let ids = &IdAllocator::new();
        let take = || (0..EACH).map(|_| ids.take()).collect::<Vec<_>>();
        let numbers = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..100).map(|_| scope.spawn(take)).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect::<BTreeSet<_>>()
        });
        assert_eq!(numbers.len(), 100 * EACH);
    }
}
