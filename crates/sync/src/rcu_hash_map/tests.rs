//! Tests of the hash map on real threads: what it finds, what it evicts, and how it grows.

use super::*;
use std::hash::{BuildHasher, RandomState};

#[test]
fn finds_replaces_and_removes() {
    let table = RcuHashMap::new();
    let hasher = RandomState::new();
    let guard = pin();
    for key in 0..500u32 {
        table.lock(hasher.hash_one(key), &guard).insert(Unlinked::new(hasher.hash_one(key), (key, 0)));
    }
    let find = |key: u32| table.find(hasher.hash_one(key), &guard, |entry| entry.0 == key);
    assert!((0..500).all(|key| find(key).is_some_and(|found| *found.value() == (key, 0))));
    assert!(find(500).is_none() && table.len() == 500);

    let old = find(7).unwrap();
    let mut bucket = table.lock(hasher.hash_one(7u32), &guard);
    bucket.insert(Unlinked::new(hasher.hash_one(7u32), (7, 1)));
    assert!(bucket.remove(old) && !bucket.remove(old));
    drop(bucket);
    assert!(!old.is_live() && *old.value() == (7, 0));
    assert_eq!(*find(7).unwrap().value(), (7, 1));
}

/// A cache of numbers that counts how many it finds.
struct Numbers {
    table: RcuHashMap<u64>,
    hasher: RandomState,
    limit: usize,
    entries: usize,
}

impl Numbers {
    fn new(limit: usize) -> Self {
        Self { table: RcuHashMap::new(), hasher: RandomState::new(), limit, entries: 0 }
    }

    /// Asks for each number and inserts it where it is not found. Returns the part found.
    fn pass(&mut self, numbers: std::ops::Range<u64>) -> f64 {
        let total = numbers.end - numbers.start;
        let found = numbers.filter(|&number| self.get(number)).count();
        found as f64 / total as f64
    }

    fn get(&mut self, number: u64) -> bool {
        let hash = self.hasher.hash_one(number);
        let guard = pin();
        if self.table.find(hash, &guard, |&entry| entry == number).is_some() {
            return true;
        }
        let mut bucket = self.table.lock(hash, &guard);
        bucket.insert(Unlinked::new(hash, number));
        drop(bucket);
        self.entries += 1;
        if self.entries > self.limit {
            self.entries -= self.table.evict(2.min(self.entries - self.limit), |_| true);
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
        assert!(numbers.table.len() <= LIMIT as usize * 21 / 20);
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
        assert!(found > 0.9, "{part}: {found}");
    }
}

#[test]
fn an_eviction_looks_at_few_entries_where_none_may_go() {
    let mut numbers = Numbers::new(usize::MAX);
    numbers.pass(0..50_000);
    let mut looked_at = 0;
    let gone = numbers.table.evict(2, |_| {
        looked_at += 1;
        false
    });
    assert!(gone == 0 && looked_at <= 4 * WINDOW, "{looked_at}");
    numbers.table.remove_if(|&key| key >= 10);
    assert_eq!(numbers.table.len(), 10);
    // The few that are left are found in many empty buckets.
    assert_eq!((0..1000).map(|_| numbers.table.evict(1, |_| true)).sum::<usize>(), 10);
}

/// Readers find an entry that is there, also while its stripe grows.
#[test]
fn entries_are_found_while_stripes_grow() {
    for _ in 0..10 {
        let table = &RcuHashMap::new();
        let hasher = &RandomState::new();
        let insert = |key: u64| {
            let hash = hasher.hash_one(key);
            table.lock(hash, &pin()).insert(Unlinked::new(hash, key));
        };
        (0..1000).for_each(insert);
        let done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                (1000..200_000).for_each(insert);
                done.store(true, Ordering::Release);
            });
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    for key in 0..1000 {
                        let guard = pin();
                        let found = table.find(hasher.hash_one(key), &guard, |&entry| entry == key);
                        assert!(found.is_some(), "{key}");
                    }
                }
            });
        });
        assert_eq!(table.len(), 200_000);
    }
}

#[test]
fn a_key_that_is_replaced_is_always_found() {
    let table = &RcuHashMap::new();
    table.lock(9, &pin()).insert(Unlinked::new(9, 0u32));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for next in 1..50_000 {
                let guard = pin();
                let mut bucket = table.lock(9, &guard);
                let old = bucket.find(9, |_| true).unwrap();
                bucket.insert(Unlinked::new(9, next));
                bucket.remove(old);
            }
        });
        scope.spawn(|| {
            let mut last = 0;
            while last < 49_999 {
                let now = *table.find(9, &pin(), |_| true).expect("there is always one").value();
                assert!(now >= last);
                last = now;
            }
        });
    });
    assert_eq!(table.len(), 1);
}
