//! A map from numbers to counted values: the [RCU hash map](crate::rcu_hash_map) with an
//! [`AtomicRcuArc`] in each entry. The buffer cache is this map plus I/O.
//!
//! # Rules
//! 1. A key has at most one entry. A thread adds, evicts or removes one only under its bucket's
//!    lock.
//! 2. While no thread holds the lock of a bucket, each of its entries holds a value. So does each
//!    entry that a thread finds after it has locked the bucket.
//! 3. A thread that evicts an entry empties it first, and refills it if the value is in use. A
//!    lookup that finds an empty entry waits for the bucket's lock and looks again. So a lookup
//!    always finds a value that is in use, unless a thread has removed that one by name.
//! 4. A reference keeps its value in the map until the last one is dropped, or
//!    [`RcuArcMap::remove`] takes the value out.
//!
//! The orderings are those of the two modules: this one has no atomics of its own. The cache of
//! `block` is its one user.

use std::fmt;

use crate::rcu::{Guard, pin};
use crate::rcu_arc::{AtomicRcuArc, RcuArc, RcuRef, Release};
use crate::rcu_hash_map::{RcuHashMap, Unlinked};

/// A hash map from `u64` to counted values, whose lookups take no lock.
pub struct RcuArcMap<T: Release> {
    entries: RcuHashMap<AtomicRcuArc<T>>,
    /// Random and odd, so that an attacker cannot choose keys that fall into one bucket.
    multiplier: u64,
}

impl<T: Release> RcuArcMap<T> {
    /// Creates an empty map.
    #[expect(clippy::new_without_default, reason = "it is random")]
    pub fn new() -> Self {
        Self { entries: RcuHashMap::new(), multiplier: random() | 1 }
    }

    /// Returns the value of `key`.
    #[inline]
    pub fn get<'g>(&'g self, key: u64, guard: &'g Guard) -> Option<RcuRef<'g, T>> {
        let hash = self.hash(key);
        // `hash` is a bijection, so only one key has this hash.
        let entry = self.entries.find(hash, guard, |_| true)?.value();
        entry.load(guard).or_else(|| self.get_settled(hash, guard))
    }

    /// Returns the value once no other thread evicts or removes it (rule 3).
    #[cold]
    fn get_settled<'g>(&'g self, hash: u64, guard: &'g Guard) -> Option<RcuRef<'g, T>> {
        self.entries.lock(hash, guard).find(hash, |_| true)?.value().load(guard)
    }

    /// Returns a reference to the value of `key`, and whether this call inserted it. `value` is
    /// inserted if the key has none. Memory is allocated before the bucket is locked: callers try
    /// [`get`](Self::get) first and expect to miss.
    ///
    /// Locks: the bucket's, within.
    pub fn find_or_insert(&self, key: u64, value: T) -> (RcuArc<T>, bool) {
        let (hash, value) = (self.hash(key), RcuArc::new(value));
        let new = Unlinked::new(hash, AtomicRcuArc::new(Some(value.clone())));
        let guard = pin();
        let mut bucket = self.entries.lock(hash, &guard);
        match bucket.find(hash, |_| true).and_then(|found| found.value().load(&guard)?.try_upgrade()) {
            Some(found) => (found, false),
            None => {
                bucket.insert(new);
                (value, true)
            }
        }
    }

    /// Removes a value from the map, even if it is in use. Lookups do not find it any more, and
    /// another one can take its place. Returns false if it had been removed already.
    ///
    /// Locks: the bucket's, within.
    pub fn remove(&self, key: u64, value: &RcuArc<T>) -> bool {
        let (hash, guard) = (self.hash(key), pin());
        let mut bucket = self.entries.lock(hash, &guard);
        let is_it =
            |entry: &AtomicRcuArc<T>| entry.load(&guard).is_some_and(|seen| seen.ptr_eq(value.as_rcu_ref()));
        let Some(found) = bucket.find(hash, is_it) else { return false };
        bucket.remove(found);
        // The value does not end here, since the caller has a reference.
        found.value().take();
        true
    }

