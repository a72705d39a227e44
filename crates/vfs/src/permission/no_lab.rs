//! Production's one search check, the permission cache, where the lab's build has several.
//!
//! It has the functions of `permission::lab`, and each is a constant that the compiler removes. So
//! `Checker` has one text for both builds, and production has no code for other checks.

use std::convert::Infallible;

use extern4_sync::rcu::Guard;

use super::{Checker, Search, Verdict};
use crate::cred::Cred;
use crate::inode::Inode;

/// The search check: the permission cache.
#[derive(Default)]
pub(crate) struct Check {}

impl Checker {
    /// Returns whether the permission cache is the search check.
    #[inline(always)]
    pub(crate) fn is_by_cache(&self) -> bool {
        let Check {} = self.check;
        true
    }

    /// Returns whether another check than the word lets every user search `dir`.
    #[inline(always)]
    pub(crate) fn lets_all(&self, _dir: &Inode) -> bool {
        false
    }

    /// Returns the answer of another check than the word.
    #[inline(always)]
    pub(crate) fn search_as(&self, _: &Cred, _: &Inode, _: &Guard) -> Option<(Verdict, Search)> {
        None
    }

    /// Returns the guard that another check holds while it asks for an ACL.
    #[inline(always)]
    pub(crate) fn ask(&self, _cred: &Cred, _inode: &Inode) -> Option<Infallible> {
        None
    }
}
