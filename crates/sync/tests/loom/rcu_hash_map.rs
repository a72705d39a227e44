//! Chains of a hash map.

use extern4_sync::model::{race, race_for};
use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_sync::rcu::{self, pin};
use extern4_sync::rcu_hash_map::{Found, RcuHashMap, Unlinked};

use crate::Poisoned;

/// The hash of all entries, so that they are in one chain.
const HASH: u64 = 9;

fn chain(keys: impl IntoIterator<Item = u64>) -> RcuHashMap<Poisoned> {
    let table = RcuHashMap::new();
    for key in keys {
        table.lock(HASH, &pin()).insert(Unlinked::new(HASH, Poisoned::new(key)));
    }
    table
}

fn find<'g>(table: &'g RcuHashMap<Poisoned>, key: u64, guard: &'g rcu::Guard) -> Option<Found<'g, Poisoned>> {
    table.find(HASH, guard, |entry| entry.value() == key)
}

fn remove(table: &RcuHashMap<Poisoned>, key: u64) {
    let guard = pin();
    let mut bucket = table.lock(HASH, &guard);
    let found = bucket.find(HASH, |entry| entry.value() == key).unwrap();
    assert!(bucket.remove(found) && !bucket.remove(found));
}

#[test]
fn hash_replace_vs_find() {
    race(
        || chain([1]),
        |table| {
            let guard = pin();
            let first = table.find(HASH, &guard, |_| true).expect("there is always one");
            let second = table.find(HASH, &guard, |_| true).expect("there is always one");
            assert!(second.value().value() >= first.value().value(), "back to an older one");
        },
        |table| {
            for next in 2..4 {
                let guard = pin();
                let mut bucket = table.lock(HASH, &guard);
                let old = bucket.find(HASH, |_| true).unwrap();
                bucket.insert(Unlinked::new(HASH, Poisoned::new(next)));
                bucket.remove(old);
            }
        },
        |table| {
            assert_eq!(table.find(HASH, &pin(), |_| true).unwrap().value().value(), 3);
            assert_eq!(table.len(), 1);
        },
    );
}

#[test]
fn hash_remove_vs_reader_on_it() {
    race(
        || chain([1, 2, 3, 4]),
        |table| {
            let guard = pin();
            // Entry 1 is behind both entries that are removed.
            assert!(find(table, 1, &guard).expect("it stays").is_live());
            if let Some(gone) = find(table, 2, &guard) {
                assert_eq!(gone.value().value(), 2);
            }
        },
        |table| {
            remove(table, 3);
            remove(table, 2);
            table.lock(HASH, &pin()).insert(Unlinked::new(HASH, Poisoned::new(5)));
        },
        |table| {
            let guard = pin();
            let there: Vec<_> = (1..6).filter(|&key| find(table, key, &guard).is_some()).collect();
            assert_eq!((there, table.len()), (vec![1, 4, 5], 3));
        },
    );
}

#[test]
fn hash_remove_vs_remove() {
    let remove = |table: &RcuHashMap<Poisoned>| {
        let guard = pin();
        let Some(found) = find(table, 1, &guard) else { return false };
        let gone = table.lock(HASH, &guard).remove(found);
        assert!(!found.is_live());
        gone
    };
    race_for(
        || chain([1, 2]),
        remove,
        remove,
        |table, a, b| assert!(a != b && table.len() == 1 && find(table, 1, &pin()).is_none()),
    );
}

#[test]
fn hash_insert_vs_find() {
    race(
        || chain([]),
        |table| {
            let guard = pin();
            // The contents are plain, so loom reports a race if they are seen before they are
            // complete.
            find(table, 1, &guard).inspect(|found| assert!(found.is_live()));
        },
        |table| _ = table.lock(HASH, &pin()).insert(Unlinked::new(HASH, Poisoned::new(1))),
        |table| assert!(find(table, 1, &pin()).is_some()),
    );
}

#[test]
fn hash_evict_vs_find() {
    race_for(
        || chain([1, 2]),
        |table| {
            let guard = pin();
            find(table, 1, &guard).map(|found| found.value().value())
        },
        |table| table.evict(1, |entry| entry.value() == 1),
        |table, seen, gone| {
            assert!(seen.is_none_or(|seen| seen == 1));
            assert_eq!((table.len(), find(table, 1, &pin()).is_none()), (2 - gone, gone == 1));
            assert!(find(table, 2, &pin()).is_some(), "it may not be evicted");
        },
    );
}

/// An entry that stays is found while the stripe moves it to another bucket.
#[test]
fn hash_grow_vs_find() {
    const OTHER: u64 = 1 << 63;
    race(
        || chain([1, 2]),
        |table| {
            let guard = pin();
            assert_eq!(find(table, 1, &guard).expect("it stays").value().value(), 1);
        },
        |table| _ = table.lock(OTHER, &pin()).insert(Unlinked::new(OTHER, Poisoned::new(3))),
        |table| {
            let guard = pin();
            assert!(find(table, 1, &guard).is_some() && find(table, 2, &guard).is_some());
            assert!(table.find(OTHER, &guard, |_| true).is_some() && table.len() == 3);
        },
    );
}

/// An entry that stays is found behind one that the growing map moves to another chain.
#[test]
fn hash_grow_vs_find_behind_a_moved_entry() {
    // In the same bucket of two as `HASH`, and in another one of four.
    const MOVED: u64 = 1 << 62;
    race(
        || {
            let table = chain([1]);
            table.lock(MOVED, &pin()).insert(Unlinked::new(MOVED, Poisoned::new(2)));
            table
        },
        |table| {
            let guard = pin();
            assert_eq!(find(table, 1, &guard).expect("it stays").value().value(), 1);
            assert!(find(table, 3, &guard).is_none());
        },
        |table| _ = table.lock(MOVED, &pin()).insert(Unlinked::new(MOVED, Poisoned::new(3))),
        |table| {
            let guard = pin();
            assert!(table.find(MOVED, &guard, |_| true).is_some() && table.len() == 3);
        },
    );
}

/// Two threads let a stripe grow, and both entries are there after that.
#[test]
fn hash_grow_vs_grow() {
    let insert = |table: &RcuHashMap<Poisoned>, key: u64| {
        let hash = key << 62;
        table.lock(hash, &pin()).insert(Unlinked::new(hash, Poisoned::new(key)));
    };
    race(
        || chain([8, 9]),
        move |table| insert(table, 1),
        move |table| insert(table, 2),
        |table| {
            let guard = pin();
            assert!((1..3).all(|key| table.find(key << 62, &guard, |_| true).is_some()));
            assert!(find(table, 8, &guard).is_some() && find(table, 9, &guard).is_some());
            assert_eq!(table.len(), 4);
        },
    );
}

#[test]
fn hash_removed_vs_is_live() {
    race(
        || (chain([1]), AtomicU64::new(0)),
        |(table, attribute)| {
            let guard = pin();
            let Some(found) = find(table, 1, &guard) else { return };
            // Acquire: V.
            let seen = attribute.load(Ordering::Acquire);
            assert!(!found.is_live() || seen == 0, "a change after the removal was seen under the old name");
        },
        |(table, attribute)| {
            remove(table, 1);
            attribute.store(1, Ordering::Release);
        },
        |(table, _)| assert!(table.is_empty()),
    );
}
