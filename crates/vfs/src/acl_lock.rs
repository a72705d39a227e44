//! The ACL lock of an inode, which the lab measures the permission cache against.
//!
//! Two of the lab's search checks (`permission::lab`) take it to learn whether an inode has an ACL.
//! One counts the user of the ACL, as a check that holds a reference would. It exists in the lab's
//! build only, and production never takes it. It only makes the checks cost more: the answers come
//! from the permission cache.

use std::sync::PoisonError;

use extern4_sync::primitive::{AtomicU64, Latch, Ordering};

/// The lock of an inode's ACL, and the number of its users.
pub(crate) struct AclLock {
    lock: Latch<()>,
    users: AtomicU64,
}

impl Default for AclLock {
    fn default() -> Self {
        Self {
            lock: Latch::new(()),
            users: AtomicU64::new(0),
        }
    }
}

/// A counted use of an ACL.
pub(crate) struct Counted<'i>(&'i AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        // Release: as in the drop of a reference. No Acquire pairs with it: nothing is freed here.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl AclLock {
    /// Asks under the lock whether there is an ACL, and counts its user if so.
    #[inline]
    pub(crate) fn ask(&self, has_acl: impl FnOnce() -> bool) -> Option<Counted<'_>> {
        let _locked = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        has_acl().then(|| {
            // Relaxed: the lock orders it.
            self.users.fetch_add(1, Ordering::Relaxed);
            Counted(&self.users)
        })
    }
}
