//! The caller behind a request.
//!
//! A request names user and group of the caller, but neither its other groups nor its capabilities.
//! That is enough to set the owner of a new file. The kernel checks permissions before it sends a
//! request (`default_permissions`), with all that it knows of the caller. So the session that acts
//! for the caller passes these checks, instead of failing some for lack of a group.
//!
//! The server itself checks inode flags and reserved space, and no such capability overrides those.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use extern4_sync::per_thread::PerThread;
use extern4_vfs::{Caps, Cred, Location, Session};

use crate::abi::{Features, InHeader, Opcode};
use crate::server::Server;

/// The capabilities behind checks that the kernel has made: of permission bits and ACLs, of owners,
/// of the sticky bit, and of the right to set set-id bits, attributes and flags, or make devices.
/// Not `SYS_RESOURCE`: no check by the kernel precedes its use.
const CHECKED: Caps = Caps::all().difference(Caps::SYS_RESOURCE);

/// The user behind a request, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// 0 for the kernel itself, and for a process of another PID namespace.
    pub(crate) pid: u32,
    /// Capabilities that the caller is known to have.
    pub(crate) caps: Caps,
}

impl Caller {
    /// Returns the caller that a request names. Root has every capability.
    pub(crate) fn of(header: &InHeader) -> Self {
        let InHeader { uid, gid, pid, .. } = *header;
        Self { uid, gid, pid, caps: if uid == 0 { Caps::all() } else { Caps::empty() } }
    }

    /// Returns the credentials to act with, where the kernel has checked the caller's.
    fn cred(&self, groups: &[u32]) -> Cred {
        Cred::new(self.uid, self.gid, groups).with_caps(CHECKED | self.caps)
    }
}

/// The state of a process in `/proc`. A process that waits for an answer cannot end before it has
/// it.
struct Process {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// As seen from the user namespace of this process.
    caps: Caps,
}

impl Process {
    /// Reads the state of process `pid`. `None` for a process that is not visible from here, and
    /// for a thread of the kernel, such as an NFS server's. Such a thread acts for users that
    /// `/proc` does not show.
    fn of(pid: u32) -> Option<Self> {
        let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        if field("Kthread:").is_some_and(|is_one| is_one.trim() == "1") {
            return None;
        }
        // proc_pid_status(5): real, effective, saved, and the one that counts for files.
        let id = |name| field(name)?.split_whitespace().nth(3)?.parse().ok();
        let groups = field("Groups:")?.split_whitespace().filter_map(|group| group.parse().ok()).collect();
        let caps = u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?;
        let (uid, gid) = (id("Uid:")?, id("Gid:")?);
        // Root has every capability, as where a request names root.
        let caps = if uid == 0 { Caps::all() } else { Caps::from_bits_truncate(caps) };
        let caps = if shares_users(pid) { caps } else { Caps::empty() };
        Some(Self { uid, gid, groups, caps })
    }
}

/// Returns whether a process is of the user namespace of this one. In any other, its capabilities
/// count for nothing here.
fn shares_users(pid: u32) -> bool {
    let users = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let own = std::process::id();
    // A `/proc` of another PID namespace numbers processes differently.
    let is_ours = std::fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == &*own.to_string());
    is_ours && users(own).is_some_and(|own| users(pid) == Some(own))
}

/// The session with which each thread acted last. Making one counts references that all threads
/// share, and most requests come from the caller before.
pub(crate) type Idle = PerThread<Cell<Option<Session>>>;

/// A session that acts for a caller. Its thread keeps it for the next request.
pub(crate) struct Acting<'s> {
    server: &'s Server,
    /// The session, and the location to which it goes back: an idle session keeps no file in use.
    /// It is `Some` until this is dropped.
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
        // This may drop the last reference to a file.
        drop(at);
    }
}

impl Server {
    /// Returns the caller behind a request. A kernel that maps users names a caller only where the
    /// request makes a file, and then as the mount maps it. Such an id implies no capability.
    pub(crate) fn caller(&self, header: &InHeader) -> Caller {
        let caller = Caller::of(header);
        if self.config().fakeroot.is_some() {
            return Caller { caps: Caps::all(), ..caller };
        }
        // The kernel itself writes pages of mapped files back.
        let is_kernel = header.pid == 0 && header.opcode == Opcode::Write as u32;
        match self.has(Features::ALLOW_IDMAP) && !is_kernel {
            true => Caller { caps: Caps::empty(), ..caller },
            false => caller,
        }
    }

    /// Returns this caller with its state in `/proc`, where the kernel maps users and so does not
    /// send it. That takes longer than most requests, so only requests for which it matters do it.
    pub(crate) fn identified(&self, caller: &Caller) -> Caller {
        let process = self.has(Features::ALLOW_IDMAP).then(|| Process::of(caller.pid)).flatten();
        let Some(Process { uid, gid, caps, .. }) = process else { return *caller };
        let known = |id: u32, own: u32| if id == u32::MAX { own } else { id };
        Caller { uid: known(caller.uid, uid), gid: known(caller.gid, gid), caps, ..*caller }
    }

    /// Returns this caller by its own ids, also where the kernel has named it as the mount maps it.
    pub(crate) fn itself(&self, caller: &Caller) -> Caller {
        let maps = self.has(Features::ALLOW_IDMAP);
        let unnamed = Caller { uid: u32::MAX, gid: u32::MAX, ..*caller };
        if maps { self.identified(&unnamed) } else { *caller }
    }

    /// Returns a session that acts for the caller at `at`.
    pub(crate) fn session(&self, caller: &Caller, at: &Location) -> Acting<'_> {
        let idle = self.idle.with(Cell::take).flatten();
        let caps = CHECKED | caller.caps;
        let is_his = |session: &Session| {
            let cred = session.cred();
            (cred.uid(), cred.gid(), cred.caps()) == (caller.uid, caller.gid, caps)
        };
        let mut session = idle.filter(is_his).unwrap_or_else(|| self.base.with_cred(caller.cred(&[])));
        let home = session.replace_cwd(at.clone());
        Acting { server: self, acting: Some((session, home)) }
    }

    /// Returns a session that acts for the caller at `at`, without these capabilities.
    pub(crate) fn session_without(&self, caller: &Caller, at: &Location, without: Caps) -> Session {
        let cred = caller.cred(&[]);
        let caps = cred.caps() - without;
        self.base.with_cred(cred.with_caps(caps)).at(at)
    }

    /// Returns a session for a caller that writes and may not keep set-id bits, with its other
    /// groups where these matter. A set-group-id bit that is no privilege stays for members.
    pub(crate) fn session_of_writer(&self, caller: &Caller, at: &Location) -> Session {
        if self.config().fakeroot.is_some() {
            return self.session_without(caller, at, Caps::empty());
        }
        let attr = at.attr();
        let is_mark = attr.mode & 0o2010 == 0o2000;
        let caller = if is_mark { self.identified(caller) } else { *caller };
        let process = (is_mark && attr.gid != caller.gid).then(|| Process::of(caller.pid)).flatten();
        let cred = caller.cred(&process.map_or_else(Vec::new, |process| process.groups));
        let caps = cred.caps() - Caps::FSETID;
        self.base.with_cred(cred.with_caps(caps)).at(at)
    }

    /// Returns a session with no more rights than the request implies, for questions about rights.
    pub(crate) fn session_unchecked(&self, caller: &Caller, at: &Location) -> Session {
        let cred = Cred::new(caller.uid, caller.gid, &[]);
        let cred = if self.config().fakeroot.is_some() { cred.with_caps(Caps::all()) } else { cred };
        self.base.with_cred(cred).at(at)
    }
}
