//! Loom tests of the protocols.
#![cfg(feature = "loom")]

mod biased_rwlock;
mod closable_refcount;
mod latch;
mod rcu;
mod rcu_arc;
mod rcu_hash_map;
mod rcu_snapshot;
mod seqcount;
mod thread_arc;
mod thread_refcount;
mod thread_slots;

use std::sync::Arc as StdArc;

use extern4_sync::primitive::Ordering;
use loom::cell::UnsafeCell;

/// A value in a plain cell, whose destructor overwrites it. Loom finds a use before the
/// publication, and a use after the free.
struct Poisoned {
    value: UnsafeCell<u64>,
    alive: StdArc<std::sync::atomic::AtomicBool>,
}

// SAFETY: no thread writes the cell after its creation; the models check that the creation comes
// first.
unsafe impl Sync for Poisoned {}

impl Poisoned {
    fn new(value: u64) -> Self {
        Self {
            value: UnsafeCell::new(value),
            alive: StdArc::new(true.into()),
        }
    }

    fn value(&self) -> u64 {
        assert!(
            self.alive.load(Ordering::Relaxed),
            "used after it was freed"
        );
        // SAFETY: loom's cell gives a valid pointer, and panics if the read is a race.
        self.value.with(|value| unsafe { *value })
    }
}

impl extern4_sync::rcu_arc::Release for Poisoned {
    type Link = extern4_sync::rcu_arc::First;
}

impl Drop for Poisoned {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Relaxed);
        // SAFETY: as in `value`; the write stands for the next use of the memory.
        self.value.with_mut(|value| unsafe { *value = u64::MAX });
    }
}
