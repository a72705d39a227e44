//! Models of the protocols.
#![cfg(feature = "loom")]

mod biased_rwlock;
mod closable_refcount;
mod latch;
mod rcu;
mod rcu_arc;
mod rcu_arc_map;
mod rcu_hash_map;
mod rcu_snapshot;
mod seqcount;
mod thread_arc;
mod thread_refcount;
mod thread_slots;

use std::sync::Arc as StdArc;

use extern4_sync::primitive::Ordering;
use loom::cell::UnsafeCell;

/// A value whose destructor poisons it, so that a use after the free is seen, and whose contents are a plain cell, so
/// that a use before the publication is seen.
struct Poisoned {
    value: UnsafeCell<u64>,
    alive: StdArc<std::sync::atomic::AtomicBool>,
}

// SAFETY: nothing writes the cell after it was made; that its making comes first is what the models check.
unsafe impl Sync for Poisoned {}

impl Poisoned {
    fn new(value: u64) -> Self {
        Self { value: UnsafeCell::new(value), alive: StdArc::new(true.into()) }
    }

    fn value(&self) -> u64 {
        assert!(self.alive.load(Ordering::Relaxed), "used after it was freed");
        // SAFETY: loom's cell gives a valid pointer, and panics where the read would be a race.
        self.value.with(|value| unsafe { *value })
    }
}

impl extern4_sync::rcu_arc::Release for Poisoned {}

impl Drop for Poisoned {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Relaxed);
        // SAFETY: as in `value`; the write is the model's stand-in for the memory's next use.
        self.value.with_mut(|value| unsafe { *value = u64::MAX });
    }
}
