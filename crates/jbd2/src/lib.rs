//! The journal (jbd2): transactions and recovery.
//!
//! `ext4` is the one user.
//!
//! Operations change metadata through [`Transactions`]. Many operations at once open a [`Handle`]
//! on the running transaction and change blocks of the buffer cache through it. All these changes
//! become durable together, in two flushes.
//!
//! After a crash, the newest state of a volume is in its journal. [`Journal`] opens it in a file of
//! the volume, whose blocks the file system resolves into a [`JournalMap`], or on a separate
//! device. [`Journal::recover`] reads the log and writes nothing. It returns a [`Recovered`], which
//! maps each block of the volume to its newest contents in the journal. A reader uses the volume
//! through a [`ReplayedDevice`], as if it were replayed. A caller that opens the volume for writing
//! first writes the blocks in place.
//!
//! ```text
//! Journal::internal ─┐
//! Journal::external ─┴─▶ Journal ──recover──▶ Recovered ──┬─▶ ReplayedDevice (nothing written)
//!                           │                             └─▶ write_in_place, fast_commits
//!                           │                                 ─▶ mark_empty ─▶ Journal (empty)
//!                           └──(empty)──▶ Transactions::journaled
//!                                         ─▶ start ─▶ Handle ─▶ sync, close
//! ```
//!
//! Recovery finds what the kernel would recover. Where the kernel refuses to go on because the log
//! is damaged, [`Recovered::damage`] reports that.
#![forbid(unsafe_code)]

mod checkpoint;
mod commit;
mod counters;
mod error;
mod flush;
mod handle;
mod handle_gate;
mod journal;
mod journal_state;
mod log;
#[cfg(all(test, feature = "loom", not(feature = "shuttle")))]
mod loom_tests;
mod map;
mod observer;
mod overlay;
mod recovery;
mod revoke;
mod running_transaction;
mod transaction;

pub use counters::Stats;
pub use error::Error;
pub use flush::{Flush, LastFlush};
pub use handle::Handle;
pub use journal::Journal;
pub use map::{JournalMap, Run};
pub use observer::{Closing, Observer};
pub use overlay::ReplayedDevice;
pub use recovery::{Recovered, Replayed};
pub use transaction::{Aborter, DEFAULT_COMMIT_INTERVAL, Hold, Options, Transactions};
