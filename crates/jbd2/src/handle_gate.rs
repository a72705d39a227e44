//! The handle admission gate: opens and drops handles without a lock while the log has plenty of
//! room.
//!
//! `journal_state` calls it for every handle. No handle enters a closed transaction, and no
//! transaction is granted more credits than the log has room for.
//!
//! A handle counts itself in and out on its thread's cache line ([`ThreadRefcount`]). It
//! takes its credits from a pool that no other thread sees ([`PerThread`]). So handles of different
//! threads write no memory in common. All else happens under the lock of `journal_state`: closing a
//! transaction, filling a pool, and every admission once the log runs short of room.
//!
//! # The word `open`
//! `open` holds the number of the running transaction while handles may enter without the lock. It
//! holds 0 while they must take the lock. That is so while a commit closes the transaction or an
//! operation waits for room, and after an error has stopped all changes. Threads write it under the
//! lock, and no number is ever used twice.
//!
//! # Which handle belongs to which transaction
//! 1. A starting handle loads `open`, increments its thread's count, and loads `open` again. If the
//!    number has not changed, the handle is inside and belongs to that transaction. Otherwise it
//!    leaves and takes the lock.
//! 2. The thread that closes the transaction (the closer) sets `open` to 0 and counts until the
//!    count is 0. By the handshake of [`ThreadRefcount`], either its count includes an entering
//!    handle, or that handle finds `open` changed. So a handle that the closer does not wait for is
//!    not part of the transaction. With the lock held, no handle enters any other way.
//! 3. A count of zero is exact ([`ThreadRefcount::count`]). A handle leaves with `Release` after
//!    its last change, and the closer counts with `Acquire`. So the closer sees all changes, no
//!    handle makes another, and a snapshot is complete.
//! 4. An entering handle has credits of the transaction with that number. Its thread took them
//!    under the lock after the transaction was opened, so it sees the emptied transaction and its
//!    `tid`. So `open` itself needs no ordering but that of the handshake.
//! 5. A leaving handle loads `open` after it has left. By the same handshake, either the closer's
//!    count no longer includes the handle, or the handle sees that the gate is shut. In the second
//!    case it takes the lock and wakes the closer. The closer holds the lock while it counts and
//!    until it waits.
//!
//! # Credits
//! `State::granted`, under the lock, is the number of credits granted in this transaction. It is
//! the sum of three parts: blocks that handles have changed, blocks that open handles may still
//! change, and credits in pools. A handle that is the first to change a block moves one credit from
//! the second part to the first. A dropped handle returns its unused credits to a pool. Neither
//! changes the sum, so only a grant is checked against the limit.
//!
//! When room runs short, `open` becomes 0 for the rest of the transaction. From then on each handle
//! takes its credits from the grant and returns them, under the lock. Credits in pools are
//! reclaimed once no handle is inside: `granted` is then the number of changed blocks. Pools lose
//! their credits when the transaction's number changes.

use std::cell::Cell;

use extern4_sync::per_thread::PerThread;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, Ordering, capacity, thread};
use extern4_sync::thread_refcount::ThreadRefcount;

/// The value of `open` while handles must take the lock.
const SHUT: u64 = 0;

/// The divisors of a transaction's room. The largest operation that pools serve takes 1/`LARGEST`
/// of it, and the spare credits of a pool are 1/`SPARE` of it. All threads with pools may hold
/// spare credits at the same time.
const LARGEST: i64 = capacity(8, 2);
const SPARE: i64 = capacity(64, 4);

/// The gate through which handles enter and leave the running transaction; the module describes the
/// protocol.
pub(crate) struct HandleGate {
    /// The number of the transaction that handles may enter without the lock, or [`SHUT`].
    open: Padded<AtomicU64>,
    holders: ThreadRefcount,
    pools: PerThread<Pool>,
    /// Handles that entered as the gate was being shut. The count of entered handles includes them,
    /// but they were never inside.
    turned_away: AtomicU64,
    /// The most credits that an operation takes from a pool, and the spare credits that a grant
    /// adds to the pool.
    largest: i64,
    spare: i64,
}

/// Credits that a thread has for its next handles.
#[derive(Default)]
struct Pool {
    /// The number of the transaction that the credits belong to.
    number: Cell<u64>,
    credits: Cell<i64>,
}

impl Pool {
    /// Returns the pool's credits of the transaction `number`.
    #[inline]
    fn credits_of(&self, number: u64) -> i64 {
        if self.number.get() == number {
            self.credits.get()
        } else {
            0
        }
    }

    /// Adds credits of the transaction `number`; drops credits of an earlier transaction.
    #[inline]
    fn put(&self, number: u64, credits: i64) {
        self.credits.set(self.credits_of(number) + credits);
        self.number.set(number);
    }
}

/// The result of [`HandleGate::enter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The handle is inside the transaction of this number, with its credits.
    Inside(u64),
    /// The handle is outside, and its thread takes the lock.
    No,
    /// The handle is outside, and its thread takes the lock. A closer may have counted the handle
    /// meanwhile, and may wait for it to leave.
    TurnedAway,
}

