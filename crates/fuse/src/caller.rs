//! Who is behind a request.
//!
//! A request names user and group, but neither the other groups nor the capabilities of the caller. That is enough for what a new
//! file belongs to. Whether the caller may do what he asks for the kernel has found out before it asks
//! (`default_permissions`), with all that it knows of him: so the session that acts for him passes these checks, instead of failing some
//! for want of a group. What is left to us, flags of inodes and space that is kept back, no such capability overrides.

use extern4_vfs::{Caps, Cred, Location, Session};

use crate::abi::InHeader;
use crate::server::Server;

/// The capabilities behind checks that the kernel has made: of permission bits and ACLs, of owners, of the sticky bit, of who may
/// set set-id bits, attributes and flags, or make devices. Not `SYS_RESOURCE`, which no check comes before.
const CHECKED: Caps = Caps::all().difference(Caps::SYS_RESOURCE);

/// The credentials to act with, where the kernel has checked the caller's.
fn checked(header: &InHeader) -> Cred {
    let cred = Cred::new(header.uid, header.gid, &[]);
    if header.uid == 0 { cred } else { cred.with_caps(CHECKED) }
}

impl Server {
    /// A session that acts for the caller at `at`.
    pub(crate) fn session(&self, header: &InHeader, at: &Location) -> Session {
        self.base.with_cred(checked(header)).at(at)
    }

    /// The same with these capabilities only.
    pub(crate) fn session_without(&self, header: &InHeader, at: &Location, without: Caps) -> Session {
        let cred = checked(header);
        let caps = cred.caps() - without;
        self.base.with_cred(cred.with_caps(caps)).at(at)
    }

    /// A session with no more rights than a request tells of, for questions about rights.
    pub(crate) fn session_unchecked(&self, header: &InHeader, at: &Location) -> Session {
        self.base.with_cred(Cred::new(header.uid, header.gid, &[])).at(at)
    }
}
