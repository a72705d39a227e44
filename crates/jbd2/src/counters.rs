//! Counters of the work that the transactions of a volume have done.
//!
//! The committer, the log and the checkpoint add to them, and `ext4` shows them through
//! `Transactions::stats`. Each counter is exact, but a reader may see two of them at different
//! moments.

use extern4_sync::primitive::{AtomicU64, Ordering::Relaxed};

/// Counts since the volume was opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions that have become durable, except empty ones.
    pub transactions: u64,
    /// Handles that were opened.
    pub handles: u64,
    /// Copies of blocks written to the log; without a journal, blocks that commits wrote in place.
    pub blocks_logged: u64,
    /// Bytes written to the log, all its blocks counted.
    pub bytes_logged: u64,
    /// Revoked blocks written to the log.
    pub revokes: u64,
    /// Flushes of devices, including the flushes of checkpoints.
    pub flushes: u64,
    /// Times that a checkpoint moved the tail of the log on.
    pub checkpoints: u64,
    /// Blocks that checkpoints wrote in place.
    pub blocks_checkpointed: u64,
    /// Times that a handle had to wait for a commit to close the transaction, or for room.
    pub waits: u64,
}

/// The counters behind [`Stats`], except the handles. No reader draws conclusions from one counter
/// about another, so all accesses are relaxed.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) transactions: AtomicU64,
    pub(crate) blocks_logged: AtomicU64,
    pub(crate) bytes_logged: AtomicU64,
    pub(crate) revokes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) blocks_checkpointed: AtomicU64,
    pub(crate) waits: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    pub(crate) fn stats(&self, handles: u64) -> Stats {
        Stats {
            transactions: self.transactions.load(Relaxed),
            handles,
            blocks_logged: self.blocks_logged.load(Relaxed),
            bytes_logged: self.bytes_logged.load(Relaxed),
            revokes: self.revokes.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            checkpoints: self.checkpoints.load(Relaxed),
            blocks_checkpointed: self.blocks_checkpointed.load(Relaxed),
            waits: self.waits.load(Relaxed),
        }
    }
}
