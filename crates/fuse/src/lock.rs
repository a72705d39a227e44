//! Locks whose holder may have panicked: what they guard is changed in single steps, and is whole then, too.

use extern4_sync::primitive::{Mutex, MutexGuard};

/// Takes a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
