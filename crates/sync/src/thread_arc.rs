//! Counted references that threads take and give up without writing what others use.
//!
//! An [`ThreadArcOwner`] is what [`std::sync::Arc`] is. As long as there is one, threads may have any number of further
//! references, [`ThreadArc`]s, which are counted by each thread for itself ([`ThreadRefcount`]): making and dropping one costs stores to the
//! thread's own lines. When the last owner has gone, what is left is *killed*: from then on each `ThreadArc` that is dropped
//! counts the others, which is dear, and the last one ends the value. A `ThreadArc` may be dropped on any thread, and may
//! outlive all owners.
//!
//! # Why it holds
//! 1. The last owner has a `ThreadArc` of its own; it sets `killed` and drops that. So the count is not zero before `killed` is set.
//! 2. Who drops a `ThreadArc` leaves the count and then looks at `killed`; who sees it counts, under a lock. Of all that were dropped, take
//!    the last to get the lock: those before it had left the count, and so had those that did not see `killed`: by the
//!    handshake of [`ThreadRefcount`], a count that misses their leaving would have let them see it. So that one counts
//!    zero, if nobody did before.
//! 3. A count of zero is true, and nobody gets a `ThreadArc` where there is none. So the value ends once, after its last use.
//! 4. Others may have left the count and not yet looked at `killed`: they are pinned, and the memory is freed under RCU. The value
//!    itself they do not look at.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use crate::primitive::{AtomicBool, Mutex, Ordering};
use crate::rcu::pin;
use crate::thread_refcount::ThreadRefcount;

struct Counted<T> {
    /// In a cell because it is ended while others may look at the rest.
    value: UnsafeCell<ManuallyDrop<T>>,
    refs: ThreadRefcount,
    /// The last owner has gone.
    killed: AtomicBool,
    /// The value has ended. Locks: held while counting.
    ended: Mutex<bool>,
}

/// A counted reference as an `Arc` is one, from which [`ThreadArc`]s are had.
pub struct ThreadArcOwner<T: Send + Sync + 'static>(Arc<Last<T>>);

/// What all owners share.
struct Last<T: Send + Sync + 'static>(ThreadArc<T>);

/// A reference that the thread counts for itself.
pub struct ThreadArc<T: Send + Sync + 'static>(NonNull<Counted<T>>);

// SAFETY: a reference gives `&T` to any thread, and the last one drops the `T` wherever it is: the bounds ask for both.
unsafe impl<T: Send + Sync + 'static> Send for ThreadArc<T> {}
// SAFETY: as above; through `&ThreadArc` a thread gets `&T`, and references of its own.
unsafe impl<T: Send + Sync + 'static> Sync for ThreadArc<T> {}

impl<T: Send + Sync + 'static> ThreadArcOwner<T> {
    /// The first reference to a value.
    pub fn new(value: T) -> Self {
        let counted = Box::new(Counted {
            value: UnsafeCell::new(ManuallyDrop::new(value)),
            refs: ThreadRefcount::new(),
            killed: AtomicBool::new(false),
            ended: Mutex::new(false),
        });
        counted.refs.enter();
        Self(Arc::new(Last(ThreadArc(NonNull::from(Box::leak(counted))))))
    }

    /// A reference that this thread counts for itself.
    #[inline]
    pub fn thread_ref(&self) -> ThreadArc<T> {
        self.0.0.clone()
    }
}

impl<T: Send + Sync + 'static> Clone for ThreadArcOwner<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + Sync + 'static> Deref for ThreadArcOwner<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T: Send + Sync + 'static> Drop for Last<T> {
    fn drop(&mut self) {
        // Relaxed: the handshake of `ThreadRefcount` orders it.
        self.0.counted().killed.store(true, Ordering::Relaxed);
    }
}

impl<T: Send + Sync + 'static> ThreadArc<T> {
    fn counted(&self) -> &Counted<T> {
        // SAFETY: this reference is counted, which keeps the value.
        unsafe { self.0.as_ref() }
    }

    /// Both refer to one value.
    #[inline]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// How many `ThreadArc`s there are, all owners taken for one: no fewer than there were at some moment of this call. `None` if the
    /// system has no memory for the barrier that it takes.
    pub fn count(&self) -> Option<u64> {
        self.counted().refs.count()
    }
}

impl<T: Send + Sync + 'static> Clone for ThreadArc<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.counted().refs.enter();
        Self(self.0)
    }
}

impl<T: Send + Sync + 'static> Deref for ThreadArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is not changed before it ends, and this reference keeps it.
        unsafe { &*self.counted().value.get() }
    }
}

impl<T: Send + Sync + 'static> Drop for ThreadArc<T> {
    #[inline]
    fn drop(&mut self) {
        let guard = pin();
        let counted = self.counted();
        counted.refs.exit();
        // Relaxed: the handshake of `ThreadRefcount` orders it. The memory is there, for it is freed under RCU.
        let last = counted.killed.load(Ordering::Relaxed) && counted.is_last();
        drop(guard);
        if last {
            // SAFETY: this was the last reference, and nobody else is told so.
            unsafe { end(self.0) };
        }
    }
}

impl<T> Counted<T> {
    /// There is no reference any more, and the caller is the first to hear of it. Where it cannot be found out for want of memory
    /// the answer is no, and the value stays for ever.
    #[cold]
    fn is_last(&self) -> bool {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if *ended || self.refs.count() != Some(0) {
            return false;
        }
        *ended = true;
        true
    }
}

/// Ends a value, and frees its memory when nobody looks at the count any more.
///
/// # Safety
/// There is no reference to it, and this is called once.
#[cold]
unsafe fn end<T: Send + Sync + 'static>(at: NonNull<Counted<T>>) {
    // SAFETY: nobody looks at the value any more, and the memory is freed below.
    unsafe { ManuallyDrop::drop(&mut *at.as_ref().value.get()) };
    // SAFETY: it came from a box, and only those who are pinned look at it still; a mutex, counts and a flag may be dropped on any
    // thread.
    unsafe { pin().defer(move || drop(Box::from_raw(at.as_ptr()))) };
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for ThreadArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for ThreadArcOwner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn the_value_ends_with_the_last_reference_of_either_kind() {
        let told = Arc::new(());
        let owner = ThreadArcOwner::new(Arc::clone(&told));
        let (one, other) = (owner.thread_ref(), owner.clone().thread_ref());
        assert!(one.ptr_eq(&other) && one.count() == Some(3));
        drop(one);
        drop(owner);
        assert_eq!((Arc::strong_count(&told), Arc::strong_count(&other)), (2, 2));
        drop(std::thread::spawn(move || other.clone()).join().unwrap());
        assert_eq!(Arc::strong_count(&told), 1);

        drop(ThreadArcOwner::new(Arc::clone(&told)).clone());
        assert_eq!(Arc::strong_count(&told), 1);
    }

    #[test]
    fn whoever_comes_last_ends_it_once() {
        for _ in 0..300 {
            let told = Arc::new(());
            let owner = ThreadArcOwner::new(Arc::clone(&told));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let local = owner.thread_ref();
                    scope.spawn(move || (0..10).for_each(|_| drop(local.clone())));
                }
                drop(owner);
            });
            assert_eq!(Arc::strong_count(&told), 1);
        }
    }
}
