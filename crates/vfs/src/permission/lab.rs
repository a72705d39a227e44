//! Other search checks, against which the lab measures the permission cache.
//!
//! All give the same answers by different means: a bit computed beforehand, no stored result, or a
//! lock for each ACL. ACLs and modes are production's, so there is one copy of each. [`Checker`]
//! calls the selected check in production's walk, and the lab calls them alone. In the lab's build
//! this module takes the place of `no_lab`.

use extern4_sync::rcu::Guard;

use super::{Access, Checker, Search, Verdict, judge};
use crate::attr::FileType;
use crate::cred::Cred;
use crate::inode::Inode;
use crate::permission_cache::AclState;

/// The search check of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// The permission cache, as in production.
    #[default]
    Word,
    /// The full check of production in every directory, as on a file system that does not let the
    /// word answer.
    Full,
    /// Linux's check up to 6.18: the full check in every directory. It knows without a lock that
    /// there is no ACL.
    General,
    /// The patch that was posted to Linux: a bit that is computed beforehand says that every user
    /// may search; otherwise as `General`. Here the bit is that of the permission cache, which
    /// cannot be wrong; on Linux it was a separate one.
    Flag,
    /// Linux's check since 6.19: it keeps no result, and looks at mode and ACL first each time;
    /// otherwise as `General`.
    ModeAndAcl,
    /// The check of ext3 before 2009. It takes a lock in each inode to learn whether there is an
    /// ACL, and counts a reference if there is one.
    AclLocked,
    /// The patch to that: no lock where a look without it says that there is no ACL.
    AclSpeculative,
}

#[inline]
fn has_acl(inode: &Inode) -> bool {
    inode.perm().acl() != AclState::None
}

impl Checker {
    /// Replaces production's search check.
    pub(crate) fn set_check(&mut self, check: Check) {
        self.check = check;
        self.fast &= check != Check::Full;
    }

    /// Returns whether the permission cache is the search check.
    #[inline]
    pub(crate) fn is_by_cache(&self) -> bool {
        matches!(self.check, Check::Word | Check::Full)
    }

    /// Returns whether the short way of this check, if it has one, says that every user may search
    /// `dir`.
    #[inline]
    pub(crate) fn lets_all(&self, dir: &Inode) -> bool {
        let bits = dir.perm();
        match self.check {
            Check::Flag => bits.exec_all_plain(),
            Check::ModeAndAcl => {
                bits.mode() & 0o111 == 0o111
                    && bits.acl() == AclState::None
                    && dir.is_dir()
                    && !bits.casefold()
            }
            _ => false,
        }
    }

    /// Returns the answer of this check, where it is another than the word.
    #[inline]
    pub(crate) fn search_as(
        &self,
        cred: &Cred,
        dir: &Inode,
        guard: &Guard,
    ) -> Option<(Verdict, Search)> {
        (!self.is_by_cache()).then(|| self.search_in_full(cred, dir, guard))
    }

    /// Makes the check where the short way is not enough. As in Linux, it is a separate function.
    #[inline(never)]
    fn search_in_full(&self, cred: &Cred, dir: &Inode, guard: &Guard) -> (Verdict, Search) {
        let verdict = match self.check {
            Check::AclLocked | Check::AclSpeculative => {
                let _counted = self.ask(cred, dir);
                judge(cred, dir, Access::EXEC, guard)
            }
            _ => generic(cred, dir, guard),
        };
        // Devices, which control groups may forbid, and security modules.
        if matches!(dir.kind(), FileType::BlockDevice | FileType::CharDevice) {
            return (Verdict::Unknown, Search::Full);
        }
        (
            self.with_hook(verdict, cred, dir, Access::EXEC),
            Search::Full,
        )
    }

    /// Asks for the ACL of an inode by its lock, where this check does and the ACL counts.
    #[inline]
    pub(crate) fn ask<'i>(&self, cred: &Cred, inode: &'i Inode) -> Option<impl Drop + use<'i>> {
        let is_asked = match self.check {
            Check::AclLocked => true,
            Check::AclSpeculative => has_acl(inode),
            _ => false,
        };
        let counts = is_asked && inode.perm().mode() & 0o070 != 0 && inode.owner().0 != cred.uid();
        if counts {
            inode.acl_lock.ask(|| has_acl(inode))
        } else {
            None
        }
    }
}

/// Checks the rights of every user first, and then the rights of this one.
#[inline(never)]
fn generic(cred: &Cred, dir: &Inode, guard: &Guard) -> Verdict {
    let bits = dir.perm();
    let want = u16::from(Access::EXEC.bits());
    let mode = bits.mode();
    let everybody = mode & mode >> 3 & mode >> 6;
    if everybody & want == want && bits.acl() == AclState::None {
        return Verdict::Granted;
    }
    judge(cred, dir, Access::EXEC, guard)
}
