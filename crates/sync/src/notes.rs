//! Where threads note what they refer to, in place of counting it.
//!
//! Who counts a reference writes a line that all write who refer to the same. A thread that notes it instead writes a place of its
//! own [desk](Notes); and who wants to know how many references there are looks at all desks. That is for what many refer to again
//! and again, and that few want to know the count of: a file that is opened and closed. (The counts of one owner's thread have been
//! kept apart before: J. Choi, T. Shull and J. Torrellas, "Biased Reference Counting", PACT 2018. Here each thread has its own, and
//! nobody waits for an owner.)
//!
//! # States
//! Whether references to a value may be noted, the value says ([`Noting`]):
//!
//! | from | to | by |
//! | --- | --- | --- |
//! | `COUNTED` | `AGAIN` | the first who asks for a note |
//! | `AGAIN` | `OPENING` | the second, who has a counted reference |
//! | `OPENING` | `OPEN` | the same, with [`LENT`] counted |
//! | `OPEN` | `SHUTTING` | who wants to know the count, and has a counted reference |
//! | `SHUTTING` | `COUNTED` | the same, with `LENT` no longer counted |
//!
//! While `LENT` is part of a count, that is never zero, so the value does not end: the notes keep it in use, without knowing how many
//! they are. `LENT` is taken away only when all of them have been counted.
//!
//! # No reference is lost, nor counted twice
//! 1. Who notes stores the value's address at its desk, and looks at the state after that. Who shuts leaves `OPEN`, and looks at
//!    the desks after that. All four are `SeqCst`, so one of the two sees the other: the note is seen, or it is taken back.
//! 2. Who shuts counts each note that it finds before it marks it as `COUNTED_TOO`, by compare-and-swap. Who takes a note back
//!    does so by an exchange, and learns which of the two came first: a note that was not marked is a reference that was never counted,
//!    and one that was marked is one that is counted.
//! 3. All notes of a value are alike: which of them a mark meets does not matter.
//!
//! A note belongs to a reference, not to a thread: it is taken back on any, also when its thread has ended. A thread finds places of
//! its own desk alone, so nobody else fills the one it has found empty.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | a place, filled | its thread | who shuts | SeqCst, with the state |
//! | a place, emptied | who has the note | who shuts; its thread, before it fills it again | Release, Acquire: the end of the value comes after all that was done by the note |
//! | `OPEN` | who opens | who notes | Release, SeqCst: `LENT` is counted before |
//! | `desks_used` | a thread, before it fills its first place | who shuts | SeqCst, as the place |

use crate::bravo::{LINE_BITS, line_of};
use crate::percpu::Line;
use crate::primitive::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// What a count has in place of those references that are noted.
pub(crate) const LENT: usize = 1 << (usize::BITS / 2);

/// Threads with a desk; the references of others are counted.
const DESKS: usize = if cfg!(feature = "loom") { 3 } else { 63 };
/// Notes of values of like addresses that a desk has room for; those that find none are counted.
const PLACES: usize = if cfg!(feature = "loom") { 2 } else { 8 };
/// Beside the address at a place: it is counted, too. An address has no such bit.
const COUNTED_TOO: u64 = 1;

/// The desks of all threads.
pub(crate) struct Notes {
    /// The lines of each, one desk after the other. The value says which line it is noted on.
    lines: [Line<[AtomicU64; PLACES]>; DESKS << LINE_BITS],
    /// No desk behind these has been used.
    desks_used: AtomicUsize,
}

