//! [`Observer`]: the user of the journal, which is called when a transaction closes, becomes
//! durable or fails.
//!
//! The user gives it to `Transactions`. `journal_state` and `commit` call it, and know no more of
//! the user.

use std::ops::Range;

use extern4_block::{Buffer, Pin, Unsealed};
use extern4_disk::journal::Tid;

use crate::Error;
use crate::running_transaction::RunningTransaction;

/// An observer of transactions, which is called when one closes, becomes durable or fails.
pub trait Observer: Send + Sync {
    /// The blocks that transaction `tid` has freed may be used again.
    ///
    /// The committing thread calls this, without a lock held, before it wakes the threads that wait
    /// for the commit. The observer must neither open a handle nor wait for a commit.
    fn committed(&self, tid: Tid, freed: &[Range<u64>]);

    /// The transaction is closing: it is not empty, no handle is open on it, and none will be. This
    /// is the last chance to add changes to it, such as totals that operations would otherwise
    /// contend for. Threads that open a handle wait until this returns.
    ///
    /// The committing thread calls this, without a lock held. The observer must neither open a
    /// handle nor wait for a commit. Nor may it wait for a lock that a thread holds while it opens
    /// a handle.
    fn closing(&self, _closing: &Closing<'_>) {}

    /// Makes the changes to the pinned block that were put off until the block is written; `_bytes`
    /// are its contents. The observer must take no lock, and must not access the contents any other
    /// way.
    ///
    /// The committing thread calls this after [`closing`](Self::closing), once for each block of
    /// the transaction that is [unsealed](extern4_block::Pin::seal).
    fn seal(&self, _pin: &Pin, _bytes: &mut [u8], _unsealed: Unsealed) {}

    /// Changes could not be made durable, and from now on none can be. The thread that met the
    /// error calls this once, without a lock held. It does not if the transactions were
    /// [aborted](crate::Transactions::abort) or
    /// [aborted as damaged](crate::Transactions::abort_damaged).
    fn failed(&self, _error: &Error) {}
}

/// A closing transaction: no handle is open on it any more.
pub struct Closing<'c> {
    running: &'c RunningTransaction,
}

impl<'c> Closing<'c> {
    pub(crate) fn new(running: &'c RunningTransaction) -> Self {
        Self { running }
    }

    /// Returns the transaction's identifier.
    pub fn tid(&self) -> Tid {
        self.running.tid()
    }

    /// Changes a block of metadata.
    pub fn change<R>(&self, buffer: &mut Buffer, change: impl FnOnce(&mut [u8]) -> R) -> R {
        self.running.change(buffer);
        buffer.change(|bytes, _| change(bytes))
    }
}
