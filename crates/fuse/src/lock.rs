//! Locks whose holder may have panicked. Their data changes in single steps, and so is whole then,
//! too.

use extern4_sync::primitive::{Mutex, MutexGuard};

/// Takes a lock, even if a holder has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
