//! The journal (jbd2): transactions and recovery.
//!
//! [`Transactions`] are how metadata is changed: many operations at once open a [`Handle`] on the running
//! transaction, change blocks of the buffer cache through it, and all of that becomes durable together, in two
//! flushes.
//!
//! After a crash, the newest state of a volume stands in its journal. [`Journal`] opens that journal, wherever it is:
//! in a file of the volume (whose blocks the file system resolves into a [`JournalMap`]) or on a device of its own.
//! [`Journal::recover`] reads the log and yields a [`Recovered`]: which block of the volume has its newest contents
//! where in the journal. Nothing is written by that. Who only reads looks at the volume through a [`ReplayedDevice`],
//! as if it were replayed; who opens it for writing writes the blocks to where they belong.
//!
//! ```text
//! Journal::internal ─┐
//! Journal::external ─┴─▶ Journal ──recover──▶ Recovered ──┬─▶ ReplayedDevice (nothing written)
//!                           │                             └─▶ write_home, fast_commits, mark_empty ─▶ Journal (empty)
//!                           └──(empty)──▶ Transactions::journaled ──▶ start ─▶ Handle ─▶ sync, close
//! ```
//!
//! What is recovered is what the kernel recovers; where the kernel refuses to go on because the log is damaged, so does
//! [`Recovered::damage`].
#![forbid(unsafe_code)]

mod checkpoint;
mod committer;
mod counters;
mod door;
mod error;
mod flush;
mod handle;
mod journal;
mod log;
mod map;
#[cfg(all(test, feature = "loom", not(feature = "shuttle")))]
mod models;
mod overlay;
mod recovery;
mod running;
mod shared;
mod transactions;

pub use counters::Stats;
pub use error::Error;
pub use flush::{Flush, LastFlush};
pub use handle::Handle;
pub use journal::Journal;
pub use map::{JournalMap, Run};
pub use overlay::ReplayedDevice;
pub use recovery::{Recovered, Replayed};
pub use transactions::{Aborter, Closing, DEFAULT_COMMIT_INTERVAL, Observer, Options, Transactions};
