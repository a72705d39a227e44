//! The state that handles and the committer share.
//!
//! It says which transaction is running, which threads wait for which event, and how far commits
//! have come.
//!
//! `Transactions`, handles and the committer call it, each from its own threads. Its lock orders
//! them: see the list of locks in `transaction`. Each waiting thread is woken by the event that it
//! waits for, by an error, or by the end of the committer. So none waits for ever.

use std::cell::Cell;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use extern4_block::BufferCache;
use extern4_disk::journal::Tid;
use extern4_sync::per_thread::PerThread;
use extern4_sync::primitive::thread::{self, ThreadId};
use extern4_sync::primitive::{
    AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering::Relaxed,
};

use crate::commit::{Closed, Unwritten};
use crate::counters::Counters;
use crate::flush::{Flush, Flushes};
use crate::handle_gate::{Entered, HandleGate, Left};
use crate::log::Measure;
use crate::observer::{Closing, Observer};
use crate::running_transaction::RunningTransaction;
use crate::{Error, Handle, Stats};

/// The state that handles and the committer share.
pub(crate) struct JournalState {
    state: Mutex<State>,
    opened: Condvar,
    work: Condvar,
    done: Condvar,
    gate: HandleGate,
    pub(crate) running: RunningTransaction,
    pub(crate) cache: Arc<BufferCache>,
    /// Whether the running transaction is not empty and so has a time by which it is committed. Set
    /// under the lock, cleared while no handle is inside, and read by handles that are inside.
    is_dated: AtomicBool,
    /// Bytes of file data written since their number last led to a request for a commit.
    pub(crate) data: AtomicU64,
    /// Each thread's bytes that `data` does not include yet, so that threads that write little at a
    /// time share no cache line.
    pub(crate) small_data: PerThread<Cell<u64>>,
    pub(crate) flushes: Flushes,
    /// Whether nothing more may be made durable.
    aborted: AtomicBool,
    /// The transaction and log that the committer leaves behind. It stores them once, and no thread
    /// ever reads them.
    unwritten: OnceLock<Unwritten>,
    /// The observer, which learns of the first failure. It may own these transactions, so this
    /// reference is weak.
    observer: Option<Weak<dyn Observer>>,
    limits: Limits,
    interval: Duration,
    pub(crate) counters: Arc<Counters>,
}

/// The largest size of a transaction.
pub(crate) struct Limits {
    /// Blocks in the log, or blocks that a transaction changes where there is no journal.
    pub(crate) blocks: u64,
    pub(crate) measure: Option<Measure>,
}

impl Limits {
    fn size(&self, changed: u64, revoked: u64) -> u64 {
        self.measure
            .map_or(changed, |measure| measure.blocks(changed, revoked))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Closing,
    Closed,
}

pub(crate) struct State {
    /// The youngest transaction that is durable.
    pub(crate) committed: Tid,
    /// Blocks that the running transaction has changed, and blocks that it may still change: see
    /// `handle_gate`. It may be too high until no handle is inside; it is never too low.
    granted: i64,
    /// Whether room is short. A handle is then granted no more than it needs.
    is_short: bool,
    /// When the running transaction was first changed.
    since: Option<Instant>,
    freed: Vec<Range<u64>>,
    /// Whether a commit waits for the open handles to be dropped.
    locked: bool,
    /// The thread that holds the running transaction open; see
    /// [`Transactions::hold`](crate::Transactions::hold).
    held_by: Option<ThreadId>,
    /// Threads that wait in `start`, and those among them whose operation is larger than a
    /// transaction should be.
    waiting: u32,
    large_waiting: u32,
    /// Commits that were asked for, commits whose transaction is closed, and commits that have
    /// ended; each counted from the first. Commits of empty transactions count, too.
    wanted: u64,
    pub(crate) closed: u64,
    done: u64,
    /// Calls of `checkpoint_all` so far, and how many of them have been answered.
    checkpoint_wanted: u64,
    checkpointed: u64,
    pub(crate) end: End,
    pub(crate) error: Option<Error>,
}

impl State {
    fn new(tid: Tid) -> Self {
        Self {
            committed: Tid(tid.0.wrapping_sub(1)),
            granted: 0,
            is_short: false,
            since: None,
            freed: Vec::new(),
            locked: false,
            held_by: None,
            waiting: 0,
            large_waiting: 0,
            wanted: 0,
            closed: 0,
            done: 0,
            checkpoint_wanted: 0,
            checkpointed: 0,
            end: End::Open,
            error: None,
        }
    }

