//! An inode of a model, whose ACL is kept by a mechanism.

use std::sync::Arc;

use extern4_sync::primitive::{AtomicU32, Ordering};
use extern4_vfs::{Access, Acl, Attr, Cred};

use super::Slot;
use crate::volume::{Node, judge};

/// Attributes of which the permission bits change, and an ACL.
pub struct Guarded<S> {
    attr: Attr,
    mode: AtomicU32,
    slot: S,
}

impl<S> Guarded<S> {
    /// What is known of its ACL.
    #[inline]
    pub fn slot(&self) -> &S {
        &self.slot
    }

    /// Its permission bits.
    #[inline]
    pub fn mode(&self) -> u16 {
        // Acquire: pairs with the Release in `set_rights`. OK: it was sixteen bits.
        self.mode.load(Ordering::Acquire) as u16
    }
}

impl<S: Slot> Node for Guarded<S> {
    fn new(attr: Attr) -> Self {
        let slot = S::default();
        slot.set(None);
        Self { mode: AtomicU32::new(attr.mode.into()), attr, slot }
    }

    #[inline]
    fn attr(&self) -> Attr {
        Attr { mode: self.mode(), ..self.attr }
    }

    #[inline]
    fn may(&self, cred: &Cred, want: Access) -> bool {
        let standing = (self.attr.uid, self.attr.gid, self.mode());
        judge(cred, standing, want, || self.slot.get(|| None))
    }

    #[inline]
    fn acl(&self) -> Option<Arc<Acl>> {
        self.slot.get(|| None)
    }

    fn set_rights(&self, mode: u16, acl: Option<Arc<Acl>>) {
        self.slot.set(acl);
        self.mode.store(mode.into(), Ordering::Release);
    }
}
