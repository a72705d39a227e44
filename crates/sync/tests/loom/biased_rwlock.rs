//! Published readers against writers of a reader-biased lock.

use std::sync::Arc;

use extern4_sync::biased_rwlock::{BiasedRwLock, VisibleReaders};
use extern4_sync::model::{explore, race};
use extern4_sync::primitive::thread;
use loom::cell::UnsafeCell;

/// A lock and its data. Loom panics if a write and another access are not ordered.
struct Guarded {
    lock: BiasedRwLock,
    readers: VisibleReaders,
    value: UnsafeCell<u64>,
}

// SAFETY: the cell is used under the lock; the models check that this orders all accesses.
unsafe impl Sync for Guarded {}
// SAFETY: the cell holds a number.
unsafe impl Send for Guarded {}

impl Guarded {
    /// Creates an unbiased lock.
    fn new() -> Self {
        Self {
            lock: BiasedRwLock::new(()),
            readers: VisibleReaders::new(),
            value: UnsafeCell::new(0),
        }
    }

    /// Creates a lock that two reads have biased.
    fn biased() -> Self {
        let new = Self::new();
        (0..2).for_each(|number| drop(new.lock.read_at(&new.readers, number)));
        new
    }

    fn read(&self, number: usize) -> u64 {
        let _reading = self.lock.read_at(&self.readers, number);
        // SAFETY: the lock is held shared.
        self.value.with(|value| unsafe { *value })
    }

    fn try_read(&self, number: usize) -> Option<u64> {
        let _reading = self.lock.try_read_at(&self.readers, number)?;
        // SAFETY: the lock is held shared.
        Some(self.value.with(|value| unsafe { *value }))
    }

    fn write(&self) {
        let _writing = self.lock.write_with(&self.readers);
        // SAFETY: the lock is held exclusive.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn write_unless_read(&self) {
        let Some(_writing) = self.lock.try_write_unless_read() else {
            return;
        };
        // SAFETY: the lock is held exclusive.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }
}

/// A writer is alone, and wakes up when the reader unlocks. Mutations that this catches: `bias` not
/// loaded again after `light_fence`; either barrier left out; a writer that is not woken; a slot
/// cleared `Relaxed`.
#[test]
fn biased_reader_vs_writer() {
    race(
        Guarded::biased,
        |guarded| _ = guarded.read(0),
        |guarded| guarded.write(),
        |guarded| assert_eq!(guarded.read(1), 1),
    );
}

/// `try_read` succeeds only without a writer, biased or not, and its unlock wakes a waiting writer.
/// Mutation that this catches: a reader that does not load `bias` again after `light_fence`.
#[test]
fn biased_try_read_vs_writer() {
    for new in [Guarded::biased, Guarded::new] {
        race(
            new,
            |guarded| _ = guarded.try_read(0),
            |guarded| guarded.write(),
            |guarded| assert_eq!(guarded.try_read(1), Some(1)),
        );
    }
}

/// A writer by `try_write_unless_read` is alone, biased or not, without a scan of the slots.
/// Mutation that this catches: `bias` not loaded under the lock.
#[test]
fn biased_try_write_unless_read_vs_readers() {
    for new in [Guarded::biased, Guarded::new] {
        explore(move || {
            let guarded = Arc::new(new());
            let reader = {
                let guarded = Arc::clone(&guarded);
                // The first reads bias the lock, and a later one publishes itself.
                thread::spawn(move || [0, 1, 2].map(|number| guarded.read(number)))
            };
            guarded.write_unless_read();
            reader.join().expect("the reader does not panic");
        });
    }
}

/// A reader under a new bias sees the last writer. Mutation that this catches: `bias` set
/// `Relaxed`.
#[test]
fn biased_bias_begins_vs_reader() {
    explore(|| {
        let guarded = Arc::new(Guarded::new());
        let reader = |numbers: &'static [usize]| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || numbers.iter().for_each(|&number| _ = guarded.read(number)))
        };
        // The first thread reads as two and biases the lock. The second may come after that.
        let others = [reader(&[0, 1]), reader(&[2])];
        guarded.write();
        for other in others {
            other.join().expect("the reader does not panic");
        }
    });
}
