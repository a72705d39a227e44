//! Shuttle tests: eight threads on one map, in random schedules. The loom tests in `tests/loom`
//! explore two threads in every schedule. So a structure has a test here only if more than two
//! threads interact in another way.
#![cfg(feature = "shuttle")]

use extern4_sync::model::race_many;
use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::{First, RcuRef, Release};
use extern4_sync::rcu_hash_map::RcuHashMap;

const THREADS: usize = 8;

/// The thread that made a value.
struct Maker(usize);

impl Release for Maker {
    type Link = First;
}

type Map = RcuHashMap<Maker>;

fn insert(map: &Map, hash: u64, index: usize) {
    map.lock(hash, &pin()).insert(hash, map.alloc(Maker(index)));
}

/// Creates a map with a value of hash 0.
fn map_of_one() -> Map {
    let map = Map::new();
    insert(&map, 0, 0);
    map
}

#[test]
fn threads_never_hold_two_values_of_a_key() {
    race_many(
        THREADS,
        Map::new,
        |map, index| {
            let hash = (index as u64 % 3) << 62;
            let guard = pin();
            let mut bucket = map.lock(hash, &guard);
            let first = bucket.find(hash, |_| true).and_then(RcuRef::try_upgrade);
            let first = first.unwrap_or_else(|| {
                let new = map.alloc(Maker(index));
                bucket.insert(hash, new.clone());
                new
            });
            drop(bucket);
            let again = map.find(hash, &guard, |_| true);
            // Referenced values are in the map, except for hash 0, which is removed by name.
            assert!(hash == 0 || again.is_some_and(|again| again.ptr_eq(first.as_rcu_ref())));
            if index == 0 {
                map.lock(hash, &guard).remove(first.as_rcu_ref());
            }
            drop(guard);
            drop(map.evict(2, |_| ()));
            drop(first);
        },
        |map| {
            while !map.evict(2, |_| ()).is_empty() {}
            assert!(map.is_empty(), "values without references can be evicted");
        },
    );
}

#[test]
fn threads_always_find_a_value_while_the_map_grows_and_others_move() {
    race_many(
        THREADS,
        || {
            let map = map_of_one();
            // Before the value in its chain.
            let moved = map.alloc(Maker(9));
            map.lock(1, &pin()).insert(1, moved.clone());
            (map, moved)
        },
        |(map, moved), index| match index {
            0..3 => insert(map, (index as u64 + 1) << 61, index),
            3 => {
                let moved = map.lock(1, &pin()).remove(moved.as_rcu_ref()).unwrap();
                map.lock(1 << 63, &pin()).insert(1 << 63, moved);
            }
            _ => {
                let found = map
                    .find(0, &pin(), |_| true)
                    .expect("there is always one")
                    .0;
                assert_eq!(found, 0);
            }
        },
        |(map, _)| assert_eq!(map.len(), 5),
    );
}

#[test]
fn threads_always_find_a_value_that_is_replaced() {
    race_many(
        THREADS,
        map_of_one,
        |map, index| {
            if index < 3 {
                let new = map.alloc(Maker(index + 1));
                map.lock(0, &pin())
                    .replace(0, new, |_| true)
                    .expect("there is always one");
            } else {
                assert!(
                    map.find(0, &pin(), |_| true)
                        .expect("there is always one")
                        .0
                        <= 3
                );
            }
        },
        |map| assert_eq!(map.len(), 1),
    );
}
