//! One goal: its measurements, its ratio, and how it is printed and kept.

use std::fmt;
use std::path::Path;

use super::Result;

/// What a figure counts.
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
        })
    }
}

/// One goal and what was measured for it, a pair of figures a run.
#[derive(Debug)]
pub(crate) struct Row {
    name: &'static str,
    unit: Unit,
    goal: f64,
    /// The goal is a ratio rival / ours to reach; otherwise a figure of ours to stay below.
    against_rival: bool,
    ours: Vec<f64>,
    rival: Vec<f64>,
    note: String,
}

impl Row {
    /// A goal to be at least `goal` times as fast as a rival.
    pub(crate) fn faster(name: &'static str, unit: Unit, goal: f64) -> Self {
        Self {
            name,
            unit,
            goal,
            against_rival: true,
            ours: Vec::new(),
            rival: Vec::new(),
            note: String::new(),
        }
    }

    /// A goal to need at most `goal` of something.
    pub(crate) fn below(name: &'static str, unit: Unit, goal: f64) -> Self {
        Self { against_rival: false, ..Self::faster(name, unit, goal) }
    }

    /// Adds the figures of one run.
    pub(crate) fn add(&mut self, ours: f64, rival: f64) {
        self.ours.push(ours);
        self.rival.push(rival);
    }

    /// Says something beside the figures: one sentence without quotation marks.
    pub(crate) fn set_note(&mut self, note: String) {
        self.note = note;
    }

    /// The median over the runs of how often ours goes into the rival's, each pair measured back to back.
    pub(crate) fn ratio(&self) -> f64 {
        median(self.rival.iter().zip(&self.ours).map(|(rival, ours)| rival / ours))
    }

    /// The ratio as it is written; what needs nothing at all goes into everything without end.
    fn ratio_text(&self, suffix: &str) -> String {
        let ratio = self.ratio();
        match (ratio.is_finite(), suffix) {
            (true, "") => ratio.to_string(),
            (true, _) => format!("{ratio:.2}{suffix}"),
            (false, "") => "null".to_owned(),
            (false, _) => "-".to_owned(),
        }
    }

    /// Whether the goal is met.
    pub(crate) fn met(&self) -> bool {
        if self.against_rival {
            self.ratio() >= self.goal
        } else {
            median(self.ours.iter().copied()) <= self.goal
        }
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
        let (ours, rival) = (Spread::of(&self.ours), Spread::of(&self.rival));
        let text = format!(
            "{{\"name\":\"{}\",\"ours\":{},\"rival\":{},\"unit\":\"{}\",\"ratio\":{},\"goal\":{},\"met\":{},\
             \"ours_min\":{},\"ours_max\":{},\"rival_min\":{},\"rival_max\":{},\"runs\":{},\"note\":\"{}\"}}\n",
            self.name,
            ours.median,
            rival.median,
            self.unit,
            self.ratio_text(""),
            self.goal,
            self.met(),
            ours.min,
            ours.max,
            rival.min,
            rival.max,
            self.ours.len(),
            self.note
        );
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ours, rival) = (Spread::of(&self.ours), Spread::of(&self.rival));
        let goal = if self.against_rival { format!(">={}x", self.goal) } else { format!("<={}", self.goal) };
        write!(
            f,
            "{:<46} {:>10.2} {:>17} {:>10.2} {:>17} {:>6} {:>7} {:>7}  {}{}",
            self.name,
            ours.median,
            ours.range(),
            rival.median,
            rival.range(),
            self.unit.to_string(),
            self.ratio_text("x"),
            goal,
            if self.met() { "yes" } else { "NO" },
            if self.note.is_empty() { String::new() } else { format!("  ({})", self.note) }
        )
    }
}

struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Spread {
    fn of(figures: &[f64]) -> Self {
        Self {
            min: figures.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(figures.iter().copied()),
            max: figures.iter().copied().fold(0.0, f64::max),
        }
    }

    fn range(&self) -> String {
        format!("({:.2}..{:.2})", self.min, self.max)
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_against_a_rival_is_met_by_the_median_of_the_pairs() {
        let mut row = Row::faster("x", Unit::Milliseconds, 2.0);
        for (ours, rival) in [(1.0, 1.0), (1.0, 2.0), (1.0, 9.0)] {
            row.add(ours, rival);
        }
        assert_eq!(row.ratio(), 2.0);
        assert!(row.met());
    }

    #[test]
    fn a_bound_is_met_by_the_median_of_ours() {
        let mut row = Row::below("x", Unit::Count, 8.0);
        row.add(9.0, 8.0);
        assert!(!row.met());
    }
}
