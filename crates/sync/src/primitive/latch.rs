//! A mutex for short critical sections, whose release executes no locked instruction.
//!
//! Hash maps, buffers, and the attributes of inodes are under latches. A thread holds one for some
//! instructions only, and never while it waits for a device.
//!
//! A thread that releases a mutex has to learn whether another thread sleeps. Most mutexes learn it
//! from an exchange of the word that they release. Here the holder stores the word and then loads
//! the number of waiters. A thread that is about to sleep adds itself to that number and then loads
//! the word. The barriers of [`membarrier`] between the two accesses of each make at least one of
//! them see the other. Nearly all releases find no waiter, so the release executes `light_fence`,
//! and the thread that is about to sleep pays for `heavy_fence`.
//!
//! # Rules
//! 1. `state` goes from `FREE` to `HELD` by compare-and-exchange, and back by a store of the
//!    holder.
//! 2. A waiter is counted in `waiting` from before its `heavy_fence` until it has the lock. So it
//!    executes `heavy_fence` once, however often it sleeps.
//! 3. No waiter sleeps for ever. Let W have executed `heavy_fence` and found the lock held by H.
//!    If the `light_fence` of H's release preceded that `heavy_fence`, W would have seen the store
//!    before `light_fence`. So it follows, and H sees that W waits and wakes a sleeper. If W is
//!    not asleep yet, it finds `state` changed: the kernel puts it to sleep only if `state` is
//!    `HELD`, in one step. A woken waiter that finds the lock held again sleeps again, and the
//!    new holder wakes one when it releases.
//!
//! A panic under the lock releases it and is not recorded: the data of such short sections is
//! whole, or its users do not mind.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `state` | the holder, `try_take` | threads that lock | `Release` / `Acquire`, and the fences |
//! | `waiting` | waiters | the releasing holder | `Relaxed`, ordered by the fences |
//! | `value` | the holder | the holder | none: `state` orders it |

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockError, TryLockResult};

use crate::primitive::membarrier;
use crate::primitive::{AtomicU32, Ordering, capacity};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Loads of `state` before a waiter sleeps: the time of a few short critical sections.
const SPINS: u32 = capacity(100, 0);

/// A mutex for short critical sections.
pub struct Latch<T> {
    state: AtomicU32,
    /// Threads that wait.
    waiting: AtomicU32,
    sleepers: sleep::Sleepers,
    value: UnsafeCell<T>,
}

/// Exclusive access to the value of a [`Latch`], until the guard is dropped.
#[must_use = "the latch is released when the guard is dropped"]
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    /// Not `Send`, like the guard of the standard library.
    stays: PhantomData<*mut ()>,
}

// SAFETY: a latch gives `&mut T` to one thread at a time.
unsafe impl<T: Send> Send for Latch<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Latch<T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: Sync> Sync for LatchGuard<'_, T> {}

impl<T> Latch<T> {
    /// Creates a free latch.
    pub fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            waiting: AtomicU32::new(0),
            sleepers: sleep::Sleepers::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks the latch; waits while another thread holds it. Never returns an error: the type is
    /// that of the standard mutex, which replaces the latch in some builds.
    #[inline]
    pub fn lock(&self) -> LockResult<LatchGuard<'_, T>> {
        if !self.try_take() {
            self.wait();
        }
        Ok(LatchGuard {
            latch: self,
            stays: PhantomData,
        })
    }

    /// Locks the latch unless another thread holds it.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<LatchGuard<'_, T>> {
        if self.try_take() {
            Ok(LatchGuard {
                latch: self,
                stays: PhantomData,
            })
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    #[inline]
    fn try_take(&self) -> bool {
        // Acquire: pairs with the Release of the previous holder in `release`.
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut spins = SPINS;
        while spins > 0 {
            if self.state.load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
            std::hint::spin_loop();
            spins -= 1;
        }
        // Relaxed: `heavy_fence` orders it before the following loads of `state`.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // `heavy_fence`: pairs with `light_fence` in `release`. It fails only without memory; then
        // this thread polls instead of sleeping.
        let is_seen = membarrier::heavy_fence();
        while !self.try_take() {
            if is_seen {
                self.sleepers.sleep(&self.state)
            } else {
                std::thread::yield_now()
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn release(&self) {
        // Release: pairs with the Acquire of the next holder in `try_take`.
        self.state.store(FREE, Ordering::Release);
        // `light_fence`: pairs with `heavy_fence` in `wait`. It orders the load of `waiting`, so
        // Relaxed.
        membarrier::light_fence();
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.sleepers.wake_one(&self.state);
        }
    }
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the latch.
        unsafe { &*self.latch.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the latch, and it is borrowed exclusively.
        unsafe { &mut *self.latch.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.latch.release();
    }
}

impl<T> fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("is_held", &(self.state.load(Ordering::Relaxed) == HELD))
            .finish()
    }
}

/// Sleep while a word is [`HELD`]: the kernel compares the word and sleeps in one step.
#[cfg(not(feature = "loom"))]
mod sleep {
    use rustix::thread::futex;

    use super::HELD;
    use crate::primitive::AtomicU32;

    /// Empty: the kernel finds sleepers by the address of the word.
    pub(super) struct Sleepers;

    impl Sleepers {
        pub(super) fn new() -> Self {
            Self
        }

        pub(super) fn sleep(&self, state: &AtomicU32) {
            // An error means that the word changed or a signal arrived. The caller tries again.
            let _ = futex::wait(state, futex::Flags::PRIVATE, HELD, None);
        }

        #[cold]
        pub(super) fn wake_one(&self, state: &AtomicU32) {
            // It fails only for invalid addresses.
            let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
        }
    }
}

/// Sleep and wake in models, by a mutex and a condition variable.
#[cfg(feature = "loom")]
mod sleep {
    use super::HELD;
    use crate::primitive::{AtomicU32, Condvar, Mutex, Ordering};

    pub(super) struct Sleepers {
        queue: Mutex<()>,
        called: Condvar,
    }

    impl Sleepers {
        pub(super) fn new() -> Self {
            Self {
                queue: Mutex::new(()),
                called: Condvar::new(),
            }
        }

        pub(super) fn sleep(&self, state: &AtomicU32) {
            let queue = self.queue.lock().expect("nothing panics under it");
            if state.load(Ordering::Relaxed) == HELD {
                drop(self.called.wait(queue).expect("nothing panics under it"));
            }
        }

        pub(super) fn wake_one(&self, _state: &AtomicU32) {
            drop(self.queue.lock().expect("nothing panics under it"));
            self.called.notify_one();
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    const ROUNDS: u64 = if cfg!(miri) { 50 } else { 100_000 };

    fn lock<T>(latch: &Latch<T>) -> LatchGuard<'_, T> {
        latch.lock().expect("it is never an error")
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let latch = Latch::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| *lock(&latch) += 1));
            }
        });
        assert_eq!(*lock(&latch), 4 * ROUNDS);
    }

    #[test]
    fn a_sleeper_is_woken_and_a_panic_releases() {
        let latch = Latch::new(0);
        std::thread::scope(|scope| {
            let held = lock(&latch);
            assert!(latch.try_lock().is_err());
            for _ in 0..3 {
                scope.spawn(|| *lock(&latch) += 1);
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(*held, 0);
            drop(held);
        });
        let panics = catch_unwind(AssertUnwindSafe(|| {
            let mut held = lock(&latch);
            *held += 1;
            panic!("under the latch");
        }));
        assert!(panics.is_err());
        assert!(latch.try_lock().is_ok_and(|value| *value == 4));
    }
}
