//! Changing metadata: handles, and the transactions that they are part of.
//!
//! An operation opens a [`Handle`], changes blocks through it, and drops it. Many handles at once belong to the
//! running transaction; what they change stays in memory. A commit waits until they are gone, takes a snapshot of the
//! blocks, lets new handles go on in the next transaction, and writes the snapshot to the log; later, to where the
//! blocks belong.
//!
//! ```text
//! start ─▶ running ─(sync, size, timer)─▶ locked ─(no handle)─▶ closed ─(log, flush, commit block, flush)─▶ committed
//!             ▲                           start waits             │                                            │
//!             └──────────── the next running transaction ─────────┘                      observer, checkpoint ◀┘
//! ```
//!
//! One thread commits and checkpoints (`committer`). Without a journal, it writes the blocks home instead.
//!
//! # Locks and what they protect
//! 1. None, as a rule, to open a handle and to drop it: see `door`, which also says why a commit waits for every handle of its
//!    transaction, and why no transaction outgrows the log.
//! 2. `Shared::state`: which transaction is running, what handles have been granted, how far commits have come. Taken by handles when
//!    their thread's credits are used up, when a transaction is no longer empty, when blocks have been freed, and while
//!    somebody waits. Conditions: `opened` for those that wait to start, `work` for the committer, `done` for those that wait for a
//!    commit. None of the others is taken under it.
//! 3. The shards of `running::Running`: which blocks the running transaction has changed. A handle takes one for each
//!    block that it is the first in the transaction to change; the block then has the transaction's tag. The committer
//!    takes them all, one after the other, while the transaction is locked and no handle is open: every insertion came
//!    before its handle was dropped, which the committer has seen.
//! 4. A block's own lock, inside [`Buffer::change`] and [`extern4_block::Pin::snapshot`]. No other is taken under it
//!    but what the change itself takes. Handles only change blocks while they are open, so a snapshot taken when none
//!    is open is the transaction, whole.
//! 5. The lock of `flush::Flushes`: which flushes of the volume are through. No other is taken under it, and none is held while
//!    the device is flushed.
//!
//! The log and what is on its way home belong to the committer's thread and have no lock. `Shared::halted` is an
//! atomic flag so that the committer can look at it between two writes; nothing is published through it, so its
//! accesses are relaxed, and who must know that nothing more is written waits for the thread to end.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use extern4_block::{BlockDevice, Buffer, BufferCache, Op, Pin, Unsealed};
use extern4_disk::journal::Tid;
use extern4_sync::opener::Opener;
use extern4_sync::primitive::thread::{self, JoinHandle};
use extern4_sync::primitive::{Mutex, Ordering::Relaxed};

use crate::checkpoint::Checkpoint;
use crate::committer::{Committer, Journaling};
use crate::counters::{Counters, Stats};
use crate::flush::Flush;
use crate::log::Log;
use crate::running::Running;
use crate::shared::{Limits, Shared};
use crate::{Error, Handle, Journal};

/// Blocks that a transaction without a journal changes before it is committed.
const UNJOURNALED_LIMIT: u64 = 16384;
/// Bytes of file data after which a commit begins.
const DATA_LIMIT: u64 = 64 << 20;
/// How many of them a thread may have written before it counts them with those of others.
const DATA_LOT: u64 = 1 << 20;

/// What is told when a transaction has become durable.
pub trait Observer: Send + Sync {
    /// The blocks that transaction `tid` has freed may be used again.
    ///
    /// Called by the thread that commits, without a lock held, before those who wait for the commit go on. It must
    /// neither open a handle nor wait for a commit.
    fn committed(&self, tid: Tid, freed: &[Range<u64>]);

    /// No handle is open on a transaction in which something has changed, and none will be: the last chance to make changes part
    /// of it, such as of totals that the operations would otherwise queue up for. Those who open a handle wait until
    /// this returns.
    ///
    /// Called by the thread that commits, without a lock held. It must neither open a handle nor wait for a commit, nor
    /// for a lock that somebody holds while he opens one.
    fn closing(&self, _closing: &Closing<'_>) {}

    /// Does what was put off until the block that is pinned, whose contents these are, is written. It must take no lock, nor look at the
    /// contents otherwise.
    ///
    /// Called by the thread that commits after [`closing`](Self::closing), once for each block of the transaction that is
    /// [unsealed](extern4_block::Pin::seal).
    fn seal(&self, _pin: &Pin, _bytes: &mut [u8], _unsealed: Unsealed) {}

    /// Changes could not be made durable, and from now on none can be. Called once, without a lock held, by the thread that met
    /// the error; not if the transactions were [aborted](Transactions::abort) or [given up](Transactions::give_up).
    fn failed(&self, _error: &Error) {}
}

/// A transaction that no handle is open on any more.
pub struct Closing<'c> {
    running: &'c Running,
}

