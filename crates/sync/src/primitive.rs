//! Atomics, locks and threads: the standard library's, or loom's where the feature `loom` asks for a model.
//!
//! Protocols of this workspace take these names from here, so that the code a model explores is the code that runs.
//! Loom's constructors are not `const`, hence no atomics in statics.

#[cfg(not(feature = "loom"))]
pub use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(feature = "loom")]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
