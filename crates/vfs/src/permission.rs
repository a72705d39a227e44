//! Permission checks on inodes, by Linux's rules.
//!
//! All calls that look up, open or change files ask a `Checker`, which `SuperBlock` owns. An error
//! of the file system, for example an ACL that cannot be read, refuses access. A host adds checks
//! by a [`SecurityHook`]; those can refuse more and never allow more.
//!
//! The order of the checks is Linux's, since it decides which error a caller sees. Each step of a
//! path checks search permission on a directory. The permission cache alone answers where every
//! user may search: see `Checker::search`.

#[cfg(feature = "lab")]
pub(crate) mod lab;
#[cfg(not(feature = "lab"))]
#[path = "permission/no_lab.rs"]
mod lab;

use std::sync::Arc;

use extern4_acl::{Acl, AclKind};
use extern4_sync::rcu::{Guard, pin};

use crate::acl_cache::AclPool;
use crate::attr::FileType;
use crate::cred::{Caps, Cred};
use crate::errno::{Errno, Result};
use crate::fs::FileSystem;
use crate::inode::Inode;
use crate::permission_cache::{AclState, PermBits};
use lab::Check;

bitflags::bitflags! {
    /// Rights asked for; the bits come from `access(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u8 {
        /// Execute a file, search a directory.
        const EXEC = 1;
        /// Write.
        const WRITE = 2;
        /// Read.
        const READ = 4;
    }
}

/// Further checks that a host adds to Linux's own, as a security module does. The VFS calls a
/// method only after the ordinary checks have passed. It may call it inside an RCU read section, so
/// a method must not wait for anything, nor call back into the file system.
pub trait SecurityHook: Send + Sync {
    /// Checks whether `cred` has these rights on `inode`.
    fn permission(&self, cred: &Cred, inode: &Inode, want: Access) -> Result<()>;
}

/// Checks permissions on the inodes of one file system.
pub(crate) struct Checker {
    fs: Arc<dyn FileSystem>,
    hook: Option<Arc<dyn SecurityHook>>,
    acls: AclPool,
    pub(crate) check: Check,
    /// Whether the file system lets the permission cache answer search checks:
    /// [`FsTraits::fast_may_exec`](crate::fs::FsTraits::fast_may_exec).
    pub(crate) fast: bool,
}

/// The way in which a search check was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// From the permission cache.
    Fast,
    /// By the full check.
    Full,
}

/// An answer that needs no waiting. It is one byte, because an answer that is built in memory costs
/// a walk more than the check itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    /// `EACCES`.
    Refused,
    /// The ACL has not been read yet, or the host's hook refuses, which has its own error.
    Unknown,
}

