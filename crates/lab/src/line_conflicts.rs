//! Conflicts on cache lines between two operations of a mechanism that commute.
//!
//! [`conflicts`](crate::conflicts) examines the calls of a whole file system, which the baseline
//! and the patch are not. This module compares all three sides. Two threads do two operations that
//! commute, and the audit counts the lines that one writes and the other uses.
//!
//! Each chapter calls `count` in the audit's build, and the report prints the pairs.

use std::collections::BTreeMap;

use crate::plan::Side;

/// An operation of a mechanism, and its name.
pub type Operation<'o> = (&'static str, Box<dyn Fn() + Send + Sync + 'o>);

/// Two operations of a side, and their conflicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineConflict {
    /// The mechanism.
    pub mechanism: String,
    /// The operations.
    pub operations: [String; 2],
    /// The side.
    pub side: Side,
    /// Lines that one writes and the other uses.
    pub lines: usize,
}

/// Two operations of a mechanism, and their conflicts on each side that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair<'m> {
    /// The mechanism.
    pub mechanism: &'m str,
    /// The operations.
    pub operations: &'m [String; 2],
    /// The number of lines, by side.
    pub lines: [Option<usize>; 3],
}

/// Returns all pairs, in the order in which they were counted.
pub fn pairs(line_conflicts: &[LineConflict]) -> Vec<Pair<'_>> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for LineConflict { mechanism, operations, side, lines } in line_conflicts {
        let is = |pair: &&mut Pair<'_>| pair.mechanism == mechanism && pair.operations == operations;
        match pairs.iter_mut().find(is) {
            Some(pair) => pair.lines[*side as usize] = Some(*lines),
            None => {
                let mut lines_of = [None; 3];
                lines_of[*side as usize] = Some(*lines);
                pairs.push(Pair { mechanism, operations, lines: lines_of });
            }
        }
    }
    pairs
}

/// Returns for each mechanism the number of pairs, and by side how many of them have no conflict.
pub fn free<'m>(pairs: &[Pair<'m>]) -> Vec<(&'m str, usize, [usize; 3])> {
    let mut order = Vec::new();
    let mut sums = BTreeMap::new();
    for pair in pairs {
        let (all, free) = sums.entry(pair.mechanism).or_insert_with(|| {
            order.push(pair.mechanism);
            (0, [0; 3])
        });
        *all += 1;
        for (free, lines) in free.iter_mut().zip(pair.lines) {
            *free += usize::from(lines == Some(0));
        }
    }
    order.into_iter().map(|mechanism| (mechanism, sums[mechanism].0, sums[mechanism].1)).collect()
}

impl LineConflict {
    /// Formats the conflict as a line of a file.
    pub fn to_text(&self) -> String {
        let Self { mechanism, operations: [one, other], side, lines } = self;
        format!("{mechanism}\t{one}\t{other}\t{}\t{lines}", side.name())
    }

    /// Parses a line; returns `None` if it is malformed.
    pub fn of_text(line: &str) -> Option<Self> {
        let [mechanism, one, other, side, lines] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Self {
            mechanism: mechanism.to_owned(),
            operations: [one.to_owned(), other.to_owned()],
            side: Side::of_name(side)?,
            lines: lines.parse().ok()?,
        })
    }
}

/// Counts the conflicts of each two of a side's operations, one of `ours` and one of `theirs`. Both
/// are the same operations on two threads, and all of them commute. A pair with conflicts is
/// repeated, since they may be there by chance. The least of [`TRIES`](crate::conflicts::TRIES)
/// counts.
#[cfg(feature = "audit")]
pub fn count(
    counted: &mut crate::access_counts::AccessCounts,
    mechanism: &str,
    side: Side,
    ours: &[Operation<'_>],
    theirs: &[Operation<'_>],
) {
    for (at, (one, act)) in ours.iter().enumerate() {
        for (other, theirs) in &theirs[at..] {
            let mut lines = usize::MAX;
            for _ in 0..crate::conflicts::TRIES {
                lines = lines.min(crate::access_counts::side_by_side(act, theirs).1);
                if lines == 0 {
                    break;
                }
            }
            let operations = [*one, *other].map(str::to_owned);
            counted.line_conflicts.push(LineConflict {
                mechanism: mechanism.to_owned(),
                operations,
                side,
                lines,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_put_together_and_counted() {
        let conflict = |one: &str, side, lines| LineConflict {
            mechanism: "hits".to_owned(),
            operations: [one.to_owned(), "b".to_owned()],
            side,
            lines,
        };
        let line_conflicts = [
            conflict("a", Side::Baseline, 2),
            conflict("b", Side::Baseline, 0),
            conflict("a", Side::Extern4, 0),
            conflict("b", Side::Extern4, 0),
        ];
        let pairs = pairs(&line_conflicts);
        assert_eq!(pairs.len(), 2);
        assert_eq!(pairs[0].lines, [Some(2), None, Some(0)]);
        assert_eq!(free(&pairs), [("hits", 2, [1, 0, 2])]);
        for conflict in &line_conflicts {
            assert_eq!(LineConflict::of_text(&conflict.to_text()).as_ref(), Some(conflict));
        }
        assert_eq!(LineConflict::of_text("hits\ta\tb\textern4"), None);
    }
}