    /// Returns whether this thread holds the running transaction open.
    fn is_held_here(&self) -> bool {
        self.held_by == Some(thread::current().id())
    }

    fn check(&self) -> Result<(), Error> {
        match (&self.error, self.end) {
            (Some(error), _) => Err(error.clone()),
            (None, End::Open) => Ok(()),
            (None, End::Closing | End::Closed) => Err(Error::Closed),
        }
    }
}

/// The next job of the committer.
pub(crate) enum Job {
    Commit,
    Checkpoint,
    /// Commit and write every block in place; answers the calls of `checkpoint_all` up to this
    /// number.
    CheckpointAll(u64),
    Close,
    Stop,
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

impl JournalState {
    pub(crate) fn new(
        cache: Arc<BufferCache>,
        tid: Tid,
        limits: Limits,
        interval: Duration,
        counters: Arc<Counters>,
    ) -> Self {
        let shared = Self {
            state: Mutex::new(State::new(tid)),
            opened: Condvar::new(),
            work: Condvar::new(),
            done: Condvar::new(),
            gate: HandleGate::new(limits.blocks),
            running: RunningTransaction::new(tid),
            cache,
            is_dated: AtomicBool::new(false),
            data: AtomicU64::new(0),
            small_data: PerThread::new(),
            flushes: Flushes::default(),
            aborted: AtomicBool::new(false),
            unwritten: OnceLock::new(),
            observer: None,
            limits,
            interval,
            counters,
        };
        shared.gate.open(shared.running.number());
        shared
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters so far.
    pub(crate) fn stats(&self) -> Stats {
        self.counters.stats(self.gate.visits())
    }

    /// Returns how many handles are open, or about to be.
    pub(crate) fn handles(&self) -> u64 {
        self.gate.inside()
    }
}

/// Operations of handles.
impl JournalState {
    /// Returns this state with `observer`, which learns of the first failure.
    pub(crate) fn observed_by(self, observer: &Arc<dyn Observer>) -> Self {
        Self {
            observer: Some(Arc::downgrade(observer)),
            ..self
        }
    }

    /// Opens a handle; see [`Transactions::start`](crate::Transactions::start).
    #[inline]
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>, Error> {
        match self.gate.enter(credits) {
            Entered::Inside(number) => Ok(Handle::new(self, number, credits)),
            outside => self.start_locked(credits, outside == Entered::TurnedAway),
        }
    }

    #[cold]
    fn start_locked(&self, credits: u32, was_counted: bool) -> Result<Handle<'_>, Error> {
        let mut state = self.state();
        let mut waited = false;
        if was_counted {
            self.notify_left(&state);
        }
        // Other threads must not again and again overtake a thread that needs a transaction to
        // itself.
        let large = self.limits.size(credits.into(), 0) > self.limits.blocks;
        loop {
            state.check()?;
            if !state.locked
                && (large || state.large_waiting == 0)
                && self.admits(&mut state, credits)
            {
                break;
            }
            if !mem::replace(&mut waited, true) {
                Counters::add(&self.counters.waits, 1);
            }
            state.waiting += 1;
            state.large_waiting += u32::from(large);
            state = wait(&self.opened, state);
            state.waiting -= 1;
            state.large_waiting -= u32::from(large);
        }
        self.gate.enter_locked();
        Ok(Handle::new(self, self.running.number(), credits))
    }

