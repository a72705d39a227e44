//! Transactions and the handles that change metadata in them.
//!
//! `ext4` makes one [`Transactions`] when it opens a volume for writing. After a crash the volume
//! is as after some commit, not before the last one that a caller waited for. After an error,
//! changes fail and no later commit succeeds.
//!
//! An operation opens a [`Handle`], changes blocks through it, and drops it. Many handles at once
//! belong to the running transaction, and their changes stay in memory. A commit waits until they
//! are dropped, takes a snapshot of the blocks, and lets new handles start in the next transaction.
//! It writes the snapshot to the log. A checkpoint later writes it in place.
//!
//! ```text
//! start ─▶ running ─(sync, size, timer)─▶ locked ─(no handle)─▶ closed ─(written)─▶ committed
//!             ▲                           start waits             │                    │
//!             └──────────── the next running transaction ─────────┘                    ▼
//!                                                                     observer, checkpoint
//!
//! written: log, flush, commit block, flush
//! ```
//!
//! One thread commits and checkpoints (`commit`). Without a journal, it writes the blocks in
//! place instead.
//!
//! # Locks and what they protect
//! 1. None, as a rule, to open a handle and to drop it: see `handle_gate`. It also says why a
//!    commit waits for every handle of its transaction, and why no transaction outgrows the log.
//! 2. `JournalState::state`: which transaction is running, the credits granted to handles, how far
//!    commits have come. A handle takes it when its thread's credits are used up or the transaction
//!    is no longer empty. It also does so when it has freed blocks, and while a thread waits.
//!    Conditions: `opened` for threads that wait to start, `work` for the committer, `done` for
//!    threads that wait for a commit. None of the other locks is taken under it.
//! 3. The shards of `RunningTransaction`: which blocks the running transaction has changed. A
//!    handle takes one for each block that it is the first in the transaction to change; the block
//!    then has the transaction's tag. The committer takes them all, one after the other, while the
//!    transaction is locked and no handle is open. Each insertion happened before its handle was
//!    dropped, and the committer has seen that drop.
//! 4. A block's own lock, inside [`extern4_block::Buffer::change`] and
//!    [`extern4_block::Pin::snapshot`]. No lock is taken under it except locks that the change
//!    itself takes. Handles change blocks only while they are open, so a snapshot taken when none
//!    is open holds the whole transaction.
//! 5. The lock of `flush::Flushes`: which flushes of the volume have ended. No other lock is taken
//!    under it, and none is held while the device is flushed.
//!
//! The committer's thread owns the log and the blocks to be written in place, so these have no
//! lock. `JournalState::aborted` is an atomic flag that the committer reads between two writes. It
//! publishes nothing, so its accesses are relaxed. A caller that must know that all writing has
//! stopped waits for the thread to end.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use extern4_block::{BlockDevice, BufferCache, Op};
use extern4_disk::journal::Tid;
use extern4_sync::opener::Opener;
use extern4_sync::primitive::thread::{self, JoinHandle};
use extern4_sync::primitive::{Mutex, Ordering::Relaxed};

use crate::checkpoint::CheckpointList;
use crate::commit::{Committer, Journaling};
use crate::counters::{Counters, Stats};
use crate::flush::Flush;
use crate::journal_state::{JournalState, Limits};
use crate::log::Log;
use crate::observer::Observer;
use crate::{Error, Handle, Journal};

/// The most blocks that a transaction without a journal changes before it is committed.
const UNJOURNALED_LIMIT: u64 = 16384;
/// Bytes of file data after which a commit begins.
const DATA_LIMIT: u64 = 64 << 20;
/// Bytes of file data that a thread may have written before it adds them to the common count.
const DATA_LOT: u64 = 1 << 20;

/// The default commit interval, the same as Linux's.
pub const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// How transactions are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest time that a change stays in memory only, unless the machine is slow. A
    /// transaction is committed this long after its first change.
    pub interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: DEFAULT_COMMIT_INTERVAL,
        }
    }
}

/// Returns how many blocks a transaction may log in a log that has room for `room` blocks.
///
/// A larger transaction more often changes a block again that it logs once, but its commit takes
/// longer and more memory. So the limit is half of a small log, since the other half has room for
/// the transaction before it. In a large log it is a quarter.
fn most_blocks(room: u32) -> u64 {
    const MANY: u32 = 8192;
    u64::from((room / 4).max(MANY.min(room / 2)))
}

/// The running transaction of a volume, and those before it.
///
/// Dropping it loses the changes that are not committed, as a crash would; [`Transactions::close`]
/// commits them. In a forked child the drop does nothing.
pub struct Transactions {
    opener: Opener,
    shared: Arc<JournalState>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

/// A running transaction that a thread holds open. Dropping it aborts the transactions: nothing
/// since the hold began becomes durable, and nothing can be changed any more.
pub struct Hold<'t> {
    shared: &'t JournalState,
    is_committed: bool,
    /// The hold belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Hold<'_> {
    /// Makes all changes since the hold began durable, together.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if they do not fit into the log; otherwise as [`Transactions::start`].
    /// Nothing of the transaction is durable then, and nothing can be changed any more.
    pub fn commit(mut self) -> Result<(), Error> {
        self.is_committed = true;
        self.shared.release();
        let state = self.shared.state();
        let target = state.closed + 1;
        self.shared.wait_done(state, target)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if !self.is_committed {
            // In this order: between the two, a commit could begin.
            self.shared
                .fail(Error::aborted("its transaction was abandoned"));
            self.shared.release();
        }
    }
}

