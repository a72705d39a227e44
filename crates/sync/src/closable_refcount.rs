//! How many share something, and who may join them: the one word that decides between the last who leaves and the next who
//! comes.
//!
//! ```text
//!          note (counted in what is stored)      join, leave
//! unknown ─────────────────────────────────▶ open: 0 ... n ─────────┐
//!                      open (made anew, or changed) ▲  │ ▲──────────┘
//!                                                   │  ▼ close by the only one, or by the last when he has left
//!    any ──── renew ──────────────────────────────▶ closed: a new life
//! ```
//!
//! ```text
//! | 16 bits life | 2 bits unknown, open or closed | 14 bits count |
//! ```
//!
//! To join and to leave is to add and to subtract one, whatever the word says: nobody looks at it first, so a CPU that does not have its
//! line asks for that once. What it said is known afterwards:
//!
//! - Who has joined what is open has it, and nobody can close it: he may look now at what is shared, and if it is not what he wanted, leave
//!   as everybody does ([`TryGet::Full`], too: he is one too many). He may be the last then.
//! - Who finds that it was not open has changed nothing that counts. In these states the count is of no meaning; it begins in the middle, so
//!   that it spills over to neither side, and he takes his one back as long as the state is the same, lest there are ever more.
//! - Who leaves and makes it 0 tries to close it. If that fails, others have joined meanwhile: then one of those is the last. Of several who
//!   have made it 0, one closes it, for that begins a new life. So there is one last, and nobody has it when it is closed.
//!
//! A life comes again after 65,536 others: who was about to close it, or to take back his one, would have to stand still for exactly so
//! many, or a multiple, to do it to another.
//!
//! # Orderings
//! `open` and `set` are releases and `try_get` acquires: what was written before the word was opened is seen by who has joined. `try_close`
//! and `put` acquire and release: the last sees all that those who left did. All others are atomic additions in between, which go
//! on with what was released.

use std::fmt;

use crate::primitive::{AtomicU32, Ordering};

/// One life.
const GENERATION: u32 = 1 << 16;
const COUNT: u32 = (1 << 14) - 1;
const STATE: u32 = 3 << 14;
const UNKNOWN: u32 = 0;
const OPEN: u32 = 1 << 14;
const CLOSED: u32 = 3 << 14;
/// Where the count begins while it has no meaning.
const BIAS: u32 = 1 << 13;

/// Who shares something. A new one is unknown. It has a cache line of its own, for who comes and goes writes it, and who only looks at what is
/// shared does not.
#[repr(align(64))]
pub struct ClosableRefcount(AtomicU32);

/// What [`ClosableRefcount::snapshot`] has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot(u32);

impl Snapshot {
    /// Whether their number has been [noted](ClosableRefcount::set), or nobody may join.
    pub fn is_known(self) -> bool {
        self.0 & STATE != UNKNOWN
    }

    /// Whether nobody may join.
    pub fn is_closed(self) -> bool {
        self.0 & STATE == CLOSED
    }
}

/// What came of [`ClosableRefcount::try_get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryGet {
    /// One more, and that is who asked.
    Got,
    /// The same, but as many as may had it already: he has to [leave](ClosableRefcount::put) again.
    Full,
    /// How many have it has to be [noted](ClosableRefcount::set) first.
    Unknown,
    /// Nobody may.
    Closed,
}

/// What came of [`ClosableRefcount::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// So many stay, or one of those who have left at the same time is the last.
    Others(u32),
    /// Nobody stays, and nobody can join: it belongs to who asked.
    Last,
}

impl ClosableRefcount {
    /// Nothing is known yet.
    #[expect(clippy::new_without_default, reason = "made in one place")]
    pub fn new() -> Self {
        Self(AtomicU32::new(UNKNOWN | BIAS))
    }

    /// The word as it is. Who wants to [note](Self::set) something looks at what is stored after this.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// Notes how many share it, as counted in what is stored, if that is not known and it is in the life that was `seen`. Only for counts
    /// below 8192, and what is there and shared.
    pub fn set(&self, seen: Snapshot, stored: u32) {
        if seen.is_known() || !(1..BIAS).contains(&stored) {
            return;
        }
        let mut now = seen.0;
        // If it is something else, somebody has noted the same, or more has happened.
        while is_same(now, seen.0) {
            match self.swap(now, now & !(STATE | COUNT) | OPEN | stored) {
                Ok(()) => return,
                Err(other) => now = other,
            }
        }
    }

    /// Joins those who share it.
    #[inline]
    pub fn try_get(&self, most: u32) -> TryGet {
        let old = self.0.fetch_add(1, Ordering::AcqRel);
        match (old & STATE, old & COUNT) {
            (OPEN, others) if others < most => TryGet::Got,
            (OPEN, _) => TryGet::Full,
            (state, _) => {
                self.undo_get(old);
                if state == UNKNOWN { TryGet::Unknown } else { TryGet::Closed }
            }
        }
    }

