//! What handles and the committer share: which transaction is running, who waits for what, and how far commits have come.

use std::cell::Cell;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use extern4_block::BufferCache;
use extern4_disk::journal::Tid;
use extern4_sync::per_thread::PerThread;
use extern4_sync::primitive::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering::Relaxed};

use crate::committer::{Closed, Unwritten};
use crate::counters::Counters;
use crate::door::{Door, Entered, Left};
use crate::flush::{Flush, Flushes};
use crate::log::Measure;
use crate::running::Running;
use crate::transactions::{Closing, Observer};
use crate::{Error, Handle, Stats};

/// What handles and the committer share.
pub(crate) struct Shared {
    state: Mutex<State>,
    opened: Condvar,
    work: Condvar,
    done: Condvar,
    door: Door,
    pub(crate) running: Running,
    pub(crate) cache: Arc<BufferCache>,
    /// The running transaction is not empty, and has a date by which it is committed. Set under the lock, cleared when nobody is
    /// inside, and looked at by who is.
    is_dated: AtomicBool,
    /// Bytes of file data that were written since a commit was last asked for on their account.
    pub(crate) data: AtomicU64,
    /// Those of each thread that are not in `data` yet, so that threads that write little at a time do not share a line.
    pub(crate) small_data: PerThread<Cell<u64>>,
    pub(crate) flushes: Flushes,
    /// Nothing more may be made durable.
    halted: AtomicBool,
    /// What the committer has left behind. Put there once, and never looked at.
    unwritten: OnceLock<Unwritten>,
    /// Hears of the first failure. It may own these transactions, so it is not kept in use here.
    observer: Option<Weak<dyn Observer>>,
    limits: Limits,
    interval: Duration,
    pub(crate) counters: Arc<Counters>,
}

/// How large a transaction may become.
pub(crate) struct Limits {
    /// Blocks in the log; blocks that are changed, without a journal.
    pub(crate) blocks: u64,
    pub(crate) measure: Option<Measure>,
}

impl Limits {
    fn size(&self, changed: u64, revoked: u64) -> u64 {
        self.measure.map_or(changed, |measure| measure.blocks(changed, revoked))
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
    /// Blocks that the running transaction has changed, and those that it may still change: see `door`. It may be more, until
    /// nobody is inside; never less.
    granted: i64,
    /// Room is short: handles are granted what they need, and no more.
    is_short: bool,
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
    pub(crate) closed: u64,
    done: u64,
    /// How often everything was to be written home, and how many of these calls have been answered.
    settle_wanted: u64,
    settled: u64,
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
            waiting: 0,
            large_waiting: 0,
            wanted: 0,
            closed: 0,
            done: 0,
            settle_wanted: 0,
            settled: 0,
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
    /// To commit and write home, for so many calls.
    Settle(u64),
    Close,
    Stop,
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
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
            door: Door::new(limits.blocks),
            running: Running::new(tid),
            cache,
            is_dated: AtomicBool::new(false),
            data: AtomicU64::new(0),
            small_data: PerThread::new(),
            flushes: Flushes::default(),
            halted: AtomicBool::new(false),
            unwritten: OnceLock::new(),
            observer: None,
            limits,
            interval,
            counters,
        };
        shared.door.open(shared.running.number());
        shared
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done so far.
    pub(crate) fn stats(&self) -> Stats {
        self.counters.stats(self.door.visits())
    }

    /// How many handles are open, or about to be.
    pub(crate) fn handles(&self) -> u64 {
        self.door.inside()
    }
}

/// Handles.
impl Shared {
    /// The same, whose first failure `observer` hears of.
    pub(crate) fn observed_by(self, observer: &Arc<dyn Observer>) -> Self {
        Self { observer: Some(Arc::downgrade(observer)), ..self }
    }

    /// See [`Transactions::start`](crate::Transactions::start).
    #[inline]
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>, Error> {
        match self.door.enter(credits) {
            Entered::Inside(number) => Ok(Handle::new(self, number, credits)),
            outside => self.start_locked(credits, outside == Entered::TurnedAway),
        }
    }

