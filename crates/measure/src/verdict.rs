//! Goals, and whether rows reach them. A verdict names the rows that it leaves out.
//!
//! The lab and `xtask bench` end with verdicts. A goal whose figures were not measured is neither
//! met nor missed.

use std::fmt;

use crate::row::{Row, Side};

/// A bound for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At least so much.
    AtLeast(f64),
    /// At most so much.
    AtMost(f64),
}

impl Goal {
    /// Returns whether a figure reaches it.
    pub fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">={bound}"),
            Self::AtMost(bound) => write!(f, "<={bound}"),
        }
    }
}

/// A goal, and whether it is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The goal in words, with its bound.
    pub goal: String,
    /// The finding in words. The rows that it does not cover stand at its end.
    pub found: String,
    /// Whether the goal is reached; `None` if that was not measured.
    pub met: Option<bool>,
}

impl Verdict {
    /// Judges whether a side is at least `times` as fast as another in a row, if there is one.
    pub fn faster<S: Side>(side: S, rival: S, what: &str, times: f64, row: Option<&Row<S>>) -> Self {
        let comparison = row.and_then(|row| row.compare(side, rival));
        Self {
            goal: format!("{what}: {} at least {times}x {}", side.name(), rival.name()),
            found: comparison.map_or_else(not_measured, |c| format!("{:.2}x{}", c.times, c.by.remark())),
            met: comparison.map(|comparison| comparison.times >= times),
        }
    }

    /// Judges whether a side is at least `times` as fast as another in each of these rows: the
    /// least ratio decides.
    pub fn faster_in_all<'r, S: Side>(
        side: S,
        rival: S,
        what: &str,
        times: f64,
        rows: impl Iterator<Item = &'r Row<S>>,
    ) -> Self {
        let worst = rows.min_by(|a, b| a.ratio(side, rival).total_cmp(&b.ratio(side, rival)));
        let mut verdict = Self::faster(side, rival, what, times, worst);
        if let Some(worst) = worst {
            verdict.found += &format!(", the least: {}", worst.title());
        }
        verdict
    }

    /// Judges whether a figure is within its goal.
    pub fn of_figure(what: &str, goal: Goal, figure: Option<f64>) -> Self {
        let bound = match goal {
            Goal::AtLeast(bound) => format!("at least {bound}"),
            Goal::AtMost(bound) => format!("at most {bound}"),
        };
        Self {
            goal: format!("{what}: {bound}"),
            found: figure.map_or_else(not_measured, |figure| format!("{figure:.3}")),
            met: figure.map(|figure| goal.is_met(figure)),
        }
    }

    /// Judges whether a side is nowhere slower than its rivals, beyond noise, in `rows`, which
    /// `what` describes. Rows that `covers` refuses are left out, and named.
    pub fn nowhere_slower<'r, S: Side>(
        what: &str,
        side: S,
        rivals: &[S],
        rows: impl Iterator<Item = &'r Row<S>>,
        covers: impl Fn(&Row<S>) -> bool,
    ) -> Self {
        let (covered, out): (Vec<_>, Vec<_>) = rows.partition(|row| covers(row));
        let (mut compared, mut slower) = (0, Vec::new());
        for (row, rival) in covered.iter().flat_map(|row| rivals.iter().map(move |rival| (row, *rival))) {
            let Some(comparison) = row.compare(side, rival) else { continue };
            compared += 1;
            if comparison.slower {
                let (times, remark) = (comparison.times, comparison.by.remark());
                slower.push(format!("{}: {times:.2}x {}{remark}", row.title(), rival.name()));
            }
        }
        let mut found = match (compared, slower.is_empty()) {
            (0, _) => not_measured(),
            (_, true) => format!("nowhere in {compared} comparisons"),
            (_, false) => format!("{} of {compared} comparisons: {}", slower.len(), slower.join("; ")),
        };
        let mut left_out: Vec<_> = out.iter().map(|row| row.workload).collect();
        left_out.dedup();
        if !left_out.is_empty() {
            found += &format!("; left out: {}", left_out.join(", "));
        }
        let rivals = rivals.iter().map(|rival| rival.name()).collect::<Vec<_>>().join(" or ");
        let goal = format!("{what}: {} nowhere slower than {rivals}", side.name());
        Self { goal, found, met: (compared > 0).then_some(slower.is_empty()) }
    }

    /// Returns the outcome in a word.
    pub fn word(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "open",
        }
    }
}

fn not_measured() -> String {
    "not measured".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::{Who, row};

    #[test]
    fn a_goal_is_met_missed_or_open() {
        let fast = row("x", 2, [[9.0; 3], [3.0; 3]], [9.0, 3.0]);
        let word = |times, row| Verdict::faster(Who::New, Who::Old, "x", times, row).word();
        assert_eq!(
            [word(3.0, Some(&fast)), word(3.1, Some(&fast)), word(3.0, None)],
            ["met", "MISSED", "open"]
        );
        assert_eq!(Verdict::of_figure("x", Goal::AtMost(0.0), Some(0.0)).word(), "met");
        assert_eq!(Verdict::of_figure("x", Goal::AtLeast(1.0), Some(0.0)).word(), "MISSED");
        assert_eq!(Goal::AtMost(2.5).to_string(), "<=2.5");
    }

    #[test]
    fn the_worst_row_counts() {
        let rows =
            [row("x", 1, [[9.0; 3], [3.0; 3]], [9.0, 3.0]), row("x", 4, [[2.0; 3], [4.0; 3]], [2.0, 4.0])];
        let verdict = Verdict::faster_in_all(Who::New, Who::Old, "x", 1.0, rows.iter());
        assert_eq!((verdict.word(), verdict.found.as_str()), ("MISSED", "0.50x, the least: x, 4 threads"));
    }

    #[test]
    fn a_verdict_names_what_is_slower_and_what_it_leaves_out() {
        let rows =
            [row("x", 1, [[9.0; 3], [3.0; 3]], [9.0, 3.0]), row("y", 1, [[2.0; 3], [4.0; 3]], [2.0, 4.0])];
        let over = |covers: fn(&Row<Who>) -> bool| {
            Verdict::nowhere_slower("all", Who::New, &[Who::Old], rows.iter(), covers)
        };
        let all = over(|_| true);
        assert_eq!((all.word(), all.found.as_str()), ("MISSED", "1 of 2 comparisons: y: 0.50x Old"));
        let some = over(|row| row.workload != "y");
        assert_eq!((some.word(), some.found.as_str()), ("met", "nowhere in 1 comparisons; left out: y"));
        assert_eq!(over(|_| false).word(), "open");
        assert_eq!(all.goal, "all: New nowhere slower than Old");
    }
}
