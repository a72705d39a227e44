//! The caller behind a request: the user that the request names, and its process in `/proc`.
//!
//! A request names a user, a group and a process. `/proc` has the rest, as long as the process
//! waits for the answer. For a process that is not visible from here, and for a kernel thread,
//! [`Process::of`] returns `None`. The caller then has only the rights that the request implies.
//! The module `credentials` makes the sessions that act for a caller, from [`Caller`] and
//! [`Process`].

use extern4_vfs::{Caps, Cred};

use crate::abi::InHeader;

/// The capabilities behind checks that the kernel has made. It checks permission bits and ACLs,
/// owners, the sticky bit, and the right to set set-id bits, attributes and flags, or to make
/// devices. `SYS_RESOURCE` is not among them: no check by the kernel precedes its use.
pub(crate) const CHECKED: Caps = Caps::all().difference(Caps::SYS_RESOURCE);

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
        Self {
            uid,
            gid,
            pid,
            caps: if uid == 0 { Caps::all() } else { Caps::empty() },
        }
    }

    /// Returns the credentials to act with, where the kernel has checked the caller's.
    pub(crate) fn cred(&self, groups: &[u32]) -> Cred {
        Cred::new(self.uid, self.gid, groups).with_caps(CHECKED | self.caps)
    }
}

/// The state of a process in `/proc`. A process that waits for an answer cannot end before the
/// answer comes.
pub(crate) struct Process {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    /// As seen from the user namespace of this process.
    pub(crate) caps: Caps,
}

impl Process {
    /// Reads the state of process `pid`. `None` for a process that is not visible from here, and
    /// for a thread of the kernel, such as an NFS server's. Such a thread acts for users that
    /// `/proc` does not show.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        if field("Kthread:").is_some_and(|is_one| is_one.trim() == "1") {
            return None;
        }
        // proc_pid_status(5): real, effective, saved, and the one that counts for files.
        let id = |name| field(name)?.split_whitespace().nth(3)?.parse().ok();
        let groups = field("Groups:")?
            .split_whitespace()
            .filter_map(|group| group.parse().ok())
            .collect();
        let caps = u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?;
        let uid = id("Uid:")?;
        let gid = id("Gid:")?;
        // Root has every capability, as where a request names root.
        let caps = if uid == 0 {
            Caps::all()
        } else {
            Caps::from_bits_truncate(caps)
        };
        let caps = if shares_users(pid) {
            caps
        } else {
            Caps::empty()
        };
        Some(Self {
            uid,
            gid,
            groups,
            caps,
        })
    }
}

/// Returns whether a process is of the user namespace of this one. In any other, its capabilities
/// count for nothing here.
fn shares_users(pid: u32) -> bool {
    let users = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let own = std::process::id();
    // A `/proc` of another PID namespace numbers processes differently.
    let is_ours =
        std::fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == &*own.to_string());
    is_ours && users(own).is_some_and(|own| users(pid) == Some(own))
}
