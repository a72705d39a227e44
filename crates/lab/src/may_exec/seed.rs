//! Seed: a flag that says that everybody may search.

use std::sync::Arc;

use extern4_sync::primitive::{AtomicBool, Ordering};
use extern4_vfs::{Access, Acl, Attr, Cred, FileType};

use super::{General, MayKnow};
use crate::volume::Node;

/// An inode with the flag, which whoever changes its rights computes anew.
pub struct Flagged {
    everybody_may_search: AtomicBool,
    general: General,
}

impl Flagged {
    fn compute(&self) {
        let general = &self.general;
        let is_dir = general.attr().kind == FileType::Directory;
        let everybody = is_dir && general.mode() & 0o111 == 0o111 && general.has_no_acl();
        // Release: pairs with the Acquire in `knows`.
        self.everybody_may_search.store(everybody, Ordering::Release);
    }
}

impl Node for Flagged {
    fn new(attr: Attr) -> Self {
        let flagged = Self { everybody_may_search: AtomicBool::new(false), general: General::new(attr) };
        flagged.compute();
        flagged
    }

    #[inline]
    fn attr(&self) -> Attr {
        self.general.attr()
    }

    #[inline]
    fn may(&self, cred: &Cred, want: Access) -> bool {
        self.general.may(cred, want)
    }

    #[inline]
    fn may_search(&self, cred: &Cred, fast: bool) -> bool {
        fast && self.knows() || self.general.may(cred, Access::EXEC)
    }

    fn acl(&self) -> Option<Arc<Acl>> {
        self.general.acl()
    }

    fn set_rights(&self, mode: u16, acl: Option<Arc<Acl>>) {
        self.general.set_rights(mode, acl);
        self.compute();
    }
}

impl MayKnow for Flagged {
    #[inline]
    fn knows(&self) -> bool {
        // Acquire: pairs with the Release in `compute`.
        self.everybody_may_search.load(Ordering::Acquire)
    }
}
