//! The errors of a journal.
//!
//! Opening, recovery and transactions return them, and `ext4` turns them into its own. An error
//! names the I/O that failed or the bytes that break the format. After a commit has failed, each
//! later change returns the reason of that failure.

use std::sync::Arc;

use extern4_disk::Corrupt;
use extern4_disk::fast_commit::Unusable;

/// An error of opening, recovering or writing a journal.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device that holds the journal cannot be read, or a device cannot be written or flushed.
    #[error(transparent)]
    Device(#[from] extern4_block::Error),
    /// The journal breaks its format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The journal has features that this crate does not know; a replay regardless of them could
    /// destroy the volume.
    #[error("the journal has features that are not supported: {0}")]
    Unsupported(String),
    /// The device given as the journal's is something else.
    #[error("{0}")]
    Foreign(&'static str),
    /// The journal was stopped for this reason, so nothing can be changed any more.
    #[error("nothing can be changed any more: {0}")]
    Aborted(Arc<str>),
    /// The journal was stopped because of this damage, so nothing can be changed any more.
    #[error("the volume is damaged, and nothing can be changed any more: {0}")]
    Damaged(Arc<str>),
    /// The journal was closed, so nothing can be changed any more.
    #[error("the journal is closed")]
    Closed,
    /// The log holds transactions from before a crash, which must be replayed before any can be
    /// added.
    #[error("the journal has to be replayed before it is written")]
    Dirty,
    /// The log holds fast commits that have not been applied to the volume; without the log they
    /// would be lost.
    #[error("{0} fast commits of the journal were not applied")]
    FastCommits(u32),
    /// The thread holds the running transaction open, and so cannot wait until the log is empty.
    #[error("this cannot be done inside a transaction")]
    Held,
    /// A transaction is larger than the log: it was held open, or a handle has changed far more
    /// than it declared.
    #[error("a transaction of {blocks} blocks does not fit into a log of {room}")]
    TooLarge {
        /// Blocks that it takes in the log.
        blocks: u64,
        /// Blocks that the log has.
        room: u32,
    },
}

impl Error {
    pub(crate) fn aborted(why: &str) -> Self {
        Self::Aborted(why.into())
    }
}

impl From<Unusable> for Error {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Corrupt(corrupt) => Self::Corrupt(corrupt),
            Unusable::Features(_) => Self::Unsupported(unusable.to_string()),
        }
    }
}
