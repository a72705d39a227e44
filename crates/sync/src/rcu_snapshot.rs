//! What is changed under a lock, shown without it to who looks again and again.
//!
//! Who looks takes the lock, as a rule, and [counts](RcuSnapshot::count) that. After 16 looks without a change between them a copy is shown, and
//! who looks from then on follows a pointer, under an RCU guard, and writes nothing. Who changes it [hides](RcuSnapshot::invalidate) the copy first.
//! So what is hardly looked at is not copied, and what is looked at often is not locked for it.
//!
//! # Why nobody sees what is over
//! The copy is shown, and hidden, by who has the lock; so while it is shown it is what stands under the lock. Who looks at the same time as
//! somebody changes it may see the copy still: he has come before. Who comes after that change, because he changed it himself or was
//! told by who did, finds the pointer as the change has left it, or as somebody has set it since, who had the lock after it.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `copy` | who has the lock | everyone | Release, Acquire, in [`rcu`](crate::rcu): who sees a copy sees it whole |
//! | `looks` | who has the lock | who has the lock | Relaxed |

use crate::primitive::{AtomicU32, Ordering, capacity};
use crate::rcu::{Guard, RcuOption};

/// So many looks in a row make a copy be shown; few in models. By the lock they cost about what the copy does.
const STREAK: u32 = capacity(16, 2);

/// A copy of what stands under a lock, or nothing.
#[derive(Debug)]
pub struct RcuSnapshot<T: Send + Sync + 'static> {
    copy: RcuOption<T>,
    /// Looks by the lock since the last change.
    looks: AtomicU32,
}

impl<T: Send + Sync + 'static> RcuSnapshot<T> {
    /// Shows nothing.
    pub fn empty() -> Self {
        Self { copy: RcuOption::default(), looks: AtomicU32::new(0) }
    }

    /// The copy, if one is shown. If none is, take the lock.
    #[inline]
    pub fn get<'g>(&'g self, guard: &'g Guard) -> Option<&'g T> {
        self.copy.load(guard)
    }

    /// Counts a look by the lock, and shows what `copy` makes if they have become many. Locks: the lock, exclusive.
    #[inline]
    pub fn count_read(&self, copy: impl FnOnce() -> T) {
        let looks = self.looks.load(Ordering::Relaxed) + 1;
        self.looks.store(looks, Ordering::Relaxed);
        // More than that have been who waited for the lock while it was shown.
        if looks == STREAK {
            self.copy.store(Some(copy()));
        }
    }

    /// Shows nothing any more, before it is changed. Locks: the lock, exclusive.
    #[inline]
    pub fn invalidate(&self) {
        // Who changes it again and again leaves the line as it is.
        if self.looks.load(Ordering::Relaxed) != 0 {
            self.looks.store(0, Ordering::Relaxed);
        }
        if !self.copy.is_none() {
            self.copy.store(None);
        }
    }
}
