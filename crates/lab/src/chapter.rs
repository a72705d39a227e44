//! The report's chapter on one mechanism: its text, its rows, its verdicts.
//!
//! Each mechanism's module fills one, and `report` prints it. A side or a workload that was not
//! measured has no cell, and no verdict counts it as met.

use crate::access_counts::{Figure, Length};
use crate::plan::Side;
use crate::row::Row;
use extern4_measure::table::{Table, figure, maybe};
use extern4_measure::verdict::Verdict;

/// The idea of a mechanism, its figures, and which of its goals are met.
#[derive(Clone, Debug, Default)]
pub struct Chapter {
    /// The title in the report.
    pub title: &'static str,
    /// The stem of the chapter's file names.
    pub name: &'static str,
    /// The idea, in three sentences.
    pub idea: &'static str,
    /// One description for each side.
    pub sides: &'static [&'static str],
    /// A note on each workload, by its name: the meaning of the number of threads, for example.
    pub notes: &'static [(&'static str, &'static str)],
    /// The patch's own description, in Markdown, with its own figures.
    pub published: &'static str,
    /// The patch's own description in a sentence or two, for the page.
    pub theirs: &'static str,
    /// The patch's own table with the lab's figures next to it.
    pub table: Option<Table>,
    /// The workloads of the page's chart.
    pub drawn: &'static [&'static str],
    /// The measured rows.
    pub rows: Vec<Row>,
    /// The figures of the audit.
    pub counted: Vec<Figure>,
    /// Instructions of operations, where callgrind counted them.
    pub lengths: Vec<Length>,
    /// Other facts about the sides.
    pub facts: Vec<Fact>,
    /// For each goal whether it was met, and by how much.
    pub verdicts: Vec<Verdict>,
}

/// A property of all three sides that is not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The name of the property.
    pub name: String,
    /// Its value for each side.
    pub figures: [f64; 3],
}

impl Chapter {
    /// Returns the sides that occur in a row, in order.
    pub fn measured_sides(&self) -> Vec<Side> {
        let has = |side: &Side| {
            self.rows
                .iter()
                .any(|row| row.sides().any(|known| known == *side))
        };
        Side::EVERY.into_iter().filter(has).collect()
    }

    /// Returns the names of the workloads, in order.
    pub fn workloads(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.rows.iter().map(|row| row.workload).collect();
        names.dedup();
        names
    }

    /// Returns the rows of a workload.
    pub fn rows_of<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.workload == workload)
    }

    /// Returns the note on a workload.
    pub fn note(&self, workload: &str) -> &'static str {
        self.notes
            .iter()
            .find(|(name, _)| *name == workload)
            .map_or("", |(_, note)| note)
    }
}

/// A line of a patch's own table: its name, the printed figures before and after, and the gain as a
/// factor.
pub type Published = (&'static str, &'static str, &'static str, f64);

/// Returns the titles of a table of [`Published`] with the lab's figures next to it, in the unit
/// `ours`.
pub fn titles(theirs: &'static str, ours: &'static str) -> [String; 9] {
    [
        theirs.to_owned(),
        "patch: before".to_owned(),
        "after".to_owned(),
        "gain".to_owned(),
        format!("here, {ours}: baseline"),
        "patch".to_owned(),
        "extern4".to_owned(),
        "gain of the patch".to_owned(),
        "gain of extern4".to_owned(),
    ]
}

/// Returns a line of such a table.
pub fn line((name, before, after, gain): Published, row: Option<&Row>) -> Vec<String> {
    let theirs = [
        name.to_owned(),
        before.to_owned(),
        after.to_owned(),
        times(gain),
    ];
    theirs.into_iter().chain(ours(row)).collect()
}

/// Returns the medians of a row's sides, then the speed of the patch and of extern4 as a multiple
/// of the baseline's.
pub fn ours(row: Option<&Row>) -> [String; 5] {
    let median = |side| maybe(row.and_then(|row| row.nanos(side).median()));
    let gain = |side| times(row.map_or(f64::NAN, |row| row.ratio(side, Side::Baseline)));
    let [baseline, patch, extern4] = Side::ALL.map(median);
    [
        baseline,
        patch,
        extern4,
        gain(Side::Patch),
        gain(Side::Extern4),
    ]
}

/// Formats a factor.
pub fn times(n: f64) -> String {
    if n.is_finite() {
        format!("{n:.2}x")
    } else {
        figure(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    #[test]
    fn ours_stands_next_to_theirs() {
        let row = row("x", 1, [8.0, 4.0, 2.0]);
        let line = line(("stat", "0.95", "0.92", 0.95 / 0.92), Some(&row));
        assert_eq!(
            line,
            [
                "stat", "0.95", "0.92", "1.03x", "8.00", "4.00", "2.00", "2.00x", "4.00x"
            ]
        );
        assert_eq!(ours(None), ["-"; 5]);
        assert_eq!(titles("a", "ns").len(), line.len());
    }
}
