//! Locks that a panic does not poison.
//!
//! All modules of this crate lock through it. A panic in the answer to one request must not make
//! all later requests panic. That is sound here because the data under these locks changes in
//! single steps, and so is whole even after a panic.

use extern4_sync::primitive::{Mutex, MutexGuard};

/// Takes a lock, even if a holder has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
