//! Recordings: the accesses of an operation to cache lines, in order.
//!
//! `access_counts` makes them from the audit's record and carries them in its file; `run` repeats
//! them. A recording that was written as text is read back as the same.

use crate::plan::Side;

/// A kind of access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The CPU reads the line.
    Read,
    /// The CPU writes the line.
    Write,
    /// The CPU takes the lock on the line.
    Lock,
    /// The CPU takes the lock on the line as one of several readers.
    LockShared,
    /// The CPU releases the lock on the line.
    Unlock,
}

/// A cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// A line that all CPUs share.
    Shared(u32),
    /// A line of which each CPU has its own.
    Own(u32),
}

/// An access of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The line.
    pub line: Line,
    /// The kind of access.
    pub how: Use,
}

/// A recorded operation of a side, as two threads did it.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The name of the operation.
    pub operation: String,
    /// The side that executes it.
    pub side: Side,
    /// The accesses of each thread.
    pub threads: [Vec<Step>; 2],
}

const LETTERS: [(Use, char); 5] =
    [(Use::Read, 'r'), (Use::Write, 'w'), (Use::Lock, 'l'), (Use::LockShared, 's'), (Use::Unlock, 'u')];

impl Replay {
    /// Makes a replay of the recorded accesses of two threads.
    #[cfg(feature = "audit")]
    pub fn of(operation: &str, side: Side, footprints: [&extern4_sync::audit::Footprint; 2]) -> Self {
        use extern4_sync::audit::{Access, Kind};
        let mut known = Vec::new();
        let mut steps = |who: usize| {
            let mut step = |access: &Access| {
                let number = known.iter().position(|line| *line == access.line).unwrap_or_else(|| {
                    known.push(access.line);
                    known.len() - 1
                });
                let number = u32::try_from(number).expect("few");
                let other = footprints[1 - who].accesses(access.line).next();
                let line = if other.is_some() { Line::Shared(number) } else { Line::Own(number) };
                let how = match access.kind {
                    Kind::Load => Use::Read,
                    Kind::Store | Kind::Rmw => Use::Write,
                    Kind::Lock => Use::Lock,
                    Kind::LockShared => Use::LockShared,
                    Kind::Unlock => Use::Unlock,
                };
                Step { line, how }
            };
            footprints[who].trace().iter().map(&mut step).collect()
        };
        let threads = [steps(0), steps(1)];
        Self { operation: operation.to_owned(), side, threads }
    }

    /// Formats the replay as a line of a file.
    pub fn to_text(&self) -> String {
        let word = |step: &Step| {
            let (_, letter) = LETTERS.iter().find(|(how, _)| *how == step.how).expect("all have one");
            match step.line {
                Line::Shared(number) => format!("{letter}{number}"),
                Line::Own(number) => format!("{letter}-{number}"),
            }
        };
        let words = |steps: &Vec<Step>| steps.iter().map(word).collect::<Vec<_>>().join(" ");
        let [one, other] = self.threads.each_ref().map(words);
        format!("{}\t{}\t{one}\t{other}", self.operation, self.side.name())
    }

    /// Parses a line of a file. Returns `None` if it is malformed.
    pub fn of_text(text: &str) -> Option<Self> {
        let [operation, side, one, other] = text.split('\t').collect::<Vec<_>>()[..] else { return None };
        let steps = |words: &str| words.split_whitespace().map(step).collect::<Option<Vec<_>>>();
        let threads = [steps(one)?, steps(other)?];
        Some(Self { operation: operation.to_owned(), side: Side::of_name(side)?, threads })
    }
}

fn step(word: &str) -> Option<Step> {
    let mut rest = word.chars();
    let letter = rest.next()?;
    let (how, _) = *LETTERS.iter().find(|(_, known)| *known == letter)?;
    let line = match rest.as_str().strip_prefix('-') {
        Some(number) => Line::Own(number.parse().ok()?),
        None => Line::Shared(rest.as_str().parse().ok()?),
    };
    Some(Step { line, how })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let step = |line, how| Step { line, how };
        let lines = [Line::Shared(0), Line::Own(12)];
        let one = LETTERS.iter().flat_map(|(how, _)| lines.map(|line| step(line, *how))).collect();
        let replay = Replay { operation: "a b".to_owned(), side: Side::Patch, threads: [one, Vec::new()] };
        assert_eq!(Replay::of_text(&replay.to_text()), Some(replay));
        assert_eq!((Replay::of_text("a\textern4\tq1\t"), Replay::of_text("a\textern4")), (None, None));
    }

    #[cfg(feature = "audit")]
    #[test]
    fn lines_that_both_use_are_shared() {
        use extern4_sync::audit::record;
        use extern4_sync::primitive::{AtomicU64, Mutex, Ordering};

        #[repr(align(64))]
        #[derive(Default)]
        struct Apart<T>(T);
        let (shared, own): (Apart<AtomicU64>, [Apart<Mutex<()>>; 2]) = Default::default();
        let act = |who: usize| {
            let _held = own[who].0.lock();
            shared.0.fetch_add(1, Ordering::Relaxed);
        };
        let footprints = [0, 1].map(|who| record(|| act(who)).1);
        let replay = Replay::of("x", Side::Extern4, footprints.each_ref());
        assert_eq!(replay.to_text(), "x\textern4\tl-0 w1 u-0\tl-2 w1 u-2");
    }
}
