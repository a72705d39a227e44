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
//! 1. `Shared::state`: who has a handle, which transaction is running, how far commits have come. Taken once by
//!    [`Transactions::start`] and once when a handle is dropped, for a few instructions. Conditions: `opened` for
//!    those that wait to start, `work` for the committer, `done` for those that wait for a commit. None of the others
//!    is taken under it.
//! 2. The shards of `running::Running`: which blocks the running transaction has changed. A handle takes one for each
//!    block that it is the first in the transaction to change; the block then has the transaction's tag. The committer
//!    takes them all, one after the other, while the transaction is locked and no handle is open: every insertion came
//!    before its handle's drop, whose release of `state` the committer has acquired.
//! 3. A block's own lock, inside [`Buffer::change`] and [`extern4_block::Pin::snapshot`]. No other is taken under it
//!    but what the change itself takes. Handles only change blocks while they are open, so a snapshot taken when none
//!    is open is the transaction, whole.
//! 4. `Handle::freed`: of one handle.
//!
//! The log and what is on its way home belong to the committer's thread and have no lock. `Shared::halted` is an
//! atomic flag so that the committer can look at it between two writes; nothing is published through it, so its
//! accesses are relaxed, and who must know that nothing more is written waits for the thread to end.

use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use extern4_block::{BlockDevice, Buffer, BufferCache, Op, Unsealed};
use extern4_disk::journal::Tid;
use extern4_sync::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::checkpoint::Checkpoint;
use crate::committer::{Closed, Committer, Journaling, Unwritten};
use crate::counters::{Counters, Stats};
use crate::log::{Log, Measure};
use crate::running::Running;
use crate::{Error, Journal};

/// Blocks that a transaction without a journal changes before it is committed.
const UNJOURNALED_LIMIT: u64 = 16384;
/// Bytes of file data after which a commit begins.
const DATA_LIMIT: u64 = 64 << 20;

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

    /// Does what was put off until `block`, whose contents these are, is written. It must take no lock.
    ///
    /// Called by the thread that commits after [`closing`](Self::closing), once for each block of the transaction that is
    /// [unsealed](extern4_block::Pin::seal).
    fn seal(&self, _block: u64, _bytes: &mut [u8], _unsealed: Unsealed) {}
}

/// A transaction that no handle is open on any more.
pub struct Closing<'c> {
    running: &'c Running,
    tid: Tid,
}

impl Closing<'_> {
    /// The transaction.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Changes a block of metadata.
    pub fn change<R>(&self, buffer: &mut Buffer, change: impl FnOnce(&mut [u8]) -> R) -> R {
        self.running.change(buffer);
        buffer.change(|bytes, _| change(bytes))
    }
}

/// How transactions are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest time that a change stays in memory only, unless the machine is slow: a transaction is committed so
    /// long after its first change.
    pub interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5) }
    }
}

