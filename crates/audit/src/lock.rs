//! The standard library's locks, with a record of each locking and unlocking.
//!
//! `extern4-sync` takes them in place of the standard ones when its feature `audit` is set. They
//! lock as those do, poison included.

use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

use super::{Access, Kind, Line, note, note_access};

/// A held lock, which records the unlocking when it is dropped. It is declared before the standard
/// library's guard, so that the record comes first.
#[derive(Debug)]
struct Held {
    line: Line,
    site: &'static Location<'static>,
}

impl Held {
    #[track_caller]
    fn new<T: ?Sized>(lock: &T, kind: Kind) -> Self {
        note(lock, kind);
        Self { line: Line::of(lock), site: Location::caller() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        note_access(Access { line: self.line, kind: Kind::Unlock, site: self.site });
    }
}

/// The standard library's type, with a record of each locking and unlocking.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

/// The standard library's type, with a record of each locking and unlocking.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    held: Held,
    guard: std::sync::MutexGuard<'a, T>,
}

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
        let held = Held::new(self, Kind::Lock);
        wrap(self.0.lock(), |guard| MutexGuard { held, guard })
    }

    /// Locks, if no other thread has the lock.
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let held = Held::new(self, Kind::Lock);
        try_wrap(self.0.try_lock(), |guard| MutexGuard { held, guard })
    }

    /// Returns the value, of which there is no other user.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

/// The standard library's type, with a record of each locking and unlocking.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

/// The standard library's type, with a record of each locking and unlocking.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    #[expect(dead_code, reason = "notes when it is dropped")]
    held: Held,
    guard: std::sync::RwLockReadGuard<'a, T>,
}

/// The standard library's type, with a record of each locking and unlocking.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    #[expect(dead_code, reason = "notes when it is dropped")]
    held: Held,
    guard: std::sync::RwLockWriteGuard<'a, T>,
}

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
        let held = Held::new(self, Kind::LockShared);
        wrap(self.0.read(), |guard| RwLockReadGuard { held, guard })
    }

    /// Locks shared, if no thread has it exclusively or waits for that.
    #[track_caller]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let held = Held::new(self, Kind::LockShared);
        try_wrap(self.0.try_read(), |guard| RwLockReadGuard { held, guard })
    }

    /// Locks exclusively, if no other thread has it.
    #[track_caller]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let held = Held::new(self, Kind::Lock);
        try_wrap(self.0.try_write(), |guard| RwLockWriteGuard { held, guard })
    }

    /// Locks exclusively, and waits for the lock if need be.
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let held = Held::new(self, Kind::Lock);
        wrap(self.0.write(), |guard| RwLockWriteGuard { held, guard })
    }
}

/// The standard library's type. Its own accesses are not recorded, nor is it recorded that a
/// waiting thread unlocks meanwhile.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Returns a new one, as in the standard library.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Waits for a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let (held, guard) = (guard.held, guard.guard);
        wrap(self.0.wait(guard), |guard| MutexGuard { held, guard })
    }

    /// Waits for a notification, but no longer than `timeout`. Also returns whether the time ran
    /// out.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, std::sync::WaitTimeoutResult)> {
        let (held, guard) = (guard.held, guard.guard);
        wrap(self.0.wait_timeout(guard, timeout), |(guard, result)| (MutexGuard { held, guard }, result))
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Applies `make` to the guard in a result, poisoned or not.
fn wrap<G, H>(result: LockResult<G>, make: impl FnOnce(G) -> H) -> LockResult<H> {
    match result {
        Ok(guard) => Ok(make(guard)),
        Err(poisoned) => Err(PoisonError::new(make(poisoned.into_inner()))),
    }
}

fn try_wrap<G, H>(result: TryLockResult<G>, make: impl FnOnce(G) -> H) -> TryLockResult<H> {
    match result {
        Ok(guard) => Ok(make(guard)),
        Err(TryLockError::Poisoned(poisoned)) => Err(PoisonError::new(make(poisoned.into_inner())).into()),
        Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