    #[cold]
    fn start_locked(&self, credits: u32, was_counted: bool) -> Result<Handle<'_>, Error> {
        let (mut state, mut waited) = (self.state(), false);
        if was_counted {
            self.tell_left(&state);
        }
        // Others must not slip in again and again before an operation that needs a transaction of its own.
        let large = self.limits.size(credits.into(), 0) > self.limits.blocks;
        loop {
            state.check()?;
            if !state.locked && (large || state.large_waiting == 0) && self.admits(&mut state, credits) {
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
        self.door.enter_locked();
        Ok(Handle::new(self, self.running.number(), credits))
    }

    /// Grants so many credits, if the running transaction has room for them. If not, asks for a commit where that helps:
    /// with handles open in a small transaction, it helps more to wait for what they do not use.
    ///
    /// An operation that is larger than a transaction should be gets one of its own.
    fn admits(&self, state: &mut State, credits: u32) -> bool {
        if !state.is_short && self.fill_pool(state, credits) || self.grant_or_all(state, credits) {
            return true;
        }
        // From now on everybody counts exactly.
        state.is_short = true;
        self.door.shut();
        let (changed, revoked) = self.running.counts();
        let nobody = self.door.inside() == 0;
        if nobody {
            // So nobody may change anything, and what lies in pools is void.
            state.granted = i64::try_from(changed).unwrap_or(i64::MAX);
            if self.grant_or_all(state, credits) {
                return true;
            }
        }
        if nobody || self.limits.size(changed, revoked) > self.limits.blocks / 2 {
            self.want_commit(state);
        }
        false
    }

    /// Grants what the operation needs and the thread's pool should have besides.
    fn fill_pool(&self, state: &mut State, credits: u32) -> bool {
        let number = self.running.number();
        let wanted = self.door.wants(number, credits);
        let granted = wanted.filter(|&wanted| self.grant(state, wanted));
        granted.map(|granted| self.door.fill(number, granted, credits)).is_some()
    }

    fn grant(&self, state: &mut State, credits: i64) -> bool {
        let (_, revoked) = self.running.counts();
        let all = u64::try_from(state.granted + credits).unwrap_or(0);
        let fits = self.limits.size(all, revoked) <= self.limits.blocks;
        if fits {
            state.granted += credits;
        }
        fits
    }

    /// Whoever is alone is granted whatever he needs.
    fn grant_or_all(&self, state: &mut State, credits: u32) -> bool {
        if state.granted == 0 {
            state.granted = credits.into();
            return true;
        }
        self.grant(state, credits.into())
    }

    /// See [`Handle::extend`], of a handle on the transaction `number`.
    pub(crate) fn extend(&self, number: u64, credits: u32) -> bool {
        if self.door.take(number, credits) {
            return true;
        }
        let mut state = self.state();
        !state.locked && state.error.is_none() && self.grant(&mut state, credits.into())
    }

    /// A handle is dropped that was open on the transaction `number` and has not used `rest` of its credits.
    #[inline]
    pub(crate) fn stop(&self, number: u64, rest: i64, has_grown: bool, freed: Vec<Range<u64>>) {
        let is_news = !freed.is_empty() || has_grown && self.heeds_growth();
        let left = if is_news { Left::No } else { self.door.leave(number, rest) };
        if left != Left::Quietly {
            self.stop_locked(rest, freed, left == Left::Waited);
        }
    }

    /// Whether somebody has to learn that the transaction has grown.
    fn heeds_growth(&self) -> bool {
        // Relaxed: whoever finds it old takes the lock and looks again.
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
            if state.since.is_none() && (self.running.counts() != (0, 0) || !state.freed.is_empty()) {
                state.since = Some(Instant::now());
                self.is_dated.store(true, Relaxed);
                self.work.notify_all();
            }
            if self.is_full() {
                self.want_commit(&mut state);
            }
            self.door.leave_locked();
        }
        self.tell_left(&state);
    }

    /// Somebody is not inside any more. Wakes those who may have counted him.
    fn tell_left(&self, state: &State) {
        if state.locked {
            self.work.notify_all();
        } else if state.waiting > 0 {
            self.opened.notify_all();
        }
    }
}

/// Commits.
impl Shared {
    pub(crate) fn want_commit(&self, state: &mut State) {
        if state.wanted <= state.closed {
            state.wanted = state.closed + 1;
            self.work.notify_all();
        }
    }

    /// Begins a commit, unless nothing may be changed any more.
    pub(crate) fn begin_sync(&self) {
        let mut state = self.state();
        if state.check().is_ok() {
            self.want_commit(&mut state);
        }
    }

