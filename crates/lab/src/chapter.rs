//! All that the report tells of one mechanism.

use crate::coherence::Curve;
use crate::counted::{Figure, Length};
use crate::plan::Side;
use crate::row::Row;
use extern4_measure::table::{Table, figure, maybe};
use extern4_measure::verdict::Verdict;

/// One mechanism: its idea, its figures, and how it stands to its goals.
#[derive(Clone, Debug, Default)]
pub struct Chapter {
    /// As it is told.
    pub title: &'static str,
    /// As files of the report are named.
    pub name: &'static str,
    /// The idea, in three sentences.
    pub idea: &'static str,
    /// What its sides are, in a sentence each.
    pub sides: &'static [&'static str],
    /// What the number of threads means, and the like: a sentence for each workload, by its name.
    pub notes: &'static [(&'static str, &'static str)],
    /// What the patch said of itself, in Markdown, with its own figures.
    pub published: &'static str,
    /// The same in a sentence or two, for the page.
    pub theirs: &'static str,
    /// The patch's own table with ours next to it.
    pub table: Option<Table>,
    /// The workloads of the page's chart.
    pub drawn: &'static [&'static str],
    /// What was measured.
    pub rows: Vec<Row>,
    /// What was counted.
    pub counted: Vec<Figure>,
    /// Instructions, where those were counted.
    pub lengths: Vec<Length>,
    /// What more CPUs would do.
    pub simulated: Vec<Curve>,
    /// What else there is to tell of the sides.
    pub facts: Vec<Fact>,
    /// The goals.
    pub verdicts: Vec<Verdict>,
}

/// Something that is so without being measured, of all three sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// What.
    pub name: String,
    /// How much, of each side.
    pub figures: [f64; 3],
}

impl Chapter {
    /// The sides that any row has, in order.
    pub fn measured_sides(&self) -> Vec<Side> {
        let has = |side: &Side| self.rows.iter().any(|row| row.sides().any(|known| known == *side));
        Side::EVERY.into_iter().filter(has).collect()
    }

    /// The workloads, in order.
    pub fn workloads(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.rows.iter().map(|row| row.workload).collect();
        names.dedup();
        names
    }

    /// The rows of a workload.
    pub fn rows_of<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.workload == workload)
    }

    /// What there is to say about a workload.
    pub fn note(&self, workload: &str) -> &'static str {
        self.notes.iter().find(|(name, _)| *name == workload).map_or("", |(_, note)| note)
    }
}

/// A line of a patch's own table: what it reports before and after, as it is written, and how many
/// times as fast that is.
pub type Published = (&'static str, &'static str, &'static str, f64);

/// The titles of a table of [`Published`] with ours next to it, in this unit.
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

/// A line of such a table.
pub fn line((name, before, after, gain): Published, row: Option<&Row>) -> Vec<String> {
    let theirs = [name.to_owned(), before.to_owned(), after.to_owned(), times(gain)];
    theirs.into_iter().chain(ours(row)).collect()
}

/// Medians of a row's sides, and how many times as fast as the baseline the patch and extern4 are.
pub fn ours(row: Option<&Row>) -> [String; 5] {
    let median = |side| maybe(row.and_then(|row| row.nanos(side).median()));
    let gain = |side| times(row.map_or(f64::NAN, |row| row.ratio(side, Side::Baseline)));
    let [baseline, patch, extern4] = Side::ALL.map(median);
    [baseline, patch, extern4, gain(Side::Patch), gain(Side::Extern4)]
}

/// How many times.
pub fn times(n: f64) -> String {
    if n.is_finite() { format!("{n:.2}x") } else { figure(n) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    #[test]
    fn ours_stands_next_to_theirs() {
        let row = row("x", 1, [8.0, 4.0, 2.0]);
        let line = line(("stat", "0.95", "0.92", 0.95 / 0.92), Some(&row));
        assert_eq!(line, ["stat", "0.95", "0.92", "1.03x", "8.00", "4.00", "2.00", "2.00x", "4.00x"]);
        assert_eq!(ours(None), ["-"; 5]);
        assert_eq!(titles("a", "ns").len(), line.len());
    }
}