/// The running transaction of a volume, and those before it.
///
/// Dropping it does what a crash would do to changes that are not committed: they are lost. See
/// [`Transactions::close`].
pub struct Transactions {
    shared: Arc<Shared>,
    cache: Arc<BufferCache>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

/// Aborts transactions for who watches over something that they depend on.
pub struct Aborter(Arc<Shared>);

impl Aborter {
    /// See [`Transactions::abort`].
    pub fn abort(&self) {
        self.0.fail(Error::Aborted);
    }
}

/// What handles and the committer share.
pub(crate) struct Shared {
    state: Mutex<State>,
    opened: Condvar,
    work: Condvar,
    done: Condvar,
    running: Running,
    /// Bytes of file data that were written since a commit was last asked for on their account.
    data: AtomicU64,
    /// Nothing more may be made durable.
    halted: AtomicBool,
    /// What the committer has left behind. Put there once, and never looked at.
    unwritten: OnceLock<Unwritten>,
    limits: Limits,
    options: Options,
    pub(crate) counters: Arc<Counters>,
}

/// How large a transaction may become.
struct Limits {
    /// Blocks in the log; blocks that are changed, without a journal.
    blocks: u64,
    measure: Option<Measure>,
}

impl Limits {
    fn size(&self, changed: u64, revoked: u64) -> u64 {
        self.measure.map_or(changed, |measure| measure.blocks(changed, revoked))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Closing,
    Closed,
}

struct State {
    /// The transaction that handles belong to.
    tid: Tid,
    /// The youngest transaction that is durable.
    committed: Tid,
    /// Handles that are open, and the blocks that they may still change.
    handles: u32,
    reserved: u64,
    /// When the running transaction was first changed.
    since: Option<Instant>,
    freed: Vec<Range<u64>>,
    /// A commit waits for the handles to be dropped.
    locked: bool,
    /// Threads that wait in `start`, and those of them whose operations are larger than a transaction should be.
    waiting: u32,
    large_waiting: u32,
    /// Commits that were asked for, those whose transaction is closed, and those that are through; each counted from
    /// the first. Those of an empty transaction count, too.
    wanted: u64,
    closed: u64,
    done: u64,
    end: End,
    error: Option<Error>,
}

impl State {
    fn new(tid: Tid) -> Self {
        Self {
            tid,
            committed: Tid(tid.0.wrapping_sub(1)),
            handles: 0,
            reserved: 0,
            since: None,
            freed: Vec::new(),
            locked: false,
            waiting: 0,
            large_waiting: 0,
            wanted: 0,
            closed: 0,
            done: 0,
            end: End::Open,
            error: None,
        }
    }

    fn check(&self) -> Result<(), Error> {
        match (&self.error, self.end) {
            (Some(error), _) => Err(error.clone()),
            (None, End::Open) => Ok(()),
            (None, End::Closing | End::Closed) => Err(Error::Closed),
        }
    }
}

/// What the committer is to do next.
pub(crate) enum Job {
    Commit,
    Checkpoint,
    Close,
    Stop,
}

/// The right to change metadata, as part of the running transaction.
///
/// While it is open, the transaction cannot be committed, so the thread that has it must not wait for a commit.
pub struct Handle<'t> {
    transactions: &'t Transactions,
    tid: Tid,
    credits: AtomicU32,
    freed: Mutex<Vec<Range<u64>>>,
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
        let shared = Shared::new(Tid(1), limits, options, Arc::default());
        Self::begin(cache, observer, shared, None)
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
        let limits = Limits { blocks: u64::from(log.measure().room / 4), measure: Some(log.measure()) };
        let shared = Shared::new(log.next_tid(), limits, options, counters);
        Ok(Self::begin(cache, observer, shared, Some(Journaling { log, checkpoint })))
    }

    fn begin(
        cache: Arc<BufferCache>,
        observer: Arc<dyn Observer>,
        shared: Shared,
        journaling: Option<Journaling>,
    ) -> Self {
        let shared = Arc::new(shared);
        let committer = Committer::new(Arc::clone(&shared), Arc::clone(&cache), observer, journaling);
        let spawned = thread::Builder::new().name("jbd2".into()).spawn(move || committer.run());
        // Without the thread, nothing could ever be committed: everybody is told, as if the first commit had failed.
        let committer = spawned
            .map_err(|error| shared.fail(extern4_block::Error::io(Op::Write, 0, 0, error).into()))
            .ok();
        Self { shared, cache, committer: Mutex::new(committer) }
    }

