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

use crate::abi::{Features, InHeader, Opcode};
use crate::server::Server;

/// The capabilities behind checks that the kernel has made: of permission bits and ACLs, of owners, of the sticky bit, of who may
/// set set-id bits, attributes and flags, or make devices. Not `SYS_RESOURCE`, which no check comes before.
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
    /// The caller that a request names. Root has every capability.
    pub(crate) fn of(header: &InHeader) -> Self {
        let InHeader { uid, gid, pid, .. } = *header;
        Self { uid, gid, pid, caps: if uid == 0 { Caps::all() } else { Caps::empty() } }
    }

    /// The credentials to act with, where the kernel has checked the caller's.
    fn cred(&self, groups: &[u32]) -> Cred {
        Cred::new(self.uid, self.gid, groups).with_caps(CHECKED | self.caps)
    }
}

/// What `/proc` tells of a process. One that waits for an answer cannot end before it has it.
struct Process {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// As seen from the user namespace of this process.
    caps: Caps,
}

impl Process {
    /// `None` for a process that cannot be seen from here, and for a thread of the kernel, such as an NFS server's: it acts for users
    /// that `/proc` does not tell.
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
        // Root has all of them, as where a request names it.
        let caps = if uid == 0 { Caps::all() } else { Caps::from_bits_truncate(caps) };
        let caps = if shares_users(pid) { caps } else { Caps::empty() };
        Some(Self { uid, gid, groups, caps })
    }
}

/// Whether a process is of the user namespace of this one: in any other, its capabilities count for nothing here.
fn shares_users(pid: u32) -> bool {
    let users = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let own = std::process::id();
    // A `/proc` of another PID namespace counts processes in another way.
    let is_ours = std::fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == &*own.to_string());
    is_ours && users(own).is_some_and(|own| users(pid) == Some(own))
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
    /// The caller behind a request. A kernel that maps users names one only where something is made, and then as the mount maps it, which
    /// tells of no capability.
    pub(crate) fn caller(&self, header: &InHeader) -> Caller {
        let caller = Caller::of(header);
        if self.config().fakeroot.is_some() {
            return Caller { caps: Caps::all(), ..caller };
        }
        // Pages of mapped files that are written back are the kernel's own.
        let is_kernel = header.pid == 0 && header.opcode == Opcode::Write as u32;
        match self.has(Features::ALLOW_IDMAP) && !is_kernel {
            true => Caller { caps: Caps::empty(), ..caller },
            false => caller,
        }
    }

    /// The same caller with what `/proc` tells, where the kernel maps users and so does not tell it. That takes longer than most
    /// requests do, and is for those where it matters.
    pub(crate) fn identified(&self, caller: &Caller) -> Caller {
        let process = self.has(Features::ALLOW_IDMAP).then(|| Process::of(caller.pid)).flatten();
        let Some(Process { uid, gid, caps, .. }) = process else { return *caller };
        let known = |id: u32, own: u32| if id == u32::MAX { own } else { id };
        Caller { uid: known(caller.uid, uid), gid: known(caller.gid, gid), caps, ..*caller }
    }

    /// The same caller by its own ids, also where the kernel has named it as the mount maps it.
    pub(crate) fn itself(&self, caller: &Caller) -> Caller {
        let maps = self.has(Features::ALLOW_IDMAP);
        let unnamed = Caller { uid: u32::MAX, gid: u32::MAX, ..*caller };
        if maps { self.identified(&unnamed) } else { *caller }
    }

    /// A session that acts for the caller at `at`.
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

    /// The same without these capabilities.
    pub(crate) fn session_without(&self, caller: &Caller, at: &Location, without: Caps) -> Session {
        let cred = caller.cred(&[]);
        let caps = cred.caps() - without;
        self.base.with_cred(cred.with_caps(caps)).at(at)
    }

    /// The same of a caller that writes and may not keep set-id bits, with its other groups where these matter: a set-group-id bit that is
    /// no privilege stays for members.
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

    /// A session with no more rights than a request tells of, for questions about rights.
    pub(crate) fn session_unchecked(&self, caller: &Caller, at: &Location) -> Session {
        let cred = Cred::new(caller.uid, caller.gid, &[]);
        let cred = if self.config().fakeroot.is_some() { cred.with_caps(Caps::all()) } else { cred };
        self.base.with_cred(cred).at(at)
    }
}
