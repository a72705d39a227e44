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
//! | `COUNTED` | `OPENING` | who has a counted reference, after it has been asked for often |
//! | `OPENING` | `OPEN` | the same, with [`LENT`] counted |
//! | `OPEN` | `SHUTTING` | who wants to know the count, and has a counted reference |
//! | `SHUTTING` | `COUNTED` | the same, with `LENT` no longer counted |
//!
//! To shut costs a barrier that all threads execute, a microsecond or two, as for locks ([`bravo`](crate::bravo)); so a value is opened
//! only after [`OFTEN`] have asked.
//!
//! While `LENT` is part of a count, that is never zero, so the value does not end: the notes keep it in use, without knowing how many
//! they are. `LENT` is taken away only when all of them have been counted.
//!
//! # No reference is lost, nor counted twice
//! 1. Who notes stores the value's address at its desk, executes LIGHT, and looks at the state. Who shuts leaves `OPEN`, executes
//!    HEAVY, and looks at the desks ([`asymmetric`](crate::asymmetric)). So one of the two sees the other: the note is seen, or it is
//!    taken back.
//! 2. Who shuts counts each note that it finds before it marks it as `COUNTED_TOO`, by compare-and-swap. Who takes a note back
//!    does so by one, too, and so learns which of the two came first: a note that was not marked is a reference that was never
//!    counted, and one that was marked is one that is counted.
//! 3. All notes of a value are alike. Who drops a reference that is noted takes back any of them, at his own desk if there is one: there
//!    are as many as there are such references, so he finds one, if not at once, because others have taken what he saw, then when he looks
//!    again. So a reference need not remember its place, and may be dropped on any thread, also when its own has ended.
//! 4. Who has noted in vain, by rule 1, takes back what he has noted himself; any other only if that is gone, for then another has left
//!    his. Once a value is shut, notes that are not marked are of such threads, and count for nothing. If one of them took a marked note, and
//!    left his own, the reference that the marked one was of would be left with that: one of its own thread, say, which holds the value twice.
//!    The value would end while it is in use.
//! 5. Only its own thread fills a place of a desk.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | a place, filled | its thread | who shuts | Release, Acquire; with the state, by the barriers |
//! | a place, emptied | who drops a reference | who shuts; its thread, before it fills it again | Release, Acquire: the end of the value comes after all that was done by the note |
//! | `OPEN` | who opens | who notes | Release, Acquire: `LENT` is counted before |
//! | `asked` | whoever asks | the same | Relaxed: a value that is lost is one that is opened later |
//! | `desks_used` | a thread, before it fills its first place | who shuts | Relaxed: by the barriers, as the place |

use crate::asymmetric::{announce, heavy, seen};
use crate::bravo::{LINE_BITS, line_of};
use crate::percpu::Line;
use crate::primitive::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Threads with a desk; others count their references.
const DESKS: usize = if cfg!(feature = "loom") { 3 } else { 64 };

/// What a count has in place of those references that are noted.
pub(crate) const LENT: usize = 1 << (usize::BITS / 2);

/// Notes of values of like addresses that a desk has room for. References that find none are counted, as are those of threads without a
/// desk.
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

/// Whether references to a value may be noted, and are.
#[derive(Debug)]
pub struct Noting(AtomicU32);

const COUNTED: u32 = 0;
const OPENING: u32 = 1;
const OPEN: u32 = 2;
const SHUTTING: u32 = 3;

/// So many have to ask; few in models.
const OFTEN: u32 = if cfg!(feature = "loom") { 1 } else { 15 };

impl Noting {
    /// They are counted until they are held again and again.
    #[expect(clippy::new_without_default, reason = "made in one place")]
    pub fn new() -> Self {
        Self(AtomicU32::new(COUNTED))
    }

    /// They are noted, if what this says is not old. For who notes it is not, after LIGHT.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        // Acquire: pairs with `open`.
        self.0.load(Ordering::Acquire) == OPEN
    }

    /// Whether the caller, who has a counted reference, has to [open](Self::open) it, after it has counted [`LENT`]. `asked` says how often that
    /// has been asked.
    pub(crate) fn begin_to_open(&self, asked: &AtomicU32) -> bool {
        // Relaxed, all: it decides when to open, and guards nothing.
        let times = asked.load(Ordering::Relaxed);
        if times < OFTEN {
            asked.store(times + 1, Ordering::Relaxed);
            return false;
        }
        let opens = self.0.load(Ordering::Relaxed) == COUNTED && self.step(COUNTED, OPENING);
        if opens {
            // For when it has been shut.
            asked.store(0, Ordering::Relaxed);
        }
        opens
    }

    /// From now on references are noted.
    pub(crate) fn open(&self) {
        // Release: who sees it may rely on `LENT`.
        self.0.store(OPEN, Ordering::Release);
    }

    /// Whether the caller, who has a counted reference, has to count the notes and [end](Self::end_shutting) this.
    pub(crate) fn begin_to_shut(&self) -> bool {
        self.is_open() && self.step(OPEN, SHUTTING)
    }

    /// From now on references are counted.
    pub(crate) fn end_shutting(&self) {
        // Release: who opens again counts `LENT` after it has been taken away.
        self.0.store(COUNTED, Ordering::Release);
    }

    fn step(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with `end_shutting` and `open`. Relaxed on failure: nothing is done then.
        self.0.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// A note that was taken back, or was not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// It was a reference, and is none any more.
    Gone,
    /// The reference has been counted.
    Counted,
}

