//! A hash map of counted values: its chains, its growth, values that move, and the last reference.

use extern4_sync::model::{explore, race, race_for};
use extern4_sync::primitive::{Ordering, thread};
use extern4_sync::rcu::{self, pin};
use extern4_sync::rcu_arc::{RcuArc, RcuRef};
use extern4_sync::rcu_hash_map::RcuHashMap;
use loom::sync::Arc;

use crate::Poisoned;
use crate::rcu_arc::Ending;

type Map = RcuHashMap<Poisoned>;

/// The hash of most values: they are in one chain.
const HASH: u64 = 9;
/// In the same bucket of two as `HASH`, and in another one of four.
const NEAR: u64 = 1 << 62;
/// In another bucket of two.
const FAR: u64 = 1 << 63;

fn chain(keys: impl IntoIterator<Item = u64>) -> Map {
    let map = Map::new();
    for key in keys {
        insert(&map, HASH, key);
    }
    map
}

fn insert(map: &Map, hash: u64, key: u64) {
    map.lock(hash, &pin())
        .insert(hash, map.alloc(Poisoned::new(key)));
}

fn find<'g>(map: &'g Map, key: u64, guard: &'g rcu::Guard) -> Option<RcuRef<'g, Poisoned>> {
    map.find(HASH, guard, |value| value.value() == key)
}

fn has(map: &Map, hash: u64, key: u64) -> bool {
    map.find(hash, &pin(), |value| value.value() == key)
        .is_some()
}

/// Returns a reference to the value of a key.
fn hold(map: &Map, key: u64) -> RcuArc<Poisoned> {
    find(map, key, &pin()).unwrap().try_upgrade().unwrap()
}

/// Returns a reference to the value of a key, which is inserted if there is none.
fn find_or_insert(map: &Map, key: u64) -> RcuArc<Poisoned> {
    let new = map.alloc(Poisoned::new(key));
    let guard = pin();
    let mut bucket = map.lock(HASH, &guard);
    let found = bucket.find(HASH, |value| value.value() == key);
    found
        .map(|found| found.try_upgrade().expect("the chain has a count"))
        .unwrap_or_else(|| {
            bucket.insert(HASH, new.clone());
            new
        })
}

fn remove(map: &Map, key: u64) {
    let guard = pin();
    let mut bucket = map.lock(HASH, &guard);
    let found = bucket.find(HASH, |value| value.value() == key).unwrap();
    assert!(bucket.remove(found).is_some() && bucket.remove(found).is_none());
}

/// Checks that a referenced value is alive, and that lookups find it.
fn check_listed(map: &Map, key: u64, held: &RcuArc<Poisoned>) {
    held.value();
    let guard = pin();
    let found = find(map, key, &guard).expect("a referenced value is in the map");
    found.value();
    assert!(
        found.try_upgrade().unwrap().ptr_eq(held),
        "two live values of one key"
    );
}

#[test]
fn hash_replace_vs_find() {
    race(
        || chain([1]),
        |map| {
            let guard = pin();
            let first = map
                .find(HASH, &guard, |_| true)
                .expect("there is always one");
            let second = map
                .find(HASH, &guard, |_| true)
                .expect("there is always one");
            assert!(second.value() >= first.value(), "back to an older one");
        },
        |map| {
            for next in 2..4 {
                let new = map.alloc(Poisoned::new(next));
                assert!(
                    map.lock(HASH, &pin())
                        .replace(HASH, new, |_| true)
                        .is_some()
                );
            }
        },
        |map| {
            assert_eq!(map.find(HASH, &pin(), |_| true).unwrap().value(), 3);
            assert_eq!(map.len(), 1);
        },
    );
}

#[test]
fn hash_remove_vs_reader_on_it() {
    race(
        || chain([1, 2, 3, 4]),
        |map| {
            let guard = pin();
            // Value 1 is behind both values that are removed.
            assert!(find(map, 1, &guard).is_some(), "it stays");
            if let Some(gone) = find(map, 2, &guard) {
                assert_eq!(gone.value(), 2);
            }
        },
        |map| {
            remove(map, 3);
            remove(map, 2);
            insert(map, HASH, 5);
        },
        |map| {
            let there: Vec<_> = (1..6).filter(|&key| has(map, HASH, key)).collect();
            assert_eq!((there, map.len()), (vec![1, 4, 5], 3));
        },
    );
}