    /// Takes one back that does not count.
    #[cold]
    fn undo_get(&self, old: u32) {
        // Relaxed, both: it says nothing about other memory.
        let mut now = self.0.load(Ordering::Relaxed);
        while is_same(now, old) {
            match self.0.compare_exchange(now, now - 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    /// Takes it out of sharing, if who asks is the only one who has it: true if nobody can join any more. Also if he has done so
    /// before.
    pub fn try_close(&self) -> bool {
        let now = self.0.load(Ordering::Acquire);
        match (now & STATE, now & COUNT) {
            (CLOSED, _) => true,
            (OPEN, 1) => self.swap(now, closed(now)).is_ok(),
            _ => false,
        }
    }

    /// Leaves those who share it. Who asks is one of them, and their number has been [noted](Self::set), or he has it to himself since
    /// he has [closed](Self::try_close) it. If what was noted is wrong, and all have left already, he is told that he is the last.
    #[inline]
    pub fn put(&self) -> Put {
        let old = self.0.fetch_sub(1, Ordering::AcqRel);
        match (old & STATE, old & COUNT) {
            (OPEN, 1) => self.close_empty(old - 1),
            (OPEN, count) if count > 1 => Put::Others(count - 1),
            (CLOSED, _) => Put::Last,
            _ => {
                self.reset();
                Put::Last
            }
        }
    }

    /// Closes it if nobody has joined since the last one has left.
    fn close_empty(&self, empty: u32) -> Put {
        match self.swap(empty, closed(empty)) {
            Ok(()) => Put::Last,
            Err(now) if is_same(now, empty) => Put::Others(now & COUNT),
            // Who has joined meanwhile has left again.
            Err(_) => Put::Others(0),
        }
    }

    /// Lets others join: who asks has closed or made it, and has it alone.
    pub fn open(&self) {
        // He alone stores to it while it is closed, but for those who take back what does not count.
        let now = self.0.load(Ordering::Relaxed);
        self.store(now & !(STATE | COUNT) | OPEN | 1);
    }

    /// It is about to become something new, and is closed until it is [opened](Self::open). Nobody has it.
    pub fn reset(&self) {
        let mut now = self.0.load(Ordering::Relaxed);
        while let Err(other) = self.swap(now, closed(now)) {
            now = other;
        }
    }

    /// How many share it, and those who have joined it to look at it; `None` if it is closed or not known.
    pub fn count(&self) -> Option<u32> {
        let now = self.0.load(Ordering::Acquire);
        (now & STATE == OPEN).then_some(now & COUNT)
    }

    /// Stores it, whatever others add meanwhile.
    fn store(&self, word: u32) {
        #[cfg(not(feature = "loom"))]
        self.0.store(word, Ordering::Release);
        // The same, but loom has what others add come after a store, and what it is added to from before that.
        #[cfg(feature = "loom")]
        self.0.swap(word, Ordering::Release);
    }

    fn swap(&self, from: u32, to: u32) -> Result<(), u32> {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

impl fmt::Debug for ClosableRefcount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClosableRefcount").field(&self.count()).finish()
    }
}

/// Closed, in a new life.
fn closed(word: u32) -> u32 {
    (word & !(STATE | COUNT)).wrapping_add(GENERATION) | CLOSED | BIAS
}

/// Whether two are of the same life and state.
fn is_same(word: u32, other: u32) -> bool {
    (word ^ other) & !COUNT == 0
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn of(count: u32) -> ClosableRefcount {
        let refcount = ClosableRefcount::new();
        refcount.set(refcount.snapshot(), count);
        refcount
    }

    #[test]
    fn who_has_joined_is_counted() {
        let refcount = of(1);
        assert_eq!((refcount.try_get(9), refcount.count()), (TryGet::Got, Some(2)));
        assert!(!refcount.try_close(), "another has it");
        assert_eq!(refcount.put(), Put::Others(1));
        assert!(refcount.try_close() && refcount.try_close());
        assert_eq!((refcount.try_get(9), refcount.count()), (TryGet::Closed, None));
        assert_eq!(refcount.put(), Put::Last, "of who has closed it");
        refcount.reset();
        refcount.open();
        assert_eq!(
            (refcount.try_get(9), refcount.put(), refcount.put()),
            (TryGet::Got, Put::Others(1), Put::Last)
        );
    }

    #[test]
    fn there_are_no_more_than_there_may_be() {
        let refcount = of(1023);
        assert_eq!((refcount.try_get(1024), refcount.try_get(1024)), (TryGet::Got, TryGet::Full));
        assert_eq!((refcount.put(), refcount.put()), (Put::Others(1024), Put::Others(1023)));
        assert_eq!((refcount.try_get(1024), refcount.count()), (TryGet::Got, Some(1024)));
    }

    #[test]
    fn what_is_known_is_not_noted_again() {
        let refcount = ClosableRefcount::new();
        let seen = refcount.snapshot();
        assert_eq!((refcount.try_get(9), refcount.try_close()), (TryGet::Unknown, false));
        refcount.set(seen, 3);
        refcount.set(seen, 7);
        refcount.set(refcount.snapshot(), 9);
        assert_eq!(refcount.count(), Some(3));
        refcount.reset();
        refcount.set(refcount.snapshot(), 9);
        assert_eq!((refcount.count(), refcount.try_close()), (None, true));
    }

    #[test]
    fn what_was_seen_of_another_life_is_not_noted() {
        let refcount = ClosableRefcount::new();
        let seen = refcount.snapshot();
        refcount.reset();
        refcount.set(seen, 3);
        assert!(refcount.snapshot().is_closed());
    }

    #[test]
    fn whoever_comes_in_vain_leaves_no_trace() {
        for refcount in [ClosableRefcount::new(), {
            let refcount = of(1);
            refcount.reset();
            refcount
        }] {
            let before = refcount.snapshot();
            for _ in 0..100_000 {
                assert!(matches!(refcount.try_get(9), TryGet::Unknown | TryGet::Closed));
            }
            assert_eq!(refcount.snapshot(), before);
        }
    }

    #[test]
    fn who_does_not_have_it_is_told_to_be_the_last() {
        for refcount in [ClosableRefcount::new(), of(1)] {
            refcount.0.store(refcount.snapshot().0 & !COUNT, Ordering::Relaxed);
            assert_eq!((refcount.put(), refcount.snapshot().is_closed()), (Put::Last, true));
            assert_eq!((refcount.put(), refcount.try_get(9)), (Put::Last, TryGet::Closed));
        }
    }
}