    /// Grants `credits` credits, if the running transaction has room for them. If it has none, asks
    /// for a commit where that helps. While handles are open in a small transaction, waiting for
    /// the credits that they do not use helps more.
    ///
    /// An operation that is larger than a transaction should be gets a transaction to itself.
    fn admits(&self, state: &mut State, credits: u32) -> bool {
        if !state.is_short && self.fill_pool(state, credits) || self.grant_or_all(state, credits) {
            return true;
        }
        // From now on the credits of each handle are counted exactly.
        state.is_short = true;
        self.gate.shut();
        let (changed, revoked) = self.running.counts();
        let is_empty = self.gate.inside() == 0;
        if is_empty {
            // No handle may change anything, and the credits in pools are void.
            state.granted = i64::try_from(changed).unwrap_or(i64::MAX);
            if self.grant_or_all(state, credits) {
                return true;
            }
        }
        if is_empty || self.limits.size(changed, revoked) > self.limits.blocks / 2 {
            self.want_commit(state);
        }
        false
    }

    /// Grants the credits that the operation needs and the spare ones for the thread's pool.
    fn fill_pool(&self, state: &mut State, credits: u32) -> bool {
        let number = self.running.number();
        let wanted = self.gate.wants(number, credits);
        let granted = wanted.filter(|&wanted| self.grant(state, wanted));
        granted
            .map(|granted| self.gate.fill(number, granted, credits))
            .is_some()
    }

    fn grant(&self, state: &mut State, credits: i64) -> bool {
        let (_, revoked) = self.running.counts();
        let all = u64::try_from(state.granted + credits).unwrap_or(0);
        // The end of a hold measures the transaction as a whole.
        let fits = state.held_by.is_some() || self.limits.size(all, revoked) <= self.limits.blocks;
        if fits {
            state.granted += credits;
        }
        fits
    }

    /// Grants `credits`: an operation that is alone in the transaction gets any number.
    fn grant_or_all(&self, state: &mut State, credits: u32) -> bool {
        if state.granted == 0 {
            state.granted = credits.into();
            return true;
        }
        self.grant(state, credits.into())
    }

    /// Grants more credits to a handle on the transaction `number`; see [`Handle::extend`].
    pub(crate) fn extend(&self, number: u64, credits: u32) -> bool {
        if self.gate.take(number, credits) {
            return true;
        }
        let mut state = self.state();
        !state.locked && state.error.is_none() && self.grant(&mut state, credits.into())
    }

    /// Ends a handle that was open on the transaction `number` and has not used `rest` of its
    /// credits.
    #[inline]
    pub(crate) fn stop(&self, number: u64, rest: i64, has_grown: bool, freed: Vec<Range<u64>>) {
        let is_news = !freed.is_empty() || has_grown && self.must_note_growth();
        let left = if is_news {
            Left::No
        } else {
            self.gate.leave(number, rest)
        };
        if left != Left::Quietly {
            self.stop_locked(rest, freed, left == Left::Waited);
        }
    }

    /// Returns whether the growth of the transaction has to be noted under the lock.
    fn must_note_growth(&self) -> bool {
        // Relaxed: a thread that reads the old value takes the lock and looks again.
        !self.is_dated.load(Relaxed) || self.is_full()
    }

    fn is_full(&self) -> bool {
        let (changed, revoked) = self.running.counts();
        self.limits.size(changed, revoked) >= self.limits.blocks
    }

    #[cold]
    fn stop_locked(&self, rest: i64, mut freed: Vec<Range<u64>>, has_left: bool) {
        let mut state = self.state();
        if !has_left {
            state.granted -= rest;
            state.freed.append(&mut freed);
            if state.since.is_none() && (self.running.counts() != (0, 0) || !state.freed.is_empty())
            {
                state.since = Some(Instant::now());
                self.is_dated.store(true, Relaxed);
                self.work.notify_all();
            }
            if self.is_full() {
                self.want_commit(&mut state);
            }
            self.gate.leave_locked();
        }
        self.notify_left(&state);
    }

    /// Wakes the threads that may have counted a handle which is no longer inside.
    fn notify_left(&self, state: &State) {
        if state.locked {
            self.work.notify_all();
        } else if state.waiting > 0 {
            self.opened.notify_all();
        }
    }
}

/// Holds.
impl JournalState {
    /// Makes every change durable, and from then on keeps the running transaction open; see
    /// [`Transactions::hold`](crate::Transactions::hold).
    pub(crate) fn hold(&self) -> Result<(), Error> {
        let state = self.state();
        if state.is_held_here() {
            return Err(Error::Held);
        }
        let target = state.closed + 1;
        self.wait_done(state, target)?;
        let mut state = self.state();
        loop {
            state.check()?;
            let is_committing = state.locked || state.wanted > state.done;
            if state.held_by.is_none()
                && !is_committing
                && state.checkpointed >= state.checkpoint_wanted
            {
                state.held_by = Some(thread::current().id());
                return Ok(());
            }
            state = wait(&self.done, state);
        }
    }

