//! Atomics and locks that record each access. A test can then tell which cache lines an operation
//! loads, stores to and changes by locked instructions.
//!
//! [`atomic`] and [`lock`] are the standard library's types. They record each access with its cache
//! line while [`record`] runs on the thread. `extern4-sync` takes its primitives from here if its
//! feature `audit` is set. Two operations whose footprints have no [`conflicts`] run on two CPUs
//! without waiting for a line that the other one changed. Nothing is timed, so the number of CPUs
//! does not matter.
//!
//! The record holds:
//! 1. Accesses to these atomics and locks, each with its place in the source ([`Access`]). Locking
//!    and unlocking count as one access together. The caller records other locks by
//!    [`note_lock`].
//! 2. No plain loads, such as loads of a name's bytes or of a pointer inside a box. They conflict
//!    with plain stores only. The code makes plain stores only with exclusive access, or to a line
//!    on which it also stores to an atomic. So tests also check the lines that an operation stores
//!    to. A warm operation stores to two: the thread's epoch record and its slot of a counter, each
//!    alone on its lines.
//! 3. No counts of [`std::sync::Arc`], and no [`std::sync::OnceLock`]. The counts are locked
//!    instructions, and [`locked_instructions`] reads each instruction that the CPU executes.
//!
//! Not for production: each access reads a thread-local variable.

#![deny(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;

pub mod atomic;
pub mod lock;
mod pair;
mod step;

pub use pair::{among_sleepers, side_by_side};
pub use step::locked_instructions;

/// Bytes in a cache line.
pub const LINE_BYTES: usize = 64;

/// The number of a cache line: its address divided by [`LINE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(usize);

impl Line {
    /// Returns the line in which a value begins.
    pub fn of<T: ?Sized>(value: &T) -> Self {
        Self(std::ptr::from_ref(value).addr() / LINE_BYTES)
    }
}

/// The kind of an access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A load.
    Load,
    /// A plain store.
    Store,
    /// A read-modify-write, a failing one too. A lock taken is one.
    Rmw,
}

impl Kind {
    /// Returns whether the access needs the line exclusively.
    pub fn writes(self) -> bool {
        self != Self::Load
    }
}

/// One access.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The cache line that was accessed.
    pub line: Line,
    /// The kind of the access.
    pub kind: Kind,
    /// The place in the source that called the method of the atomic or the lock.
    pub site: &'static Location<'static>,
}

/// The numbers of accesses, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Loads of the line, by any thread.
    pub loads: u64,
    /// Stores to the line that are no locked instructions.
    pub stores: u64,
    /// Read-modify-writes: locked instructions, failing ones too. A lock taken is one.
    pub rmws: u64,
}

impl Uses {
    /// Returns whether a store is among them, or an operation that may be one.
    pub fn write(self) -> bool {
        self.stores + self.rmws > 0
    }
}

/// The accesses of an operation to shared memory.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    lines: BTreeMap<Line, Uses>,
    accesses: Vec<Access>,
    full_fences: u64,
}

/// A line that one operation writes and another uses.
#[derive(Clone, Copy, Debug)]
pub struct Conflict {
    /// The line.
    pub line: Line,
    /// The accesses of the two operations to it.
    pub uses: [Uses; 2],
}

impl Footprint {
    /// Returns the footprint of these accesses.
    fn of(accesses: Vec<Access>, full_fences: u64) -> Self {
        let mut lines = BTreeMap::<Line, Uses>::new();
        for access in &accesses {
            let uses = lines.entry(access.line).or_default();
            match access.kind {
                Kind::Load => uses.loads += 1,
                Kind::Store => uses.stores += 1,
                Kind::Rmw => uses.rmws += 1,
            }
        }
        Self {
            lines,
            accesses,
            full_fences,
        }
    }

    /// Returns the accesses to a line.
    pub fn accesses(&self, line: Line) -> impl Iterator<Item = &Access> {
        self.accesses
            .iter()
            .filter(move |access| access.line == line)
    }

    /// Returns the lines, and the accesses to each.
    pub fn lines(&self) -> impl Iterator<Item = (Line, Uses)> {
        self.lines.iter().map(|(&line, &uses)| (line, uses))
    }

    /// Returns the accesses to a line.
    pub fn uses(&self, line: Line) -> Uses {
        self.lines.get(&line).copied().unwrap_or_default()
    }

    /// Returns the lines that were written.
    pub fn written(&self) -> impl Iterator<Item = Line> {
        self.lines()
            .filter(|(_, uses)| uses.write())
            .map(|(line, _)| line)
    }

    /// Returns the sum of all accesses.
    pub fn total(&self) -> Uses {
        self.lines.values().fold(Uses::default(), |sum, uses| Uses {
            loads: sum.loads + uses.loads,
            stores: sum.stores + uses.stores,
            rmws: sum.rmws + uses.rmws,
        })
    }

    /// Returns the number of sequentially consistent fences, each of which costs as much as a
    /// locked instruction.
    pub fn full_fences(&self) -> u64 {
        self.full_fences
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let lines = self.lines.len();
        let written = self.written().count();
        write!(f, "{lines} lines, {written} of them written: ")?;
        write!(
            f,
            "{} loads, {} stores, {} rmws, {} fences",
            total.loads, total.stores, total.rmws, self.full_fences
        )
    }
}

/// Returns the lines that one of two operations writes and the other uses. If there is none, the
/// operations do not slow each other down when two threads run them at the same time.
pub fn conflicts(one: &Footprint, other: &Footprint) -> Vec<Conflict> {
    let both = one.lines().map(|(line, uses)| Conflict {
        line,
        uses: [uses, other.uses(line)],
    });
    let clash = |[one, other]: [Uses; 2]| {
        one.write() && other != Uses::default() || other.write() && one != Uses::default()
    };
    both.filter(|conflict| clash(conflict.uses)).collect()
}

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(false) };
    static SO_FAR: RefCell<Vec<Access>> = const { RefCell::new(Vec::new()) };
    static FULL_FENCES: Cell<u64> = const { Cell::new(0) };
}

/// Runs `act`, and returns its result and its accesses to shared memory on this thread. The
/// recording allocates, so tests count allocations in a separate run.
pub fn record<R>(act: impl FnOnce() -> R) -> (R, Footprint) {
    /// Ends the recording, also if `act` panics.
    struct Recording;
    impl Drop for Recording {
        fn drop(&mut self) {
            RECORDING.set(false);
        }
    }
    // Large enough for most operations, so that the recording itself rarely calls the allocator.
    SO_FAR.replace(Vec::with_capacity(4096));
    FULL_FENCES.set(0);
    RECORDING.set(true);
    let recording = Recording;
    let result = act();
    drop(recording);
    (result, Footprint::of(SO_FAR.take(), FULL_FENCES.get()))
}

/// Records that the thread takes a lock that is not of this crate: a locked instruction on the
/// lock's line.
#[track_caller]
pub fn note_lock<T: ?Sized>(lock: &T) {
    note(lock, Kind::Rmw);
}

/// Records an access to `at`.
#[inline]
#[track_caller]
fn note<T: ?Sized>(at: &T, kind: Kind) {
    if RECORDING.get() {
        let access = Access {
            line: Line::of(at),
            kind,
            site: Location::caller(),
        };
        // A thread that is ending records nothing any more.
        let _ = SO_FAR.try_with(|so_far| so_far.borrow_mut().push(access));
    }
}

fn note_full_fence() {
    if RECORDING.get() {
        FULL_FENCES.set(FULL_FENCES.get() + 1);
    }
}
