//! Tests of the hash map on real threads: what it finds, what it evicts, and how it grows.

use super::*;
use crate::primitive::AtomicBool;
use crate::rcu_arc::First;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// A value that keeps its contents until its memory is freed.
#[derive(Debug, PartialEq, Eq)]
struct Value<V>(V);

impl<V: Send + Sync + 'static> Release for Value<V> {
    type Link = First;
}

/// A map of values that are hashed.
struct Hashed<V: Send + Sync + 'static> {
    map: RcuHashMap<Value<V>>,
    hasher: RandomState,
}

impl<V: Send + Sync + PartialEq + std::hash::Hash + Copy + 'static> Hashed<V> {
    fn new() -> Self {
        Self {
            map: RcuHashMap::new(),
            hasher: RandomState::new(),
        }
    }

    fn has(&self, value: V) -> bool {
        self.map
            .find(self.hasher.hash_one(value), &pin(), |entry| {
                entry.0 == value
            })
            .is_some()
    }

    /// Returns a reference to the value, which is inserted if the map does not have it.
    fn get(&self, value: V) -> RcuArc<Value<V>> {
        let hash = self.hasher.hash_one(value);
        let guard = pin();
        let mut bucket = self.map.lock(hash, &guard);
        let found = bucket.find(hash, |entry| entry.0 == value);
        found.and_then(RcuRef::try_upgrade).unwrap_or_else(|| {
            let new = self.map.alloc(Value(value));
            bucket.insert(hash, new.clone());
            new
        })
    }

    fn move_to(&self, value: &RcuArc<Value<V>>, from: u64, to: u64) -> bool {
        let guard = pin();
        let taken = self.map.lock(from, &guard).remove(value.as_rcu_ref());
        taken
            .map(|value| self.map.lock(to, &guard).insert(to, value))
            .is_some()
    }

    fn remove(&self, value: &RcuArc<Value<V>>) -> bool {
        let hash = self.hasher.hash_one(value.0);
        self.map
            .lock(hash, &pin())
            .remove(value.as_rcu_ref())
            .is_some()
    }
}

#[test]
fn finds_replaces_and_removes() {
    let map = RcuHashMap::new();
    let hasher = RandomState::new();
    let guard = pin();
    for key in 0..500u32 {
        let hash = hasher.hash_one(key);
        map.lock(hash, &guard)
            .insert(hash, map.alloc(Value((key, 0))));
    }
    let find = |key: u32| map.find(hasher.hash_one(key), &guard, |entry| entry.0.0 == key);
    assert!((0..500).all(|key| find(key).is_some_and(|found| found.0 == (key, 0))));
    assert!(find(500).is_none() && map.len() == 500);

    let old = find(7).unwrap();
    let hash = hasher.hash_one(7u32);
    let mut bucket = map.lock(hash, &guard);
    let replaced = bucket
        .replace(hash, map.alloc(Value((7, 1))), |entry| entry.0.0 == 7)
        .unwrap();
    assert!(bucket.remove(old).is_none());
    drop(bucket);
    assert!(old.ptr_eq(replaced.as_rcu_ref()) && replaced.0 == (7, 0));
    drop(replaced);
    assert!(old.try_upgrade().is_none());
    assert_eq!((find(7).unwrap().0, map.len()), ((7, 1), 500));
}

#[test]
fn a_value_is_found_under_its_new_hash_only() {
    let map = Hashed::new();
    (0..1000).for_each(|number| drop(map.get(number)));
    let value = map.get(7);
    let mut old = map.hasher.hash_one(7);
    for hash in [u64::MAX, 1, 2, 1 << 63, map.hasher.hash_one(8)] {
        assert!(map.move_to(&value, old, hash));
        let guard = pin();
        let find = |hash| map.map.find(hash, &guard, |entry| entry.0 == 7);
        assert!(find(hash).is_some() && find(old).is_none() && map.map.len() == 1000);
        old = hash;
    }
    assert!(map.has(8));
}

#[test]
#[should_panic = "in one map"]
fn a_value_in_a_map_is_not_inserted_again() {
    let map = Hashed::new();
    let value = map.get(1);
    map.map.lock(0, &pin()).insert(0, value);
}

