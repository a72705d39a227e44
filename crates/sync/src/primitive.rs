//! Atomics, locks, threads and thread locals. They come from the standard library, from loom
//! or shuttle in models, or recording ones with the feature `audit`.
//!
//! All protocols of this workspace import these names from here, so that models explore the code
//! that runs. Loom's constructors are not `const`, hence statics hold no atomics. The threads of a
//! model run in turn on one thread of the system, hence their thread locals are the scheduler's.
//!
//! With no feature set, they are the types of the standard library and cost nothing more.

#[cfg(not(any(feature = "loom", feature = "audit")))]
pub use std::sync::{Condvar, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(feature = "loom", feature = "audit")))]
pub use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence},
};
#[cfg(not(feature = "loom"))]
pub use std::{sync::OnceLock, sync::atomic::Ordering, thread};

#[cfg(not(feature = "loom"))]
pub(crate) use std::thread_local;

#[cfg(feature = "loom")]
pub use scheduled::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
};

#[cfg(feature = "loom")]
pub use once::OnceLock;

/// The scheduler of models.
#[cfg(all(feature = "loom", not(feature = "shuttle")))]
pub(crate) use loom as scheduled;
#[cfg(feature = "shuttle")]
pub(crate) use shuttle as scheduled;

#[cfg(all(feature = "audit", not(feature = "loom")))]
pub use extern4_audit::{
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence},
    lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

#[cfg(not(all(
    target_os = "linux",
    not(any(feature = "loom", feature = "audit", miri, extern4_tsan))
)))]
pub use self::{Mutex as Latch, MutexGuard as LatchGuard};
#[cfg(any(
    feature = "loom",
    all(target_os = "linux", not(any(feature = "audit", miri, extern4_tsan)))
))]
pub mod latch;
pub mod membarrier;

/// A mutex for short critical sections. Models use the scheduler's mutex, which takes fewer steps;
/// the latch has a model.
#[cfg(all(
    target_os = "linux",
    not(any(feature = "loom", feature = "audit", miri, extern4_tsan))
))]
pub use latch::{Latch, LatchGuard};

/// Returns the size of a structure: `model` under loom or shuttle, `real` elsewhere.
///
/// Small sizes make the threads of a model interact, and let the scheduler reach every state.
pub const fn capacity<T: Copy>(real: T, model: T) -> T {
    if cfg!(feature = "loom") { model } else { real }
}

/// Declares thread locals with constant initial values.
#[cfg(feature = "loom")]
macro_rules! thread_variables {
    ($(static $name:ident: $type:ty = const { $value:expr };)*) => {
        $($crate::primitive::scheduled::thread_local! { static $name: $type = $value; })*
    };
}
#[cfg(feature = "loom")]
pub(crate) use thread_variables as thread_local;

/// Returns `len` zeroes, in memory that the system provides on first access.
#[cfg(not(feature = "loom"))]
pub fn zeroes(len: usize) -> Box<[AtomicU64]> {
    // SAFETY: an `AtomicU64` has the layout of a `u64`, and zeroes are a valid one.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}

/// Returns `len` zeroes.
#[cfg(feature = "loom")]
pub fn zeroes(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

/// A value that is set once and waited for, which loom and shuttle lack.
#[cfg(feature = "loom")]
mod once {
    use super::{AtomicBool, Condvar, Mutex, Ordering};

    /// The part of [`std::sync::OnceLock`] that this workspace uses.
    #[derive(Debug)]
    pub struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        is_set: AtomicBool,
        setting: Mutex<()>,
        set: Condvar,
    }

    impl<T> OnceLock<T> {
        /// Creates a cell without a value.
        #[expect(clippy::new_without_default, reason = "it has no user")]
        pub fn new() -> Self {
            Self {
                value: std::sync::OnceLock::new(),
                is_set: AtomicBool::new(false),
                setting: Mutex::new(()),
                set: Condvar::new(),
            }
        }

        /// Returns the value, if it is set.
        pub fn get(&self) -> Option<&T> {
            // Acquire: pairs with the Release in `set`.
            if self.is_set.load(Ordering::Acquire) {
                self.value.get()
            } else {
                None
            }
        }

        /// Sets the value. Returns it as the error if another one is set.
        pub fn set(&self, value: T) -> Result<(), T> {
            let _setting = self.setting.lock().expect("nothing panics under it");
            self.value.set(value)?;
            // Release: pairs with the Acquire in `get`.
            self.is_set.store(true, Ordering::Release);
            self.set.notify_all();
            Ok(())
        }

        /// Waits until the value is set, and returns it.
        pub fn wait(&self) -> &T {
            let mut setting = self.setting.lock().expect("nothing panics under it");
            loop {
                match self.get() {
                    Some(value) => return value,
                    None => setting = self.set.wait(setting).expect("nothing panics under it"),
                }
            }
        }
    }
}