    /// Ends the hold of this thread. The transaction may be committed from now on.
    pub(crate) fn release(&self) {
        let mut state = self.state();
        state.held_by = None;
        drop(state);
        self.work.notify_all();
        self.done.notify_all();
    }
}

/// Commits.
impl JournalState {
    pub(crate) fn want_commit(&self, state: &mut State) {
        if state.wanted <= state.closed {
            state.wanted = state.closed + 1;
            self.work.notify_all();
        }
    }

    /// Begins a commit, unless an error or `close` has ended all changes.
    pub(crate) fn begin_sync(&self) {
        let mut state = self.state();
        if state.check().is_ok() {
            self.want_commit(&mut state);
        }
    }

    /// Waits until the commit `target` has ended, and asks for it if no caller has.
    ///
    /// Within a hold it only looks for errors: the thread's own changes become durable at the end.
    pub(crate) fn wait_done(
        &self,
        mut state: MutexGuard<'_, State>,
        target: u64,
    ) -> Result<(), Error> {
        if state.is_held_here() {
            return state.check();
        }
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

    /// Waits for a flush; see [`Transactions::flush`](crate::Transactions::flush).
    pub(crate) fn flush(&self, flush: Flush) -> Result<(), Error> {
        self.flushes.wait(flush, || {
            self.state().check()?;
            self.flush_volume()
                .inspect_err(|error| self.fail(error.clone()))
        })
    }

    /// Flushes the device of the volume.
    pub(crate) fn flush_volume(&self) -> Result<(), Error> {
        Counters::add(&self.counters.flushes, 1);
        Ok(self.cache.device().flush()?)
    }

    /// Has every change committed and written in place, and waits for that.
    pub(crate) fn checkpoint_all(&self) -> Result<(), Error> {
        let mut state = self.state();
        state.check()?;
        if state.is_held_here() {
            return Err(Error::Held);
        }
        state.checkpoint_wanted += 1;
        let target = state.checkpoint_wanted;
        self.work.notify_all();
        while state.checkpointed < target {
            state.check()?;
            state = wait(&self.done, state);
        }
        Ok(())
    }

    /// Notes that the first `calls` calls of `checkpoint_all` are answered.
    pub(crate) fn note_checkpointed(&self, calls: u64) {
        self.state().checkpointed = calls;
        self.done.notify_all();
    }

    /// Refuses new handles, has every change committed and written in place, and waits for that.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut state = self.state();
        if state.end == End::Open {
            state.end = End::Closing;
        }
        self.gate.shut();
        self.work.notify_all();
        self.opened.notify_all();
        while state.end != End::Closed && state.error.is_none() {
            state = wait(&self.done, state);
        }
        if state.end == End::Closed {
            Ok(())
        } else {
            match state.error.clone() {
                Some(error) => Err(error),
                None => Ok(()),
            }
        }
    }

