//! Locks by key. In models all keys share a list.

use std::sync::Arc;

use extern4_sync::lock_order::Rank;
use extern4_sync::model::{explore, race};
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_sync::primitive::{AtomicU64, thread};

use crate::key_locks::KeyLocks;

const RANK: Rank = Rank::InodeRead;

/// Counts one in a way that loses the count of another thread in between.
fn count((locks, counter): &(KeyLocks, AtomicU64), key: u64) {
    let _held = locks.lock(RANK, key);
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

#[test]
fn holders_of_one_key_exclude_each_other() {
    race(
        || (KeyLocks::new(), AtomicU64::new(0)),
        |shared| count(shared, 7),
        |shared| count(shared, 7),
        |shared| {
            count(shared, 7);
            assert_eq!(shared.1.load(Relaxed), 3);
        },
    );
}

#[test]
fn a_sleeper_of_one_key_is_woken_next_to_one_of_another() {
    explore(|| {
        let locks = Arc::new(KeyLocks::new());
        let held = [1, 2].map(|key| locks.lock(RANK, key));
        let sleepers = [1, 2].map(|key| {
            let locks = Arc::clone(&locks);
            thread::spawn(move || drop(locks.lock(RANK, key)))
        });
        drop(held);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

#[test]
fn a_held_key_keeps_no_thread_with_another_key_waiting() {
    explore(|| {
        let locks = Arc::new(KeyLocks::new());
        let held = locks.lock(RANK, 1);
        let other = Arc::clone(&locks);
        // If it waited for the key above, loom would report a deadlock.
        thread::spawn(move || drop(other.lock(RANK, 2)))
            .join()
            .unwrap();
        drop(held);
    });
}
