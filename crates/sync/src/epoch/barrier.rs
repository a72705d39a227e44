//! The two barriers between pins and collections: LIGHT is executed by every pin, HEAVY by every collection.
//!
//! A thread stores A, executes one of the barriers, and loads B; another stores B, executes the other barrier, and
//! loads A. Then one of them at least sees what the other stored. Without the barriers both loads may be done before
//! the stores are visible (store buffering), and a value would be freed under its reader.
//!
//! | where | LIGHT | HEAVY |
//! | --- | --- | --- |
//! | Linux with membarrier(2) | the compiler does not reorder | each thread of the process executes a full barrier |
//! | elsewhere, under Miri, in models | `fence(SeqCst)` | `fence(SeqCst)` |
//! | `--cfg extern4_tsan` | the pin is a read-modify-write | the scan is made of read-modify-writes |
//!
//! In the first row the kernel interrupts the threads that run; those that do not have a barrier from the switch. That
//! leaves a pin a plain store, where a fence would be most of what it costs. The last row is for ThreadSanitizer, which knows of no fence: read-modify-writes of one word are ordered one after
//! the other, each seeing all that came before the last.
//!
//! Which row it is, is chosen once, before the first pin. A thread that does not know of the choice yet uses the fence
//! for LIGHT, which goes with any HEAVY.

use crate::primitive::{AtomicU64, Ordering};

#[cfg(any(miri, feature = "loom", not(target_os = "linux")))]
use fences as row;
#[cfg(not(any(miri, feature = "loom", not(target_os = "linux"))))]
use membarrier as row;

pub(super) use row::{choose, heavy};

/// Stores `epoch` as a thread's pin, then LIGHT.
#[cfg(not(extern4_tsan))]
#[inline]
pub(super) fn announce(pinned: &AtomicU64, epoch: u64) {
    // Release: U, pairs with the Acquire of `seen`: who sees this pin knows that the section before it is over.
    pinned.store(epoch, Ordering::Release);
    row::light();
}

/// A thread's pin, or what it stored since.
#[cfg(not(extern4_tsan))]
pub(super) fn seen(pinned: &AtomicU64) -> u64 {
    // Acquire: U, pairs with the Release of `announce` and of the end of a section.
    pinned.load(Ordering::Acquire)
}

#[cfg(extern4_tsan)]
pub(super) fn announce(pinned: &AtomicU64, epoch: u64) {
    // SeqCst: includes the Release of U, and the Acquire that makes it LIGHT.
    pinned.swap(epoch, Ordering::SeqCst);
    row::light();
}

#[cfg(extern4_tsan)]
pub(super) fn seen(pinned: &AtomicU64) -> u64 {
    // SeqCst: includes the Acquire of U, and the Release that makes it HEAVY.
    pinned.fetch_add(0, Ordering::SeqCst)
}

#[cfg(any(miri, feature = "loom", not(target_os = "linux")))]
mod fences {
    use crate::primitive::{Ordering, fence};

    pub(crate) fn choose() {}

    #[inline]
    pub(super) fn light() {
        // SeqCst: pairs with `heavy`.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy() -> bool {
        // SeqCst: pairs with `light`.
        fence(Ordering::SeqCst);
        true
    }
}

#[cfg(not(any(miri, feature = "loom", not(target_os = "linux"))))]
mod membarrier {
    use rustix::thread::{MembarrierCommand, membarrier};

    // Constant once chosen, and in a static, so not the modelled atomics.
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

    const UNKNOWN: u8 = 0;
    const FENCES: u8 = 1;
    const MEMBARRIER: u8 = 2;

    static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Chooses the row, the first time. Sandboxes and old kernels refuse the registration.
    #[cold]
    pub(crate) fn choose() {
        if CHOSEN.load(Ordering::Relaxed) == UNKNOWN {
            let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            let choice = if registered { MEMBARRIER } else { FENCES };
            // Relaxed: the choice guards nothing. Who comes second takes the first one's.
            let _ = CHOSEN.compare_exchange(UNKNOWN, choice, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn light() {
        // Relaxed: there is one choice, and not to know it yet means the fence, which is right in any case.
        if CHOSEN.load(Ordering::Relaxed) == MEMBARRIER {
            // SeqCst: pairs with membarrier in `heavy`.
            compiler_fence(Ordering::SeqCst);
        } else {
            // SeqCst: pairs with either of `heavy`.
            fence(Ordering::SeqCst);
        }
    }

    /// HEAVY. False if it could not be had, for want of memory say; the caller then knows nothing.
    pub(crate) fn heavy() -> bool {
        // The collecting thread has a record, so the choice is made and this thread knows it.
        if CHOSEN.load(Ordering::Relaxed) == MEMBARRIER {
            membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        } else {
            // SeqCst: pairs with `light`.
            fence(Ordering::SeqCst);
            true
        }
    }
}
