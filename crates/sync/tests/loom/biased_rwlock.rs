//! Readers at their desks.

use std::sync::Arc;

use extern4_sync::biased_rwlock::{BiasedRwLock, VisibleReaders};
use extern4_sync::model::{explore, race};
use extern4_sync::primitive::thread;
use loom::cell::UnsafeCell;

/// What a lock guards: loom panics where a write and another access are not ordered.
struct Guarded {
    lock: BiasedRwLock,
    desks: VisibleReaders,
    value: UnsafeCell<u64>,
}

// SAFETY: used under the lock; that this orders everything is what the models check.
unsafe impl Sync for Guarded {}
// SAFETY: numbers.
unsafe impl Send for Guarded {}

impl Guarded {
    /// Not biased.
    fn new() -> Self {
        Self { lock: BiasedRwLock::new(()), desks: VisibleReaders::new(), value: UnsafeCell::new(0) }
    }

    /// Biased, for two have read.
    fn biased() -> Self {
        let new = Self::new();
        (0..2).for_each(|number| drop(new.lock.read_at(&new.desks, number)));
        new
    }

    fn read(&self, number: usize) -> u64 {
        let _reading = self.lock.read_at(&self.desks, number);
        // SAFETY: held shared.
        self.value.with(|value| unsafe { *value })
    }

    fn try_read(&self, number: usize) -> Option<u64> {
        let _reading = self.lock.try_read_at(&self.desks, number)?;
        // SAFETY: held shared.
        Some(self.value.with(|value| unsafe { *value }))
    }

    fn write(&self) {
        let _writing = self.lock.write_with(&self.desks);
        // SAFETY: held exclusive.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn write_if_alone(&self) {
        let Some(_writing) = self.lock.try_write_unless_read() else { return };
        // SAFETY: held exclusive.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }
}

/// A writer has the value alone, and wakes up when the reader has gone. Mutations that this catches: a reader that does not look again
/// after LIGHT, either barrier left out, a reader that wakes nobody, a desk cleared `Relaxed`.
#[test]
fn bravo_noted_reader_vs_writer() {
    race(
        Guarded::biased,
        |guarded| _ = guarded.read(0),
        |guarded| guarded.write(),
        |guarded| assert_eq!(guarded.read(1), 1),
    );
}

/// Who only tries has it beside no writer, biased or not, and wakes the one who waits for him. Mutation that this catches: one who does not look
/// again after LIGHT.
#[test]
fn bravo_trier_vs_writer() {
    for new in [Guarded::biased, Guarded::new] {
        race(
            new,
            |guarded| _ = guarded.try_read(0),
            |guarded| guarded.write(),
            |guarded| assert_eq!(guarded.try_read(1), Some(1)),
        );
    }
}

/// Who has it only if he is alone is alone, biased or not, and need not look at desks. Mutation that this catches: `bias` not looked at
/// under the lock.
#[test]
fn bravo_who_is_alone_vs_readers() {
    for new in [Guarded::biased, Guarded::new] {
        explore(move || {
            let guarded = Arc::new(new());
            let reader = {
                let guarded = Arc::clone(&guarded);
                // It becomes biased, and then it is read at a desk.
                thread::spawn(move || [0, 1, 2].map(|number| guarded.read(number)))
            };
            guarded.write_if_alone();
            reader.join().expect("it reads");
        });
    }
}

/// Who makes the lock biased again, and who relies on it, has seen the writer. Mutation that this catches: `bias` set `Relaxed`.
#[test]
fn bravo_bias_begins_vs_reader() {
    explore(|| {
        let guarded = Arc::new(Guarded::new());
        let reader = |numbers: &'static [usize]| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || numbers.iter().for_each(|&number| _ = guarded.read(number)))
        };
        // As two threads, whose second finds that the lock is to be biased, and one that may come after that.
        let others = [reader(&[0, 1]), reader(&[2])];
        guarded.write();
        for other in others {
            other.join().expect("it reads");
        }
    });
}
