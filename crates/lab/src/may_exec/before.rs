//! Before: the general check.

use std::sync::Arc;

use extern4_vfs::{Access, Acl, Attr, Cred, FileFlags, FileType, SecurityHook};

use super::MayKnow;
use crate::acl::{Guarded, Speculative};
use crate::volume::Node;

/// An inode that is asked all there is to ask, each time.
pub struct General {
    rights: Guarded<Speculative>,
    /// It stands for a device, which a control group may forbid.
    is_device: bool,
    /// Nothing may be changed on its file system, or nothing of it.
    unchanging: bool,
    /// Who else has a say.
    security: Option<&'static dyn SecurityHook>,
}

impl General {
    /// What everybody may, or this user. As in Linux, a function of its own.
    #[inline(never)]
    fn generic(&self, cred: &Cred, want: Access) -> bool {
        let (mode, bits) = (self.rights.mode(), u16::from(want.bits()));
        let everybody = mode & mode >> 3 & mode >> 6;
        everybody & bits == bits && self.has_no_acl() || self.rights.may(cred, want)
    }

    /// All that there is to check. As in Linux, a function of its own.
    #[inline(never)]
    fn check(&self, cred: &Cred, want: Access) -> bool {
        !(want.contains(Access::WRITE) && self.unchanging)
            && self.generic(cred, want)
            && !self.is_device
            // The volumes here have none.
            && self.security.is_none()
    }

    /// It has no ACL.
    #[inline]
    pub(super) fn has_no_acl(&self) -> bool {
        self.rights.slot().is_none()
    }

    /// Its permission bits.
    pub(super) fn mode(&self) -> u16 {
        self.rights.mode()
    }
}

impl Node for General {
    fn new(attr: Attr) -> Self {
        Self {
            rights: Guarded::new(attr),
            is_device: matches!(attr.kind, FileType::BlockDevice | FileType::CharDevice),
            unchanging: attr.flags.contains(FileFlags::IMMUTABLE),
            security: None,
        }
    }

    #[inline]
    fn attr(&self) -> Attr {
        self.rights.attr()
    }

    #[inline]
    fn may(&self, cred: &Cred, want: Access) -> bool {
        self.check(cred, want)
    }

    fn acl(&self) -> Option<Arc<Acl>> {
        self.rights.acl()
    }

    fn set_rights(&self, mode: u16, acl: Option<Arc<Acl>>) {
        self.rights.set_rights(mode, acl);
    }
}

impl MayKnow for General {
    fn knows(&self) -> bool {
        false
    }
}
