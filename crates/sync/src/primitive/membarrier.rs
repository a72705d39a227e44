//! Two barriers that pair: `light_fence` for a frequent operation and `heavy_fence` for a rare one.
//!
//! A thread that enters an epoch, counts a user or publishes a read executes `light_fence`. A
//! thread that frees memory, adds up counts or ends a bias executes `heavy_fence`. Users are
//! [`rcu`](crate::rcu), [`thread_refcount`](crate::thread_refcount),
//! [`biased_rwlock`](crate::biased_rwlock) and `primitive::latch`.
//!
//! # The guarantee
//! One thread stores A, executes one of the barriers, and loads B. Another thread stores B,
//! executes the other barrier, and loads A. Then at least one of them sees the store of the other.
//! Without the barriers both loads may complete before the stores become visible (store buffering),
//! and a value would be freed under its reader.
//!
//! | where | `light_fence` | `heavy_fence` |
//! | --- | --- | --- |
//! | Linux with membarrier(2) | a compiler barrier | a full barrier on each running thread |
//! | elsewhere, under Miri, in models | `fence(SeqCst)` | `fence(SeqCst)` |
//! | `--cfg extern4_tsan` | the store is a read-modify-write | the loads are read-modify-writes |
//!
//! In the first row the kernel interrupts the threads that run. A thread that does not run executed
//! a full barrier when it was switched out. The frequent side is then a plain store, where a fence
//! would be most of its cost. The last row is for ThreadSanitizer, which does not model fences.
//! Read-modify-writes of one word are totally ordered, and each sees all that happened before the
//! previous one.
//!
//! The first thread that needs a barrier chooses the row for the process. A thread that does not
//! know the choice yet uses the fence as its `light_fence`, which pairs with any `heavy_fence`.
//!
//! # When the kernel refuses membarrier(2) later
//! A process may install a seccomp filter after it chose the first row. The first `heavy_fence`
//! that is refused moves the process to the second row for good:
//! 1. It stores `DISABLING`. A thread that loads this uses the fence as its `light_fence`.
//! 2. It sleeps for `GRACE`, 20 ms, and stores `FENCES`. A `heavy_fence` that loads `DISABLING`
//!    sleeps for as long itself.
//! 3. A `light_fence` that loaded the old choice stored A a few instructions before. After the
//!    sleep that store is visible. Its CPU has drained the store buffer, which takes microseconds,
//!    or has switched to another thread or to the host. A switch is a full barrier. So the loads
//!    after `heavy_fence` see it, as they do after membarrier(2).

use crate::primitive::{AtomicU64, Ordering};

#[cfg(not(any(miri, feature = "loom", not(target_os = "linux"))))]
use expedited as imp;
#[cfg(any(miri, feature = "loom", not(target_os = "linux")))]
use fences as imp;

pub use imp::heavy_fence;
// Only `primitive::latch` uses it outside of `publish`.
#[cfg(any(
    feature = "loom",
    all(target_os = "linux", not(any(feature = "audit", miri, extern4_tsan)))
))]
pub(crate) use imp::light_fence;

pub use imp::register;

/// Stores to a word that no other thread stores to (`Release`), then executes `light_fence`.
#[cfg(not(extern4_tsan))]
#[inline]
pub fn publish(word: &AtomicU64, value: u64) {
    // Release: pairs with the Acquire in `read_published`, whose caller sees all that happened
    // before.
    word.store(value, Ordering::Release);
    imp::light_fence();
}

/// Loads a word that [`publish`] stored (`Acquire`). The caller executed [`heavy_fence`] before.
#[cfg(not(extern4_tsan))]
pub fn read_published(word: &AtomicU64) -> u64 {
    // Acquire: pairs with the Release in `publish` and of later stores.
    word.load(Ordering::Acquire)
}

#[cfg(extern4_tsan)]
pub fn publish(word: &AtomicU64, value: u64) {
    // SeqCst: includes the Release, and the Acquire that makes it a `light_fence`.
    word.swap(value, Ordering::SeqCst);
    imp::light_fence();
}

