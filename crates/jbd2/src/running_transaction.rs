//! The blocks that belong to the running transaction.
//!
//! `journal_state` owns one and reuses it for each transaction. For each block it has one entry:
//! changed or revoked.
//!
//! They are spread over many locks by number, so that handles that change different blocks seldom
//! meet. A handle adds a block, or the observer does so when no handle is open any more; the
//! committer then takes all of them out at once. A block that is part of the transaction has the
//! transaction's number as its tag. So a handle that changes it again takes only the block's own
//! lock.

use std::collections::HashMap;
use std::sync::PoisonError;

use extern4_block::{Buffer, Pin};
use extern4_disk::journal::Tid;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{
    AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering::Relaxed, capacity,
};
use extern4_sync::process_ids::ProcessIds;

const SHARDS: usize = capacity(64, 1);

/// Returns a number that no running transaction of this process has had, on this volume or another,
/// opened now or before.
fn next_number() -> u64 {
    // Not part of the loom model: it only distinguishes transactions.
    static NUMBERS: ProcessIds = ProcessIds::new();
    NUMBERS.take()
}

/// The operation of a transaction on a block.
enum Part {
    Changed(Pin),
    Revoked,
}

type Shard = HashMap<u64, Part>;

/// The blocks of the running transaction.
pub(crate) struct RunningTransaction {
    shards: Box<[Padded<Mutex<Shard>>]>,
    /// Numbers of blocks that are changed, and that are revoked. Only added to while a handle is
    /// open. A thread that reads them only to see whether the transaction is large may do so at any
    /// time. For any other decision it reads them when no handle is open, after it has seen the
    /// last one leave. So relaxed accesses are enough.
    changed: Padded<AtomicU64>,
    revoked: Padded<AtomicU64>,
    /// The tag of blocks that are changed. Changes only while no handle is open; see above.
    number: AtomicU64,
    /// The transaction's identifier in the journal. Changes only while no handle is open, under the
    /// lock of `journal_state`.
    tid: AtomicU32,
}

impl RunningTransaction {
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

    /// Returns the tag of blocks that are part of the transaction. It stays the same while a handle
    /// is open.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }

    /// Returns the transaction's identifier. The caller has a handle open, or holds the lock of
    /// `journal_state`.
    #[inline]
    pub(crate) fn tid(&self) -> Tid {
        Tid(self.tid.load(Relaxed))
    }

    /// Gives the next transaction the next identifier. No handle is open, and the caller holds the
    /// lock of `journal_state`.
    pub(crate) fn advance(&self) {
        self.tid.store(self.tid().next().0, Relaxed);
    }

    /// Makes a block part of the transaction. If it was revoked, it no longer is: its copy in this
    /// transaction will be the newest. Returns the number of changed blocks added, or `None` if the
    /// transaction had the block already.
    #[inline]
    pub(crate) fn change(&self, buffer: &Buffer) -> Option<i64> {
        // Relaxed: if the tag says so, the block was entered; blocks are taken out only when no
        // handle is open.
        if buffer.tag().load(Relaxed) == self.number() {
            None
        } else {
            self.enter(buffer)
        }
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

    /// Revokes a block and drops its change in this transaction. Returns the growth as
    /// [`change`](Self::change) does: -1 for a block that was changed, 0 for a new one, `None` for
    /// one that was revoked already.
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

    /// Returns the numbers of blocks that are changed and that are revoked.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.changed.load(Relaxed), self.revoked.load(Relaxed))
    }

    /// Takes all blocks out, in no order: changed blocks, and revoked blocks. No
    /// handle is open.
    pub(crate) fn take(&self) -> (Vec<Pin>, Vec<u64>) {
        let mut changed = Vec::new();
        let mut revoked = Vec::new();
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
