//! Locks without poison, and locks chosen by hash.
//!
//! A panic in a file system must not make every later call panic too: what the locks here protect is always left whole
//! before a file system is called.
//!
//! The locks are those of `extern4_sync::primitive`, so that models explore them.

use std::sync::PoisonError;

pub(crate) use extern4_sync::primitive::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Takes a mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    note(mutex);
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock shared.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    note(lock);
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock exclusive.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    note(lock);
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the audit, where there is one, that a lock is taken.
#[inline]
fn note<T: ?Sized>(_lock: &T) {
    #[cfg(feature = "audit")]
    extern4_sync::audit::note_lock(_lock);
}

/// Mutexes chosen by hash: whoever works on one key excludes others on the same key, and rarely anyone else.
pub(crate) struct Stripes(Box<[Mutex<()>]>);

impl Stripes {
    #[cfg(not(feature = "loom"))]
    const COUNT: usize = 256;
    /// Models have few keys, and those are to meet.
    #[cfg(feature = "loom")]
    const COUNT: usize = 2;

    pub(crate) fn new() -> Self {
        Self((0..Self::COUNT).map(|_| Mutex::new(())).collect())
    }

    /// Takes the mutex that `hash` falls on. Nobody may hold two.
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, ()> {
        let index = usize::try_from(hash % Self::COUNT as u64).expect("less than COUNT");
        lock(&self.0[index])
    }
}
