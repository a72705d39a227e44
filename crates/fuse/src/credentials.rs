//! The credentials of requests: sessions that act for the callers.
//!
//! A request names user and group of the caller, but neither its other groups nor its capabilities.
//! That is enough to set the owner of a new file. The kernel checks permissions before it sends a
//! request (`default_permissions`), with all that it knows of the caller. So the session that acts
//! for the caller passes these checks, instead of failing some for lack of a group.
//!
//! The server itself checks inode flags, which no capability overrides, and reserved space. A
//! session has the capability for reserved space only if the caller has it.
//!
//! `Server` owns them, and the handlers of `ops` take a session from here for each request. A
//! session is for one caller, and its rights never exceed the rights that the kernel has checked or
//! `/proc` confirms.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use extern4_sync::per_thread::PerThread;
use extern4_vfs::{Caps, Cred, Location, Namespace, OpenFlags, Result, Session, SuperBlock};

use crate::abi::{Features, InHeader, Opcode};
use crate::caller::{CHECKED, Caller, Process};
use crate::handles::Handle;
use crate::protocol::Protocol;

/// The session that each thread used last. A new session would count references that all threads
/// share, and most requests come from the same caller as the request before.
type Idle = PerThread<Cell<Option<Session>>>;

/// A session that acts for a caller. Its thread keeps it for the next request.
pub(crate) struct RequestSession<'s> {
    credentials: &'s Credentials,
    /// The session, and the location to which it goes back: an idle session keeps no file in use.
    /// It is `Some` until this is dropped.
    acting: Option<(Session, Location)>,
}

impl Deref for RequestSession<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.acting.as_ref().expect("until it is dropped").0
    }
}

impl DerefMut for RequestSession<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.acting.as_mut().expect("until it is dropped").0
    }
}

impl Drop for RequestSession<'_> {
    fn drop(&mut self) {
        let Some((mut session, home)) = self.acting.take() else {
            return;
        };
        let at = session.replace_cwd(home);
        session.set_umask(0);
        self.credentials.idle.with(|idle| idle.set(Some(session)));
        // This may drop the last reference to a file.
        drop(at);
    }
}

/// Makes the sessions that act for callers.
pub(crate) struct Credentials {
    base: Session,
    idle: Idle,
    /// Each caller acts as root on the volume.
    fakeroot: bool,
    protocol: Arc<Protocol>,
}

impl Credentials {
    /// Creates the sessions of a server for the tree at the root of `namespace`.
    pub(crate) fn new(
        namespace: &Arc<Namespace>,
        fakeroot: bool,
        protocol: &Arc<Protocol>,
    ) -> Self {
        let base = Session::new(namespace, Cred::root()).with_umask(0);
        Self {
            base,
            idle: Idle::new(),
            fakeroot,
            protocol: Arc::clone(protocol),
        }
    }

    pub(crate) fn superblock(&self) -> &Arc<SuperBlock> {
        self.base.namespace().superblock()
    }

    /// Returns a session at `at` that may do everything, for requests that the kernel alone checks.
    pub(crate) fn superuser(&self, at: &Location) -> Session {
        self.base.at(at)
    }

    /// Returns the caller behind a request. A kernel that maps users names a caller only where the
    /// request makes a file, and then as the mount maps it. Such an id implies no capability.
    pub(crate) fn caller(&self, header: &InHeader) -> Caller {
        let caller = Caller::of(header);
        if self.fakeroot {
            return Caller {
                caps: Caps::all(),
                ..caller
            };
        }
        // The kernel itself writes pages of mapped files back.
        let is_kernel = header.pid == 0 && header.opcode == Opcode::Write as u32;
        if self.protocol.has(Features::ALLOW_IDMAP) && !is_kernel {
            Caller {
                caps: Caps::empty(),
                ..caller
            }
        } else {
            caller
        }
    }

