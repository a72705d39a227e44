//! Handlers around `fork(2)`: they make the locks of the process free in the child.
//!
//! A child has a copy of all memory, but only the thread that forked. A lock that another thread
//! held at that moment stays locked in the child for ever. So the forking thread takes the locks of
//! the process before the fork, and releases them in both processes. Locks of single volumes are
//! not among them: see `docs/CONCURRENCY.md`.
//!
//! Each module with such a lock has an [`AtFork`], and registers it before it takes the lock for
//! the first time. No thread takes one of these locks while it holds another one, so their order
//! does not matter. A fork at the same moment as the first registration may miss the handlers. A
//! child that is made by the system call alone misses them always.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Forks between the first process and this one, as far as [`generation`] knows.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns a number that is another one in each child of `fork(2)`.
pub(crate) fn generation() -> u32 {
    static AT_FORK: AtFork = {
        extern "C" fn others() {}
        extern "C" fn child() {
            GENERATION.fetch_add(1, Ordering::Relaxed);
        }
        AtFork::new(others, others, child)
    };
    AT_FORK.register();
    // Relaxed: it changes only while the process has one thread.
    GENERATION.load(Ordering::Relaxed)
}

/// A function that the C library calls on the forking thread.
type Handler = extern "C" fn();

/// Three handlers: before a fork, and after it in the parent and in the child.
pub(crate) struct AtFork {
    handlers: [Handler; 3],
    is_registered: AtomicBool,
}

impl AtFork {
    /// Returns handlers that are not registered yet.
    pub(crate) const fn new(before: Handler, parent: Handler, child: Handler) -> Self {
        Self {
            handlers: [before, parent, child],
            is_registered: AtomicBool::new(false),
        }
    }

    /// Registers the handlers, once. Does not wait for another thread that registers them: in a
    /// child, that thread may be missing.
    #[inline]
    pub(crate) fn register(&self) {
        // Relaxed, all: the flag guards no data.
        if !self.is_registered.load(Ordering::Relaxed) {
            self.register_now();
        }
    }

    #[cold]
    fn register_now(&self) {
        // Miri has no `fork`.
        if cfg!(miri) || self.is_registered.swap(true, Ordering::Relaxed) {
            return;
        }
        let [before, parent, child] = self.handlers.map(|handler| {
            let handler: unsafe extern "C" fn() = handler;
            Some(handler)
        });
        // SAFETY: the handlers are safe to call, and functions stay as long as this library is
        // loaded.
        let result = unsafe { libc::pthread_atfork(before, parent, child) };
        // Without memory for it now, a later caller tries again.
        self.is_registered.store(result == 0, Ordering::Relaxed);
    }
}

/// The guards of locks that the forking thread holds from before the fork until after it.
pub(crate) struct HeldAtFork<G>(UnsafeCell<Option<G>>);

// SAFETY: only a thread that holds the locks accesses the guards, by the promises of `keep` and
// `release`. So no two threads do at once, and each guard is dropped on the thread that made it.
unsafe impl<G> Sync for HeldAtFork<G> {}

impl<G> HeldAtFork<G> {
    /// Returns an empty place.
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Keeps guards.
    ///
    /// # Safety
    /// Called in a handler before the fork, always with guards of the same locks.
    pub(crate) unsafe fn keep(&self, guards: G) {
        // SAFETY: this thread holds the locks, so no other thread is here.
        unsafe { *self.0.get() = Some(guards) };
    }

    /// Returns the guards, which the caller drops.
    ///
    /// # Safety
    /// Called in a handler after the fork, on the thread that forked.
    pub(crate) unsafe fn release(&self) -> Option<G> {
        // SAFETY: as in `keep`.
        unsafe { (*self.0.get()).take() }
    }
}