impl Checker {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, hook: Option<Arc<dyn SecurityHook>>) -> Self {
        Self {
            fast: fs.traits().fast_may_exec,
            fs,
            hook,
            acls: AclPool::new(),
            check: Check::default(),
        }
    }

    /// Checks whether `cred` may look names up in directory `dir`.
    pub(crate) fn search(&self, cred: &Cred, dir: &Inode) -> Result<Search> {
        if self.is_fast(dir) {
            compare_fast_search(cred, dir, &pin());
            return self
                .ask_hook(cred, dir, Access::EXEC)
                .map(|()| Search::Fast);
        }
        self.check_class(cred, dir, Access::EXEC)
            .map(|()| Search::Full)
    }

    /// Like [`search`](Self::search) for an RCU reader, which must not wait. `passed` is the ACL
    /// that let the caller through last.
    #[inline]
    pub(crate) fn search_seen<'g>(
        &self,
        cred: &Cred,
        dir: &'g Inode,
        guard: &'g Guard,
        passed: &mut Passed<'g>,
    ) -> (Verdict, Search) {
        if let Some(answer) = self.search_as(cred, dir, guard) {
            return answer;
        }
        if self.is_fast(dir) {
            compare_fast_search(cred, dir, guard);
            return (self.hook_verdict(cred, dir, Access::EXEC), Search::Fast);
        }
        let verdict = judge_by(cred, dir, Access::EXEC, guard, |acl, gid| {
            passed.allows(acl, gid, cred)
        });
        (
            self.with_hook(verdict, cred, dir, Access::EXEC),
            Search::Full,
        )
    }

    /// Returns whether the permission cache may answer for `dir`, and lets every user search it. A
    /// check of the lab that replaces it has to agree.
    #[inline]
    fn is_fast(&self, dir: &Inode) -> bool {
        self.fast && dir.perm().exec_all() && (self.is_by_cache() || self.lets_all(dir))
    }

    /// Returns whether the permission cache alone may answer search checks, because there is no
    /// hook.
    #[inline]
    pub(crate) fn cache_decides(&self) -> bool {
        self.fast && self.hook.is_none() && self.is_by_cache()
    }

    /// Checks whether `cred` has these rights on `inode`. `read_only` says whether the file system
    /// or the mount forbids writing.
    pub(crate) fn permission(
        &self,
        cred: &Cred,
        inode: &Inode,
        want: Access,
        read_only: bool,
    ) -> Result<()> {
        if want.contains(Access::WRITE) {
            let stored = matches!(
                inode.kind(),
                FileType::Regular | FileType::Directory | FileType::Symlink
            );
            if read_only && stored {
                return Err(Errno::EROFS.into());
            }
            if inode.perm().immutable() {
                return Err(Errno::EPERM.into());
            }
        }
        self.check(cred, inode, want)
    }

    /// Like [`permission`](Self::permission) for an RCU reader, which must not wait.
    pub(crate) fn permission_seen(
        &self,
        cred: &Cred,
        inode: &Inode,
        want: Access,
        read_only: bool,
        guard: &Guard,
    ) -> Verdict {
        if want.contains(Access::WRITE) && (read_only || inode.perm().immutable()) {
            // Only the full check can answer this.
            return Verdict::Unknown;
        }
        self.check_seen(cred, inode, want, guard)
    }

    /// Returns an ACL, from the cache or from the file system.
    pub(crate) fn acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        inode.acl(&*self.fs, &self.acls, kind)
    }

    /// Returns the one copy of an ACL.
    pub(crate) fn intern(&self, acl: Acl) -> Arc<Acl> {
        self.acls.intern(acl)
    }

    #[inline]
    pub(crate) fn check(&self, cred: &Cred, inode: &Inode, want: Access) -> Result<()> {
        if overrides(cred, want)
            || self.is_by_cache() && inode.perm().grants_all_classes(want.bits())
        {
            return self.ask_hook(cred, inode, want);
        }
        self.check_class(cred, inode, want)
    }

    /// Checks the rights of the owner, the group or others, or by an ACL.
    #[inline(never)]
    fn check_class(&self, cred: &Cred, inode: &Inode, want: Access) -> Result<()> {
        loop {
            let _counted = self.ask(cred, inode);
            // A separate statement, so that the read section ends before this calls the file
            // system or the hook.
            let verdict = judge(cred, inode, want, &pin());
            match verdict {
                Verdict::Granted => return self.ask_hook(cred, inode, want),
                Verdict::Refused => return Err(Errno::EACCES.into()),
                Verdict::Unknown => inode.learn_acl(&*self.fs, &self.acls, AclKind::Access)?,
            }
        }
    }

    #[inline]
    fn check_seen(&self, cred: &Cred, inode: &Inode, want: Access, guard: &Guard) -> Verdict {
        let _counted = self.ask(cred, inode);
        self.with_hook(judge(cred, inode, want, guard), cred, inode, want)
    }

    /// Adds the hook's answer to a verdict.
    #[inline]
    pub(crate) fn with_hook(
        &self,
        verdict: Verdict,
        cred: &Cred,
        inode: &Inode,
        want: Access,
    ) -> Verdict {
        match verdict {
            Verdict::Granted => self.hook_verdict(cred, inode, want),
            other => other,
        }
    }

    /// Asks the hook. Any refusal is [`Verdict::Unknown`], and the full check then returns the
    /// hook's error.
    #[inline]
    fn hook_verdict(&self, cred: &Cred, inode: &Inode, want: Access) -> Verdict {
        if self.ask_hook(cred, inode, want).is_ok() {
            Verdict::Granted
        } else {
            Verdict::Unknown
        }
    }

    #[inline]
    fn ask_hook(&self, cred: &Cred, inode: &Inode, want: Access) -> Result<()> {
        match &self.hook {
            Some(hook) => hook.permission(cred, inode, want),
            None => Ok(()),
        }
    }
}

