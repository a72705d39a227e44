//! Before: a lock in each inode.

use std::sync::{Arc, PoisonError};

use extern4_sync::primitive::Latch;
use extern4_vfs::Acl;

use super::{Known, Slot};

/// What is known, under a lock. Whoever gets an ACL has counted himself.
pub struct Locked(Latch<Known>);

impl Default for Locked {
    fn default() -> Self {
        Self(Latch::new(None))
    }
}

impl Slot for Locked {
    fn get(&self, ask: impl FnOnce() -> Option<Arc<Acl>>) -> Option<Arc<Acl>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known.unwrap_or_else(|| {
            let answer = ask();
            // One who has set it meanwhile knows better.
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(answer).clone()
        })
    }

    fn set(&self, acl: Option<Arc<Acl>>) {
        // What was there is freed when the lock is free.
        let _old = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(acl);
    }
}