impl<'c> Closing<'c> {
    pub(crate) fn new(running: &'c Running) -> Self {
        Self { running }
    }

    /// The transaction.
    pub fn tid(&self) -> Tid {
        self.running.tid()
    }

    /// Changes a block of metadata.
    pub fn change<R>(&self, buffer: &mut Buffer, change: impl FnOnce(&mut [u8]) -> R) -> R {
        self.running.change(buffer);
        buffer.change(|bytes, _| change(bytes))
    }
}

/// The commit interval where none is asked for; Linux has the same.
pub const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// How transactions are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest time that a change stays in memory only, unless the machine is slow: a transaction is committed so
    /// long after its first change.
    pub interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { interval: DEFAULT_COMMIT_INTERVAL }
    }
}

/// Blocks that a transaction may log in a log with `room` for so many.
///
/// The larger a transaction, the more often it changes a block that it logs once; but a commit takes the longer, and memory. So it
/// is half of a small log, since the other half has room for the transaction before it, and a quarter of a large one.
fn most_blocks(room: u32) -> u64 {
    const MANY: u32 = 8192;
    u64::from((room / 4).max(MANY.min(room / 2)))
}

/// The running transaction of a volume, and those before it.
///
/// Dropping it does what a crash would do to changes that are not committed: they are lost. See
/// [`Transactions::close`]. In a forked child it does nothing.
pub struct Transactions {
    opener: Opener,
    shared: Arc<Shared>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

/// Aborts transactions for who watches over something that they depend on.
pub struct Aborter(Arc<Shared>);

impl Aborter {
    /// See [`Transactions::abort`].
    pub fn abort(&self, why: &str) {
        self.0.fail(Error::aborted(why));
    }
}

impl Transactions {
    /// Transactions of a volume without a journal: a commit writes the blocks that were changed to where they belong,
    /// after file data. Blocks are changed through `cache`.
    pub fn new(cache: Arc<BufferCache>, observer: Arc<dyn Observer>) -> Self {
        Self::unjournaled(cache, observer, Options::default())
    }

    /// The same, with options.
    pub fn unjournaled(cache: Arc<BufferCache>, observer: Arc<dyn Observer>, options: Options) -> Self {
        let limits = Limits { blocks: UNJOURNALED_LIMIT, measure: None };
        let shared = Shared::new(cache, Tid(1), limits, options.interval, Arc::default());
        Self::begin(observer, shared, None)
    }

    /// Transactions that become durable in `journal`, which is empty: after a crash it was replayed and [marked
    /// so](crate::Recovered::mark_empty). An internal journal is written through the device of `cache`, that of the
    /// volume.
    ///
    /// # Errors
    /// [`Error::Dirty`] if it is not empty; [`Error::Unsupported`] if the volume is too large for the journal's format.
    pub fn journaled<D: BlockDevice + 'static>(
        cache: Arc<BufferCache>,
        observer: Arc<dyn Observer>,
        journal: Journal<D>,
        options: Options,
    ) -> Result<Self, Error> {
        let counters: Arc<Counters> = Arc::default();
        let log = Log::new(journal, cache.device(), cache.block_count(), Arc::clone(&counters))?;
        let volume = Arc::clone(cache.device());
        let checkpoint = Checkpoint::new(volume, cache.block_size(), Arc::clone(&counters));
        let limits = Limits { blocks: most_blocks(log.measure().room), measure: Some(log.measure()) };
        let shared = Shared::new(cache, log.next_tid(), limits, options.interval, counters);
        Ok(Self::begin(observer, shared, Some(Journaling { log, checkpoint })))
    }

    fn begin(observer: Arc<dyn Observer>, shared: Shared, journaling: Option<Journaling>) -> Self {
        let shared = Arc::new(shared.observed_by(&observer));
        let committer = Committer::new(Arc::clone(&shared), observer, journaling);
        let spawned = thread::Builder::new().name("jbd2".into()).spawn(move || committer.run());
        // Without the thread, nothing could ever be committed: everybody is told, as if the first commit had failed.
        let committer = spawned
            .map_err(|error| shared.fail(extern4_block::Error::io(Op::Write, 0, 0, error).into()))
            .ok();
        Self { opener: Opener::here(), shared, committer: Mutex::new(committer) }
    }

    /// Opens a handle on the running transaction, for an operation that changes `credits` blocks at most. Waits while
    /// a commit closes the transaction, or while there is no room in the log. One thread holds one handle at a time.
    ///
    /// # Errors
    /// The first error of a commit or checkpoint, after which nothing can be changed any more; [`Error::Aborted`] and
    /// [`Error::Closed`].
    #[inline]
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, Error> {
        self.shared.start(credits)
    }