/// In debug builds, compares the fast answer that `cred` may search `dir` with mode and ACL.
#[inline]
pub(crate) fn compare_fast_search(cred: &Cred, dir: &Inode, guard: &Guard) {
    if cfg!(debug_assertions) {
        let owner_and_acl = dir.owner_and_acl(guard);
        // The word may have changed since the answer; then there is nothing to compare it with.
        if owner_and_acl.2.exec_all() {
            let allows = |acl: &Acl, gid| {
                acl.allows(
                    cred.uid(),
                    |gid| cred.in_group(gid),
                    gid,
                    Access::EXEC.bits(),
                )
            };
            let general = granted(cred, owner_and_acl, Access::EXEC, allows);
            assert!(
                matches!(general, Verdict::Granted),
                "the fast search check lets {cred:?} into {dir:?}"
            );
        }
    }
}

/// The last ACL that has let the caller search a directory, and the directory's group: with the
/// caller they decide the check. Directories below one with a default ACL share one copy of it, so
/// a walk through them checks it once.
#[derive(Clone, Copy, Default)]
pub(crate) struct Passed<'g>(Option<(&'g Acl, u32)>);

impl<'g> Passed<'g> {
    /// Returns whether `acl` lets the caller search a directory of group `gid`. The caller is the
    /// same each time.
    #[inline]
    fn allows(&mut self, acl: &'g Acl, gid: u32, cred: &Cred) -> bool {
        if self
            .0
            .is_some_and(|(passed, of)| std::ptr::eq(passed, acl) && of == gid)
        {
            return true;
        }
        let allows = acl.allows(
            cred.uid(),
            |gid| cred.in_group(gid),
            gid,
            Access::EXEC.bits(),
        );
        if allows {
            self.0 = Some((acl, gid));
        }
        allows
    }
}

/// Checks mode, ACL and capabilities.
#[inline]
pub(crate) fn judge(cred: &Cred, inode: &Inode, want: Access, guard: &Guard) -> Verdict {
    judge_by(cred, inode, want, guard, |acl, gid| {
        acl.allows(cred.uid(), |gid| cred.in_group(gid), gid, want.bits())
    })
}

/// Like [`judge`], where `allows` checks an ACL for the caller, given the group of the inode.
#[inline]
fn judge_by<'g>(
    cred: &Cred,
    inode: &'g Inode,
    want: Access,
    guard: &'g Guard,
    allows: impl FnOnce(&'g Acl, u32) -> bool,
) -> Verdict {
    match granted(cred, inode.owner_and_acl(guard), want, allows) {
        Verdict::Refused if capable(cred, inode, want) => Verdict::Granted,
        verdict => verdict,
    }
}

