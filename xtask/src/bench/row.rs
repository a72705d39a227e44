//! One goal: its measurements, its ratio, and how it is printed and kept.

use std::fmt;
use std::path::Path;

use extern4_measure::figures::Figures;
use extern4_measure::json;
use extern4_measure::machine::Machine;
use extern4_measure::rounds::interleave;
use extern4_measure::verdict::{Goal, Outcome};

use super::Result;

/// The unit of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Nanoseconds for an operation.
    Nanoseconds,
    /// Instructions for an operation.
    Instructions,
    /// How many.
    Count,
    /// How many in a hundred.
    Percent,
    /// How many times another figure.
    Times,
    /// MiB of memory.
    Mebibytes,
    /// Bytes of memory.
    Bytes,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Milliseconds => "ms",
            Self::Nanoseconds => "ns",
            Self::Instructions => "instr",
            Self::Count => "count",
            Self::Percent => "%",
            Self::Times => "x",
            Self::Mebibytes => "MiB",
            Self::Bytes => "bytes",
        })
    }
}

/// One goal and what was measured for it, a pair of figures a run.
#[derive(Debug)]
pub(crate) struct Row {
    name: &'static str,
    unit: Unit,
    /// A ratio rival / ours to reach, or a figure of ours to stay below.
    goal: Goal,
    ours: Figures,
    rival: Figures,
    note: String,
}

impl Row {
    /// A goal to be at least `goal` times as fast as a rival.
    pub(crate) fn faster(name: &'static str, unit: Unit, goal: f64) -> Self {
        Self::new(name, unit, Goal::AtLeast(goal))
    }

    /// A goal to need at most `goal` of something.
    pub(crate) fn below(name: &'static str, unit: Unit, goal: f64) -> Self {
        Self::new(name, unit, Goal::AtMost(goal))
    }

    fn new(name: &'static str, unit: Unit, goal: Goal) -> Self {
        Self {
            name,
            unit,
            goal,
            ours: Figures::default(),
            rival: Figures::default(),
            note: String::new(),
        }
    }

    /// Takes our figure and the rival's in each of `rounds` rounds, after one that does not count.
    pub(crate) fn rounds(
        &mut self,
        rounds: usize,
        mut take: impl FnMut() -> Result<(f64, f64)>,
    ) -> Result<()> {
        let taken = interleave(rounds, 1, |_| take())?;
        taken
            .into_iter()
            .flatten()
            .for_each(|(ours, rival)| self.add(ours, rival));
        Ok(())
    }

    /// Adds the figures of one run.
    pub(crate) fn add(&mut self, ours: f64, rival: f64) {
        self.ours.0.push(ours);
        self.rival.0.push(rival);
    }

    /// Adds a note to the figures: one sentence without quotation marks.
    pub(crate) fn set_note(&mut self, note: String) {
        self.note = note;
    }

    /// The name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The medians of ours and of the rival's, and their unit.
    pub(crate) fn medians(&self) -> (f64, f64, Unit) {
        (median(&self.ours), median(&self.rival), self.unit)
    }

    /// The median over the runs of how often ours goes into the rival's, each pair measured back to
    /// back.
    pub(crate) fn ratio(&self) -> f64 {
        self.rival.ratio(&self.ours).unwrap_or(f64::NAN)
    }

    /// Whether the goal is met, if the figures tell. A single figure does only if it is a count.
    pub(crate) fn outcome(&self) -> Outcome {
        let judged = if self.is_ratio() {
            self.rival.ratios(&self.ours)
        } else {
            self.ours.clone()
        };
        match judged.0[..] {
            [count] if matches!(self.unit, Unit::Count | Unit::Instructions | Unit::Bytes) => {
                self.goal.judge_count(count)
            }
            _ => self.goal.judge(&judged),
        }
    }

    fn is_ratio(&self) -> bool {
        matches!(self.goal, Goal::AtLeast(_))
    }

    /// The line above the rows.
    pub(crate) fn header() -> String {
        format!(
            "{:<46} {:>10} {:>17} {:>10} {:>17} {:>6} {:>7} {:>7}  met",
            "row", "ours", "(min..max)", "rival", "(min..max)", "unit", "ratio", "goal"
        )
    }

    /// Writes the row to `NAME.json` in `folder`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(format!("{}.json", self.name));
        let text = json::line(|object| {
            object.text("name", self.name);
            object.text("unit", &self.unit.to_string());
            object.number("ratio", self.ratio());
            object.raw("goal", self.goal.bound());
            object.maybe("met", self.outcome().is_met());
            for (side, figures) in [("ours", &self.ours), ("rival", &self.rival)] {
                let (min, max) = figures.range().unzip();
                object.number(side, median(figures));
                object.maybe(&format!("{side}_min"), min);
                object.maybe(&format!("{side}_max"), max);
            }
            object.raw("runs", self.ours.0.len());
            object.object("machine", |item| Machine::this().write(item));
            object.text("note", &self.note);
        });
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goal = format!("{}{}", self.goal, if self.is_ratio() { "x" } else { "" });
        // Our figure may be 0, which has no ratio.
        let ratio = Some(self.ratio()).filter(|ratio| ratio.is_finite());
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x"));
        let outcome = match self.outcome() {
            Outcome::Undecided(reason) => format!("undecided: {reason}"),
            outcome => outcome.word().to_owned(),
        };
        write!(
            f,
            "{:<46} {:>10.2} {:>17} {:>10.2} {:>17} {:>6} {:>7} {:>7}  {}{}",
            self.name,
            median(&self.ours),
            range(&self.ours),
            median(&self.rival),
            range(&self.rival),
            self.unit.to_string(),
            ratio,
            goal,
            outcome,
            if self.note.is_empty() {
                String::new()
            } else {
                format!("  ({})", self.note)
            }
        )
    }
}

/// The median, or no number without a figure.
fn median(figures: &Figures) -> f64 {
    figures.median().unwrap_or(f64::NAN)
}

fn range(figures: &Figures) -> String {
    let (min, max) = figures.range().unwrap_or((f64::NAN, f64::NAN));
    format!("({min:.2}..{max:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(mut row: Row, pairs: &[(f64, f64)]) -> Row {
        pairs
            .iter()
            .for_each(|(ours, rival)| row.add(*ours, *rival));
        row
    }

    #[test]
    fn a_goal_against_a_rival_is_met_by_the_median_of_the_pairs() {
        let row = || Row::faster("x", Unit::Milliseconds, 2.0);
        let met = row_of(
            row(),
            &[(1.0, 1.0), (1.0, 3.0), (1.0, 3.1), (1.0, 3.2), (1.0, 9.0)],
        );
        assert_eq!((met.ratio(), met.outcome()), (3.1, Outcome::Met));
        let noisy = row_of(row(), &[(1.0, 1.0), (1.0, 2.0), (1.0, 9.0)]);
        assert!(
            !noisy.outcome().is_decided() && noisy.to_string().contains("undecided: spread"),
            "{noisy}"
        );
    }

    #[test]
    fn a_single_figure_decides_only_if_it_is_a_count() {
        let below = |unit| row_of(Row::below("x", unit, 8.0), &[(9.0, 8.0)]);
        assert_eq!(below(Unit::Count).outcome(), Outcome::Missed);
        assert!(!below(Unit::Mebibytes).outcome().is_decided());
    }
}
