//! Space that is kept back for some: whether the call that is under way may use it.
//!
//! File systems keep some blocks free for the superuser, so that a volume that others have filled can still be put in order.
//! That matters only when a file system has nothing else left, which is seldom and deep in its work. So who calls is not handed
//! down to there: the thread knows it for as long as the call lasts, and the file system asks [`may_use`].

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::cred::Cred;
use crate::fs::FileSystem;
use crate::superblock::SuperBlock;

thread_local!(static MAY_USE: Cell<bool> = const { Cell::new(true) });

/// Whether what this thread does may use space that is kept back. True for whoever calls a file system without the VFS.
pub fn may_use() -> bool {
    MAY_USE.get()
}

/// Lets what this thread does use space that is kept back, or not, for as long as what this returns.
pub fn allow(may_use: bool) -> Allowed {
    Allowed { before: MAY_USE.replace(may_use), thread: PhantomData }
}

/// See [`allow`].
#[must_use = "it lasts no longer than this"]
pub struct Allowed {
    before: bool,
    /// It belongs to a thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Allowed {
    fn drop(&mut self) {
        MAY_USE.set(self.before);
    }
}

/// A file system that is called by somebody.
pub(crate) struct Called<'a> {
    fs: &'a Arc<dyn FileSystem>,
    _allowed: Allowed,
}

impl SuperBlock {
    /// The file system, for a call by `cred` that may need space.
    pub(crate) fn fs_for(&self, cred: &Cred) -> Called<'_> {
        let fs = self.fs();
        Called { fs, _allowed: allow(fs.may_use_reserve(cred)) }
    }
}

impl Deref for Called<'_> {
    type Target = dyn FileSystem;

    fn deref(&self) -> &Self::Target {
        &**self.fs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_within_a_call_leaves_things_as_they_were() {
        assert!(may_use());
        let outer = allow(false);
        {
            let _inner = allow(true);
            assert!(may_use());
        }
        assert!(!may_use());
        assert!(
            std::thread::spawn(may_use).join().expect("the thread ends"),
            "another thread is not concerned"
        );
        drop(outer);
        assert!(may_use());
    }
}
