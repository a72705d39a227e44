//! The order in which a thread takes locks that it may hold at the same time; checked in debug
//! builds.
//!
//! Each lock under which other locks may be taken has a [`Rank`], and a thread takes locks by
//! rising rank only. Then no circle of threads can form in which each waits for the next. Where a
//! thread may hold two locks of a rank, the code that takes them documents which comes first. Leaf
//! locks need no rank. Release builds check nothing.
//!
//! The VFS and `ext4` take their ranked locks through it. In debug builds, a thread that would take
//! a lock out of order panics before it waits.

#[cfg(all(debug_assertions, not(feature = "loom")))]
use std::cell::RefCell;

/// Kinds of locks, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The move of a name between two directories.
    Rename,
    /// The names of a directory; two of them in a move between directories.
    Directory,
    /// A name; two of them if one replaces the other.
    Name,
    /// The inode of a name, or any inode on its own; two of them in a rename.
    Child,
    /// A lookup of a name by the file system.
    Lookup,
    /// A read of an inode from the device.
    InodeRead,
    /// A handle on a transaction.
    Handle,
    /// The blocks of a directory; the blocks of two directories in a rename.
    DirectoryBlocks,
    /// Ranges of a file that are being overwritten, all taken together.
    Chunk,
}

impl Rank {
    #[cfg(all(debug_assertions, not(feature = "loom")))]
    fn may_be_held_twice(self) -> bool {
        matches!(
            self,
            Self::Directory | Self::Name | Self::Child | Self::DirectoryBlocks
        )
    }
}

/// Represents a lock that this thread holds or waits for.
#[derive(Debug)]
#[must_use = "it represents a lock while it lives"]
pub struct Ranked {
    #[cfg(all(debug_assertions, not(feature = "loom")))]
    rank: Rank,
}

#[cfg(all(debug_assertions, not(feature = "loom")))]
thread_local! {
    static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
}

impl Ranked {
    /// Records that the thread is about to take a lock of this rank.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of a higher rank.
    #[inline(always)]
    pub fn take(rank: Rank) -> Self {
        #[cfg(all(debug_assertions, not(feature = "loom")))]
        {
            // OK: a thread that is ending is not checked.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let equal = held.iter().filter(|&&other| other == rank).count();
                let most = if rank.may_be_held_twice() { 1 } else { 0 };
                let in_order = held.iter().all(|&other| other <= rank) && equal <= most;
                assert!(
                    in_order,
                    "a lock of rank {rank:?} is taken while these are held: {held:?}"
                );
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
            // `None` if another thread has the lock.
            if let Some(at) = held.iter().rposition(|&rank| rank == self.rank) {
                held.remove(at);
            }
        });
    }
}

/// The guard of a lock that has a rank.
#[derive(Debug)]
pub struct Ordered<G> {
    // Dropped before `_ranked`.
    guard: G,
    _ranked: Ranked,
}

impl<G> Ordered<G> {
    /// Takes a lock of this rank by calling `lock`.
    #[inline(always)]
    pub fn lock(rank: Rank, lock: impl FnOnce() -> G) -> Self {
        let _ranked = Ranked::take(rank);
        Self {
            guard: lock(),
            _ranked,
        }
    }

    /// Tries to take a lock of this rank by calling `lock`.
    #[inline(always)]
    pub fn try_lock(rank: Rank, lock: impl FnOnce() -> Option<G>) -> Option<Self> {
        let _ranked = Ranked::take(rank);
        Some(Self {
            guard: lock()?,
            _ranked,
        })
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
        drop((
            Ranked::take(Rank::Name),
            Ranked::take(Rank::Name),
            Ranked::take(Rank::Handle),
        ));
        let name = Ranked::take(Rank::Name);
        assert!(panics(|| drop(Ranked::take(Rank::Rename))));
        assert!(panics(|| drop(Ranked::take(Rank::Directory))));
        drop(name);
        // They may be released in any order.
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
        let _names = (
            Ranked::take(Rank::DirectoryBlocks),
            Ranked::take(Rank::DirectoryBlocks),
        );
        assert!(panics(|| drop(Ranked::take(Rank::DirectoryBlocks))));
    }
}
