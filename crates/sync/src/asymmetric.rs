//! Two barriers that go together, one for what is done often and one for what is rare: LIGHT and HEAVY. Every pin of an epoch
//! executes LIGHT, and every collection HEAVY; so do those who come and go and those who count them
//! ([`holders`](crate::holders)).
//!
//! A thread stores A, executes one of the barriers, and loads B; another stores B, executes the other barrier, and
//! loads A. Then one of them at least sees what the other stored. Without the barriers both loads may be done before
//! the stores are visible (store buffering), and a value would be freed under its reader.
//!
//! | where | LIGHT | HEAVY |
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
//! LIGHT, which goes with any HEAVY.
//!
//! # When the kernel refuses membarrier(2) later
//! A process may install a seccomp filter after it has chosen the first row. The first HEAVY that is refused moves the process to
//! the second row for good:
//! 1. It stores `LEAVING`. A thread that loads it uses the fence for LIGHT.
//! 2. It sleeps for `GRACE`, 20 ms, and stores `FENCES`. A HEAVY that loads `LEAVING` sleeps for as long itself.
//! 3. A LIGHT that loaded the old choice stores A a few instructions before. When the sleep is over, the store is
//!    visible: the CPU has drained its store buffer, which takes microseconds, or has switched to another thread or the host, which
//!    is a full barrier. So HEAVY's loads see it, as after membarrier(2).

use crate::primitive::{AtomicU64, Ordering};

#[cfg(any(miri, feature = "loom", not(target_os = "linux")))]
use fences as row;
#[cfg(not(any(miri, feature = "loom", not(target_os = "linux"))))]
use membarrier as row;

pub use row::heavy;
/// For `primitive::latch`, where there is one.
#[cfg(any(feature = "loom", all(target_os = "linux", not(any(feature = "audit", miri, extern4_tsan)))))]
pub(crate) use row::light;

#[cfg(any(test, not(feature = "loom")))]
pub(crate) use row::choose;

/// Stores a word that no other thread stores to, by `Release`, then LIGHT.
#[cfg(not(extern4_tsan))]
#[inline]
pub fn announce(word: &AtomicU64, value: u64) {
    // Release: pairs with the Acquire of `seen`, whose caller then knows of all that came before.
    word.store(value, Ordering::Release);
    row::light();
}

/// After HEAVY: what was announced, or stored since.
#[cfg(not(extern4_tsan))]
pub fn seen(word: &AtomicU64) -> u64 {
    // Acquire: pairs with the Release of `announce` and of stores since.
    word.load(Ordering::Acquire)
}

#[cfg(extern4_tsan)]
pub fn announce(word: &AtomicU64, value: u64) {
    // SeqCst: includes the Release, and the Acquire that makes it LIGHT.
    word.swap(value, Ordering::SeqCst);
    row::light();
}

#[cfg(extern4_tsan)]
pub fn seen(word: &AtomicU64) -> u64 {
    // SeqCst: includes the Acquire, and the Release that makes it HEAVY.
    word.fetch_add(0, Ordering::SeqCst)
}

#[cfg(any(miri, feature = "loom", not(target_os = "linux")))]
mod fences {
    use crate::primitive::{Ordering, fence};

    #[cfg(any(test, not(feature = "loom")))]
    pub(crate) fn choose() {}

    #[inline]
    pub(crate) fn light() {
        // SeqCst: pairs with `heavy`.
        fence(Ordering::SeqCst);
    }

    /// HEAVY, which never fails here.
    pub fn heavy() -> bool {
        // SeqCst: pairs with `light`.
        fence(Ordering::SeqCst);
        true
    }
}

#[cfg(not(any(miri, feature = "loom", not(target_os = "linux"))))]
mod membarrier {
    use rustix::io::Errno;
    use rustix::thread::{MembarrierCommand, membarrier};
    use std::time::Duration;

    // Changes twice at most, and in a static, so not the modelled atomics.
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

    const UNKNOWN: u8 = 0;
    const FENCES: u8 = 1;
    const MEMBARRIER: u8 = 2;
    const LEAVING: u8 = 3;

    /// Longer than any CPU keeps a store to itself.
    pub(crate) const GRACE: Duration = Duration::from_millis(20);

    static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Chooses the row, the first time. Sandboxes and old kernels refuse the registration.
    #[inline]
    pub(crate) fn choose() {
        if CHOSEN.load(Ordering::Relaxed) == UNKNOWN {
            register();
        }
    }

    #[cold]
    fn register() {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        let choice = if registered { MEMBARRIER } else { FENCES };
        // Relaxed: the choice guards nothing. Who comes second takes the first one's.
        let _ = CHOSEN.compare_exchange(UNKNOWN, choice, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn light() {
        // Relaxed: a thread that does not know the choice yet uses the fence, which is right in any case. For a thread that
        // does not know yet that it was left, see the module.
        if CHOSEN.load(Ordering::Relaxed) == MEMBARRIER {
            // SeqCst: pairs with membarrier in `heavy`.
            compiler_fence(Ordering::SeqCst);
        } else {
            // SeqCst: pairs with either of `heavy`.
            fence(Ordering::SeqCst);
        }
    }

    /// HEAVY. False if the kernel has no memory for it at the moment; the caller then knows nothing.
    pub fn heavy() -> bool {
        choose();
        match CHOSEN.load(Ordering::Relaxed) {
            MEMBARRIER => match membarrier(MembarrierCommand::PrivateExpedited) {
                Ok(()) => return true,
                Err(Errno::NOMEM) => return false,
                Err(_) => leave_membarrier(),
            },
            LEAVING => leave_membarrier(),
            _ => {}
        }
        // SeqCst: pairs with `light`.
        fence(Ordering::SeqCst);
        true
    }

    /// Steps 1 and 2 of the module's documentation.
    #[cold]
    fn leave_membarrier() {
        // SeqCst, all: rare, and the order of the steps matters.
        let _ = CHOSEN.compare_exchange(MEMBARRIER, LEAVING, Ordering::SeqCst, Ordering::SeqCst);
        std::thread::sleep(GRACE);
        CHOSEN.store(FENCES, Ordering::SeqCst);
    }
}
