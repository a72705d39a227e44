//! The standard library's mutex with a note of each locking.

use std::sync::{LockResult, MutexGuard, TryLockResult};

use super::note_lock;

/// As of the standard library, noted.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// As of the standard library.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// The value, of which there is no other user.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        note_lock(self);
        self.0.lock()
    }

    /// Locks if nobody else has.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        note_lock(self);
        self.0.try_lock()
    }

    /// The value, of which there is no other user.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}
