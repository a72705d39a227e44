//! A copy of data that is changed under a lock, for readers that do not take the lock.
//!
//! `block` has one for each changed buffer, and `ext4` one for the metadata of each inode.
//!
//! A reader first tries [`RcuSnapshot::get`]. If there is no copy, it takes the lock, reads, and
//! calls [`RcuSnapshot::count_read`]. After 16 such reads without a change in between, that call
//! publishes a copy. From then on readers follow one pointer under an RCU guard and write nothing.
//! A writer calls [`RcuSnapshot::invalidate`] under the lock before it changes the data. So data
//! that changes often is never copied, and data that is read often is not locked.
//!
//! # Why a reader never sees stale data Only the holder of the lock publishes or removes the copy,
//! so a published copy equals the data. A reader that runs at the same time as a change may still
//! see the copy: it reads as if before the change. A reader that comes after the change finds the
//! pointer as the writer or a later holder left it. Such a reader is on the same thread, or
//! synchronised with the writer otherwise.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `copy` | the holder of the lock | all threads | `Release` / `Acquire` in [`rcu`](crate::rcu) |
//! | `reads` | the holder of the lock | the holder of the lock | `Relaxed`: the lock orders them |

use crate::primitive::{AtomicU32, Ordering, capacity};
use crate::rcu::{Guard, RcuOption};

/// Reads under the lock before a copy is published; few in models. They cost about as much as one
/// copy.
const STREAK: u32 = capacity(16, 2);

/// A published copy of the data under a lock, or none.
#[derive(Debug)]
pub struct RcuSnapshot<T: Send + Sync + 'static> {
    copy: RcuOption<T>,
    /// Reads under the lock since the last change.
    reads: AtomicU32,
}

impl<T: Send + Sync + 'static> RcuSnapshot<T> {
    /// Creates a snapshot without a copy.
    pub fn empty() -> Self {
        Self {
            copy: RcuOption::default(),
            reads: AtomicU32::new(0),
        }
    }

    /// Returns the copy. `None` tells the caller to take the lock.
    #[inline]
    pub fn get<'g>(&'g self, guard: &'g Guard) -> Option<&'g T> {
        self.copy.load(guard)
    }

    /// Counts a read under the lock, and publishes the result of `copy` at the 16th. Locks: the
    /// lock, exclusive.
    #[inline]
    pub fn count_read(&self, copy: impl FnOnce() -> T) {
        let reads = self.reads.load(Ordering::Relaxed) + 1;
        self.reads.store(reads, Ordering::Relaxed);
        // Readers that waited for the lock while the copy was published count on from there.
        if reads == STREAK {
            self.copy.store(Some(copy()));
        }
    }

    /// Removes the copy before the data changes. Locks: the lock, exclusive.
    #[inline]
    pub fn invalidate(&self) {
        // The test keeps a run of changes from writing the line each time.
        if self.reads.load(Ordering::Relaxed) != 0 {
            self.reads.store(0, Ordering::Relaxed);
        }
        if !self.copy.is_none() {
            self.copy.store(None);
        }
    }
}
