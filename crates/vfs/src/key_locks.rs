//! A lock for each key, for as long as a thread holds it or waits for it.
//!
//! The caches take one while they ask the file system: for an inode by its number, for a name by
//! its hash. The file system may wait for a device meanwhile. So a thread waits here only for
//! another that asks for the same.
//!
//! The keys in use are in short lists, chosen by key, each under a mutex that no thread holds while
//! it waits. A thread that finds its key in the list marks it as awaited and sleeps. It does both
//! under the mutex. The holder removes its key under the mutex, and wakes the list's sleepers if
//! the key is marked. So it either finds the mark, or the other thread does not find the key.
//! Sleepers of other keys of the list wake too, and look again.

use extern4_sync::lock_order::{Ordered, Rank};
use extern4_sync::primitive::{Condvar, Mutex, capacity};

use crate::lock;

/// The locks of one kind of key.
pub(crate) struct KeyLocks(Box<[KeyList]>);

/// The keys in use that share a mutex.
#[derive(Default)]
struct KeyList {
    held: Mutex<Vec<HeldKey>>,
    released: Condvar,
}

struct HeldKey {
    key: u64,
    is_awaited: bool,
}

/// A key that this thread has locked.
pub(crate) struct KeyGuard<'a> {
    list: &'a KeyList,
    key: u64,
}

impl KeyLocks {
    /// So few that they stay in the processor's cache.
    const LISTS: usize = capacity(64, 1);

    pub(crate) fn new() -> Self {
        Self((0..Self::LISTS).map(|_| KeyList::default()).collect())
    }

    /// Locks `key`, which is as random as a hash. No thread may hold two keys of one kind.
    pub(crate) fn lock(&self, rank: Rank, key: u64) -> Ordered<KeyGuard<'_>> {
        let list = usize::try_from(key % Self::LISTS as u64).expect("less than LISTS");
        Ordered::lock(rank, || self.0[list].lock(key))
    }
}

impl KeyList {
    fn lock(&self, key: u64) -> KeyGuard<'_> {
        let mut held = lock::lock(&self.held);
        while let Some(other) = held.iter_mut().find(|held| held.key == key) {
            other.is_awaited = true;
            held = lock::wait(&self.released, held);
        }
        held.push(HeldKey {
            key,
            is_awaited: false,
        });
        KeyGuard { list: self, key }
    }
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        let mut held = lock::lock(&self.list.held);
        let at = held
            .iter()
            .position(|held| held.key == self.key)
            .expect("its holder removes it");
        let is_awaited = held.swap_remove(at).is_awaited;
        drop(held);
        if is_awaited {
            self.list.released.notify_all();
        }
    }
}
