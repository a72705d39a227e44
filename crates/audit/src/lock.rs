//! The standard library's locks with a note of each locking and unlocking.

use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

use super::{Access, Kind, Line, note, note_access};

/// A lock that is held: notes that it no longer is. Declared before the guard of the standard library, so that the note comes first.
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

/// As of the standard library, noted.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

/// As of the standard library, noted.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    held: Held,
    guard: std::sync::MutexGuard<'a, T>,
}

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
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let held = Held::new(self, Kind::Lock);
        wrap(self.0.lock(), |guard| MutexGuard { held, guard })
    }

    /// Locks if nobody else has.
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let held = Held::new(self, Kind::Lock);
        try_wrap(self.0.try_lock(), |guard| MutexGuard { held, guard })
    }

    /// The value, of which there is no other user.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

/// As of the standard library, noted.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

/// As of the standard library, noted.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    #[expect(dead_code, reason = "notes when it is dropped")]
    held: Held,
    guard: std::sync::RwLockReadGuard<'a, T>,
}

/// As of the standard library, noted.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    #[expect(dead_code, reason = "notes when it is dropped")]
    held: Held,
    guard: std::sync::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    /// As of the standard library.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks shared.
    #[track_caller]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let held = Held::new(self, Kind::LockShared);
        wrap(self.0.read(), |guard| RwLockReadGuard { held, guard })
    }

    /// Locks shared, if nobody has it exclusive or waits to.
    #[track_caller]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let held = Held::new(self, Kind::LockShared);
        try_wrap(self.0.try_read(), |guard| RwLockReadGuard { held, guard })
    }

    /// Locks exclusive, if nobody has it.
    #[track_caller]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let held = Held::new(self, Kind::Lock);
        try_wrap(self.0.try_write(), |guard| RwLockWriteGuard { held, guard })
    }

    /// Locks exclusive.
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let held = Held::new(self, Kind::Lock);
        wrap(self.0.write(), |guard| RwLockWriteGuard { held, guard })
    }
}

/// As of the standard library. Nothing is noted of itself; who waits unlocks meanwhile.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// As of the standard library.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Waits.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let (held, guard) = (guard.held, guard.guard);
        wrap(self.0.wait(guard), |guard| MutexGuard { held, guard })
    }

    /// Waits, but not for ever. Whether it was as long as it may is told, too.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, std::sync::WaitTimeoutResult)> {
        let (held, guard) = (guard.held, guard.guard);
        wrap(self.0.wait_timeout(guard, timeout), |(guard, result)| (MutexGuard { held, guard }, result))
    }

    /// Wakes one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A result with what is made of the guard in it, poisoned or not.
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
