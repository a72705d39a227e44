//! Locks without poison, and wait queues chosen by hash.
//!
//! All modules of this crate take their locks through these functions.
//!
//! A panic in a file system must not make every later call panic, too. The data that these locks
//! protect is consistent whenever a thread calls a file system.
//!
//! The locks come from `extern4_sync::primitive`, so that models explore them.

use std::sync::PoisonError;

use extern4_sync::primitive::{Condvar, capacity};
pub(crate) use extern4_sync::primitive::{
    Latch, LatchGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Takes a mutex.
#[track_caller]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a latch.
#[inline]
#[track_caller]
pub(crate) fn latch<T>(latch: &Latch<T>) -> LatchGuard<'_, T> {
    latch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock shared.
#[track_caller]
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock exclusive.
#[track_caller]
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until another thread notifies; the mutex is free meanwhile.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Wait queues, chosen by hash: threads sleep there until a condition changes.
pub(crate) struct WaitQueues(Box<[WaitQueue]>);

/// A wait queue.
#[derive(Default)]
pub(crate) struct WaitQueue {
    door: Mutex<()>,
    called: Condvar,
}

impl WaitQueues {
    const COUNT: usize = capacity(256, 2);

    pub(crate) fn new() -> Self {
        Self((0..Self::COUNT).map(|_| WaitQueue::default()).collect())
    }

    pub(crate) fn queue(&self, hash: u64) -> &WaitQueue {
        &self.0[usize::try_from(hash % Self::COUNT as u64).expect("less than COUNT")]
    }
}

impl WaitQueue {
    /// Enters the queue. A thread that calls [`wake_all`](Self::wake_all) from now on wakes the
    /// caller.
    pub(crate) fn enter(&self) -> MutexGuard<'_, ()> {
        lock(&self.door)
    }

    /// Sleeps; the mutex is free meanwhile.
    pub(crate) fn sleep<'a>(&'a self, entered: MutexGuard<'a, ()>) -> MutexGuard<'a, ()> {
        wait(&self.called, entered)
    }

    /// Wakes all waiting threads.
    pub(crate) fn wake_all(&self) {
        drop(self.enter());
        self.called.notify_all();
    }
}
