//! Counted references that each thread takes and drops without writing lines of other threads.
//!
//! The VFS counts mounts so, which every call takes and drops.
//!
//! A [`ThreadArcOwner`] is counted like a [`std::sync::Arc`]. While an owner exists, threads may
//! have any number of [`ThreadArc`]s, which each thread counts for itself ([`ThreadRefcount`]). A
//! clone or a drop costs stores to the thread's own lines. When the last owner is dropped, the
//! count is *killed*. From then on each dropped `ThreadArc` adds up the count, which is expensive.
//! The last one drops the value. A `ThreadArc` may be dropped on any thread, and may outlive all
//! owners. Linux's `percpu_ref` works the same way.
//!
//! # Why the value is dropped once, after its last use
//! 1. The owners together have one `ThreadArc`. The last owner sets `killed`, then drops it. So the
//!    count is not zero before `killed` is set.
//! 2. A dropped `ThreadArc` exits the count, then loads `killed`; if that is set, it adds up the
//!    count under a lock. Take the thread that gets the lock last. The threads before it had
//!    exited. So had the threads that did not see `killed`: by the handshake of [`ThreadRefcount`],
//!    a sum that missed their exit would have let them see it. So the last thread finds zero, if no
//!    thread found it before.
//! 3. A sum of zero is true, and without a `ThreadArc` no thread gets another one. So the value is
//!    dropped once, after its last use.
//! 4. Other threads may have exited and not yet loaded `killed`. They are pinned, and the memory is
//!    freed by RCU. They do not access the value.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `refs` | clone, drop | drop after `killed` | as in [`ThreadRefcount`] |
//! | `killed` | the last owner | drop | `Relaxed`, ordered by the fences of `refs` |
//! | `ended` | the thread that finds zero | dropping threads | under its mutex |
//! | `value` | the thread that finds zero | holders of a `ThreadArc` | none: rule 3 |

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use crate::primitive::{AtomicBool, Mutex, Ordering};
use crate::rcu::pin;
use crate::thread_refcount::ThreadRefcount;

struct Inner<T> {
    /// It is in a cell because it is dropped while other threads may still access the other fields.
    value: UnsafeCell<ManuallyDrop<T>>,
    refs: ThreadRefcount,
    /// The last owner has been dropped.
    killed: AtomicBool,
    /// The value has been dropped. Locks: held while the count is added up.
    ended: Mutex<bool>,
}

/// An owner of the value, counted like an `Arc`. Gives out [`ThreadArc`]s.
pub struct ThreadArcOwner<T: Send + Sync + 'static>(Arc<SharedRef<T>>);

/// The `ThreadArc` that all owners share.
struct SharedRef<T: Send + Sync + 'static>(ThreadArc<T>);

/// A reference that each thread counts for itself.
pub struct ThreadArc<T: Send + Sync + 'static>(NonNull<Inner<T>>);

// SAFETY: a reference gives `&T` to any thread, and the last one drops the `T` on its thread; the
// bounds allow both.
unsafe impl<T: Send + Sync + 'static> Send for ThreadArc<T> {}
// SAFETY: as above; through `&ThreadArc` a thread gets `&T` and clones.
unsafe impl<T: Send + Sync + 'static> Sync for ThreadArc<T> {}

impl<T: Send + Sync + 'static> ThreadArcOwner<T> {
    /// Creates the first owner of a value.
    pub fn new(value: T) -> Self {
        let inner = Box::new(Inner {
            value: UnsafeCell::new(ManuallyDrop::new(value)),
            refs: ThreadRefcount::new(),
            killed: AtomicBool::new(false),
            ended: Mutex::new(false),
        });
        inner.refs.enter();
        Self(Arc::new(SharedRef(ThreadArc(NonNull::from(Box::leak(
            inner,
        ))))))
    }

    /// Returns a reference that this thread counts for itself.
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

impl<T: Send + Sync + 'static> Drop for SharedRef<T> {
    fn drop(&mut self) {
        // Relaxed: `exit` of the reference that is dropped next orders it.
        self.0.inner().killed.store(true, Ordering::Relaxed);
    }
}

impl<T: Send + Sync + 'static> ThreadArc<T> {
    fn inner(&self) -> &Inner<T> {
        // SAFETY: this reference is counted, so the value is alive.
        unsafe { self.0.as_ref() }
    }

    /// Returns whether both refer to the same value.
    #[inline]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns the number of `ThreadArc`s, all owners counting as one: at least as many as there
    /// were at some moment of this call. `None` if the system has no memory for the barrier.
    pub fn count(&self) -> Option<u64> {
        self.inner().refs.count()
    }
}

impl<T: Send + Sync + 'static> Clone for ThreadArc<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.inner().refs.enter();
        Self(self.0)
    }
}

impl<T: Send + Sync + 'static> Deref for ThreadArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no thread writes the value before it is dropped, and this reference keeps it
        // alive.
        unsafe { &*self.inner().value.get() }
    }
}

impl<T: Send + Sync + 'static> Drop for ThreadArc<T> {
    #[inline]
    fn drop(&mut self) {
        let guard = pin();
        let inner = self.inner();
        inner.refs.exit();
        // Relaxed: `light_fence` in `exit` orders it. RCU keeps the memory while this thread is
        // pinned.
        let last = inner.killed.load(Ordering::Relaxed) && inner.is_last();
        drop(guard);
        if last {
            // SAFETY: this was the last reference, and `is_last` returns true once.
            unsafe { end(self.0) };
        }
    }
}

impl<T> Inner<T> {
    /// Returns whether no reference is left; true for one caller only. Without memory for the
    /// barrier the answer is false, and the value may leak.
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

/// Drops the value, and frees its memory when no thread accesses the count any more.
///
/// # Safety
/// No reference is left, and this is called once.
#[cold]
unsafe fn end<T: Send + Sync + 'static>(at: NonNull<Inner<T>>) {
    // SAFETY: no thread accesses the value any more, and the memory is freed below.
    unsafe { ManuallyDrop::drop(&mut *at.as_ref().value.get()) };
    // SAFETY: it came from a box, and only pinned threads still access it. A mutex, counts and a
    // flag may be dropped on any thread.
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
    fn the_value_is_dropped_with_the_last_reference_of_either_kind() {
        let alive = Arc::new(());
        let owner = ThreadArcOwner::new(Arc::clone(&alive));
        let one = owner.thread_ref();
        let other = owner.clone().thread_ref();
        assert!(one.ptr_eq(&other) && one.count() == Some(3));
        drop(one);
        drop(owner);
        assert_eq!(
            (Arc::strong_count(&alive), Arc::strong_count(&other)),
            (2, 2)
        );
        drop(std::thread::spawn(move || other.clone()).join().unwrap());
        assert_eq!(Arc::strong_count(&alive), 1);

        drop(ThreadArcOwner::new(Arc::clone(&alive)).clone());
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn racing_drops_drop_the_value_once() {
        for _ in 0..if cfg!(miri) { 10 } else { 300 } {
            let alive = Arc::new(());
            let owner = ThreadArcOwner::new(Arc::clone(&alive));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let local = owner.thread_ref();
                    scope.spawn(move || (0..10).for_each(|_| drop(local.clone())));
                }
                drop(owner);
            });
            assert_eq!(Arc::strong_count(&alive), 1);
        }
    }
}
