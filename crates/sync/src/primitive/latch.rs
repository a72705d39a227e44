//! A lock for what takes a moment, and whose release executes no locked instruction.
//!
//! Who releases a lock has to learn whether somebody sleeps who must be woken. Locks in general learn it by an exchange of the
//! word that they release. Here who releases stores the word and then looks at the number of those who wait, and who is about to sleep
//! adds himself to that number and then looks at the word; the barriers of [`membarrier`] between the two accesses of each see to it
//! that one of them at least sees the other. Nearly all releases find that nobody waits, so theirs is `light_fence`, and who is about to sleep
//! pays for `heavy_fence`.
//!
//! # Rules
//! 1. `state` goes from `FREE` to `HELD` by compare-and-exchange, and back by a store of the holder.
//! 2. Who waits is counted in `waiting` from before `heavy_fence` until he has the lock, so `heavy_fence` is executed once each time that somebody
//!    has to wait, however often he sleeps.
//! 3. Nobody sleeps for ever. Let W have executed `heavy_fence`, and find the lock held by H before he sleeps. If the `light_fence` of H's release came
//!    before `heavy_fence`, W would have seen the store that came before `light_fence`. So it comes after, and H sees that W waits, and wakes one of those
//!    who sleep; if W is not asleep yet, he finds that `state` has changed, since he falls asleep only if it is `HELD`, in one step.
//!    Who is woken and finds the lock held by another sleeps again, and the other wakes one in his turn.
//!
//! A panic under the lock releases it. It is not noted: what is locked so briefly is whole, or does not mind.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `state` | the holder; who takes it | who takes it | `Release` / `Acquire`, and `light_fence` / `heavy_fence` |
//! | `waiting` | who waits | who releases | `Relaxed`: `light_fence` / `heavy_fence` |
//! | `value` | the holder | the holder | none: `state` |

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockError, TryLockResult};

use crate::membarrier;
use crate::primitive::{AtomicU32, Ordering, capacity};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// How often a thread looks whether the lock is free before it sleeps: the time of some short critical sections.
const LOOKS: u32 = capacity(100, 0);

/// A mutex for what takes a moment.
pub struct Latch<T> {
    state: AtomicU32,
    /// Threads that wait.
    waiting: AtomicU32,
    place: sleep::Place,
    value: UnsafeCell<T>,
}

/// The right to use what a [`Latch`] protects, until this is dropped.
#[must_use = "it is released when this is dropped"]
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    /// As the standard library's: of the thread that has locked.
    stays: PhantomData<*mut ()>,
}

// SAFETY: a latch gives `&mut T` to one thread at a time, whichever that is.
unsafe impl<T: Send> Send for Latch<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Latch<T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: Sync> Sync for LatchGuard<'_, T> {}

impl<T> Latch<T> {
    /// A latch that nobody holds.
    pub fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            waiting: AtomicU32::new(0),
            place: sleep::Place::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks it, as soon as nobody else has. Never an error: the result is that of the locks in whose place this stands.
    #[inline]
    pub fn lock(&self) -> LockResult<LatchGuard<'_, T>> {
        if !self.try_take() {
            self.wait();
        }
        Ok(LatchGuard { latch: self, stays: PhantomData })
    }

    /// Locks it, unless somebody else has it now.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<LatchGuard<'_, T>> {
        match self.try_take() {
            true => Ok(LatchGuard { latch: self, stays: PhantomData }),
            false => Err(TryLockError::WouldBlock),
        }
    }

    #[inline]
    fn try_take(&self) -> bool {
        // Acquire: pairs with the Release of the last holder.
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut looks = LOOKS;
        while looks > 0 {
            if self.state.load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
            std::hint::spin_loop();
            looks -= 1;
        }
        // Relaxed: `heavy_fence` orders it before the looks at `state`.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // `heavy_fence`: pairs with `light_fence` in `release`. It fails for want of memory, if at all: then who waits looks again and again.
        let is_seen = membarrier::heavy_fence();
        while !self.try_take() {
            if is_seen { self.place.sleep(&self.state) } else { std::thread::yield_now() }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn release(&self) {
        // Release: pairs with the Acquire of the next holder.
        self.state.store(FREE, Ordering::Release);
        // `light_fence`: pairs with `heavy_fence` in `wait`.
        membarrier::light_fence();
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.place.wake_one(&self.state);
        }
    }
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread holds the latch.
        unsafe { &*self.latch.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this is the one guard.
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
        f.debug_struct("Latch").field("is_held", &(self.state.load(Ordering::Relaxed) == HELD)).finish()
    }
}

/// Sleeping as long as a word is [`HELD`]: a look at the word and falling asleep are one step.
#[cfg(not(feature = "loom"))]
mod sleep {
    use rustix::thread::futex;

    use super::HELD;
    use crate::primitive::AtomicU32;

    /// The kernel finds who sleeps by the address of the word.
    pub(super) struct Place;

    impl Place {
        pub(super) fn new() -> Self {
            Self
        }

        pub(super) fn sleep(&self, state: &AtomicU32) {
            // An error says that the word has changed, or that a signal came: the caller looks again.
            let _ = futex::wait(state, futex::Flags::PRIVATE, HELD, None);
        }

        #[cold]
        pub(super) fn wake_one(&self, state: &AtomicU32) {
            // It fails for addresses only that are none.
            let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
        }
    }
}

/// What the kernel does, in models.
#[cfg(feature = "loom")]
mod sleep {
    use super::HELD;
    use crate::primitive::{AtomicU32, Condvar, Mutex, Ordering};

    pub(super) struct Place {
        queue: Mutex<()>,
        called: Condvar,
    }

    impl Place {
        pub(super) fn new() -> Self {
            Self { queue: Mutex::new(()), called: Condvar::new() }
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
    fn who_sleeps_is_woken_and_a_panic_releases() {
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