/// The result of [`HandleGate::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The handle has left, and no thread waits for that.
    Quietly,
    /// The handle has left, and a closer may be waiting for that.
    Waited,
    /// The handle is still inside: its thread takes the lock.
    No,
}

impl HandleGate {
    /// Returns a gate that is shut, into transactions of `blocks` blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        Self {
            open: Padded(AtomicU64::new(SHUT)),
            holders: ThreadRefcount::new(),
            pools: PerThread::new(),
            turned_away: AtomicU64::new(0),
            largest: blocks / LARGEST,
            spare: blocks / SPARE,
        }
    }

    /// Enters, if `open` and the thread's pool allow it.
    #[inline]
    pub(crate) fn enter(&self, credits: u32) -> Entered {
        // Relaxed: the handle loads it again below.
        let number = self.open.load(Ordering::Relaxed);
        let credits = i64::from(credits);
        let entered = self.pools.with(|pool| {
            if number == SHUT || pool.credits_of(number) < credits {
                return Entered::No;
            }
            self.holders.enter();
            // Relaxed: rules 2 and 4.
            if self.open.load(Ordering::Relaxed) == number {
                pool.put(number, -credits);
                return Entered::Inside(number);
            }
            self.turn_away()
        });
        entered.unwrap_or(Entered::No)
    }

    #[cold]
    fn turn_away(&self) -> Entered {
        self.holders.exit();
        // Relaxed: a count.
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        Entered::TurnedAway
    }

    /// Takes more credits, for a handle on the transaction `number`.
    pub(crate) fn take(&self, number: u64, credits: u32) -> bool {
        let credits = i64::from(credits);
        // Relaxed: a commit that has just begun waits for the handle in any case.
        let is_open = self.open.load(Ordering::Relaxed) == number;
        let taken = self.pools.with(|pool| {
            let takes = is_open && pool.credits_of(number) >= credits;
            if takes {
                pool.put(number, -credits);
            }
            takes
        });
        taken.unwrap_or(false)
    }

    /// Leaves the transaction `number` and puts `rest` credits into the thread's pool, if that has
    /// room. A negative `rest`, of a handle that changed more than it declared, takes credits out.
    #[inline]
    pub(crate) fn leave(&self, number: u64, rest: i64) -> Left {
        // Relaxed: the handle loads it again below.
        let is_open = || self.open.load(Ordering::Relaxed) == number;
        let left = self.pools.with(|pool| {
            let has_room =
                (0..=self.largest + self.spare).contains(&(pool.credits_of(number) + rest));
            if !is_open() || !has_room {
                return Left::No;
            }
            pool.put(number, rest);
            self.holders.exit();
            // Rule 5.
            if is_open() {
                Left::Quietly
            } else {
                Left::Waited
            }
        });
        left.unwrap_or(Left::No)
    }
}

/// Operations with the lock held.
impl HandleGate {
    /// Returns how many credits to grant so that the thread has `credits` and its pool has the
    /// spare ones. `None` if the thread has no pool, or if the operation is too large for it.
    pub(crate) fn wants(&self, number: u64, credits: u32) -> Option<i64> {
        let credits = i64::from(credits);
        let pooled = self.pools.with(|pool| pool.credits_of(number))?;
        (credits <= self.largest).then_some(credits + self.spare - pooled)
    }

    /// Puts the `granted` credits into the pool, less the `credits` that the operation takes.
    pub(crate) fn fill(&self, number: u64, granted: i64, credits: u32) {
        self.pools
            .with(|pool| pool.put(number, granted - i64::from(credits)));
    }

    /// Enters, whatever `open` is.
    pub(crate) fn enter_locked(&self) {
        self.holders.enter();
    }

    /// Leaves. The caller wakes the threads that wait for that.
    pub(crate) fn leave_locked(&self) {
        self.holders.exit();
    }

    /// Opens the gate to the transaction `number`.
    pub(crate) fn open(&self, number: u64) {
        // Relaxed: rule 4.
        self.open.store(number, Ordering::Relaxed);
    }

    /// Shuts the gate: handles enter only with the lock held.
    pub(crate) fn shut(&self) {
        // Relaxed: the handshake of `ThreadRefcount` orders it, in `inside`.
        self.open.store(SHUT, Ordering::Relaxed);
    }

    /// Returns how many handles are inside or being turned away: at least as many as at some moment
    /// of this call.
    pub(crate) fn inside(&self) -> u64 {
        loop {
            match self.holders.count() {
                Some(count) => return count,
                // The system has no memory for the barrier at this moment.
                None => thread::yield_now(),
            }
        }
    }

    /// Returns how many handles have been inside so far. Needs no lock.
    pub(crate) fn visits(&self) -> u64 {
        self.holders
            .entered()
            .saturating_sub(self.turned_away.load(Ordering::Relaxed))
    }
}
