//! A slab of entries of `WORDS` words, which are linked into doubly linked lists by their numbers.
//!
//! The baseline and the patch keep their entries in one, so neither allocates while it is measured.
//! The caller holds the lock of a list while it links and unlinks.

use std::sync::PoisonError;

use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, Latch, LatchGuard, Ordering};
use extern4_sync::thread_slots::thread_number;

/// Stripes of free entries. Threads that take and give entries do not conflict, as with an
/// allocator.
const STRIPES: usize = 64;

/// A slab of entries, each of which is free or in use. There is none with the number 0.
pub(super) struct Slab<const WORDS: usize> {
    entries: Box<[[AtomicU64; WORDS]]>,
    free: [Padded<Latch<Vec<u32>>>; STRIPES],
}

/// A list: the numbers of its first and its last entry, or 0. The thread that has exclusive access
/// to it may change the links of its entries.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) first: u32,
    last: u32,
}

/// Lists under locks, found by hash.
pub(super) struct Chains(Box<[Latch<Ends>]>);

impl Chains {
    pub(super) fn new(len: usize) -> Self {
        Self((0..len).map(|_| Latch::new(Ends::default())).collect())
    }

    /// Returns the bytes of the heads.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    pub(super) fn lock(&self, hash: u64) -> LatchGuard<'_, Ends> {
        // Multiply, so that consecutive numbers do not land in consecutive chains.
        let place = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        lock(&self.0[place as usize % self.0.len()])
    }
}

/// Locks data that stay consistent after a panic.
pub(super) fn lock<T>(latch: &Latch<T>) -> LatchGuard<'_, T> {
    latch.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<const WORDS: usize> Slab<WORDS> {
    pub(super) fn new(len: usize) -> Self {
        let entry = |_| [const { AtomicU64::new(0) }; WORDS];
        let numbers = |stripe| (1 + stripe as u32..=len as u32).step_by(STRIPES).collect();
        Self {
            entries: (0..=len).map(entry).collect(),
            free: std::array::from_fn(|stripe| Padded(Latch::new(numbers(stripe)))),
        }
    }

    /// Takes a free entry, if there is one.
    pub(super) fn take(&self) -> Option<u32> {
        let own = thread_number() % STRIPES;
        (0..STRIPES).find_map(|step| lock(&self.free[(own + step) % STRIPES]).pop())
    }

    pub(super) fn give(&self, entry: u32) {
        lock(&self.free[thread_number() % STRIPES]).push(entry);
    }

    #[inline]
    pub(super) fn word(&self, entry: u32, word: usize) -> &AtomicU64 {
        &self.entries[entry as usize][word]
    }

    // Relaxed, here and below: locks order the accesses to the data that they protect.
    pub(super) fn get(&self, entry: u32, word: usize) -> u64 {
        self.word(entry, word).load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, entry: u32, word: usize, to: u64) {
        self.word(entry, word).store(to, Ordering::Relaxed);
    }

    /// Returns the entry after this one, by the links in the words from `link` on.
    pub(super) fn next(&self, entry: u32, link: usize) -> u32 {
        self.get(entry, link) as u32
    }

    fn previous(&self, entry: u32, link: usize) -> u32 {
        self.get(entry, link + 1) as u32
    }

    pub(super) fn push_back(&self, list: &mut Ends, entry: u32, link: usize) {
        let last = std::mem::replace(&mut list.last, entry);
        self.set(entry, link, 0);
        self.set(entry, link + 1, last.into());
        if last == 0 {
            list.first = entry
        } else {
            self.set(last, link, entry.into())
        }
    }

    pub(super) fn unlink(&self, list: &mut Ends, entry: u32, link: usize) {
        let next = self.next(entry, link);
        let previous = self.previous(entry, link);
        if previous == 0 {
            list.first = next
        } else {
            self.set(previous, link, next.into())
        }
        if next == 0 {
            list.last = previous
        } else {
            self.set(next, link + 1, previous.into())
        }
    }

    /// Returns the first entry from `from` on that `wanted` accepts.
    pub(super) fn find(&self, from: u32, link: usize, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let next = |entry: &u32| Some(self.next(*entry, link));
        std::iter::successors(Some(from), next)
            .take_while(|entry| *entry != 0)
            .find(|entry| wanted(*entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_the_order_of_its_entries() {
        let slab = Slab::<3>::new(10);
        let mut list = Ends::default();
        let entries: Vec<_> = (0..5).map(|_| slab.take().unwrap()).collect();
        let all = |list: &Ends| {
            let listed = std::cell::RefCell::new(Vec::new());
            slab.find(list.first, 1, |entry| {
                listed.borrow_mut().push(entry);
                false
            });
            listed.into_inner()
        };
        entries
            .iter()
            .for_each(|entry| slab.push_back(&mut list, *entry, 1));
        assert_eq!(all(&list), entries);
        for (taken, left) in [(0, vec![1, 2, 3, 4]), (4, vec![1, 2, 3]), (2, vec![1, 3])] {
            slab.unlink(&mut list, entries[taken], 1);
            assert_eq!(
                all(&list),
                left.iter().map(|n| entries[*n]).collect::<Vec<_>>()
            );
        }
        slab.push_back(&mut list, entries[0], 1);
        assert_eq!(all(&list), [entries[1], entries[3], entries[0]]);
    }

    #[test]
    fn free_entries_are_found_wherever_they_were_freed() {
        let slab = Slab::<1>::new(5);
        let mut all: Vec<_> = std::iter::from_fn(|| slab.take()).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4, 5]);
        std::thread::scope(|scope| drop(scope.spawn(|| slab.give(3))));
        assert_eq!((slab.take(), slab.take()), (Some(3), None));
    }
}
