//! The lglock of Linux 2.6.35: a value for each CPU, each under its own lock.
//!
//! The patch's registry of open files uses it (`lists`).
//!
//! | lock | held | for |
//! | --- | --- | --- |
//! | [local](LgLock::local) | that of this thread's CPU | adding an item to that CPU's value |
//! | [named](LgLock::named) | that of a given CPU | returning to an item there, from any CPU |
//! | [global](LgLock::global) | all of them | seeing all values at one moment |
//!
//! Each value is protected by its own lock and by nothing else. The global lock takes all locks in
//! the order of the CPUs, including offline CPUs. A thread that has one lock takes no
//! other, so there is no deadlock. A thread may move to another CPU while it has a local lock. Then
//! that lock is merely less local.

use std::sync::PoisonError;

use extern4_sync::percpu::{Padded, cpu, possible_cpus};
use extern4_sync::primitive::{Mutex, MutexGuard};

/// A `T` for each CPU, each under its lock.
pub(super) struct LgLock<T>(Box<[Padded<Mutex<T>>]>);

impl<T: Default> LgLock<T> {
    /// Creates a default value for each CPU.
    pub(super) fn new() -> Self {
        Self((0..possible_cpus()).map(|_| Padded::default()).collect())
    }
}

impl<T> LgLock<T> {
    /// Locks the value of the CPU that this thread runs on. Returns its number for
    /// [`named`](Self::named).
    pub(super) fn local(&self) -> (usize, MutexGuard<'_, T>) {
        let index = cpu() % self.0.len();
        (index, self.named(index))
    }

    /// Locks the value of the number that [`local`](Self::local) gave.
    ///
    /// # Panics
    /// The number is out of range: [`local`](Self::local) never returned it.
    pub(super) fn named(&self, index: usize) -> MutexGuard<'_, T> {
        self.0[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks all values, in order.
    pub(super) fn global(&self) -> Vec<MutexGuard<'_, T>> {
        (0..self.0.len()).map(|index| self.named(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_added_and_removed_on_any_cpu_and_listed_at_one_moment() {
        let lists = &LgLock::<Vec<u64>>::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for n in 0..2000 {
                        // Two halves of one item, perhaps in two lists: no global lock sees one
                        // half alone.
                        let index = {
                            let (index, mut list) = lists.local();
                            list.push(thread * 10_000 + n);
                            index
                        };
                        let mut list = lists.named(index);
                        let at = list
                            .iter()
                            .position(|&value| value == thread * 10_000 + n)
                            .unwrap();
                        list.swap_remove(at);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..200 {
                    let all = lists.global();
                    // Each thread has at most one item in the lists.
                    assert!(all.iter().map(|list| list.len()).sum::<usize>() <= 4);
                }
            });
        });
        assert!(lists.global().iter().all(|list| list.is_empty()));
    }
}
