//! The journal (jbd2): recovery.
//!
//! After a crash, the newest state of a volume stands in its journal. [`Journal`] opens that journal, wherever it is:
//! in a file of the volume (whose blocks the file system resolves into a [`JournalMap`]) or on a device of its own.
//! [`Journal::recover`] reads the log and yields a [`Recovered`]: which block of the volume has its newest contents
//! where in the journal. Nothing is written by that. The caller either looks at the volume through a
//! [`ReplayedDevice`], as if it were replayed, or copies the blocks to where they belong with [`Recovered::replay`].
//!
//! ```text
//! Journal::internal ─┐
//! Journal::external ─┴─▶ Journal ──recover──▶ Recovered ──┬─▶ ReplayedDevice (nothing written)
//!                                                         ├─▶ replay(sink)   (blocks to write)
//!                                                         └─▶ fast_commits   (for the file system to apply)
//! ```
//!
//! What is recovered is what the kernel recovers; where the kernel refuses to go on because the log is damaged, so does
//! [`Recovered::damage`].
#![forbid(unsafe_code)]

mod error;
mod journal;
mod map;
mod overlay;
mod recovery;

pub use error::Error;
pub use journal::Journal;
pub use map::{JournalMap, Run};
pub use overlay::ReplayedDevice;
pub use recovery::{Recovered, Replayed};
