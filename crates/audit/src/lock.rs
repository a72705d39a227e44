//! The standard library's locks, with a record of each locking.
//!
//! `extern4-sync` takes them in place of the standard ones when its feature `audit` is set. They
//! lock as those do, poison included. Unlocking is not recorded, nor is a condition variable.

use std::sync::{LockResult, TryLockResult};

pub use std::sync::{Condvar, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use super::note_lock;

/// The standard library's type, with a record of each locking.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Returns a new one, as in the standard library.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Returns the value, of which there is no other user.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks, and waits for the lock if need be.
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        note_lock(self);
        self.0.lock()
    }

    /// Locks, if no other thread has the lock.
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        note_lock(self);
        self.0.try_lock()
    }

    /// Returns the value, of which there is no other user.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

/// The standard library's type, with a record of each locking.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Returns a new one, as in the standard library.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks shared, and waits for the lock if need be.
    #[track_caller]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        note_lock(self);
        self.0.read()
    }

    /// Locks shared, if no thread has it exclusively or waits for that.
    #[track_caller]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        note_lock(self);
        self.0.try_read()
    }

    /// Locks exclusively, if no other thread has it.
    #[track_caller]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        note_lock(self);
        self.0.try_write()
    }

    /// Locks exclusively, and waits for the lock if need be.
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        note_lock(self);
        self.0.write()
    }
}
