//! The way into the running transaction, which takes no lock as long as there is plenty of room in the log.
//!
//! Who comes and goes counts itself on a line of its own thread ([`ThreadRefcount`]), and takes the
//! credits that it needs from a pool that no other thread sees ([`PerThread`]). So handles of
//! different threads write nothing in common. All else happens under the lock of `shared`: closing
//! a transaction, filling a pool, and everything once the log's room becomes short.
//!
//! # The word `open`
//! It holds the number of the running transaction while anybody may walk in, and 0 while the lock has to be taken: a commit
//! closes the transaction, an operation waits for room, or nothing may be changed any more. It is written under the lock, and
//! no number comes again.
//!
//! # Who belongs to which transaction
//! 1. Who comes looks at `open`, enters the count, and looks again. If there is the same number, he is inside, and part of
//!    that transaction. Otherwise he leaves and takes the lock.
//! 2. Who closes the transaction sets `open` to 0 and counts until nobody is inside. By the
//!    handshake of [`ThreadRefcount`], either the count has who entered, or he finds `open`
//!    changed: so who is not waited for is not part of it. With the lock held, nobody comes in
//!    otherwise.
//! 3. A count of zero is true ([`ThreadRefcount::count`]), and who leaves does so by `Release`
//!    after his last change; so the closer, who counts by `Acquire`, sees all of them, and none is
//!    made any more: a snapshot is whole.
//! 4. Who comes has credits of the transaction of that number, which his thread took under the lock after it had been opened: so he
//!    finds it empty, and its `tid`, and what `open` orders is what follows from the handshake.
//! 5. Who leaves looks at `open` after that. By the same handshake, either a count does not have him, or he sees that it has
//!    been shut, takes the lock and wakes those who count. They count with the lock held until they wait.
//!
//! # Credits
//! Under the lock stands how many credits have been granted in this transaction (`State::granted`). They are, together:
//! blocks that have been changed, what handles may still change, and what lies in pools. A block that a handle is the first to change
//! moves one from the second to the first, what is left goes to a pool when it is dropped. None of this changes the sum,
//! so nothing but a grant has to be held against the limit. When the room becomes short, `open` is set to 0 for the rest of the
//! transaction; from then on each handle takes its credits from the grant and gives them back, under the lock, and what
//! lies in pools is found again as soon as nobody is inside: then what has been granted is what has been changed. Pools are void with
//! the number of their transaction.

use std::cell::Cell;

use extern4_sync::per_thread::PerThread;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, Ordering, capacity, thread};
use extern4_sync::thread_refcount::ThreadRefcount;

/// Nobody may walk in.
const SHUT: u64 = 0;

/// A transaction has room for so many of the largest operations that are served from pools, and for so many times what is put into a
/// pool besides: all threads with pools may have that at once.
const LARGEST: i64 = capacity(8, 2);
const SPARE: i64 = capacity(64, 4);

/// See the module.
pub(crate) struct Door {
    /// The number of the transaction that is open to everybody, or [`SHUT`].
    open: Padded<AtomicU64>,
    holders: ThreadRefcount,
    pools: PerThread<Pool>,
    /// Those who came as it was shut. They are in the count of who entered, but never were inside.
    turned_away: AtomicU64,
    /// Credits that an operation takes from a pool at most, and those that are put there besides.
    largest: i64,
    spare: i64,
}

/// Credits that a thread has for its next handles.
#[derive(Default)]
struct Pool {
    /// Of which transaction.
    number: Cell<u64>,
    credits: Cell<i64>,
}

impl Pool {
    /// Those for the transaction `number`.
    #[inline]
    fn credits_of(&self, number: u64) -> i64 {
        if self.number.get() == number { self.credits.get() } else { 0 }
    }

    /// Adds to those.
    #[inline]
    fn put(&self, number: u64, credits: i64) {
        self.credits.set(self.credits_of(number) + credits);
        self.number.set(number);
    }
}

/// What came of [`Door::enter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// Inside the transaction of this number, with credits.
    Inside(u64),
    /// It takes the lock.
    No,
    /// The same, and somebody may have counted him meanwhile, and waits for him to leave.
    TurnedAway,
}

/// What came of [`Door::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nobody needs to know.
    Quietly,
    /// Somebody may wait for that.
    Waited,
    /// Still inside: it takes the lock.
    No,
}

impl Door {
    /// A door that is shut, into transactions of so many blocks.
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

    /// Comes in, if `open` and the thread's pool allow it.
    #[inline]
    pub(crate) fn enter(&self, credits: u32) -> Entered {
        // Relaxed: it is looked at again.
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

    /// Takes credits besides, for a handle on the transaction `number`.
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

    /// Leaves the transaction `number` and puts `rest` credits into the thread's pool, if that has room: or takes them out, after
    /// a handle that has changed more than it said.
    #[inline]
    pub(crate) fn leave(&self, number: u64, rest: i64) -> Left {
        // Relaxed: it is looked at again.
        let is_open = || self.open.load(Ordering::Relaxed) == number;
        let left = self.pools.with(|pool| {
            let has_room = (0..=self.largest + self.spare).contains(&(pool.credits_of(number) + rest));
            if !is_open() || !has_room {
                return Left::No;
            }
            pool.put(number, rest);
            self.holders.exit();
            // Rule 5.
            if is_open() { Left::Quietly } else { Left::Waited }
        });
        left.unwrap_or(Left::No)
    }
}

/// With the lock held.
impl Door {
    /// What has to be granted so that the thread has these credits, and some besides in its pool. None if it has no pool, or
    /// the operation is too large for it.
    pub(crate) fn wants(&self, number: u64, credits: u32) -> Option<i64> {
        let credits = i64::from(credits);
        let pooled = self.pools.with(|pool| pool.credits_of(number))?;
        (credits <= self.largest).then_some(credits + self.spare - pooled)
    }

    /// Puts what was granted for that into the pool, but for what the operation takes.
    pub(crate) fn fill(&self, number: u64, granted: i64, credits: u32) {
        self.pools.with(|pool| pool.put(number, granted - i64::from(credits)));
    }

    /// Comes in, whatever `open` is.
    pub(crate) fn enter_locked(&self) {
        self.holders.enter();
    }

    /// Leaves. The caller wakes whoever waits for that.
    pub(crate) fn leave_locked(&self) {
        self.holders.exit();
    }

    /// Lets everybody in, to the transaction `number`.
    pub(crate) fn open(&self, number: u64) {
        // Relaxed: rule 4.
        self.open.store(number, Ordering::Relaxed);
    }

    /// Lets nobody in who does not take the lock.
    pub(crate) fn shut(&self) {
        // Relaxed: the handshake of `ThreadRefcount` orders it, in `inside`.
        self.open.store(SHUT, Ordering::Relaxed);
    }

    /// How many are inside, or are being turned away: no fewer than there were at some moment of this call.
    pub(crate) fn inside(&self) -> u64 {
        loop {
            match self.holders.count() {
                Some(count) => return count,
                // There is no memory for the barrier, at this moment.
                None => thread::yield_now(),
            }
        }
    }

    /// How many have been inside so far. Needs no lock.
    pub(crate) fn visits(&self) -> u64 {
        self.holders.entered().saturating_sub(self.turned_away.load(Ordering::Relaxed))
    }
}
