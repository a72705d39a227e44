//! Atomics, locks, threads and their variables: the standard library's, loom's or shuttle's where a feature asks for a
//! model, or those that note what they do where `audit` asks.
//!
//! Protocols of this workspace take these names from here, so that the code a model explores is the code that runs.
//! Loom's constructors are not `const`, hence no atomics in statics. The threads of models take turns on one thread of the system,
//! hence their variables are the scheduler's own, too.

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

/// Who schedules the threads of models.
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
#[cfg(any(feature = "loom", all(target_os = "linux", not(any(feature = "audit", miri, extern4_tsan)))))]
pub mod latch;

/// A lock for what takes a moment. Models have the scheduler's, so that they need not go through the steps of this one each time:
/// it has a model of its own.
#[cfg(all(target_os = "linux", not(any(feature = "loom", feature = "audit", miri, extern4_tsan))))]
pub use latch::{Latch, LatchGuard};

/// Returns the size that a structure has: `model` where loom or shuttle explores it, `real` elsewhere.
///
/// Models are small so that their threads meet, and so that the scheduler reaches every state.
pub const fn capacity<T: Copy>(real: T, model: T) -> T {
    if cfg!(feature = "loom") { model } else { real }
}

/// Variables of a thread, all of which are made from constants.
#[cfg(feature = "loom")]
macro_rules! thread_variables {
    ($(static $name:ident: $type:ty = const { $value:expr };)*) => {
        $($crate::primitive::scheduled::thread_local! { static $name: $type = $value; })*
    };
}
#[cfg(feature = "loom")]
pub(crate) use thread_variables as thread_local;

/// So many null pointers: the buckets of an empty table. Memory that the system hands out as zeroes is not touched until it
/// is used, so a large table costs nothing when it is made.
#[cfg(not(feature = "loom"))]
pub(crate) fn null_pointers<T>(len: usize) -> Box<[AtomicPtr<T>]> {
    // SAFETY: an `AtomicPtr` is laid out as a pointer, and zeroes are the null pointer.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}

#[cfg(feature = "loom")]
pub(crate) fn null_pointers<T>(len: usize) -> Box<[AtomicPtr<T>]> {
    (0..len).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect()
}

/// Returns `len` zeroes, in memory that the system hands out untouched until it is used.
#[cfg(not(feature = "loom"))]
pub fn zeroes(len: usize) -> Box<[AtomicU64]> {
    // SAFETY: an `AtomicU64` is laid out as a number, and zeroes are one.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}

/// Returns `len` zeroes.
#[cfg(feature = "loom")]
pub fn zeroes(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

/// What neither loom nor shuttle has: a value that is set once, and waited for.
#[cfg(feature = "loom")]
mod once {
    use super::{AtomicBool, Condvar, Mutex, Ordering};

    /// As far as this workspace uses it, [`std::sync::OnceLock`].
    #[derive(Debug)]
    pub struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        is_set: AtomicBool,
        setting: Mutex<()>,
        told: Condvar,
    }

    impl<T> OnceLock<T> {
        /// Without a value.
        #[expect(clippy::new_without_default, reason = "nobody asks for it")]
        pub fn new() -> Self {
            Self {
                value: std::sync::OnceLock::new(),
                is_set: AtomicBool::new(false),
                setting: Mutex::new(()),
                told: Condvar::new(),
            }
        }

        /// The value, if it is set.
        pub fn get(&self) -> Option<&T> {
            // Acquire: pairs with the Release in `set`.
            if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
        }

        /// Sets the value; gives it back if another has been set.
        pub fn set(&self, value: T) -> Result<(), T> {
            let _setting = self.setting.lock().expect("nothing panics under it");
            self.value.set(value)?;
            // Release: pairs with the Acquire in `get`.
            self.is_set.store(true, Ordering::Release);
            self.told.notify_all();
            Ok(())
        }

        /// The value, once it is set.
        pub fn wait(&self) -> &T {
            let mut setting = self.setting.lock().expect("nothing panics under it");
            loop {
                match self.get() {
                    Some(value) => return value,
                    None => setting = self.told.wait(setting).expect("nothing panics under it"),
                }
            }
        }
    }
}