/// Aborts the transactions, for code that watches over something they depend on.
pub struct Aborter(Arc<JournalState>);

impl Aborter {
    /// Aborts the transactions; see [`Transactions::abort`].
    pub fn abort(&self, why: &str) {
        self.0.fail(Error::aborted(why));
    }
}

impl Transactions {
    /// Returns transactions of a volume without a journal. A commit writes the changed blocks in
    /// place, after file data. Handles change blocks through `cache`.
    pub fn new(cache: Arc<BufferCache>, observer: Arc<dyn Observer>) -> Self {
        Self::unjournaled(cache, observer, Options::default())
    }

    /// Returns transactions of a volume without a journal, as [`Transactions::new`] does, with
    /// options.
    pub fn unjournaled(
        cache: Arc<BufferCache>,
        observer: Arc<dyn Observer>,
        options: Options,
    ) -> Self {
        let limits = Limits {
            blocks: UNJOURNALED_LIMIT,
            measure: None,
        };
        let shared = JournalState::new(cache, Tid(1), limits, options.interval, Arc::default());
        Self::begin(observer, shared, None)
    }

    /// Returns transactions that become durable in `journal`, which must be empty: after a crash it
    /// was replayed and [marked so](crate::Recovered::mark_empty). An internal journal is written
    /// through the device of `cache`, which is the volume's.
    ///
    /// # Errors
    /// [`Error::Dirty`] if it is not empty; [`Error::Unsupported`] if the volume is too large for
    /// the journal's format.
    pub fn journaled<D: BlockDevice + 'static>(
        cache: Arc<BufferCache>,
        observer: Arc<dyn Observer>,
        journal: Journal<D>,
        options: Options,
    ) -> Result<Self, Error> {
        let counters: Arc<Counters> = Arc::default();
        let log = Log::new(
            journal,
            cache.device(),
            cache.block_count(),
            Arc::clone(&counters),
        )?;
        let volume = Arc::clone(cache.device());
        let checkpoint = CheckpointList::new(volume, cache.block_size(), Arc::clone(&counters));
        let limits = Limits {
            blocks: most_blocks(log.measure().room),
            measure: Some(log.measure()),
        };
        let shared = JournalState::new(cache, log.next_tid(), limits, options.interval, counters);
        Ok(Self::begin(
            observer,
            shared,
            Some(Journaling { log, checkpoint }),
        ))
    }

    fn begin(
        observer: Arc<dyn Observer>,
        shared: JournalState,
        journaling: Option<Journaling>,
    ) -> Self {
        let shared = Arc::new(shared.observed_by(&observer));
        let committer = Committer::new(Arc::clone(&shared), observer, journaling);
        let spawned = thread::Builder::new()
            .name("jbd2".into())
            .spawn(move || committer.run());
        // Without the thread, nothing could ever be committed: every caller gets the error, as if
        // the first commit had failed.
        let committer = spawned
            .map_err(|error| shared.fail(extern4_block::Error::io(Op::Write, 0, 0, error).into()))
            .ok();
        Self {
            opener: Opener::here(),
            shared,
            committer: Mutex::new(committer),
        }
    }

    /// Opens a handle on the running transaction, for an operation that changes at most `credits`
    /// blocks. Waits while a commit closes the transaction, or while there is no room in the log. A
    /// thread holds one handle at a time.
    ///
    /// # Errors
    /// The first error of a commit or checkpoint, after which nothing can be changed any more;
    /// [`Error::Aborted`] and [`Error::Closed`].
    #[inline]
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, Error> {
        self.shared.start(credits)
    }

    /// Makes transaction `tid`, and so all before it, durable. Returns at once if it is durable
    /// already.
    ///
    /// # Errors
    /// As [`Transactions::start`], if it is not durable.
    pub fn commit(&self, tid: Tid) -> Result<(), Error> {
        let state = self.shared.state();
        if !tid.is_after(state.committed) {
            return Ok(());
        }
        // A transaction that is closed and not committed is the one being written.
        let running = self.shared.running.tid();
        let target = if running.is_after(tid) {
            state.closed
        } else {
            state.closed + 1
        };
        self.shared.wait_done(state, target)
    }

    /// Makes every change durable, and then holds the running transaction open for this thread: all
    /// changes until [`Hold::commit`] become durable together or not at all.
    ///
    /// Changes of other threads during the hold belong to the transaction, and their syncs wait for
    /// its end. The thread's own syncs return at once, and it cannot
    /// [`checkpoint_all`](Self::checkpoint_all).
    ///
    /// # Errors
    /// As [`Transactions::start`]; [`Error::Held`] if the thread holds it already.
    pub fn hold(&self) -> Result<Hold<'_>, Error> {
        self.shared.hold()?;
        Ok(Hold {
            shared: &self.shared,
            is_committed: false,
            _thread: PhantomData,
        })
    }

    /// Returns the youngest transaction that is durable.
    pub fn committed(&self) -> Tid {
        self.shared.state().committed
    }

    /// Returns the first flush that makes durable what this thread has written so far outside of
    /// transactions.
    pub fn next_flush(&self) -> Flush {
        self.shared.flushes.next()
    }

    /// Makes durable the writes for which [`next_flush`](Self::next_flush) returned `flush`,
    /// without the committing thread. Returns at once if they are durable already.
    ///
    /// # Errors
    /// As [`Transactions::start`]. If the device cannot be flushed, nothing can be changed any
    /// more, as after a commit that failed.
    pub fn flush(&self, flush: Flush) -> Result<(), Error> {
        self.shared.flush(flush)
    }

    /// Makes every change through handles that are closed durable, and file data written before.
    ///
    /// # Errors
    /// As [`Transactions::start`].
    pub fn sync(&self) -> Result<(), Error> {
        let state = self.shared.state();
        let target = state.closed + 1;
        self.shared.wait_done(state, target)
    }

    /// Begins a [`sync`](Self::sync) and does not wait for it. Later calls that wait report its
    /// errors.
    pub fn begin_sync(&self) {
        self.shared.begin_sync();
    }

    /// Does what [`sync`](Self::sync) does, and writes every block in place. When this returns, the
    /// log holds no copy that recovery would write over later writes that bypass the log.
    ///
    /// # Errors
    /// As [`Transactions::start`].
    pub fn checkpoint_all(&self) -> Result<(), Error> {
        self.shared.checkpoint_all()
    }

    /// Notes that `bytes` bytes of file data were written. After much of it a commit begins, so
    /// that the device works while the caller writes on. A later sync then has less to wait for.
    pub fn note_data(&self, bytes: u64) {
        let count = |own: &Cell<u64>| {
            let sum = own.get().saturating_add(bytes);
            let is_much = sum >= DATA_LOT;
            own.set(if is_much { 0 } else { sum });
            is_much.then_some(sum)
        };
        let Some(lot) = self.shared.small_data.with(count).unwrap_or(Some(bytes)) else {
            return;
        };
        // Relaxed: only the number counts, and a commit too many or too late does no harm.
        let before = self.shared.data.fetch_add(lot, Relaxed);
        if before.saturating_add(lot) >= DATA_LIMIT {
            self.shared.data.store(0, Relaxed);
            self.begin_sync();
        }
    }

    /// Commits and writes every block in place, so that the log is empty. No handle may be open,
    /// and none is opened later.
    ///
    /// # Errors
    /// As [`Transactions::start`]. The volume is then as after a crash.
    pub fn close(&self) -> Result<(), Error> {
        let result = self.shared.close();
        self.join();
        result
    }

    /// Stops the transactions: uncommitted changes are lost, and handles are refused. A write under
    /// way at this moment may still become durable. Calls that fail from then on report `why`,
    /// unless the transactions were aborted before.
    pub fn abort(&self, why: &str) {
        self.shared.fail(Error::aborted(why));
    }

    /// Returns an object that aborts these transactions from elsewhere.
    pub fn aborter(&self) -> Aborter {
        Aborter(Arc::clone(&self.shared))
    }

    /// Aborts the transactions as [`abort`](Self::abort) does, and waits until no write is under
    /// way.
    pub fn abort_and_wait(&self, why: &str) {
        self.abort(why);
        self.join();
    }

    /// Stops the transactions as [`abort_and_wait`](Self::abort_and_wait) does, because the volume
    /// is damaged. The journal's superblock records the damage, too, because recovery may write an
    /// older superblock of the volume over the one that records it. The damage is not recorded
    /// where an earlier error had already stopped the transactions: the volume may then belong to
    /// another system.
    pub fn abort_damaged(&self, why: &str) {
        self.shared.fail(Error::Damaged(why.into()));
        self.join();
    }

    /// Returns the error that stopped all changes, if there is one.
    pub fn error(&self) -> Option<Error> {
        self.shared.state().error.clone()
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Waits for the committer, after a request that it end.
    fn join(&self) {
        let committer = self
            .committer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The observer may hold the last reference to the owner of this, so this thread may be the
        // committer itself.
        if let Some(committer) =
            committer.filter(|committer| committer.thread().id() != thread::current().id())
        {
            // A panic of the committer has been noted as an error.
            let _ = committer.join();
        }
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        if self.opener.is_here() {
            self.abort_and_wait("the journal was dropped");
        } else {
            // A forked child has no such thread to wait for. A lock may have been held at the fork.
            std::mem::forget(self.committer.get_mut().ok().and_then(Option::take));
        }
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        f.debug_struct("Transactions")
            .field("tid", &self.shared.running.tid())
            .field("committed", &state.committed)
            .field("handles", &self.shared.handles())
            .field("error", &state.error)
            .finish_non_exhaustive()
    }
}