    /// Waits until the commit `target` is through, which is asked for if need be.
    pub(crate) fn wait_done(&self, mut state: MutexGuard<'_, State>, target: u64) -> Result<(), Error> {
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

    /// See [`Transactions::flush`](crate::Transactions::flush).
    pub(crate) fn flush(&self, flush: Flush) -> Result<(), Error> {
        self.flushes.wait(flush, || {
            self.state().check()?;
            self.flush_volume().inspect_err(|error| self.fail(error.clone()))
        })
    }

    /// Flushes the device of the volume.
    pub(crate) fn flush_volume(&self) -> Result<(), Error> {
        Counters::add(&self.counters.flushes, 1);
        Ok(self.cache.device().flush()?)
    }

    /// Has all that was changed committed and written home, and waits for that.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let mut state = self.state();
        state.check()?;
        state.settle_wanted += 1;
        let target = state.settle_wanted;
        self.work.notify_all();
        while state.settled < target {
            state.check()?;
            state = wait(&self.done, state);
        }
        Ok(())
    }

    /// So many calls of `settle` have been answered.
    pub(crate) fn settled(&self, calls: u64) {
        self.state().settled = calls;
        self.done.notify_all();
    }

    /// Lets no handle be opened any more, has all that was changed committed and written home, and waits for that.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut state = self.state();
        if state.end == End::Open {
            state.end = End::Closing;
        }
        self.door.shut();
        self.work.notify_all();
        self.opened.notify_all();
        while state.end != End::Closed && state.error.is_none() {
            state = wait(&self.done, state);
        }
        if state.end == End::Closed { Ok(()) } else { state.error.clone().map_or(Ok(()), Err) }
    }

    /// Waits for something to do. `walking` says that a checkpoint has begun.
    pub(crate) fn next_job(&self, walking: bool) -> Job {
        let mut state = self.state();
        loop {
            if state.error.is_some() {
                return Job::Stop;
            }
            let now = Instant::now();
            let due = state.since.and_then(|since| since.checked_add(self.interval));
            if state.wanted > state.closed || due.is_some_and(|due| due <= now) {
                return Job::Commit;
            }
            if state.settle_wanted > state.settled {
                return Job::Settle(state.settle_wanted);
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
        let mut closed = Closed { tid, changed: changed.collect(), revoked, freed };
        self.open_next(!closed.is_empty());
        // While others go on.
        closed.changed.sort_unstable_by_key(|(pin, _)| pin.number());
        closed.revoked.sort_unstable();
        Ok(closed)
    }

    /// Lets nobody in, and waits until nobody is inside.
    fn lock_running(&self) -> Result<Vec<Range<u64>>, Error> {
        let mut state = self.state();
        state.locked = true;
        self.door.shut();
        while self.door.inside() > 0 {
            self.go_on()?;
            state = wait(&self.work, state);
        }
        // Who gave up did so with his handle open: what he left half done is not looked at any more.
        self.go_on()?;
        Ok(mem::take(&mut state.freed))
    }

    /// Lets everybody in again, to the next transaction unless the last one was empty.
    fn open_next(&self, has_contents: bool) {
        let mut state = self.state();
        state.closed += 1;
        state.wanted = state.wanted.max(state.closed);
        state.since = None;
        // Relaxed: nobody is inside, and who comes in does so after `open`, or takes the lock.
        self.is_dated.store(false, Relaxed);
        state.granted = 0;
        state.locked = false;
        // Those who need all of the room get it now.
        state.is_short = state.large_waiting > 0;
        if has_contents {
            self.running.advance();
        }
        if !state.is_short && state.check().is_ok() {
            self.door.open(self.running.number());
        }
        self.opened.notify_all();
    }

    /// The transaction that was closed last is durable: `tid`, or an empty one.
    pub(crate) fn committed(&self, tid: Option<Tid>, flush: Flush) {
        self.flushes.end(flush);
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
        let mut state = self.state();
        let is_first = state.error.is_none();
        let error = state.error.get_or_insert(error).clone();
        // Not before the reason is there: the committer fails for what it sees here.
        self.halted.store(true, Relaxed);
        self.door.shut();
        drop(state);
        self.opened.notify_all();
        self.work.notify_all();
        self.done.notify_all();
        let is_asked_for = matches!(error, Error::Aborted(_) | Error::Damaged(_));
        let observer = self.observer.as_ref().filter(|_| is_first && !is_asked_for).and_then(Weak::upgrade);
        if let Some(observer) = observer {
            observer.failed(&error);
        }
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
        if self.is_halted() { Err(Error::aborted("it was stopped")) } else { Ok(()) }
    }
}