/// Checks mode and ACL, given owner, group, permission cache and ACL of one moment. An ACL of
/// another moment would be wrong. The old mode without its ACL may grant rights that neither the
/// old nor the new state grants. `allows` asks the ACL.
#[inline]
fn granted<'g>(
    cred: &Cred,
    (uid, gid, bits, acl): (u32, u32, PermBits, Option<Option<&'g Acl>>),
    want: Access,
    allows: impl FnOnce(&'g Acl, u32) -> bool,
) -> Verdict {
    let verdict = |granted| {
        if granted {
            Verdict::Granted
        } else {
            Verdict::Refused
        }
    };
    let mode = bits.mode();
    // The group bits are the ACL's mask. Without any, only the entries of the owner and of others
    // can grant something, and Linux does not ask the ACL.
    let ask_acl = cred.uid() != uid && mode & 0o070 != 0 && bits.acl() != AclState::None;
    if ask_acl {
        match acl {
            None => return Verdict::Unknown,
            Some(Some(acl)) => return verdict(allows(acl, gid)),
            Some(None) => {}
        }
    }
    verdict(mode_allows(cred, uid, gid, mode, want))
}

/// Checks the permission bits.
#[inline]
fn mode_allows(cred: &Cred, uid: u32, gid: u32, mode: u16, want: Access) -> bool {
    let shift = if cred.uid() == uid {
        6
    } else if cred.in_group(gid) {
        3
    } else {
        0
    };
    (mode >> shift) & u16::from(want.bits()) == u16::from(want.bits())
}

/// Returns whether capabilities grant the rights on any inode, so that the check need not read its
/// attributes. On Linux an ACL that cannot be read also stops callers with these capabilities; here
/// they may read the file and save it.
#[inline]
fn overrides(cred: &Cred, want: Access) -> bool {
    cred.has(Caps::DAC_OVERRIDE) && !want.contains(Access::EXEC)
}

/// Returns whether capabilities give what mode and ACL refuse.
fn capable(cred: &Cred, inode: &Inode, want: Access) -> bool {
    if inode.is_dir() {
        return cred.has(Caps::DAC_OVERRIDE)
            || !want.contains(Access::WRITE) && cred.has(Caps::DAC_READ_SEARCH);
    }
    if want == Access::READ && cred.has(Caps::DAC_READ_SEARCH) {
        return true;
    }
    // A file must be executable for some user before a capability applies.
    let executable = !want.contains(Access::EXEC) || inode.perm().mode() & 0o111 != 0;
    executable && cred.has(Caps::DAC_OVERRIDE)
}

/// Returns whether the caller owns the inode, or has `CAP_FOWNER`.
pub(crate) fn owner_or_capable(cred: &Cred, inode: &Inode) -> bool {
    inode.owner().0 == cred.uid() || cred.has(Caps::FOWNER)
}

/// Returns whether the caller is in the group, or has `CAP_FSETID`.
pub(crate) fn in_group_or_capable(cred: &Cred, gid: u32) -> bool {
    cred.in_group(gid) || cred.has(Caps::FSETID)
}

/// Returns the set-id bits that a change of owner or contents takes off a file.
///
/// Without group execution, set-group-id is no privilege but a mark for mandatory locking, and
/// members keep it.
pub(crate) fn set_id_bits_lost(cred: &Cred, inode: &Inode) -> u16 {
    let (_, gid, mode) = inode.owner();
    let mut lost = mode & 0o4000;
    if mode & 0o0010 != 0 || !in_group_or_capable(cred, gid) {
        lost |= mode & 0o2000;
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `inode(7)` in a table: owner bits for the owner alone, then group bits for the group alone,
    /// then others'.
    #[test]
    fn one_class_of_bits_decides() {
        for mode in 0..0o1000u16 {
            for want in 0..8u8 {
                let asked = Access::from_bits_retain(want);
                for (cred, shift) in [
                    (Cred::new(1, 9, &[2]), 6),
                    (Cred::new(5, 2, &[]), 3),
                    (Cred::new(5, 9, &[7, 2]), 3),
                    (Cred::new(5, 9, &[7]), 0),
                ] {
                    let class = u8::try_from((mode >> shift) & 7).unwrap();
                    assert_eq!(mode_allows(&cred, 1, 2, mode, asked), class & want == want);
                }
            }
        }
    }
}
