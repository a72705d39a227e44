//! Shuttle tests: eight threads on one map, in random schedules. The loom tests in `tests/loom`
//! explore two threads in every schedule. So a structure has a test here only if more than two
//! threads interact in a way of their own.
#![cfg(feature = "shuttle")]

use extern4_sync::model::race_many;
use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::Release;
use extern4_sync::rcu_arc_map::RcuArcMap;
use extern4_sync::rcu_hash_map::{RcuHashMap, Unlinked};

const THREADS: usize = 8;

/// The thread that made a value.
struct Maker(usize);

impl Release for Maker {}

#[test]
fn threads_never_hold_two_entries_of_a_key() {
    race_many(
        THREADS,
        RcuArcMap::new,
        |table, index| {
            let key = index as u64 % 3;
            let first = table.find_or_insert(key, Maker(index)).0;
            let guard = pin();
            let again = table.get(key, &guard);
            // Referenced entries are in the map, except for key 0, which is removed by name.
            assert!(key == 0 || again.is_some_and(|again| again.0 == first.0));
            drop(guard);
            if index == 0 {
                table.remove(key, &first);
            }
            table.evict(2);
            drop(first);
        },
        |table| {
            while table.evict(2) > 0 {}
            assert!(
                (0..3).all(|key| table.get(key, &pin()).is_none()),
                "entries without references can be evicted"
            );
        },
    );
}

#[test]
fn threads_always_find_an_entry_while_the_map_grows() {
    race_many(
        THREADS,
        || {
            let table = RcuHashMap::new();
            table.lock(0, &pin()).insert(Unlinked::new(0, 0usize));
            table
        },
        |table, index| {
            if index < 4 {
                let hash = (index as u64 + 1) << 61;
                table.lock(hash, &pin()).insert(Unlinked::new(hash, index));
            } else {
                let guard = pin();
                let found = table.find(0, &guard, |_| true).expect("there is always one");
                assert_eq!(*found.value(), 0);
            }
        },
        |table| assert_eq!(table.len(), 5),
    );
}

#[test]
fn threads_always_find_an_entry_that_is_replaced() {
    race_many(
        THREADS,
        || {
            let table = RcuHashMap::new();
            table.lock(0, &pin()).insert(Unlinked::new(0, 0usize));
            table
        },
        |table, index| {
            if index < 3 {
                let guard = pin();
                let mut bucket = table.lock(0, &guard);
                let old = bucket.find(0, |_| true).expect("there is always one");
                bucket.insert(Unlinked::new(0, index + 1));
                bucket.remove(old);
            } else {
                let guard = pin();
                let found = table.find(0, &guard, |_| true).expect("there is always one");
                assert!(*found.value() <= 3);
            }
        },
        |table| assert_eq!(table.len(), 1),
    );
}