#[cfg(extern4_tsan)]
pub fn read_published(word: &AtomicU64) -> u64 {
    // SeqCst: includes the Acquire, and the Release that makes it a `heavy_fence`.
    word.fetch_add(0, Ordering::SeqCst)
}

#[cfg(any(miri, feature = "loom", not(target_os = "linux")))]
mod fences {
    use crate::primitive::{Ordering, fence};

    /// Does nothing: there is no choice.
    pub fn register() {}

    #[inline]
    pub(crate) fn light_fence() {
        // SeqCst: pairs with `heavy_fence`.
        fence(Ordering::SeqCst);
    }

    /// Executes the heavy barrier, and returns true: a fence never fails.
    pub fn heavy_fence() -> bool {
        // SeqCst: pairs with `light_fence`.
        fence(Ordering::SeqCst);
        true
    }
}

#[cfg(not(any(miri, feature = "loom", not(target_os = "linux"))))]
mod expedited {
    use rustix::io::Errno;
    use rustix::thread::{MembarrierCommand, membarrier};
    use std::time::Duration;

    // The standard atomics: the choice is in a static, and models do not explore it.
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

    const UNKNOWN: u8 = 0;
    const FENCES: u8 = 1;
    const MEMBARRIER: u8 = 2;
    const DISABLING: u8 = 3;

    /// The length of the sleep: longer than a store stays in the store buffer of any CPU.
    pub(crate) const GRACE: Duration = Duration::from_millis(20);

    static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Chooses the row on the first call. Sandboxes and old kernels refuse the registration.
    ///
    /// In a process with one thread it returns at once. In others the kernel waits until each CPU
    /// has switched, which takes about 10 ms.
    #[inline]
    pub fn register() {
        if CHOSEN.load(Ordering::Relaxed) == UNKNOWN {
            register_now();
        }
    }

    #[cold]
    fn register_now() {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        let choice = if registered { MEMBARRIER } else { FENCES };
        // Relaxed: the choice guards no data. The second of two racing threads keeps the first's
        // choice.
        let _ = CHOSEN.compare_exchange(UNKNOWN, choice, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn light_fence() {
        // SeqCst: keeps the compiler from loading the choice before the caller's store. A thread
        // that gives membarrier up waits for threads that loaded the choice, and so have stored.
        compiler_fence(Ordering::SeqCst);
        // Relaxed: a thread that does not see the choice yet uses the fence, which is always
        // correct. The module docs say why a thread may also miss that membarrier was given up.
        if CHOSEN.load(Ordering::Relaxed) == MEMBARRIER {
            // SeqCst: keeps the compiler from reordering; pairs with membarrier(2) in
            // `heavy_fence`.
            compiler_fence(Ordering::SeqCst);
        } else {
            // SeqCst: pairs with membarrier(2) or the fence in `heavy_fence`.
            fence(Ordering::SeqCst);
        }
    }

    /// Executes the heavy barrier. Returns false if the kernel has no memory for it now; then the
    /// caller must not draw conclusions from its loads.
    pub fn heavy_fence() -> bool {
        register();
        match CHOSEN.load(Ordering::Relaxed) {
            MEMBARRIER => match membarrier(MembarrierCommand::PrivateExpedited) {
                Ok(()) => return true,
                Err(Errno::NOMEM) => return false,
                Err(_) => disable(),
            },
            DISABLING => disable(),
            _ => {}
        }
        // SeqCst: pairs with `light_fence`.
        fence(Ordering::SeqCst);
        true
    }

    /// Executes steps 1 and 2 of the move to fences.
    #[cold]
    fn disable() {
        // SeqCst, both: the call is rare, and the order of the steps matters.
        let _ = CHOSEN.compare_exchange(MEMBARRIER, DISABLING, Ordering::SeqCst, Ordering::SeqCst);
        std::thread::sleep(GRACE);
        CHOSEN.store(FENCES, Ordering::SeqCst);
    }
}
