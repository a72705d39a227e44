//! The progress of a build, for its caller.
//!
//! `builder`, `write` and `verity` call the [`Watch`] that the caller of the build passed; the
//! command draws its bar in it and stops the build after a signal.

use std::ops::ControlFlow;
use std::sync::Arc;

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The sources are read.
    Reading {
        /// Entries that are read so far.
        entries: u64,
    },
    /// The tree is compared with a volume that is to become like it.
    Comparing {
        /// Names that are compared so far.
        entries: u64,
    },
    /// The volume is written.
    Writing {
        /// Bytes that are written so far.
        bytes: u64,
        /// About how many there are to write.
        total: u64,
    },
    /// The hash tree of dm-verity is made, level by level.
    Hashing {
        /// Bytes of this level that are hashed so far.
        bytes: u64,
        /// How many there are to hash.
        total: u64,
    },
}

/// Gets the progress of a build, on any of its threads. A break ends the build with
/// [`Error::Interrupted`](crate::Error::Interrupted).
pub type Watch = Arc<dyn Fn(Progress) -> ControlFlow<()> + Send + Sync>;
