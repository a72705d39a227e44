//! Production in the place of [`lab`](crate::lab): one search check, and one registry of open files.

use crate::cred::Cred;
use crate::inode::Inode;
use crate::open_files::opened::Opened;
use crate::open_files::slabs::Slabs;
use crate::permission::{Checker, Search, Verdict};
use extern4_sync::rcu::Guard;

/// The registry of a file system.
pub(crate) type InUse = Slabs<Opened>;

/// The search check: the permission word.
#[derive(Default)]
pub(crate) struct Check {}

/// What an inode keeps for search checks, apart from the permission word.
#[derive(Default)]
pub(crate) struct Asked {}

impl Checker {
    /// Whether the permission word is the search check.
    #[inline(always)]
    pub(crate) fn is_by_word(&self) -> bool {
        let Check {} = self.check;
        true
    }

    /// Whether another check than the word lets every user search `dir`.
    #[inline(always)]
    pub(crate) fn lets_all(&self, _dir: &Inode) -> bool {
        false
    }

    /// The answer of another check than the word.
    #[inline(always)]
    pub(crate) fn search_as(&self, _: &Cred, _: &Inode, _: &Guard) -> Option<(Verdict, Search)> {
        None
    }

    /// What another check holds while it asks for an ACL.
    #[inline(always)]
    pub(crate) fn ask(&self, _cred: &Cred, inode: &Inode) -> Option<Asked> {
        let Asked {} = inode.asked;
        None
    }
}
