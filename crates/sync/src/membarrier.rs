//! Two barriers that go together, one for what is done often and one for what is rare: `light_fence` and `heavy_fence`. Every pin of an epoch
//! executes `light_fence`, and every collection `heavy_fence`; so do those who come and go and those who count them
//! ([`thread_refcount`](crate::thread_refcount)).
//!
//! A thread stores A, executes one of the barriers, and loads B; another stores B, executes the other barrier, and
//! loads A. Then one of them at least sees what the other stored. Without the barriers both loads may be done before
//! the stores are visible (store buffering), and a value would be freed under its reader.
//!
//! | where | `light_fence` | `heavy_fence` |
//! | --- | --- | --- |
//! | Linux with membarrier(2) | the compiler does not reorder | each thread of the process executes a full barrier |
//! | elsewhere, under Miri, in models | `fence(SeqCst)` | `fence(SeqCst)` |
//! | `--cfg extern4_tsan` | the store is a read-modify-write | the loads are read-modify-writes |
//!
//! In the first row the kernel interrupts the threads that run; those that do not have a barrier from the switch. That
//! leaves the frequent side a plain store, where a fence would be most of what it costs. The last row is for ThreadSanitizer,
//! which knows of no fence: read-modify-writes of one word are ordered one after the other, each seeing all that came before
//! the last.
//!
//! The first thread that asks chooses the row. A thread that does not know of the choice yet uses the fence for
//! `light_fence`, which goes with any `heavy_fence`.
//!
//! # When the kernel refuses membarrier(2) later
//! A process may install a seccomp filter after it has chosen the first row. The first `heavy_fence` that is refused moves the process to
//! the second row for good:
//! 1. It stores `DISABLING`. A thread that loads it uses the fence for `light_fence`.
//! 2. It sleeps for `GRACE`, 20 ms, and stores `FENCES`. A `heavy_fence` that loads `DISABLING` sleeps for as long itself.
//! 3. A `light_fence` that loaded the old choice stores A a few instructions before. When the sleep is over, the store is
//!    visible: the CPU has drained its store buffer, which takes microseconds, or has switched to another thread or the host, which
//!    is a full barrier. So `heavy_fence`'s loads see it, as after membarrier(2).

use crate::primitive::{AtomicU64, Ordering};

#[cfg(not(any(miri, feature = "loom", not(target_os = "linux"))))]
use expedited as imp;
#[cfg(any(miri, feature = "loom", not(target_os = "linux")))]
use fences as imp;

pub use imp::heavy_fence;
/// For `primitive::latch`, where there is one.
#[cfg(any(feature = "loom", all(target_os = "linux", not(any(feature = "audit", miri, extern4_tsan)))))]
pub(crate) use imp::light_fence;

#[cfg(any(test, not(feature = "loom")))]
pub(crate) use imp::register;

/// Stores a word that no other thread stores to, by `Release`, then `light_fence`.
#[cfg(not(extern4_tsan))]
#[inline]
pub fn publish(word: &AtomicU64, value: u64) {
    // Release: pairs with the Acquire of `read_published`, whose caller then knows of all that came before.
    word.store(value, Ordering::Release);
    imp::light_fence();
}

/// After `heavy_fence`: what was announced, or stored since.
#[cfg(not(extern4_tsan))]
pub fn read_published(word: &AtomicU64) -> u64 {
    // Acquire: pairs with the Release of `publish` and of stores since.
    word.load(Ordering::Acquire)
}

#[cfg(extern4_tsan)]
pub fn publish(word: &AtomicU64, value: u64) {
    // SeqCst: includes the Release, and the Acquire that makes it `light_fence`.
    word.swap(value, Ordering::SeqCst);
    imp::light_fence();
}

#[cfg(extern4_tsan)]
pub fn read_published(word: &AtomicU64) -> u64 {
    // SeqCst: includes the Acquire, and the Release that makes it `heavy_fence`.
    word.fetch_add(0, Ordering::SeqCst)
}

#[cfg(any(miri, feature = "loom", not(target_os = "linux")))]
mod fences {
    use crate::primitive::{Ordering, fence};

    #[cfg(any(test, not(feature = "loom")))]
    pub(crate) fn register() {}

    #[inline]
    pub(crate) fn light_fence() {
        // SeqCst: pairs with `heavy_fence`.
        fence(Ordering::SeqCst);
    }

    /// `heavy_fence`, which never fails here.
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

    // Changes twice at most, and in a static, so not the modelled atomics.
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

    const UNKNOWN: u8 = 0;
    const FENCES: u8 = 1;
    const MEMBARRIER: u8 = 2;
    const DISABLING: u8 = 3;

    /// Longer than any CPU keeps a store to itself.
    pub(crate) const GRACE: Duration = Duration::from_millis(20);

    static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Chooses the row, the first time. Sandboxes and old kernels refuse the registration.
    #[inline]
    pub(crate) fn register() {
        if CHOSEN.load(Ordering::Relaxed) == UNKNOWN {
            register_now();
        }
    }

    #[cold]
    fn register_now() {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        let choice = if registered { MEMBARRIER } else { FENCES };
        // Relaxed: the choice guards nothing. Who comes second takes the first one's.
        let _ = CHOSEN.compare_exchange(UNKNOWN, choice, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn light_fence() {
        // Relaxed: a thread that does not know the choice yet uses the fence, which is right in any case. For a thread that
        // does not know yet that it was left, see the module.
        if CHOSEN.load(Ordering::Relaxed) == MEMBARRIER {
            // SeqCst: pairs with membarrier in `heavy_fence`.
            compiler_fence(Ordering::SeqCst);
        } else {
            // SeqCst: pairs with either of `heavy_fence`.
            fence(Ordering::SeqCst);
        }
    }

    /// `heavy_fence`. False if the kernel has no memory for it at the moment; the caller then knows nothing.
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

    /// Steps 1 and 2 of the module's documentation.
    #[cold]
    fn disable() {
        // SeqCst, all: rare, and the order of the steps matters.
        let _ = CHOSEN.compare_exchange(MEMBARRIER, DISABLING, Ordering::SeqCst, Ordering::SeqCst);
        std::thread::sleep(GRACE);
        CHOSEN.store(FENCES, Ordering::SeqCst);
    }
}