impl Notes {
    /// Notes the value at `address` at the desk of thread `number`, if its references are noted and there is room. Otherwise `Err`:
    /// if that is `Counted`, the caller has a reference that is counted.
    #[inline]
    pub(crate) fn note(&self, number: usize, address: u64, noting: &Noting) -> Result<(), Back> {
        let place = self.empty_place(number, address).ok_or(Back::Gone)?;
        announce(place, address);
        if noting.is_open() { Ok(()) } else { Err(self.withdraw(place, address)) }
    }

    /// Takes back what was noted in vain at this place; another note if somebody has taken that one.
    #[cold]
    fn withdraw(&self, place: &AtomicU64, address: u64) -> Back {
        // Relaxed: only this thread fills it. Looked at again as long as the note is there: it may have been counted meanwhile.
        while place.load(Ordering::Relaxed) & !COUNTED_TOO == address {
            if let Some(back) = empty(place, address) {
                return back;
            }
        }
        self.take_back_elsewhere(address)
    }

    #[inline]
    fn empty_place(&self, number: usize, address: u64) -> Option<&AtomicU64> {
        // Acquire: who emptied it comes before, also to who finds it filled again.
        let place =
            self.own_line(number, address)?.iter().find(|place| place.load(Ordering::Acquire) == 0)?;
        // Relaxed: only this thread makes it so high, or one with a higher number.
        if self.desks_used.load(Ordering::Relaxed) <= number {
            // Relaxed: ordered by LIGHT, as the note.
            self.desks_used.fetch_max(number + 1, Ordering::Relaxed);
        }
        Some(place)
    }

    /// Takes a note of the value back, on thread `number`. There is one for the caller.
    #[inline]
    pub(crate) fn take_back(&self, number: usize, address: u64) -> Back {
        let own =
            self.own_line(number, address).into_iter().flatten().find_map(|place| empty(place, address));
        own.unwrap_or_else(|| self.take_back_elsewhere(address))
    }

    #[cold]
    fn take_back_elsewhere(&self, address: u64) -> Back {
        loop {
            if let Some(back) = self.lines(address).flatten().find_map(|place| empty(place, address)) {
                return back;
            }
        }
    }

    /// How many references to the value are noted and not counted: a guess.
    pub(crate) fn len(&self, address: u64) -> usize {
        // Relaxed: a guess.
        self.lines(address).flatten().filter(|place| place.load(Ordering::Relaxed) == address).count()
    }

    /// Counts each note of the value, which is being shut. `count` is not zero meanwhile.
    pub(crate) fn count_all(&self, address: u64, count: &AtomicUsize) {
        while !heavy() {
            // Want of memory, which passes.
            std::thread::yield_now();
        }
        for place in self.lines(address).flatten().filter(|place| seen(place) == address) {
            // Relaxed, both: it is only counted.
            count.fetch_add(1, Ordering::Relaxed);
            let marked = address | COUNTED_TOO;
            // AcqRel on success: what was counted is there for who takes the note back. Acquire on failure: it has been taken back.
            if place.compare_exchange(address, marked, Ordering::AcqRel, Ordering::Acquire).is_err() {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn own_line(&self, number: usize, address: u64) -> Option<&[AtomicU64; PLACES]> {
        Some(&self.lines.get((number << LINE_BITS) + line_of(address))?.0)
    }

    /// The lines that the value may be noted on.
    fn lines(&self, address: u64) -> impl Iterator<Item = &[AtomicU64; PLACES]> {
        // Relaxed: after HEAVY, where that matters.
        let used = self.desks_used.load(Ordering::Relaxed);
        let lines = self.lines[..used << LINE_BITS].iter();
        lines.skip(line_of(address)).step_by(1 << LINE_BITS).map(|line| &line.0)
    }
}

/// Takes back the note at this place, if it is of the value.
#[inline]
fn empty(place: &AtomicU64, address: u64) -> Option<Back> {
    // Relaxed: looked at again.
    let note = place.load(Ordering::Relaxed);
    if note & !COUNTED_TOO != address {
        return None;
    }
    // Release: what was done by the reference comes before the end of the value. Acquire: pairs with who counted it. Relaxed on failure:
    // another is taken.
    place.compare_exchange(note, 0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    Some(if note == address { Back::Gone } else { Back::Counted })
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
pub(crate) use crate::thread_slots::thread_number;

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
