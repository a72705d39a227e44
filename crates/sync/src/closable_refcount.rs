//! A reference count that can be closed: one word decides between the last user that leaves and the
//! next one that joins.
//!
//! `ext4` counts the inodes that share a block of extended attributes with it; `block` keeps one
//! with each buffer.
//!
//! ```text
//!          set (as counted on disk)            try_get, put
//! unknown ──────────────────────────▶ open: 0 ... n ────────┐
//!              open (new or changed) ▲  │ ▲─────────────────┘
//!                                    │  ▼ try_close by the only user, put by the last one
//!    any ──── reset ──────────────▶ closed: a new generation
//! ```
//!
//! ```text
//! | 16 bits generation | 2 bits unknown, open or closed | 14 bits count |
//! ```
//!
//! `try_get` adds one and `put` subtracts one, whatever the state is. The thread does not load the
//! word first, so a CPU that does not have its line fetches it once. The old value says what
//! happened:
//!
//! 1. If the word was open, the thread has a reference, and no other thread can close it. The
//!    thread may now check what is shared. If it is not what the thread wanted, or the count is
//!    [full](TryGet::Full), it puts the reference like any other. It may be the last one then.
//! 2. If the word was not open, the addition has no effect. The count means nothing in these
//!    states. It starts in the middle of its range, so that it does not overflow to either side.
//!    The thread subtracts its one again while the state is the same, so that the error stays
//!    bounded.
//! 3. A thread whose `put` makes the count 0 tries to close the word. If that fails, other threads
//!    have joined meanwhile, and one of those is the last. If several threads made it 0, one of
//!    them closes it, because closing starts a new generation. So exactly one thread is told that
//!    it is the last, and then no thread has a reference.
//!
//! A generation comes again after 65,536 others. A thread could hit the wrong generation only by a
//! pause before it closes the word or subtracts its one. The pause would have to last for exactly a
//! multiple of that many.
//!
//! # Orderings
//! | operation | ordering | pairs with |
//! | --- | --- | --- |
//! | `open`, `set` | `Release` | `try_get`, `snapshot`, `count` |
//! | `try_get` | `AcqRel` | `open`, `set` |
//! | `put`, `try_close`, `reset` | `AcqRel` | earlier `put`s |
//! | `snapshot`, `count` | `Acquire` | `open`, `set` |
//!
//! So a user sees what was written before the word was opened, and the last user sees all that the
//! others did. All operations in between are atomic read-modify-writes, which continue the release
//! sequence.

use std::fmt;

use crate::primitive::{AtomicU32, Ordering};

/// One generation.
const GENERATION: u32 = 1 << 16;
const COUNT: u32 = (1 << 14) - 1;
const STATE: u32 = 3 << 14;
const UNKNOWN: u32 = 0;
const OPEN: u32 = 1 << 14;
const CLOSED: u32 = 3 << 14;
/// The count of a word that is not open.
const MIDDLE: u32 = 1 << 13;

/// A reference count that can be closed. A new one is unknown. It fills a cache line:
/// users that join and leave write it, and readers of the shared data do not.
#[repr(align(64))]
pub struct ClosableRefcount(AtomicU32);

/// The word at the time of [`ClosableRefcount::snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot(u32);

impl Snapshot {
    /// Returns whether the count has been [set](ClosableRefcount::set) or the word is closed.
    pub fn is_known(self) -> bool {
        self.0 & STATE != UNKNOWN
    }

    /// Returns whether the word is closed.
    pub fn is_closed(self) -> bool {
        self.0 & STATE == CLOSED
    }
}

/// The result of [`ClosableRefcount::try_get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryGet {
    /// The caller has a reference.
    Got,
    /// The caller has a reference, but the count was at its limit: it must
    /// [put](ClosableRefcount::put) the reference again.
    Full,
    /// The caller has none: the count must be [set](ClosableRefcount::set) first.
    Unknown,
    /// The caller has none: the word is closed.
    Closed,
}

/// The result of [`ClosableRefcount::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// This many references stay, or one of the threads that put theirs at the same time is the
    /// last.
    Others(u32),
    /// No reference stays and the word is closed: the shared data belongs to the caller.
    Last,
}