#[test]
fn hash_remove_vs_remove() {
    let remove = |map: &Map| {
        let guard = pin();
        let Some(found) = find(map, 1, &guard) else {
            return false;
        };
        map.lock(HASH, &guard).remove(found).is_some()
    };
    race_for(
        || chain([1, 2]),
        remove,
        remove,
        |map, a, b| assert!(a != b && map.len() == 1 && !has(map, HASH, 1)),
    );
}

#[test]
fn hash_insert_vs_find() {
    race(
        || chain([]),
        |map| {
            let guard = pin();
            // The contents are plain, so loom reports a race if they are seen before they are
            // complete.
            find(map, 1, &guard).inspect(|found| assert_eq!(found.value(), 1));
        },
        |map| insert(map, HASH, 1),
        |map| assert!(has(map, HASH, 1)),
    );
}

/// A value that stays is found while the map moves it to another bucket.
#[test]
fn hash_grow_vs_find() {
    race(
        || chain([1, 2]),
        |map| assert!(has(map, HASH, 1), "it stays"),
        |map| insert(map, FAR, 3),
        |map| {
            assert!(has(map, HASH, 1) && has(map, HASH, 2));
            assert!(has(map, FAR, 3) && map.len() == 3);
        },
    );
}

/// A value that stays is found behind one that the growing map moves to another chain.
#[test]
fn hash_grow_vs_find_behind_a_moved_value() {
    race(
        || {
            let map = chain([1]);
            insert(&map, NEAR, 2);
            map
        },
        |map| {
            assert!(has(map, HASH, 1), "it stays");
            assert!(!has(map, HASH, 3));
        },
        |map| insert(map, NEAR, 3),
        |map| assert!(has(map, NEAR, 2) && has(map, NEAR, 3) && map.len() == 3),
    );
}

/// Two threads let the map grow, and both values are there after that.
#[test]
fn hash_grow_vs_grow() {
    race(
        || chain([8, 9]),
        |map| insert(map, NEAR, 1),
        |map| insert(map, FAR, 2),
        |map| {
            assert!(has(map, NEAR, 1) && has(map, FAR, 2));
            assert!(has(map, HASH, 8) && has(map, HASH, 9));
            assert_eq!(map.len(), 4);
        },
    );
}

/// Moves a value to another hash.
fn move_to(map: &Map, value: &RcuArc<Poisoned>, from: u64, to: u64) -> bool {
    let guard = pin();
    let taken = map.lock(from, &guard).remove(value.as_rcu_ref());
    taken
        .map(|value| map.lock(to, &guard).insert(to, value))
        .is_some()
}

/// A value that stays is found behind one that moves to another hash, and back.
#[test]
fn hash_move_vs_find_behind_it() {
    race(
        || chain([1, 2]),
        |map| assert!(has(map, HASH, 1), "it stays"),
        |map| {
            let moved = hold(map, 2);
            assert!(move_to(map, &moved, HASH, FAR) && move_to(map, &moved, FAR, HASH));
        },
        |map| assert!(has(map, HASH, 1) && has(map, HASH, 2) && map.len() == 2),
    );
}

/// A value that moves within the same chain does not hide those behind it.
#[test]
fn hash_move_in_one_chain_vs_find() {
    race(
        || chain([1, 2, 3]),
        |map| {
            assert!(
                [1, 3].into_iter().all(|key| has(map, HASH, key)),
                "both stay"
            )
        },
        |map| assert!(move_to(map, &hold(map, 2), HASH, HASH + 1)),
        |map| assert!(has(map, HASH, 1) && has(map, HASH, 3) && has(map, HASH + 1, 2)),
    );
}

/// Two threads move values to each other's chain.
#[test]
fn hash_move_vs_move() {
    race(
        || {
            let map = chain([1]);
            insert(&map, FAR, 2);
            map
        },
        |map| assert!(move_to(map, &hold(map, 1), HASH, FAR)),
        |map| {
            let moved = map
                .find(FAR, &pin(), |value| value.value() == 2)
                .unwrap()
                .try_upgrade()
                .unwrap();
            assert!(move_to(map, &moved, FAR, HASH));
        },
        |map| assert!(has(map, FAR, 1) && has(map, HASH, 2) && map.len() == 2),
    );
}

