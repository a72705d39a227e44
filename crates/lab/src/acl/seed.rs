//! Seed: no lock to learn that there is no ACL.

use std::sync::Arc;

use extern4_sync::primitive::{AtomicBool, Ordering};
use extern4_vfs::Acl;

use super::{Locked, Slot};

/// Whether it is known that there is none, to be looked at without a lock, beside what is known under one.
///
/// Where Linux has a pointer that is null, here is a flag. Like that, it says something only if it is set.
#[derive(Default)]
pub struct Speculative {
    none: AtomicBool,
    known: Locked,
}

impl Speculative {
    /// There is none. If this says that there may be one, that has to be looked up.
    #[inline]
    pub fn is_none(&self) -> bool {
        // Relaxed: that there is none leads to no memory. Who sets one meanwhile may have come later.
        self.none.load(Ordering::Relaxed)
    }
}

impl Slot for Speculative {
    #[inline]
    fn get(&self, ask: impl FnOnce() -> Option<Arc<Acl>>) -> Option<Arc<Acl>> {
        if self.is_none() {
            return None;
        }
        self.known.get(ask)
    }

    fn set(&self, acl: Option<Arc<Acl>>) {
        let none = acl.is_none();
        if !none {
            self.none.store(false, Ordering::Relaxed);
        }
        self.known.set(acl);
        if none {
            self.none.store(true, Ordering::Relaxed);
        }
    }
}
