//! The order in which a thread takes locks that it may hold at the same time; checked in debug builds.
//!
//! Each lock that others may be taken under has a [`Rank`], and a thread takes locks by rising rank only: then no circle of
//! threads can form in which each waits for the next. Where two of a rank may be held, the place that takes them says which
//! comes first. Locks that nothing is taken under need no rank. In release builds all of this is nothing.

#[cfg(all(debug_assertions, not(feature = "loom")))]
use std::cell::RefCell;

/// Kinds of locks, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Who moves a name between two directories.
    Rename,
    /// A directory whose names are looked up or changed: two if names move between them.
    Directory,
    /// A name: two if one takes the other's place.
    Name,
    /// What a name stands for, or any inode on its own: two in a rename.
    Child,
    /// What a name stands for is being found out.
    Lookup,
    /// An inode is being read.
    InodeRead,
    /// A handle on a transaction.
    Handle,
    /// The blocks with the names of a directory: of two in a rename.
    DirectoryBlocks,
    /// Parts of a file that are written over, all at once.
    Chunk,
}

impl Rank {
    #[cfg(all(debug_assertions, not(feature = "loom")))]
    fn may_be_held_twice(self) -> bool {
        matches!(self, Self::Directory | Self::Name | Self::Child | Self::DirectoryBlocks)
    }
}

/// Stands for a lock that this thread holds, or waits for.
#[derive(Debug)]
#[must_use = "it stands for a lock as long as it lives"]
pub struct Ranked {
    #[cfg(all(debug_assertions, not(feature = "loom")))]
    rank: Rank,
}

#[cfg(all(debug_assertions, not(feature = "loom")))]
thread_local! {
    static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
}

impl Ranked {
    /// Notes that a lock of this rank is about to be taken.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock that comes after it.
    #[inline(always)]
    pub fn take(rank: Rank) -> Self {
        #[cfg(all(debug_assertions, not(feature = "loom")))]
        {
            // OK: a thread that is ending has no order to keep any more.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let equal = held.iter().filter(|&&other| other == rank).count();
                let most = if rank.may_be_held_twice() { 1 } else { 0 };
                let in_order = held.iter().all(|&other| other <= rank) && equal <= most;
                assert!(in_order, "a lock of rank {rank:?} is taken while these are held: {held:?}");
                held.push(rank);
            });
            Self { rank }
        }
        #[cfg(not(all(debug_assertions, not(feature = "loom"))))]
        {
            let _ = rank;
            Self {}
        }
    }
}

#[cfg(all(debug_assertions, not(feature = "loom")))]
impl Drop for Ranked {
    fn drop(&mut self) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            // None if the lock was taken on another thread.
            if let Some(at) = held.iter().rposition(|&rank| rank == self.rank) {
                held.remove(at);
            }
        });
    }
}

/// The guard of a lock that has a rank.
#[derive(Debug)]
pub struct Ordered<G> {
    // Dropped first.
    guard: G,
    _ranked: Ranked,
}

impl<G> Ordered<G> {
    /// Takes a lock of this rank by `lock`.
    #[inline(always)]
    pub fn lock(rank: Rank, lock: impl FnOnce() -> G) -> Self {
        let _ranked = Ranked::take(rank);
        Self { guard: lock(), _ranked }
    }

    /// Takes a lock of this rank by `lock`, if that gets it.
    #[inline(always)]
    pub fn try_lock(rank: Rank, lock: impl FnOnce() -> Option<G>) -> Option<Self> {
        let _ranked = Ranked::take(rank);
        Some(Self { guard: lock()?, _ranked })
    }
}

impl<G> std::ops::Deref for Ordered<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

#[cfg(all(test, debug_assertions, not(feature = "loom")))]
mod tests {
    use super::*;

    fn panics(then: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(then).is_err()
    }

    #[test]
    fn locks_are_taken_by_rising_rank() {
        let directory = Ranked::take(Rank::Directory);
        drop((Ranked::take(Rank::Name), Ranked::take(Rank::Name), Ranked::take(Rank::Handle)));
        let name = Ranked::take(Rank::Name);
        assert!(panics(|| drop(Ranked::take(Rank::Rename))));
        assert!(panics(|| drop(Ranked::take(Rank::Directory))));
        drop(name);
        // In any order they are let go.
        let other = Ranked::take(Rank::Directory);
        drop(directory);
        let rename = std::panic::AssertUnwindSafe(|| drop(Ranked::take(Rank::Rename)));
        assert!(panics(rename));
        drop(other);
        drop(Ranked::take(Rank::Rename));
    }

    #[test]
    fn few_are_taken_twice() {
        let _handle = Ranked::take(Rank::Handle);
        assert!(panics(|| drop(Ranked::take(Rank::Handle))));
        let _names = (Ranked::take(Rank::DirectoryBlocks), Ranked::take(Rank::DirectoryBlocks));
        assert!(panics(|| drop(Ranked::take(Rank::DirectoryBlocks))));
    }
}