/// A reference that is noted. It has to be [taken back](Note::take_back).
pub(crate) struct Note(&'static AtomicU64);

/// Whether references to a value may be noted, and are.
#[derive(Debug)]
pub struct Noting(AtomicU32);

const COUNTED: u32 = 0;
const AGAIN: u32 = 1;
const OPENING: u32 = 2;
const OPEN: u32 = 3;
const SHUTTING: u32 = 4;

impl Noting {
    /// They are counted until they are held again and again.
    #[expect(clippy::new_without_default, reason = "made in one place")]
    pub fn new() -> Self {
        Self(AtomicU32::new(COUNTED))
    }

    /// They are noted, if what this says is not old.
    #[inline]
    pub(crate) fn seems_open(&self) -> bool {
        // Relaxed: who notes looks again.
        self.0.load(Ordering::Relaxed) == OPEN
    }

    /// They are noted: for who has just made a note.
    #[inline]
    fn is_open(&self) -> bool {
        // SeqCst: rule 1, and the Acquire that goes with `open`.
        self.0.load(Ordering::SeqCst) == OPEN
    }

    /// Whether the caller, who has a counted reference, has to [open](Self::open) it, after it has counted [`LENT`].
    pub(crate) fn begin_to_open(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            COUNTED => {
                self.step(COUNTED, AGAIN);
                false
            }
            AGAIN => self.step(AGAIN, OPENING),
            _ => false,
        }
    }

    /// From now on references are noted.
    pub(crate) fn open(&self) {
        // Release: who sees it may rely on `LENT`.
        self.0.store(OPEN, Ordering::Release);
    }

    /// Whether the caller, who has a counted reference, has to count the notes and [end](Self::end_shutting) this.
    pub(crate) fn begin_to_shut(&self) -> bool {
        self.seems_open() && self.step(OPEN, SHUTTING)
    }

    /// From now on references are counted.
    pub(crate) fn end_shutting(&self) {
        // Release: who opens again counts `LENT` after it has been taken away.
        self.0.store(COUNTED, Ordering::Release);
    }

    fn step(&self, from: u32, to: u32) -> bool {
        // SeqCst: rule 1. Includes the Acquire that goes with `end_shutting`. Relaxed on failure: nothing is done then.
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

impl Notes {
    /// Notes the value at `address` at the desk of thread `number`, if its references are noted and there is room. Otherwise `Err`:
    /// and whether there is a counted reference now, which is the caller's.
    #[inline]
    pub(crate) fn note(&'static self, number: usize, address: u64, noting: &Noting) -> Result<Note, bool> {
        let Some(place) = self.empty_place(number, address) else { return Err(false) };
        // SeqCst: rule 1. Nobody else fills it.
        place.swap(address, Ordering::SeqCst);
        model_fence();
        let note = Note(place);
        if noting.is_open() { Ok(note) } else { Err(note.take_back()) }
    }

    #[inline]
    fn empty_place(&'static self, number: usize, address: u64) -> Option<&'static AtomicU64> {
        let line = self.lines.get((number << LINE_BITS) + line_of(address))?;
        // Acquire: who emptied it comes before, also to who finds it filled again.
        let place = line.0.iter().find(|place| place.load(Ordering::Acquire) == 0)?;
        // Relaxed: only this thread makes it so high, or one with a higher number.
        if self.desks_used.load(Ordering::Relaxed) <= number {
            // SeqCst: before the note, so that who looks for that looks here.
            self.desks_used.fetch_max(number + 1, Ordering::SeqCst);
        }
        Some(place)
    }

    /// Where the value at `address` is noted.
    fn places(&self, address: u64) -> impl Iterator<Item = &AtomicU64> {
        // SeqCst: rule 1.
        let used = self.desks_used.load(Ordering::SeqCst);
        let lines = self.lines[..used << LINE_BITS].iter().skip(line_of(address)).step_by(1 << LINE_BITS);
        // SeqCst: rule 1. Includes the Acquire that goes with who has emptied a place.
        lines.flat_map(|line| &line.0).filter(move |place| place.load(Ordering::SeqCst) == address)
    }

    /// Whether the value is noted somewhere else than by `mine`: a guess.
    pub(crate) fn has_other(&self, address: u64, mine: Option<&Note>) -> bool {
        let is_mine = |place: &AtomicU64| mine.is_some_and(|note| std::ptr::eq(note.0, place));
        self.places(address).any(|place| !is_mine(place))
    }

    /// Counts each note of the value, which is being shut. `count` is not zero meanwhile.
    pub(crate) fn count_all(&self, address: u64, count: &AtomicUsize) {
        model_fence();
        for place in self.places(address) {
            // Relaxed, both: it is only counted.
            count.fetch_add(1, Ordering::Relaxed);
            let marked = address | COUNTED_TOO;
            // AcqRel on success: what was counted is there for who takes the note back. Acquire on failure: it has been taken back.
            if place.compare_exchange(address, marked, Ordering::AcqRel, Ordering::Acquire).is_err() {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Note {
    /// Whether the reference has been counted, and will not be taken back without that being so.
    pub(crate) fn is_counted(&self) -> bool {
        // Acquire: pairs with who counted it.
        self.0.load(Ordering::Acquire) & COUNTED_TOO != 0
    }

    /// Takes the note back. True if the reference has been counted; otherwise it is none any more.
    #[inline]
    pub(crate) fn take_back(self) -> bool {
        // Release: what was done by the reference comes before the end of the value. Acquire: pairs with who counted it.
        self.0.swap(0, Ordering::AcqRel) & COUNTED_TOO != 0
    }
}

/// Loom takes SeqCst for AcqRel, unless a fence says it.
#[inline(always)]
fn model_fence() {
    if cfg!(feature = "loom") {
        fence(Ordering::SeqCst);
    }
}

/// The desks of the process.
#[cfg(not(feature = "loom"))]
pub(crate) fn notes() -> &'static Notes {
    static OF_PROCESS: Notes = Notes {
        lines: [const { Line([const { AtomicU64::new(0) }; PLACES]) }; DESKS << LINE_BITS],
        desks_used: AtomicUsize::new(0),
    };
    &OF_PROCESS
}

#[cfg(not(feature = "loom"))]
pub(crate) use crate::tally::thread_number;

#[cfg(feature = "loom")]
pub(crate) use model::{notes, thread_number};

/// Desks, and numbers of threads, of each run of a model.
#[cfg(feature = "loom")]
mod model {
    use std::cell::Cell;

    use super::{AtomicU64, AtomicUsize, Line, Notes, Ordering};
    use crate::primitive::{scheduled, thread_local};

    scheduled::lazy_static! {
        static ref OF_MODEL: Notes = Notes {
            lines: std::array::from_fn(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))),
            desks_used: AtomicUsize::new(0),
        };
        static ref THREADS: AtomicUsize = AtomicUsize::new(0);
    }

    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    pub(crate) fn notes() -> &'static Notes {
        &OF_MODEL
    }

    pub(crate) fn thread_number() -> usize {
        NUMBER.with(|number| {
            if number.get() == usize::MAX {
                number.set(THREADS.fetch_add(1, Ordering::Relaxed));
            }
            number.get()
        })
    }
}