    /// Opens a handle on the running transaction, for an operation that changes `credits` blocks at most. Waits while
    /// a commit closes the transaction, or while there is no room in the log. One thread holds one handle at a time.
    ///
    /// # Errors
    /// The first error of a commit or checkpoint, after which nothing can be changed any more; [`Error::Aborted`] and
    /// [`Error::Closed`].
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, Error> {
        let shared = &*self.shared;
        let (mut state, mut waited) = (shared.state(), false);
        // Others must not slip in again and again before an operation that needs a transaction of its own.
        let large = shared.limits.size(credits.into(), 0) > shared.limits.blocks;
        loop {
            state.check()?;
            if !state.locked && (large || state.large_waiting == 0) && shared.admits(&mut state, credits) {
                break;
            }
            if !mem::replace(&mut waited, true) {
                Counters::add(&shared.counters.waits, 1);
            }
            state.waiting += 1;
            state.large_waiting += u32::from(large);
            state = wait(&shared.opened, state);
            state.waiting -= 1;
            state.large_waiting -= u32::from(large);
        }
        state.handles += 1;
        state.reserved += u64::from(credits);
        Counters::add_locked(&shared.counters.handles, 1);
        Ok(Handle {
            transactions: self,
            tid: state.tid,
            credits: AtomicU32::new(credits),
            freed: Mutex::default(),
        })
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
        let target =
            if tid.is_after(state.tid) || tid == state.tid { state.closed + 1 } else { state.closed };
        self.shared.wait_done(state, target)
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
        let mut state = self.shared.state();
        if state.check().is_ok() {
            self.shared.want_commit(&mut state);
        }
    }

    /// So many bytes of file data were written. With much of it a commit begins, so that the device is at work while
    /// more is written, and whoever waits for the end waits for little.
    pub fn note_data(&self, bytes: u64) {
        // Relaxed: nothing but the number counts, and a commit too many or too late does no harm.
        let before = self.shared.data.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) >= DATA_LIMIT {
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
        let mut state = self.shared.state();
        if state.end == End::Open {
            state.end = End::Closing;
        }
        self.shared.work.notify_all();
        self.shared.opened.notify_all();
        while state.end != End::Closed && state.error.is_none() {
            state = wait(&self.shared.done, state);
        }
        let result = if state.end == End::Closed { Ok(()) } else { state.error.clone().map_or(Ok(()), Err) };
        drop(state);
        self.join();
        result
    }

    /// Nothing more is made durable: what has been changed and not committed is lost, and handles are refused. What
    /// is being written at this moment may still be.
    pub fn abort(&self) {
        self.shared.fail(Error::Aborted);
    }

    /// What aborts these transactions from elsewhere.
    pub fn aborter(&self) -> Aborter {
        Aborter(Arc::clone(&self.shared))
    }

    /// The same as [`abort`](Self::abort), and when this returns nothing is being written any more.
    pub fn halt(&self) {
        self.abort();
        self.join();
    }