#[test]
fn eviction_leaves_values_that_are_held() {
    let map = Hashed::new();
    let held = map.get(1);
    (2..=1000).for_each(|number| drop(map.get(number)));
    while !map.map.evict(100, |_| ()).is_empty() {}
    assert!(map.has(1) && map.get(1).ptr_eq(&held));
    assert_eq!((map.map.evict_all(|_| ()).len(), map.map.len()), (0, 1));
    drop(held);
    while !map.map.is_empty() {
        map.map.evict(100, |_| ());
    }
    assert!(!map.has(1));
}

#[test]
fn a_removed_value_is_replaced_and_stays_readable() {
    let map = Hashed::new();
    let old = map.get(5);
    let guard = pin();
    let seen = map
        .map
        .find(map.hasher.hash_one(5), &guard, |_| true)
        .unwrap();
    assert!(map.remove(&old) && !map.remove(&old) && !map.has(5));
    let new = map.get(5);
    assert!(!map.remove(&old));
    drop(old);
    assert!(seen.try_upgrade().is_none());
    assert_eq!((seen.0, new.0), (5, 5));
}

#[test]
fn references_outlive_the_map_and_all_memory_is_freed() {
    let alive = Arc::new(());
    let map = RcuHashMap::new();
    let insert = |hash: u64| {
        let new = map.alloc(Value(alive.clone()));
        map.lock(hash, &pin()).insert(hash, new.clone());
        new
    };
    let held = insert(1);
    (2..20).for_each(|hash| drop(insert(hash)));
    map.evict(5, |_| ());
    drop(map);
    assert!(Arc::ptr_eq(&held.0, &alive));
    drop(held);
    assert!(
        crate::rcu::tests::freed(&alive),
        "{} values left",
        Arc::strong_count(&alive)
    );
}

#[test]
fn threads_never_hold_two_values_of_a_key() {
    let map = &Hashed::new();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for i in 0..20_000u64 {
                    let key = (i * 7 + thread * 3) % 16;
                    let first = map.get(key);
                    let again = map.get(key);
                    assert!(again.ptr_eq(&first) && map.has(key));
                    drop((first, again));
                    map.map.evict(2, |_| ());
                }
            });
        }
    });
}

/// A cache of numbers that counts how many it finds.
struct Numbers {
    map: Hashed<u64>,
    limit: usize,
    entries: usize,
}

impl Numbers {
    fn new(limit: usize) -> Self {
        Self {
            map: Hashed::new(),
            limit,
            entries: 0,
        }
    }

    /// Asks for each number and inserts it where it is not found. Returns the part found.
    fn pass(&mut self, numbers: std::ops::Range<u64>) -> f64 {
        let total = numbers.end - numbers.start;
        let found = numbers.filter(|&number| self.get(number)).count();
        found as f64 / total as f64
    }

    fn get(&mut self, number: u64) -> bool {
        if self.map.has(number) {
            return true;
        }
        drop(self.map.get(number));
        self.entries += 1;
        if self.entries > self.limit {
            self.entries -= self
                .map
                .map
                .evict(2.min(self.entries - self.limit), |_| ())
                .len();
        }
        false
    }
}

/// Scans larger than the cache find most of what fits, in the second pass already.
#[test]
fn a_cyclic_scan_finds_what_fits() {
    const LIMIT: u64 = 10_000;
    for size in [LIMIT * 5 / 4, LIMIT * 3 / 2, LIMIT * 2, LIMIT * 5 / 2] {
        let mut numbers = Numbers::new(LIMIT as usize);
        assert_eq!(numbers.pass(0..size), 0.0);
        let best = LIMIT as f64 / size as f64;
        for pass in 2..6 {
            let found = numbers.pass(0..size);
            assert!(found > 0.7 * best, "{size}: pass {pass}: {found} of {best}");
        }
        assert!(numbers.map.map.len() <= LIMIT as usize * 21 / 20);
    }
}