    /// Completes a caller from its state in `/proc`, if the kernel maps users and so does not send
    /// its ids. That takes longer than most requests, so a handler calls this only where it
    /// matters.
    pub(crate) fn identified(&self, caller: &Caller) -> Caller {
        let process = self
            .protocol
            .has(Features::ALLOW_IDMAP)
            .then(|| Process::of(caller.pid))
            .flatten();
        let Some(Process { uid, gid, caps, .. }) = process else {
            return *caller;
        };
        let known = |id: u32, own: u32| if id == u32::MAX { own } else { id };
        Caller {
            uid: known(caller.uid, uid),
            gid: known(caller.gid, gid),
            caps,
            ..*caller
        }
    }

    /// Returns the caller with its own ids, even if the kernel has sent those to which the mount
    /// maps them.
    pub(crate) fn itself(&self, caller: &Caller) -> Caller {
        let maps = self.protocol.has(Features::ALLOW_IDMAP);
        let unnamed = Caller {
            uid: u32::MAX,
            gid: u32::MAX,
            ..*caller
        };
        if maps {
            self.identified(&unnamed)
        } else {
            *caller
        }
    }

    /// Returns a session that acts for the caller at `at`.
    pub(crate) fn session(&self, caller: &Caller, at: &Location) -> RequestSession<'_> {
        let idle = self.idle.with(Cell::take).flatten();
        let caps = CHECKED | caller.caps;
        let is_of_caller = |session: &Session| {
            let cred = session.cred();
            (cred.uid(), cred.gid(), cred.caps()) == (caller.uid, caller.gid, caps)
        };
        let mut session = idle
            .filter(is_of_caller)
            .unwrap_or_else(|| self.base.with_cred(caller.cred(&[])));
        let home = session.replace_cwd(at.clone());
        RequestSession {
            credentials: self,
            acting: Some((session, home)),
        }
    }

    /// Returns a session that acts for the caller at `at`, without these capabilities.
    pub(crate) fn session_without(&self, caller: &Caller, at: &Location, without: Caps) -> Session {
        let cred = caller.cred(&[]);
        let caps = cred.caps() - without;
        self.base.with_cred(cred.with_caps(caps)).at(at)
    }

    /// Returns a session for a caller that writes and may not keep set-id bits, with its other
    /// groups where these matter. A set-group-id bit without execute permission for the group is no
    /// privilege, and stays if the caller is in the group.
    pub(crate) fn session_of_writer(&self, caller: &Caller, at: &Location) -> Session {
        if self.fakeroot {
            return self.session_without(caller, at, Caps::empty());
        }
        let attr = at.attr();
        let is_mark = attr.mode & 0o2010 == 0o2000;
        let caller = if is_mark {
            self.identified(caller)
        } else {
            *caller
        };
        let process = (is_mark && attr.gid != caller.gid)
            .then(|| Process::of(caller.pid))
            .flatten();
        let cred = caller.cred(&process.map_or_else(Vec::new, |process| process.groups));
        let caps = cred.caps() - Caps::FSETID;
        self.base.with_cred(cred.with_caps(caps)).at(at)
    }

    /// Opens a file for the caller.
    pub(crate) fn open(
        &self,
        caller: &Caller,
        location: Location,
        flags: OpenFlags,
    ) -> Result<Arc<Handle>> {
        let file = self
            .session(caller, &location)
            .open_location(location, flags, b"")?;
        Ok(Handle::new(caller, file))
    }

    /// Returns whether the caller may see `trusted.*`, which the kernel lets only root read.
    pub(crate) fn shows_trusted(&self, caller: &Caller) -> bool {
        let caller = self.identified(caller);
        let is_fake = self.fakeroot && caller.uid != 0;
        !is_fake && caller.caps.contains(Caps::SYS_ADMIN)
    }

    /// Returns a session with no more rights than the request implies, for questions about rights.
    pub(crate) fn session_unchecked(&self, caller: &Caller, at: &Location) -> Session {
        let cred = Cred::new(caller.uid, caller.gid, &[]);
        let cred = if self.fakeroot {
            cred.with_caps(Caps::all())
        } else {
            cred
        };
        self.base.with_cred(cred).at(at)
    }
}