    /// Waits for the next job. `walking` says that a checkpoint has begun.
    pub(crate) fn next_job(&self, walking: bool) -> Job {
        let mut state = self.state();
        loop {
            if state.error.is_some() {
                return Job::Stop;
            }
            let now = Instant::now();
            let is_held = state.held_by.is_some();
            let due = state
                .since
                .filter(|_| !is_held)
                .and_then(|since| since.checked_add(self.interval));
            if !is_held && (state.wanted > state.closed || due.is_some_and(|due| due <= now)) {
                // A thread that wants to hold the transaction sees that it is being committed.
                state.wanted = state.wanted.max(state.closed + 1);
                return Job::Commit;
            }
            if !is_held && state.checkpoint_wanted > state.checkpointed {
                return Job::CheckpointAll(state.checkpoint_wanted);
            }
            if !is_held && state.end == End::Closing {
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

    /// Locks the running transaction, waits until no handle is open, and opens the next one. In
    /// between it calls the observer, unless the transaction is empty.
    pub(crate) fn close_running(&self, observer: &dyn Observer) -> Result<Closed, Error> {
        let freed = self.lock_running()?;
        // The transaction is locked, so no handle changes a block until the snapshots are taken.
        let tid = self.running.tid();
        if !freed.is_empty() || self.running.counts() != (0, 0) {
            observer.closing(&Closing::new(&self.running));
        }
        let (pins, revoked) = self.running.take();
        let changed = pins.into_iter().map(|pin| {
            pin.seal(|bytes, unsealed| observer.seal(&pin, bytes, unsealed));
            let image = pin.snapshot();
            (pin, image)
        });
        let mut closed = Closed {
            tid,
            changed: changed.collect(),
            revoked,
            freed,
        };
        self.open_next(!closed.is_empty());
        // The next transaction is open already, so handles go on meanwhile.
        closed.changed.sort_unstable_by_key(|(pin, _)| pin.number());
        closed.revoked.sort_unstable();
        Ok(closed)
    }

    /// Shuts the gate and waits until no handle is inside. Returns the freed blocks.
    fn lock_running(&self) -> Result<Vec<Range<u64>>, Error> {
        let mut state = self.state();
        state.locked = true;
        self.gate.shut();
        while self.gate.inside() > 0 {
            self.check_not_aborted()?;
            state = wait(&self.work, state);
        }
        // `abort` may have been called with a handle open, so the transaction may hold half of an
        // operation: it is not read.
        self.check_not_aborted()?;
        Ok(mem::take(&mut state.freed))
    }

    /// Opens the gate again: to the next transaction, or to the same one if it was empty.
    fn open_next(&self, has_contents: bool) {
        let mut state = self.state();
        state.closed += 1;
        state.wanted = state.wanted.max(state.closed);
        state.since = None;
        // Relaxed: no handle is inside. A handle that enters does so after `open`, or takes the
        // lock.
        self.is_dated.store(false, Relaxed);
        state.granted = 0;
        state.locked = false;
        // Operations that need all of the room get it now.
        state.is_short = state.large_waiting > 0;
        if has_contents {
            self.running.advance();
        }
        if !state.is_short && state.check().is_ok() {
            self.gate.open(self.running.number());
        }
        self.opened.notify_all();
    }

    /// Notes that the transaction closed last is durable: `tid`, or an empty one.
    pub(crate) fn committed(&self, tid: Option<Tid>, flush: Flush) {
        self.flushes.end(flush);
        let mut state = self.state();
        state.committed = tid.unwrap_or(state.committed);
        state.done = state.closed;
        self.done.notify_all();
    }

    /// Notes that everything is durable and the log is empty.
    pub(crate) fn closed(&self) {
        let mut state = self.state();
        state.end = End::Closed;
        state.done = state.done.max(state.wanted);
        self.done.notify_all();
    }

    /// Refuses everything from now on, with the first error that was given.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.state();
        let is_first = state.error.is_none();
        let error = state.error.get_or_insert(error).clone();
        // Set only after `error` is stored: the committer fails because of the flag, and that error
        // must not be the first.
        self.aborted.store(true, Relaxed);
        self.gate.shut();
        drop(state);
        self.opened.notify_all();
        self.work.notify_all();
        self.done.notify_all();
        let is_asked_for = matches!(error, Error::Aborted(_) | Error::Damaged(_));
        let observer = self
            .observer
            .as_ref()
            .filter(|_| is_first && !is_asked_for)
            .and_then(Weak::upgrade);
        if let Some(observer) = observer {
            observer.failed(&error);
        }
    }

    /// Keeps the committer's unwritten blocks for as long as any thread may read through the cache.
    pub(crate) fn keep(&self, unwritten: Unwritten) {
        // OK: the committer leaves once.
        let _ = self.unwritten.set(unwritten);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    /// Returns an error if nothing more may be made durable.
    pub(crate) fn check_not_aborted(&self) -> Result<(), Error> {
        if self.is_aborted() {
            Err(Error::aborted("it was stopped"))
        } else {
            Ok(())
        }
    }
}