/// After a change of use, the cache forgets what is not used any more.
#[test]
fn a_new_use_takes_the_cache_over() {
    const LIMIT: u64 = 10_000;
    let mut numbers = Numbers::new(LIMIT as usize);
    (0..5).for_each(|_| _ = numbers.pass(0..LIMIT * 3 / 2));
    let new = 1 << 40..(1 << 40) + LIMIT * 3 / 4;
    let passes = (1..20).find(|_| numbers.pass(new.clone()) > 0.99);
    assert!(passes.is_some_and(|passes| passes <= 6), "{passes:?}");
}

/// Entries in frequent use stay, while a scan goes through the cache.
#[test]
fn a_scan_leaves_what_is_in_use() {
    const LIMIT: u64 = 10_000;
    let mut numbers = Numbers::new(LIMIT as usize);
    let used = 1 << 40..(1 << 40) + LIMIT / 2;
    (0..3).for_each(|_| _ = numbers.pass(used.clone()));
    for part in 0..40 {
        numbers.pass(part * LIMIT / 4..(part + 1) * LIMIT / 4);
        let found = numbers.pass(used.clone());
        assert!(found > 0.85, "{part}: {found}");
    }
}

#[test]
fn an_eviction_looks_at_few_values_where_all_are_in_use() {
    let map = Hashed::new();
    let mut held: Vec<_> = (0..50_000u64).map(|number| map.get(number)).collect();
    assert!(map.map.evict(2, |_| ()).is_empty());
    // A window is in one stripe or in two.
    assert!(map.map.hand.load(Ordering::Relaxed) <= 8);
    held.truncate(10);
    let mut left = 0;
    assert_eq!(
        (map.map.evict_all(|_| left += 1).len(), map.map.len()),
        (49_990, 10)
    );
    drop(held);
    // The few that are left are found in many empty buckets.
    assert_eq!(
        (0..1000)
            .map(|_| map.map.evict(1, |_| left += 1).len())
            .sum::<usize>(),
        10
    );
    assert_eq!(left, 50_000);
}

/// Readers find a value that is there, also while its stripe moves.
#[test]
fn values_are_found_while_the_map_grows() {
    let (rounds, values) = if cfg!(miri) { (1, 3000) } else { (10, 200_000) };
    for _ in 0..rounds {
        let map = &Hashed::new();
        (0..1000u64).for_each(|number| drop(map.get(number)));
        let done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                (1000..values).for_each(|number| drop(map.get(number)));
                done.store(true, Ordering::Release);
            });
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    assert!((0..1000).all(|number| map.has(number)));
                }
            });
        });
        assert_eq!(map.map.len(), 200_000);
    }
}

/// Readers find a value that is there, while others of its bucket move to other buckets and back.
#[test]
fn values_are_found_while_others_are_moved() {
    let map = &Hashed::new();
    let moved: Vec<_> = (0..20_000u64).map(|number| map.get(number)).collect();
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for value in moved.iter().cycle().take(200_000) {
                // The bucket of a value that stays, and back.
                let own = value.0;
                let next = 20_000 + value.0 % 1000;
                let [own, next] = [own, next].map(|number| map.hasher.hash_one(number));
                assert!(map.move_to(value, own, next) && map.move_to(value, next, own));
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(move || {
            (20_000..21_000).for_each(|number| drop(map.get(number)));
            while !done.load(Ordering::Acquire) {
                (20_000..21_000).for_each(|number| assert!(map.has(number), "{number}"));
            }
        });
    });
    assert_eq!(map.map.len(), 21_000);
}

#[test]
fn a_key_that_is_replaced_is_always_found() {
    let map = &RcuHashMap::new();
    map.lock(9, &pin()).insert(9, map.alloc(Value(0u32)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for next in 1..50_000 {
                map.lock(9, &pin())
                    .replace(9, map.alloc(Value(next)), |_| true)
                    .unwrap();
            }
        });
        scope.spawn(|| {
            let mut last = 0;
            while last < 49_999 {
                let now = map
                    .find(9, &pin(), |_| true)
                    .expect("there is always one")
                    .0;
                assert!(now >= last);
                last = now;
            }
        });
    });
    assert_eq!(map.len(), 1);
}

#[test]
#[should_panic(expected = "its own map")]
fn a_value_of_another_map_is_refused() {
    let map = RcuHashMap::new();
    let other = RcuHashMap::new();
    map.lock(5, &pin()).insert(5, other.alloc(Value(6)));
}
