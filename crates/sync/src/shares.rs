//! How many share something, and who may join them: the one word that decides between the last who leaves and the next who
//! comes.
//!
//! ```text
//!          note (counted in what is stored)        join, leave
//! unknown ─────────────────────────────────▶ 1 ... n ─────────┐
//!                      open (made anew, or changed) ▲ │ ◀──────┘
//!                                                   │ ▼ close, or leave by the last: a new generation
//!    any ──── renew: a new generation ───────────▶ closed
//! ```
//!
//! Who wants to join looks at the word first ([`Shares::look`]), then at what is shared, then joins what he looked at: a
//! [`Seen`] of another generation is refused. So nobody joins what has been changed or given up since he looked, and whoever
//! has joined is counted: nobody else can be the last. Everything is decided by compare-and-swap on this word, so that there is
//! nothing to wait for, and nothing to be undone. A generation comes again after 65,536 lives: who looked would have to stand still
//! for exactly so many, or a multiple, to be let in by mistake.
//!
//! # Orderings
//! `open` and `note` are releases and `look` acquires: what was written before the word was opened is seen by who joins. `close`
//! and `leave` acquire and release: the last sees all that those who left did. A [`Seen`] may be old: what it says is compared
//! with the newest value before it counts.

use std::fmt;

use crate::primitive::{AtomicU32, Ordering};

/// States of the lower half: a count, or one of these.
const UNKNOWN: u32 = 0;
const CLOSED: u32 = 0xffff;
const STATE: u32 = 0xffff;
/// One generation.
const GENERATION: u32 = 1 << 16;

/// Who shares a block, counted in 32 bits. A new one is unknown.
pub struct Shares(AtomicU32);

/// What [`Shares::look`] has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u32);

impl Seen {
    /// Whether their number has been [noted](Shares::note), or nobody may join.
    pub fn is_known(self) -> bool {
        self.0 & STATE != UNKNOWN
    }

    /// Whether nobody may join.
    pub fn is_closed(self) -> bool {
        self.0 & STATE == CLOSED
    }
}

/// What came of [`Shares::join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// One more, and that is who asked.
    Yes,
    /// As many as there may be share it.
    Full,
    /// It is not what was looked at any more.
    Gone,
}

/// What came of [`Shares::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// So many stay.
    Others(u32),
    /// Nobody stays, and nobody can join: it belongs to who asked.
    Last,
}

impl Shares {
    /// Nothing is known yet.
    #[expect(clippy::new_without_default, reason = "made in one place")]
    pub fn new() -> Self {
        Self(AtomicU32::new(UNKNOWN))
    }

    /// The word as it is. Whoever wants to join looks at what is shared after this.
    pub fn look(&self) -> Seen {
        Seen(self.0.load(Ordering::Acquire))
    }

    /// Notes how many share it, as counted in what is stored, if that is not known and nothing has happened since `seen`. Only
    /// for counts below 65535, and what is there and shared.
    pub fn note(&self, seen: Seen, stored: u32) {
        if seen.0 & STATE == UNKNOWN && (1..CLOSED).contains(&stored) {
            // Somebody else has noted the same, if it fails, or more has happened.
            let _ = self.swap(seen.0, seen.0 | stored);
        }
    }

    /// Joins those who share what was looked at, unless they are `most` already.
    pub fn join(&self, seen: Seen, most: u32) -> Joined {
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            let state = now & STATE;
            if now & !STATE != seen.0 & !STATE || state == UNKNOWN || state == CLOSED {
                return Joined::Gone;
            }
            if state >= most {
                return Joined::Full;
            }
            match self.swap(now, now + 1) {
                Ok(()) => return Joined::Yes,
                Err(other) => now = other,
            }
        }
    }

    /// Takes it out of sharing, if who asks is the only one who has it: true if nobody can join any more. Also if he has done so
    /// before.
    pub fn close(&self) -> bool {
        let now = self.0.load(Ordering::Acquire);
        match now & STATE {
            CLOSED => true,
            1 => self.swap(now, closed(now)).is_ok(),
            _ => false,
        }
    }

    /// Leaves those who share it. Who asks is one of them, and their number has been [noted](Self::note).
    pub fn leave(&self) -> Left {
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            let (new, left) = match now & STATE {
                // Without a number, nobody has joined.
                UNKNOWN | 1 => (closed(now), Left::Last),
                CLOSED => return Left::Last,
                state => (now - 1, Left::Others(state - 1)),
            };
            match self.swap(now, new) {
                Ok(()) => return left,
                Err(other) => now = other,
            }
        }
    }

    /// Lets others join: who asks has closed or made it, and has it alone.
    pub fn open(&self) {
        // He alone stores to it while it is closed.
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now & !STATE | 1, Ordering::Release);
    }

    /// It is about to become something new, and is closed until it is [opened](Self::open). Nobody has it.
    pub fn renew(&self) {
        let mut now = self.0.load(Ordering::Relaxed);
        while let Err(other) = self.swap(now, closed(now)) {
            now = other;
        }
    }

    /// How many share it; `None` if it is closed or not known.
    pub fn count(&self) -> Option<u32> {
        match self.0.load(Ordering::Acquire) & STATE {
            UNKNOWN | CLOSED => None,
            count => Some(count),
        }
    }

    fn swap(&self, from: u32, to: u32) -> Result<(), u32> {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shares").field(&self.count()).finish()
    }
}

fn closed(word: u32) -> u32 {
    (word & !STATE).wrapping_add(GENERATION) | CLOSED
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn of(count: u32) -> Shares {
        let shares = Shares::new();
        shares.note(shares.look(), count);
        shares
    }

    #[test]
    fn only_what_was_looked_at_is_joined() {
        let shares = Shares::new();
        assert_eq!((shares.join(shares.look(), 9), shares.close()), (Joined::Gone, false), "not known");
        let seen = shares.look();
        shares.note(seen, 1);
        assert_eq!((shares.join(seen, 9), shares.count()), (Joined::Yes, Some(2)));
        assert!(!shares.close(), "another has it");
        assert_eq!(shares.leave(), Left::Others(1));
        assert!(shares.close() && shares.close());
        assert_eq!((shares.join(seen, 9), shares.join(shares.look(), 9)), (Joined::Gone, Joined::Gone));
        shares.open();
        assert_eq!(shares.join(seen, 9), Joined::Gone, "it may have been changed");
        assert_eq!(shares.join(shares.look(), 9), Joined::Yes);
    }

    #[test]
    fn there_are_no_more_than_there_may_be() {
        let shares = of(1023);
        let seen = shares.look();
        assert_eq!((shares.join(seen, 1024), shares.join(seen, 1024)), (Joined::Yes, Joined::Full));
        assert_eq!((shares.leave(), shares.join(seen, 1024)), (Left::Others(1023), Joined::Yes));
    }

    #[test]
    fn what_is_known_is_not_noted_again() {
        let shares = Shares::new();
        let seen = shares.look();
        shares.note(seen, 3);
        shares.note(seen, 7);
        shares.note(shares.look(), 9);
        assert_eq!(shares.count(), Some(3));
        shares.renew();
        shares.note(shares.look(), 9);
        assert_eq!((shares.count(), shares.leave()), (None, Left::Last));
    }

    #[test]
    fn an_old_look_is_of_no_use_after_many_lives() {
        let shares = of(1);
        let seen = shares.look();
        for _ in 0..1000 {
            assert_eq!(shares.leave(), Left::Last);
            shares.renew();
            assert_eq!(shares.join(seen, 9), Joined::Gone);
            shares.open();
            assert_eq!(shares.join(seen, 9), Joined::Gone);
        }
    }
}
