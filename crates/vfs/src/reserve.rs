//! Free space that is kept back: how much of it the call under way may use.
//!
//! File systems keep some blocks free for the superuser, so that a volume that others have filled
//! can still be put in order. They keep a few more from the superuser too, for changes that must
//! not fail on a full volume. That matters only when a file system has nothing else left, which is
//! seldom and deep in its work. So the credentials are not handed down to there: the thread holds
//! the [`Share`] for as long as the call lasts, and the file system asks [`share`].

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::cred::Cred;
use crate::fs::FileSystem;
use crate::superblock::SuperBlock;

/// The free space that a call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All but what is kept for the superuser and for metadata.
    Common,
    /// All but what is kept for metadata.
    Superuser,
    /// All. For changes that must not fail on a full volume: they use or free space that is
    /// allocated already, and may need a block or two to say so.
    All,
}

thread_local!(static SHARE: Cell<Share> = const { Cell::new(Share::Superuser) });

/// The free space that this thread may use: the superuser's share, unless [`allow`] has set
/// another.
pub fn share() -> Share {
    SHARE.get()
}

/// Sets the free space that this thread may use until the value returned is dropped.
pub fn allow(share: Share) -> Allowed {
    Allowed { before: SHARE.replace(share), thread: PhantomData }
}

/// See [`allow`].
#[must_use = "it lasts no longer than this"]
pub struct Allowed {
    before: Share,
    /// It belongs to a thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Allowed {
    fn drop(&mut self) {
        SHARE.set(self.before);
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
        let share = if fs.may_use_reserve(cred) { Share::Superuser } else { Share::Common };
        Called { fs, _allowed: allow(share) }
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
        assert_eq!(share(), Share::Superuser);
        let outer = allow(Share::Common);
        {
            let _inner = allow(Share::All);
            assert_eq!(share(), Share::All);
        }
        assert_eq!(share(), Share::Common);
        let elsewhere = std::thread::spawn(share).join().expect("the thread ends");
        assert_eq!(elsewhere, Share::Superuser, "another thread is not concerned");
        drop(outer);
        assert_eq!(share(), Share::Superuser);
    }
}
