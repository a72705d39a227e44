//! Numbers that distinguish the objects of a process.
//!
//! The VFS numbers its file systems with them, and `jbd2` its running transactions. No thread waits
//! for another one, so a child of `fork(2)` can always take a number. It is a standard atomic,
//! because no static holds one of a model, and models do not depend on the numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// An allocator of numbers from 1 on, for a static.
#[derive(Debug, Default)]
pub struct ProcessIds(AtomicU64);

impl ProcessIds {
    /// Creates an allocator that has returned no number.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns a number that no other call returns.
    pub fn take(&self) -> u64 {
        // Relaxed: only uniqueness matters.
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}
