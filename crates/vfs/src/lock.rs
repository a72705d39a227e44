//! Locks without poison, and locks chosen by hash.
//!
//! A panic in a file system must not make every later call panic too: what the locks here protect is always left whole
//! before a file system is called.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Takes a mutex.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock shared.
pub(crate) fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock exclusive.
pub(crate) fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Mutexes chosen by hash: whoever works on one key excludes others on the same key, and rarely anyone else.
pub(crate) struct Stripes(Box<[Mutex<()>]>);

impl Stripes {
    const COUNT: usize = 256;

    pub(crate) fn new() -> Self {
        Self((0..Self::COUNT).map(|_| Mutex::new(())).collect())
    }

    /// Takes the mutex that `hash` falls on. Nobody may hold two.
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, ()> {
        let index = usize::try_from(hash % Self::COUNT as u64).expect("less than COUNT");
        lock(&self.0[index])
    }
}
