//! The blocks that belong to the running transaction.
//!
//! Spread over many locks by their numbers, so that handles that change different blocks seldom meet. A block enters
//! under a handle, or from the observer when none is open any more; then all leave at once. A block that is part of the
//! transaction has the transaction's number for its tag, so that who changes it once more takes no lock but the block's own.

use std::collections::HashMap;
use std::sync::PoisonError;

use extern4_block::{Buffer, Pin};
use extern4_disk::journal::Tid;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering::Relaxed, capacity};

const SHARDS: usize = capacity(64, 1);

/// A number that no running transaction in this process has had, be it of another volume or of one opened before.
fn next_number() -> u64 {
    // Nothing of a model: it only tells transactions apart.
    static LAST: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last += 1;
    *last
}

/// What a transaction does to a block.
enum Part {
    Changed(Pin),
    Revoked,
}

type Shard = HashMap<u64, Part>;

/// The blocks of the running transaction.
pub(crate) struct Running {
    shards: Box<[Padded<Mutex<Shard>>]>,
    /// Blocks that are changed, and that are revoked. Only added to while a handle is open. Who reads them to decide
    /// anything but whether the transaction is large does so when none is, having seen the last one leave; so relaxed accesses
    /// are enough.
    changed: Padded<AtomicU64>,
    revoked: Padded<AtomicU64>,
    /// The tag of blocks that are changed. Changes while no handle is open; see above.
    number: AtomicU64,
    /// The transaction's identifier in the journal. Changes while no handle is open, under the lock of `shared`.
    tid: AtomicU32,
}

impl Running {
    pub(crate) fn new(tid: Tid) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            changed: Padded::default(),
            revoked: Padded::default(),
            number: AtomicU64::new(next_number()),
            tid: AtomicU32::new(tid.0),
        }
    }

    fn shard(&self, block: u64) -> MutexGuard<'_, Shard> {
        // OK: the remainder is small.
        let shard = &self.shards[(block % SHARDS as u64) as usize];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tag of blocks that are part of the transaction. It stays the same while a handle is open.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }

    /// The transaction's identifier. Asked for with a handle open, or with the lock of `shared`.
    #[inline]
    pub(crate) fn tid(&self) -> Tid {
        Tid(self.tid.load(Relaxed))
    }

    /// The next transaction has the next identifier. No handle is open, and the lock of `shared` is held.
    pub(crate) fn advance(&self) {
        self.tid.store(self.tid().next().0, Relaxed);
    }

    /// Makes a block part of the transaction. It is no longer revoked, if it was: its copy in this transaction will
    /// be the newest. By how many blocks that are changed it has grown, unless it had the block.
    #[inline]
    pub(crate) fn change(&self, buffer: &Buffer) -> Option<i64> {
        // Relaxed: the block was entered if the tag says so; who takes it out does so when no handle is open.
        if buffer.tag().load(Relaxed) == self.number() { None } else { self.enter(buffer) }
    }

    fn enter(&self, buffer: &Buffer) -> Option<i64> {
        let mut shard = self.shard(buffer.number());
        let old = shard.insert(buffer.number(), Part::Changed(buffer.pin()));
        buffer.tag().store(self.number(), Relaxed);
        drop(shard);
        match old {
            Some(Part::Changed(_)) => return None,
            Some(Part::Revoked) => drop(self.revoked.fetch_sub(1, Relaxed)),
            None => {}
        }
        self.changed.fetch_add(1, Relaxed);
        Some(1)
    }

    /// Revokes a block. What has been changed of it is of no matter any more. Returns what [`change`](Self::change) does.
    pub(crate) fn revoke(&self, block: u64) -> Option<i64> {
        let growth = match self.shard(block).insert(block, Part::Revoked) {
            Some(Part::Revoked) => return None,
            Some(Part::Changed(pin)) => {
                pin.tag().store(0, Relaxed);
                self.changed.fetch_sub(1, Relaxed);
                -1
            }
            None => 0,
        };
        self.revoked.fetch_add(1, Relaxed);
        Some(growth)
    }

    /// Blocks that are changed, and that are revoked.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.changed.load(Relaxed), self.revoked.load(Relaxed))
    }

    /// Takes everything out, in no order: blocks that are changed, and those that are revoked. No handle is open.
    pub(crate) fn take(&self) -> (Vec<Pin>, Vec<u64>) {
        let (mut changed, mut revoked) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (block, part) in shard.drain() {
                match part {
                    Part::Changed(pin) => changed.push(pin),
                    Part::Revoked => revoked.push(block),
                }
            }
            // One huge transaction must not keep its memory for ever.
            shard.shrink_to(64);
        }
        self.changed.store(0, Relaxed);
        self.revoked.store(0, Relaxed);
        self.number.store(next_number(), Relaxed);
        (changed, revoked)
    }
}