    /// Makes transaction `tid`, and so all before it, durable. Returns at once if it is.
    ///
    /// # Errors
    /// As [`Transactions::start`], if it is not durable.
    pub fn commit(&self, tid: Tid) -> Result<(), Error> {
        let state = self.shared.state();
        if !tid.is_after(state.committed) {
            return Ok(());
        }
        // A transaction that is closed and not committed is the one that is being written.
        let running = self.shared.running.tid();
        let target = if running.is_after(tid) { state.closed } else { state.closed + 1 };
        self.shared.wait_done(state, target)
    }

    /// The youngest transaction that is durable.
    pub fn committed(&self) -> Tid {
        self.shared.state().committed
    }

    /// The first flush that makes durable what this thread has written so far past the transactions.
    pub fn next_flush(&self) -> Flush {
        self.shared.flushes.next()
    }

    /// Makes durable what `flush` was named for, and the thread that commits has no part in that. Returns at once if it is.
    ///
    /// # Errors
    /// As [`Transactions::start`]; where the device cannot be flushed, nothing can be changed any more, as after a commit that failed.
    pub fn flush(&self, flush: Flush) -> Result<(), Error> {
        self.shared.flush(flush)
    }

    /// Makes everything durable that was changed through handles that are closed, and file data that was written
    /// before.
    ///
    /// # Errors
    /// As [`Transactions::start`].
    pub fn sync(&self) -> Result<(), Error> {
        let state = self.shared.state();
        let target = state.closed + 1;
        self.shared.wait_done(state, target)
    }

    /// Begins what [`sync`](Self::sync) does, and does not wait for it. Errors come later, from those who wait.
    pub fn begin_sync(&self) {
        self.shared.begin_sync();
    }

    /// Does what [`sync`](Self::sync) does, and writes everything of it to where it belongs: when this returns, the log holds no copy
    /// that recovery would write over what is written to those blocks from now on past the log.
    ///
    /// # Errors
    /// As [`Transactions::start`].
    pub fn settle(&self) -> Result<(), Error> {
        self.shared.settle()
    }

    /// So many bytes of file data were written. With much of it a commit begins, so that the device is at work while
    /// more is written, and whoever waits for the end waits for little.
    pub fn note_data(&self, bytes: u64) {
        let count = |own: &Cell<u64>| {
            let sum = own.get().saturating_add(bytes);
            let is_much = sum >= DATA_LOT;
            own.set(if is_much { 0 } else { sum });
            is_much.then_some(sum)
        };
        let Some(lot) = self.shared.small_data.with(count).unwrap_or(Some(bytes)) else { return };
        // Relaxed: nothing but the number counts, and a commit too many or too late does no harm.
        let before = self.shared.data.fetch_add(lot, Relaxed);
        if before.saturating_add(lot) >= DATA_LIMIT {
            self.shared.data.store(0, Relaxed);
            self.begin_sync();
        }
    }

    /// Commits and writes everything to where it belongs, so that the log is empty. No handle may be open, and none
    /// is opened later.
    ///
    /// # Errors
    /// As [`Transactions::start`]. The volume is then as after a crash.
    pub fn close(&self) -> Result<(), Error> {
        let result = self.shared.close();
        self.join();
        result
    }

    /// Nothing more is made durable: what has been changed and not committed is lost, and handles are refused. What
    /// is being written at this moment may still be. What fails from then on says `why`, unless it was aborted before.
    pub fn abort(&self, why: &str) {
        self.shared.fail(Error::aborted(why));
    }

    /// What aborts these transactions from elsewhere.
    pub fn aborter(&self) -> Aborter {
        Aborter(Arc::clone(&self.shared))
    }

    /// The same as [`abort`](Self::abort), and when this returns nothing is being written any more.
    pub fn halt(&self, why: &str) {
        self.abort(why);
        self.join();
    }

    /// The same as [`halt`](Self::halt), because the volume is damaged. The journal's superblock says so, too: recovery may write an older
    /// superblock of the volume over the one that does. It says nothing where changes had come to an end before, for another reason: then
    /// the volume may be somebody else's.
    pub fn give_up(&self, why: &str) {
        self.shared.fail(Error::Damaged(why.into()));
        self.join();
    }

    /// Why nothing can be changed any more, if so.
    pub fn error(&self) -> Option<Error> {
        self.shared.state().error.clone()
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Waits for the committer to end, which was told to.
    fn join(&self) {
        let committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The observer may hold the last reference to whoever owns this, so that this is the committer itself.
        if let Some(committer) =
            committer.filter(|committer| committer.thread().id() != thread::current().id())
        {
            // A panic there has been noted as an error.
            let _ = committer.join();
        }
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        if self.opener.is_here() {
            self.halt("the journal was dropped");
        } else {
            // A forked child has no such thread to wait for. A lock may have been held when it was forked.
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
