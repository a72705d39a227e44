//! What can go wrong with a journal.

use extern4_disk::Corrupt;
use extern4_disk::fast_commit::Unusable;

/// A journal that cannot be opened or recovered.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device that holds the journal cannot be read, or the one to be replayed to cannot be written.
    #[error(transparent)]
    Device(#[from] extern4_block::Error),
    /// The journal breaks its format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The journal has features that are not understood; replaying it regardless could destroy the volume.
    #[error("the journal has features that are not supported: {0}")]
    Unsupported(String),
}

impl From<Unusable> for Error {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Corrupt(corrupt) => Self::Corrupt(corrupt),
            Unusable::Features(_) => Self::Unsupported(unusable.to_string()),
        }
    }
}
