//! Who is behind a request.
//!
//! A request names user and group, but neither the other groups nor the capabilities of the caller. That is enough for what a new
//! file belongs to. Whether the caller may do what he asks for the kernel has found out before it asks
//! (`default_permissions`), with all that it knows of him: so the session that acts for him passes these checks, instead of failing some
//! for want of a group. What is left to us, flags of inodes and space that is kept back, no such capability overrides.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use extern4_sync::per_thread::PerThread;
use extern4_vfs::{Caps, Cred, Location, Session};

use crate::abi::InHeader;
use crate::server::Server;

/// The capabilities behind checks that the kernel has made: of permission bits and ACLs, of owners, of the sticky bit, of who may
/// set set-id bits, attributes and flags, or make devices. Not `SYS_RESOURCE`, which no check comes before.
const CHECKED: Caps = Caps::all().difference(Caps::SYS_RESOURCE);

/// The other groups of a process, which waits for an answer; none of one that cannot be seen from here.
fn groups(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// The session that each thread has acted with last. To make one counts references that all threads count, and most requests come from
/// who was there before.
pub(crate) type Idle = PerThread<Cell<Option<Session>>>;

/// A session that acts for a caller. Its thread keeps it for the next request.
pub(crate) struct Acting<'s> {
    server: &'s Server,
    /// It, and where it has been and goes back to: an idle session keeps no file in use. There is one until this is dropped.
    acting: Option<(Session, Location)>,
}

impl Deref for Acting<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.acting.as_ref().expect("until it is dropped").0
    }
}

impl DerefMut for Acting<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.acting.as_mut().expect("until it is dropped").0
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let Some((mut session, home)) = self.acting.take() else { return };
        let at = session.replace_cwd(home);
        session.set_umask(0);
        self.server.idle.with(|idle| idle.set(Some(session)));
        // It may have been the last who used a file.
        drop(at);
    }
}

impl Server {
    /// The credentials to act with, where the kernel has checked the caller's, or nothing is to be checked.
    fn cred(&self, header: &InHeader) -> Cred {
        let cred = Cred::new(header.uid, header.gid, &[]);
        match (self.config().fakeroot.is_some(), header.uid) {
            (true, _) => cred.with_caps(Caps::all()),
            (false, 0) => cred,
            (false, _) => cred.with_caps(CHECKED),
        }
    }

    /// A session that acts for the caller at `at`.
    pub(crate) fn session(&self, header: &InHeader, at: &Location) -> Acting<'_> {
        let idle = self.idle.with(Cell::take).flatten();
        let is_his =
            |session: &Session| (session.cred().uid(), session.cred().gid()) == (header.uid, header.gid);
        let mut session = idle.filter(is_his).unwrap_or_else(|| self.base.with_cred(self.cred(header)));
        let home = session.replace_cwd(at.clone());
        Acting { server: self, acting: Some((session, home)) }
    }

    /// The same without these capabilities.
    pub(crate) fn session_without(&self, header: &InHeader, at: &Location, without: Caps) -> Session {
        let cred = self.cred(header);
        let caps = cred.caps() - without;
        self.base.with_cred(cred.with_caps(caps)).at(at)
    }

    /// The same of who writes and may not keep set-id bits, with his other groups where these matter: a set-group-id bit that is no
    /// privilege stays for members.
    pub(crate) fn session_of_writer(&self, header: &InHeader, at: &Location) -> Session {
        if self.config().fakeroot.is_some() {
            return self.session_without(header, at, Caps::empty());
        }
        let attr = at.attr();
        let is_mark = attr.mode & 0o2010 == 0o2000 && attr.gid != header.gid;
        let groups = if is_mark { groups(header.pid) } else { Vec::new() };
        let cred = Cred::new(header.uid, header.gid, &groups);
        self.base.with_cred(cred.with_caps(self.cred(header).caps() - Caps::FSETID)).at(at)
    }

    /// A session with no more rights than a request tells of, for questions about rights.
    pub(crate) fn session_unchecked(&self, header: &InHeader, at: &Location) -> Session {
        let cred = Cred::new(header.uid, header.gid, &[]);
        let cred = if self.config().fakeroot.is_some() { cred.with_caps(Caps::all()) } else { cred };
        self.base.with_cred(cred).at(at)
    }
}