    /// Why nothing can be changed any more, if so.
    pub fn error(&self) -> Option<Error> {
        self.shared.state().error.clone()
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.shared.counters.stats()
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
        self.halt();
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        f.debug_struct("Transactions")
            .field("tid", &state.tid)
            .field("committed", &state.committed)
            .field("handles", &state.handles)
            .field("error", &state.error)
            .finish_non_exhaustive()
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(tid: Tid, limits: Limits, options: Options, counters: Arc<Counters>) -> Self {
        Self {
            state: Mutex::new(State::new(tid)),
            opened: Condvar::new(),
            work: Condvar::new(),
            done: Condvar::new(),
            running: Running::new(),
            data: AtomicU64::new(0),
            halted: AtomicBool::new(false),
            unwritten: OnceLock::new(),
            limits,
            options,
            counters,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the running transaction has room for so many blocks more. If not, asks for a commit where that helps:
    /// with handles open in a small transaction, it helps more to wait for what they do not use.
    ///
    /// An operation that is larger than a transaction should be gets one of its own.
    fn admits(&self, state: &mut State, credits: u32) -> bool {
        let (changed, revoked) = self.running.counts();
        let all = changed + state.reserved + u64::from(credits);
        if changed + state.reserved == 0 || self.limits.size(all, revoked) <= self.limits.blocks {
            return true;
        }
        if state.handles == 0 || self.limits.size(changed, revoked) > self.limits.blocks / 2 {
            self.want_commit(state);
        }
        false
    }

    fn want_commit(&self, state: &mut State) {
        if state.wanted <= state.closed {
            state.wanted = state.closed + 1;
            self.work.notify_all();
        }
    }

    /// Waits until the commit `target` is through, which is asked for if need be.
    fn wait_done(&self, mut state: MutexGuard<'_, State>, target: u64) -> Result<(), Error> {
        if state.wanted < target && state.check().is_ok() {
            state.wanted = target;
            self.work.notify_all();
        }
        while state.done < target {
            match (&state.error, state.end) {
                (Some(error), _) => return Err(error.clone()),
                (None, End::Closed) => return Err(Error::Closed),
                (None, End::Open | End::Closing) => state = wait(&self.done, state),
            }
        }
        Ok(())
    }

    /// Waits for something to do. `walking` says that a checkpoint has begun.
    pub(crate) fn next_job(&self, walking: bool) -> Job {
        let mut state = self.state();
        loop {
            if state.error.is_some() {
                return Job::Stop;
            }
            let now = Instant::now();
            let due = state.since.and_then(|since| since.checked_add(self.options.interval));
            if state.wanted > state.closed || due.is_some_and(|due| due <= now) {
                return Job::Commit;
            }
            if state.end == End::Closing {
                return Job::Close;
            }
            if walking {
                return Job::Checkpoint;
            }
            state = match due {
                None => wait(&self.work, state),
                Some(due) => {
                    let waited = self.work.wait_timeout(state, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Locks the running transaction, waits until no handle is open, and opens the next one. In between the observer has its
    /// turn, if there is anything in it.
    pub(crate) fn close_running(&self, observer: &dyn Observer) -> Result<Closed, Error> {
        let mut state = self.state();
        state.locked = true;
        while state.handles > 0 {
            self.go_on()?;
            state = wait(&self.work, state);
        }
        let freed = mem::take(&mut state.freed);
        let tid = state.tid;
        drop(state);
        // The transaction is locked, so no handle changes a block until the snapshots are taken.
        if !freed.is_empty() || self.running.counts() != (0, 0) {
            observer.closing(&Closing { running: &self.running, tid });
        }
        let (pins, revoked) = self.running.take();
        let changed = pins.into_iter().map(|pin| {
            pin.seal(|bytes, unsealed| observer.seal(pin.number(), bytes, unsealed));
            let image = pin.snapshot();
            (pin, image)
        });
        let mut closed = Closed { tid, changed: changed.collect(), revoked, freed };
        let mut state = self.state();
        state.closed += 1;
        state.wanted = state.wanted.max(state.closed);
        state.since = None;
        state.locked = false;
        if !closed.is_empty() {
            state.tid = tid.next();
        }
        self.opened.notify_all();
        drop(state);
        // While others go on.
        closed.changed.sort_unstable_by_key(|(pin, _)| pin.number());
        closed.revoked.sort_unstable();
        Ok(closed)
    }

    /// The transaction that was closed last is durable: `tid`, or an empty one.
    pub(crate) fn committed(&self, tid: Option<Tid>) {
        let mut state = self.state();
        state.committed = tid.unwrap_or(state.committed);
        state.done = state.closed;
        self.done.notify_all();
    }

    /// Everything is durable, and the log empty.
    pub(crate) fn closed(&self) {
        let mut state = self.state();
        state.end = End::Closed;
        state.done = state.done.max(state.wanted);
        self.done.notify_all();
    }

    /// Refuses everything from now on, for the first reason that was given.
    pub(crate) fn fail(&self, error: Error) {
        self.halted.store(true, Relaxed);
        self.state().error.get_or_insert(error);
        self.opened.notify_all();
        self.work.notify_all();
        self.done.notify_all();
    }

    /// Keeps what the committer leaves behind for as long as anybody may read through the cache.
    pub(crate) fn keep(&self, unwritten: Unwritten) {
        // OK: the committer leaves once.
        let _ = self.unwritten.set(unwritten);
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.halted.load(Relaxed)
    }

    /// Whether more may be made durable.
    pub(crate) fn go_on(&self) -> Result<(), Error> {
        if self.is_halted() { Err(Error::Aborted) } else { Ok(()) }
    }

    /// A handle is dropped.
    fn stop(&self, credits: u32, freed: &mut Vec<Range<u64>>) {
        let (changed, revoked) = self.running.counts();
        let mut state = self.state();
        state.handles -= 1;
        state.reserved -= u64::from(credits);
        state.freed.append(freed);
        if state.since.is_none() && (changed > 0 || revoked > 0 || !state.freed.is_empty()) {
            state.since = Some(Instant::now());
            self.work.notify_all();
        }
        if self.limits.size(changed, revoked) >= self.limits.blocks {
            self.want_commit(&mut state);
        }
        if state.locked && state.handles == 0 {
            self.work.notify_all();
        }
        if state.waiting > 0 && !state.locked {
            self.opened.notify_all();
        }
    }
}

impl Handle<'_> {
    /// The transaction that this is part of.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Changes a block of metadata, and what is [put off](Observer::seal) until it is written.
    pub fn change<R>(&self, buffer: &mut Buffer, change: impl FnOnce(&mut [u8], &mut Unsealed) -> R) -> R {
        self.transactions.shared.running.change(buffer);
        buffer.change(change)
    }

    /// The same for a block that is read from the device if need be: cheaper than to [read](BufferCache::read) it for
    /// nothing else.
    ///
    /// # Errors
    /// [`Error::Device`] for a block that cannot be read.
    #[inline]
    pub fn edit<R>(
        &self,
        block: u64,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> Result<R, Error> {
        let running = &self.transactions.shared.running;
        // What is part of the transaction is pinned by it, and no transaction ends while this handle is open.
        match self.transactions.cache.change_tagged(block, running.number(), change) {
            Ok(result) => Ok(result),
            Err(change) => Ok(self.change(&mut self.transactions.cache.read(block)?, change)),
        }
    }

    /// A block of metadata that this operation has just allocated, filled with zeroes.
    ///
    /// # Errors
    /// [`Error::Device`] for a block outside the volume.
    pub fn fresh(&self, block: u64) -> Result<Buffer, Error> {
        let buffer = self.transactions.cache.fresh(block)?;
        self.transactions.shared.running.change(&buffer);
        Ok(buffer)
    }

    /// Blocks of metadata have been freed: older copies of them in the log are never to be replayed again. They are
    /// part of what [`free`](Self::free) takes.
    pub fn revoke(&self, blocks: Range<u64>) {
        blocks.for_each(|block| self.transactions.shared.running.revoke(block));
    }

    /// Notes blocks that have been freed. The observer hears of them when the transaction has become durable; until
    /// then nobody may use them, since after a crash they would still belong to whom they belonged to.
    pub fn free(&self, blocks: Range<u64>) {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner).push(blocks);
    }

    /// Asks for leave to change `credits` blocks more. Never waits; if the answer is no, the operation has to go on
    /// with another handle, or in an order that needs no more.
    pub fn extend(&self, credits: u32) -> bool {
        let shared = &*self.transactions.shared;
        let mut state = shared.state();
        let (changed, revoked) = shared.running.counts();
        let all = changed + state.reserved + u64::from(credits);
        if state.locked || state.error.is_some() || shared.limits.size(all, revoked) > shared.limits.blocks {
            return false;
        }
        state.reserved += u64::from(credits);
        self.credits.fetch_add(credits, Relaxed);
        true
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        let freed = self.freed.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.transactions.shared.stop(self.credits.load(Relaxed), freed);
    }
}
