//! Loom tests of handles against threads that close transactions.
//!
//! They run the code of [`crate::journal_state`] without the committing thread: a thread that
//! closes a transaction here does the first steps of the committer. They fail if one of the rules
//! in [`crate::handle_gate`] is broken:
//!
//! - a starting handle does not load `open` again,
//! - a handle that leaves or is turned away does not wake the closer,
//! - the gate is shut after the count, or left open when room is short,
//! - credits are reclaimed while a handle is inside,
//! - a pool is not charged, or outlives its transaction.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use extern4_block::{BufferCache, CacheBudget, CacheOptions, MemoryDevice};
use extern4_disk::journal::Tid;
use extern4_sync::model::race_for;
use extern4_sync::primitive::{AtomicU64, Ordering};

use crate::commit::Closed;
use crate::flush::Flushes;
use crate::journal_state::{JournalState, Limits};
use crate::{Closing, Observer};

/// Blocks of a transaction.
const LIMIT: u32 = 8;

/// A volume whose first transaction is not empty: this thread has revoked block 0.
struct World {
    shared: JournalState,
    witness: Witness,
    /// Blocks that have been changed, and blocks that may be. Not part of the loom model.
    allowed: Mutex<i64>,
}

/// Two words that only handles change, always both of them.
#[derive(Default)]
struct Witness([AtomicU64; 2]);

impl Observer for Witness {
    fn committed(&self, _tid: Tid, _freed: &[Range<u64>]) {}

    fn closing(&self, _closing: &Closing<'_>) {
        let [first, second] = self.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(first, second, "half of an operation");
    }
}

impl World {
    fn new() -> Self {
        let options = CacheOptions {
            block_size: 512,
            block_count: 16,
            budget: CacheBudget::new(0),
        };
        let cache =
            BufferCache::new(Arc::new(MemoryDevice::zeroed(16 * 512)), options).expect("a cache");
        let limits = Limits {
            blocks: LIMIT.into(),
            measure: None,
        };
        let patient = Duration::from_secs(1000);
        let shared = JournalState::new(Arc::new(cache), Tid(1), limits, patient, Arc::default());
        shared.start(2).expect("open").revoke(0..1);
        Self {
            shared,
            witness: Witness::default(),
            allowed: Mutex::default(),
        }
    }

    /// Runs an operation that does two things. Returns the transaction that it is part of.
    fn operate(&self, block: u64) -> Tid {
        let handle = self.shared.start(1).expect("open");
        for (word, block) in self.witness.0.iter().zip(block..) {
            word.store(1, Ordering::Relaxed);
            handle.revoke(block..block + 1);
        }
        handle.tid()
    }

    /// Closes the running transaction and returns its contents.
    fn close(&self) -> Closed {
        self.shared.close_running(&self.witness).expect("closed")
    }

    /// Runs an operation that may change `credits` blocks, and changes `blocks`.
    fn change(&self, credits: u32, blocks: Range<u64>) {
        let handle = self.shared.start(credits).expect("open");
        let raise = |by: i64| {
            let mut allowed = self.allowed.lock().expect("no panic");
            *allowed += by;
            assert!(*allowed <= LIMIT.into(), "more than there is room for");
        };
        raise(credits.into());
        let used = blocks.clone().count();
        for block in blocks {
            handle.fresh(block).expect("inside");
        }
        raise(i64::try_from(used).expect("small") - i64::from(credits));
    }
}

#[test]
fn handle_start_vs_commit() {
    race_for(
        || World::new(),
        |world| world.operate(1),
        World::close,
        |world, tid, first| {
            let second = world.close();
            assert_eq!((first.tid, second.tid), (Tid(1), Tid(2)));
            // The operation is complete, in the transaction that its handle named.
            let (with, without) = if tid == Tid(1) {
                (&first, &second)
            } else {
                (&second, &first)
            };
            assert!(
                with.revoked.ends_with(&[1, 2]) && without.revoked.iter().all(|block| *block == 0)
            );
        },
    );
}

#[test]
fn handle_with_freed_blocks_vs_commit() {
    race_for(
        || World::new(),
        |world| {
            let handle = world.shared.start(1).expect("open");
            handle.revoke(1..2);
            handle.free(5..6);
            handle.tid()
        },
        World::close,
        |world, tid, first| {
            let second = world.close();
            let with = if tid == Tid(1) { &first } else { &second };
            assert!(with.tid == tid && with.freed == [5..6] && with.revoked.contains(&1));
        },
    );
}

#[test]
fn handle_credits_vs_limit() {
    race_for(
        || {
            let world = World::new();
            // That makes the credits in this thread's pool void.
            world.close();
            world.change(2, 1..2);
            world
        },
        |world| (2..5).for_each(|block| world.change(2, block..block + 1)),
        // It may be open together with the first two of those, and after the last.
        |world| world.change(4, 0..0),
        |world, (), ()| assert_eq!(world.close().changed.len(), 4),
    );
}

/// A device: the written state, and the state after a power loss.
#[derive(Default)]
struct Device([AtomicU64; 2]);

impl Device {
    fn write(&self) {
        self.0[0].store(1, Ordering::Relaxed);
    }

    fn flush(&self) -> Result<(), ()> {
        let written = self.0[0].load(Ordering::Relaxed);
        self.0[1].fetch_max(written, Ordering::Relaxed);
        Ok(())
    }

    fn assert_durable(&self) {
        assert_eq!(
            self.0[1].load(Ordering::Relaxed),
            1,
            "a flush that began before covers it"
        );
    }
}

/// A writer waits for a flush that covers its write, next to a commit and to a thread that flushes
/// for another file.
#[test]
fn write_and_flush_vs_flushes_of_others() {
    let flush =
        |(flushes, device): &(Flushes, Device)| flushes.wait(flushes.next(), || device.flush());
    race_for(
        || (Flushes::default(), Device::default()),
        move |world| {
            world.1.write();
            flush(world).expect("a flush");
            world.1.assert_durable();
        },
        move |world| {
            let begun = world.0.begin();
            world.1.flush().expect("a flush");
            world.0.end(begun);
            flush(world)
        },
        |world, (), _| world.1.assert_durable(),
    );
}
