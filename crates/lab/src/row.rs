//! One line of a table: a workload on a number of threads, with the figures of all sides.
//!
//! The chapters measure their rows through it, so all rows follow the same rules: sides in turn,
//! and instructions where the clock does not tell. A verdict of [`nowhere_slower`] covers every row
//! that it gets.

use extern4_measure::callgrind;
use extern4_measure::row::INSTRUCTIONS;
pub use extern4_measure::row::{Counter, Sample};
use extern4_measure::verdict::{Goal, Verdict};

use crate::instructions;
use crate::plan::{Plan, Side};

/// A workload on a number of threads.
pub type Row = extern4_measure::row::Row<Side>;

/// Takes the figures of a row. With one thread, callgrind counts instructions if the clock does not
/// decide whether extern4 is slower.
pub fn measure(
    plan: &Plan,
    workload: &'static str,
    threads: usize,
    sides: &[Side],
    take: impl FnMut(Side) -> Sample,
) -> Row {
    let mut row = Row::new(workload, threads, plan.interleave(sides, take));
    let is_decided = |rival: &Side| {
        let comparison = row.compare(Side::Extern4, *rival, Goal::NOT_SLOWER);
        comparison.is_none_or(|comparison| comparison.outcome.is_decided())
    };
    let counts = plan.counts_instructions && threads == 1;
    if counts && !Side::RIVALS.iter().all(is_decided) && callgrind::is_there() {
        for side in sides {
            let counted =
                instructions::per_operation(workload, *side).expect("a run that is counted");
            row.note(
                *side,
                INSTRUCTIONS,
                counted.median().expect("there are several runs"),
            );
        }
    }
    row
}

/// Returns two verdicts, for one thread and for more: extern4 is nowhere slower than its rivals in
/// the rows that `covers` chooses. `what` names what they measure.
pub fn nowhere_slower(what: &str, rows: &[Row], covers: impl Fn(&Row) -> bool) -> [Verdict; 2] {
    [("one thread", true), ("more threads", false)].map(|(threads, alone)| {
        let rows = rows
            .iter()
            .filter(|row| (row.threads == 1) == alone && covers(row));
        Verdict::nowhere_slower(
            &format!("{what}, {threads}"),
            Side::Extern4,
            &Side::RIVALS,
            rows,
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row with these nanoseconds for the three sides.
    pub(crate) fn row(workload: &'static str, threads: usize, nanos: [f64; 3]) -> Row {
        let sample = |side: Side| Sample {
            nanos: nanos[side as usize],
            counters: Vec::new(),
        };
        measure(&Plan::quick(), workload, threads, &Side::ALL, sample)
    }

    #[test]
    fn a_ratio_says_how_much_faster_new_is() {
        let row = row("x", 1, [8.0, 4.0, 2.0]);
        assert_eq!(
            [Side::Baseline, Side::Patch].map(|rival| row.ratio(Side::Extern4, rival)),
            [4.0, 2.0]
        );
    }
}