/// A thread moves a value, which another one evicts unless it is in use.
#[test]
fn hash_move_vs_evict() {
    race_for(
        || chain([1]),
        |map| {
            let held = find(map, 1, &pin()).and_then(RcuRef::try_upgrade);
            held.map(|held| move_to(map, &held, HASH, FAR))
        },
        |map| map.evict(1, |_| ()).len(),
        |map, moved, gone| {
            assert_ne!(moved, Some(false), "a referenced value is in the map");
            assert_eq!(
                (map.len(), has(map, FAR, 1) || has(map, HASH, 1)),
                (1 - gone, gone == 0)
            );
        },
    );
}

#[test]
fn hash_insert_vs_insert_of_one_key() {
    let insert = |map: &Map| check_listed(map, 1, &find_or_insert(map, 1));
    race(
        || chain([]),
        insert,
        insert,
        |map| assert!(has(map, HASH, 1) && map.len() == 1),
    );
}

#[test]
fn hash_evict_vs_insert() {
    race(
        || chain([1, 2]),
        |map| check_listed(map, 1, &find_or_insert(map, 1)),
        |map| drop(map.evict(2, |_| ())),
        // The reference is dropped, and the second thread may be late enough to evict the new value
        // too.
        |_| (),
    );
}

#[test]
fn hash_evict_vs_find() {
    race_for(
        || {
            let map = chain([1, 2]);
            let held = hold(&map, 2);
            (map, held)
        },
        |(map, _)| {
            let guard = pin();
            let seen = find(map, 1, &guard)?;
            seen.value();
            let held = seen.try_upgrade();
            seen.value();
            drop(guard);
            held.inspect(|held| check_listed(map, 1, held))
        },
        |(map, _)| map.evict(1, |value| assert_eq!(value.value(), 1)).len(),
        |(map, _), held, gone| {
            assert!(held.is_none() || gone == 0, "a value in use was evicted");
            assert_eq!((map.len(), has(map, HASH, 1)), (2 - gone, gone == 0));
            assert!(has(map, HASH, 2), "it may not be evicted");
        },
    );
}

/// The end of an evicted value sees what a holder did before it dropped its reference.
#[test]
fn hash_evict_vs_drop() {
    race(
        || {
            let map = RcuHashMap::new();
            let (value, ends) = Ending::watched(1);
            map.lock(HASH, &pin()).insert(HASH, map.alloc(value));
            (map, ends)
        },
        |(map, _)| {
            let held = map
                .find(HASH, &pin(), |_| true)
                .and_then(RcuRef::try_upgrade);
            held.inspect(|held| held.work());
        },
        |(map, _)| drop(map.evict(1, |_| ())),
        |(map, ends)| {
            assert_eq!(ends.times(), u64::from(map.is_empty()));
            drop(map.evict(1, |_| ()));
            ends.check_freed();
        },
    );
}

#[test]
fn hash_remove_and_last_drop_vs_find() {
    race(
        || chain([1]),
        |map| {
            let held = hold(map, 1);
            remove(map, 1);
            drop(held);
        },
        |map| {
            let guard = pin();
            let Some(seen) = find(map, 1, &guard) else {
                return;
            };
            let held = seen.try_upgrade();
            seen.value();
            drop(guard);
            held.inspect(|held| _ = held.value());
        },
        |map| assert!(!has(map, HASH, 1)),
    );
}

#[test]
fn hash_end_of_the_map_vs_holder() {
    explore(|| {
        let map = Arc::new(chain([1]));
        let held = hold(&map, 1);
        let alive = held.alive.clone();
        let holder = thread::spawn(move || {
            let second = held.clone();
            drop(held);
            second.value();
        });
        drop(map.evict(1, |_| ()));
        drop(map);
        holder.join().unwrap();
        drop(pin());
        assert!(!alive.load(Ordering::Relaxed), "never freed");
    });
}

/// A holder evicts a value only if no other thread holds it.
#[test]
fn hash_evict_held_vs_find() {
    race_for(
        || {
            let map = chain([1, 2]);
            let held = std::sync::Mutex::new(Some(hold(&map, 1)));
            (map, held)
        },
        |(map, _)| {
            let guard = pin();
            let seen = find(map, 1, &guard)?;
            let held = seen.try_upgrade();
            seen.value();
            drop(guard);
            held.inspect(|held| check_listed(map, 1, held))
        },
        |(map, held)| {
            let held = held.lock().unwrap().take().expect("it is taken once");
            usize::from(map.evict_held(held, |_| ()).is_some())
        },
        |(map, _), held, gone| {
            assert!(held.is_none() || gone == 0, "a value in use was evicted");
            assert_eq!((map.len(), has(map, HASH, 1)), (2 - gone, gone == 0));
        },
    );
}