impl ClosableRefcount {
    /// Creates a word that is unknown.
    #[expect(clippy::new_without_default, reason = "made in one place")]
    pub fn new() -> Self {
        Self(AtomicU32::new(UNKNOWN | MIDDLE))
    }

    /// Returns the word. A caller that wants to [set](Self::set) the count reads it from disk after
    /// this.
    pub fn snapshot(&self) -> Snapshot {
        // Acquire: pairs with the Release of `open` and `set`.
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// Opens the word with the count `stored` on disk, if it is unknown and still in the generation
    /// that was `seen`. Only for counts from 1 to 8191, and for data that exists.
    pub fn set(&self, seen: Snapshot, stored: u32) {
        if seen.is_known() || !(1..MIDDLE).contains(&stored) {
            return;
        }
        let mut now = seen.0;
        // Otherwise another thread has set the same count, and may have changed the word since.
        while is_same(now, seen.0) {
            match self.swap(now, now & !(STATE | COUNT) | OPEN | stored) {
                Ok(()) => return,
                Err(other) => now = other,
            }
        }
    }

    /// Takes a reference, if the word is open and has fewer than `most`.
    #[inline]
    pub fn try_get(&self, most: u32) -> TryGet {
        // AcqRel: the Acquire pairs with the Release of `open` and `set`.
        let old = self.0.fetch_add(1, Ordering::AcqRel);
        match (old & STATE, old & COUNT) {
            (OPEN, others) if others < most => TryGet::Got,
            (OPEN, _) => TryGet::Full,
            (state, _) => {
                self.undo_get(old);
                if state == UNKNOWN {
                    TryGet::Unknown
                } else {
                    TryGet::Closed
                }
            }
        }
    }

    /// Undoes the addition of a `try_get` that got no reference.
    #[cold]
    fn undo_get(&self, old: u32) {
        // Relaxed, all: the count of a word that is not open orders no other memory.
        let mut now = self.0.load(Ordering::Relaxed);
        while is_same(now, old) {
            match self
                .0
                .compare_exchange(now, now - 1, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    /// Closes the word if the caller has the only reference. Returns true if the word is closed,
    /// also by an earlier call.
    pub fn try_close(&self) -> bool {
        // Acquire: pairs with the AcqRel of each earlier `put`.
        let now = self.0.load(Ordering::Acquire);
        match (now & STATE, now & COUNT) {
            (CLOSED, _) => true,
            (OPEN, 1) => self.swap(now, closed(now)).is_ok(),
            _ => false,
        }
    }

    /// Drops a reference. The caller has one of a word that is open, or it has
    /// [closed](Self::try_close) the word. If the count on disk was wrong and all references are
    /// gone, the result is [`Put::Last`].
    #[inline]
    pub fn put(&self) -> Put {
        // AcqRel: each `put` pairs with the later ones, so the last user sees all changes.
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

    /// Closes the word unless another thread has joined since the count became 0.
    fn close_empty(&self, empty: u32) -> Put {
        match self.swap(empty, closed(empty)) {
            Ok(()) => Put::Last,
            Err(now) if is_same(now, empty) => Put::Others(now & COUNT),
            // Another thread joined meanwhile, put its reference, and was the last.
            Err(_) => Put::Others(0),
        }
    }

    /// Opens the word with one reference, the caller's. The caller has closed or created it and has
    /// the data alone.
    pub fn open(&self) {
        // Relaxed: only the caller changes the generation and the state of a closed word. A
        // `try_get` that gets no reference changes the count only.
        let now = self.0.load(Ordering::Relaxed);
        self.store(now & !(STATE | COUNT) | OPEN | 1);
    }

    /// Closes the word in a new generation, until it is [opened](Self::open). No thread has a
    /// reference.
    pub fn reset(&self) {
        let mut now = self.0.load(Ordering::Relaxed);
        while let Err(other) = self.swap(now, closed(now)) {
            now = other;
        }
    }

    /// Returns the number of references, including references of threads that only check the data;
    /// `None` if the word is closed or unknown.
    pub fn count(&self) -> Option<u32> {
        // Acquire: pairs with the Release of `open` and `set`.
        let now = self.0.load(Ordering::Acquire);
        (now & STATE == OPEN).then_some(now & COUNT)
    }

    /// Stores the word. An addition that another thread makes at the same time may be lost.
    fn store(&self, word: u32) {
        // Release: pairs with the Acquire of `try_get`, `snapshot` and `count`.
        #[cfg(not(feature = "loom"))]
        self.0.store(word, Ordering::Release);
        // Release: pairs as the store does. Loom may let an addition that follows a plain store
        // read the value from before it. A swap prevents that.
        #[cfg(feature = "loom")]
        self.0.swap(word, Ordering::Release);
    }

    fn swap(&self, from: u32, to: u32) -> Result<(), u32> {
        // AcqRel: the Release pairs with `try_get`, the Acquire with earlier `put`s.
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
}

impl fmt::Debug for ClosableRefcount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClosableRefcount")
            .field(&self.count())
            .finish()
    }
}

/// Returns the word closed in a new generation.
fn closed(word: u32) -> u32 {
    (word & !(STATE | COUNT)).wrapping_add(GENERATION) | CLOSED | MIDDLE
}

/// Returns whether two words have the same generation and state.
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
    fn references_are_counted() {
        let refcount = of(1);
        assert_eq!(
            (refcount.try_get(9), refcount.count()),
            (TryGet::Got, Some(2))
        );
        assert!(!refcount.try_close(), "there is another reference");
        assert_eq!(refcount.put(), Put::Others(1));
        assert!(refcount.try_close() && refcount.try_close());
        assert_eq!(
            (refcount.try_get(9), refcount.count()),
            (TryGet::Closed, None)
        );
        assert_eq!(refcount.put(), Put::Last, "the caller closed it");
        refcount.reset();
        refcount.open();
        assert_eq!(
            (refcount.try_get(9), refcount.put(), refcount.put()),
            (TryGet::Got, Put::Others(1), Put::Last)
        );
    }

    #[test]
    fn a_full_count_is_put_again() {
        let refcount = of(1023);
        assert_eq!(
            (refcount.try_get(1024), refcount.try_get(1024)),
            (TryGet::Got, TryGet::Full)
        );
        assert_eq!(
            (refcount.put(), refcount.put()),
            (Put::Others(1024), Put::Others(1023))
        );
        assert_eq!(
            (refcount.try_get(1024), refcount.count()),
            (TryGet::Got, Some(1024))
        );
    }

    #[test]
    fn a_known_count_is_not_set_again() {
        let refcount = ClosableRefcount::new();
        let seen = refcount.snapshot();
        assert_eq!(
            (refcount.try_get(9), refcount.try_close()),
            (TryGet::Unknown, false)
        );
        refcount.set(seen, 3);
        refcount.set(seen, 7);
        refcount.set(refcount.snapshot(), 9);
        assert_eq!(refcount.count(), Some(3));
        refcount.reset();
        refcount.set(refcount.snapshot(), 9);
        assert_eq!((refcount.count(), refcount.try_close()), (None, true));
    }

    #[test]
    fn a_count_of_an_older_generation_is_not_set() {
        let refcount = ClosableRefcount::new();
        let seen = refcount.snapshot();
        refcount.reset();
        refcount.set(seen, 3);
        assert!(refcount.snapshot().is_closed());
    }

    #[test]
    fn a_failed_try_get_leaves_no_trace() {
        for refcount in [ClosableRefcount::new(), {
            let refcount = of(1);
            refcount.reset();
            refcount
        }] {
            let before = refcount.snapshot();
            for _ in 0..if cfg!(miri) { 100 } else { 100_000 } {
                assert!(matches!(
                    refcount.try_get(9),
                    TryGet::Unknown | TryGet::Closed
                ));
            }
            assert_eq!(refcount.snapshot(), before);
        }
    }

    #[test]
    fn a_put_without_a_reference_is_the_last() {
        for refcount in [ClosableRefcount::new(), of(1)] {
            refcount
                .0
                .store(refcount.snapshot().0 & !COUNT, Ordering::Relaxed);
            assert_eq!(
                (refcount.put(), refcount.snapshot().is_closed()),
                (Put::Last, true)
            );
            assert_eq!(
                (refcount.put(), refcount.try_get(9)),
                (Put::Last, TryGet::Closed)
            );
        }
    }
}