    /// Evicts up to `want` values that have no other reference, by the rules of
    /// [eviction](crate::rcu_hash_map#eviction). Returns how many it evicted.
    ///
    /// Locks: a stripe of buckets at a time, within.
    pub fn evict(&self, want: usize) -> usize {
        self.entries.evict(want, |entry| entry.take_if_last().is_some())
    }

    /// Returns the number of values: out of date at once.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the map is empty: out of date at once.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    fn hash(&self, key: u64) -> u64 {
        // Multiply-shift hashing: universal for random odd multipliers, and a bijection.
        key.wrapping_mul(self.multiplier)
    }
}

impl<T: Release> fmt::Debug for RcuArcMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuArcMap").finish_non_exhaustive()
    }
}

#[cfg(not(feature = "loom"))]
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// Returns a constant: a model must take the same steps in each run.
#[cfg(feature = "loom")]
fn random() -> u64 {
    0x9e37_79b9_7f4a_7c15
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A value that keeps its contents until its memory is freed.
    #[derive(Debug, PartialEq, Eq)]
    struct Value<V>(V);

    impl<V: Send + Sync + 'static> Release for Value<V> {}

    #[test]
    fn inserted_values_are_found() {
        let table = RcuArcMap::new();
        for key in 0..100 {
            let (held, new) = table.find_or_insert(key, Value(key * 10));
            assert!(new && held.0 == key * 10);
        }
        let (held, new) = table.find_or_insert(7, Value(0));
        assert!(!new && held.0 == 70);
        let guard = pin();
        assert!((0..100).all(|key| table.get(key, &guard).unwrap().0 == key * 10));
        assert!(table.get(100, &guard).is_none());
    }

    #[test]
    fn eviction_leaves_values_that_are_held() {
        let table = RcuArcMap::new();
        let held = table.find_or_insert(1, Value(())).0;
        for key in 2..=1000 {
            table.find_or_insert(key, Value(()));
        }
        while table.evict(100) > 0 {}
        let guard = pin();
        assert!(table.get(1, &guard).unwrap().try_upgrade().unwrap().ptr_eq(&held));
        drop(held);
        while !table.is_empty() {
            table.evict(100);
        }
        assert!(table.get(1, &guard).is_none());
    }

    #[test]
    fn a_removed_entry_is_replaced_and_stays_readable() {
        let table = RcuArcMap::new();
        let old = table.find_or_insert(5, Value("old")).0;
        let guard = pin();
        let seen = table.get(5, &guard).unwrap();
        assert!(table.remove(5, &old) && !table.remove(5, &old));
        assert!(table.get(5, &guard).is_none());
        let (new, made) = table.find_or_insert(5, Value("new"));
        assert!(made && !table.remove(5, &old));
        drop(old);
        assert!(seen.try_upgrade().is_none());
        assert_eq!((seen.0, new.0), ("old", "new"));
    }

    #[test]
    fn references_outlive_the_map_and_all_memory_is_freed() {
        let alive = Arc::new(());
        let table = RcuArcMap::new();
        let held = table.find_or_insert(1, Value(alive.clone())).0;
        for key in 2..20 {
            table.find_or_insert(key, Value(alive.clone()));
        }
        while table.evict(5) > 0 {}
        drop(table);
        assert!(Arc::ptr_eq(&held.0, &alive));
        drop(held);
        // Read sections of other tests delay the epochs, and may last on a busy machine.
        let freed = (0..30_000).any(|_| {
            pin().flush();
            std::thread::sleep(std::time::Duration::from_millis(1));
            Arc::strong_count(&alive) == 1
        });
        assert!(freed, "{} values left", Arc::strong_count(&alive));
    }

    #[test]
    fn threads_never_hold_two_entries_of_a_key() {
        let table = &RcuArcMap::new();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for i in 0..20_000u64 {
                        let key = (i * 7 + thread * 3) % 16;
                        let first = table.find_or_insert(key, Value((thread, i))).0;
                        let guard = pin();
                        let again = table.get(key, &guard).expect("held, so in the table");
                        assert_eq!(again.get(), &*first);
                        assert!(again.try_upgrade().unwrap().ptr_eq(&first));
                        drop(guard);
                        drop(first);
                        table.evict(2);
                    }
                });
            }
        });
    }
}
