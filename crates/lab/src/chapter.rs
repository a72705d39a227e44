//! All that the report tells of one mechanism.

use crate::coherence::Curve;
use crate::counted::{Figure, Length};
use crate::row::Row;
use crate::verdict::Verdict;

/// One mechanism: its idea, its figures, and how it stands to its goals.
#[derive(Clone, Debug, Default)]
pub struct Chapter {
    /// As it is told.
    pub title: &'static str,
    /// As files of the report are named.
    pub name: &'static str,
    /// The idea, in three sentences.
    pub idea: &'static str,
    /// What the three sides are, in a sentence each.
    pub sides: [&'static str; 3],
    /// What the number of threads means, and the like: a sentence for each workload, by its name.
    pub notes: &'static [(&'static str, &'static str)],
    /// What the patch said of itself, in Markdown, with its own figures.
    pub published: &'static str,
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
    pub name: &'static str,
    /// How much, of each side.
    pub figures: [f64; 3],
}

impl Chapter {
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
