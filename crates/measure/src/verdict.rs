//! Goals, and whether figures reach them: one rule for every verdict.
//!
//! A verdict needs a spread that is smaller than its margin. The margin is the distance from the
//! median to the bound, the spread is the distance of the quartiles. Otherwise the verdict is
//! undecided, and says so. A goal whose figures were not measured is neither met nor missed.
//!
//! The lab and `xtask bench` judge by it.

use std::fmt;

use crate::figures::Figures;
use crate::row::{Row, Side};
use crate::table::figure;

/// A bound for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At least so much.
    AtLeast(f64),
    /// At most so much.
    AtMost(f64),
}

/// The least factor that is not slower. It is below 1, since builds of equal code differ in speed.
const NOT_SLOWER: f64 = 0.95;

impl Goal {
    /// The goal of a side that must not be slower than another.
    pub const NOT_SLOWER: Self = Self::AtLeast(NOT_SLOWER);

    /// Returns the bound.
    pub fn bound(self) -> f64 {
        let (Self::AtLeast(bound) | Self::AtMost(bound)) = self;
        bound
    }

    /// Judges figures by their median, if their spread is smaller than the margin.
    pub fn judge(self, figures: &Figures) -> Outcome {
        let Some(median) = figures.median() else {
            return Outcome::Open;
        };
        let Some(spread) = figures.quartile_distance() else {
            return Outcome::Undecided("one figure has no spread".to_owned());
        };
        let margin = (median - self.bound()).abs();
        // Equal figures have no spread: they decide also at the bound.
        if spread == 0.0 || spread < margin {
            return self.judge_count(median);
        }
        let [spread, margin] = [spread, margin].map(figure);
        Outcome::Undecided(format!("spread {spread}, margin {margin}"))
    }

    /// Judges a count that is the same in each run.
    pub fn judge_count(self, count: f64) -> Outcome {
        let is_met = match self {
            Self::AtLeast(bound) => count >= bound,
            Self::AtMost(bound) => count <= bound,
        };
        if is_met {
            Outcome::Met
        } else {
            Outcome::Missed
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

/// Whether a goal is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is reached.
    Met,
    /// It is not reached.
    Missed,
    /// The figures do not tell, for this reason.
    Undecided(String),
    /// There are no figures.
    Open,
}

impl Outcome {
    /// Returns the outcome in a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::Undecided(_) => "undecided",
            Self::Open => "open",
        }
    }

    /// Returns whether the goal is reached; `None` if nothing tells.
    pub fn is_met(&self) -> Option<bool> {
        match self {
            Self::Met => Some(true),
            Self::Missed => Some(false),
            Self::Undecided(_) | Self::Open => None,
        }
    }

    /// Returns whether the figures tell.
    pub fn is_decided(&self) -> bool {
        self.is_met().is_some()
    }

    /// Returns the reason in parentheses, where figures do not tell.
    fn reason(&self) -> String {
        if let Self::Undecided(reason) = self {
            format!(" ({reason})")
        } else {
            String::new()
        }
    }
}

/// A goal, and whether it is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The goal in words, with its bound.
    pub goal: String,
    /// The finding in words.
    pub found: String,
    /// Whether the goal is reached.
    pub outcome: Outcome,
    /// The CPUs that other programs used while the figures were measured, if that is known.
    pub load: Option<f64>,
}

impl Verdict {
    fn new(goal: String, found: String, outcome: Outcome) -> Self {
        Self {
            goal,
            found,
            outcome,
            load: None,
        }
    }

    /// Judges whether a side is at least `times` as fast as another in a row, if there is one.
    pub fn faster<S: Side>(
        side: S,
        rival: S,
        what: &str,
        times: f64,
        row: Option<&Row<S>>,
    ) -> Self {
        let comparison = row.and_then(|row| row.compare(side, rival, Goal::AtLeast(times)));
        let goal = format!("{what}: {} at least {times}x {}", side.name(), rival.name());
        let Some(comparison) = comparison else {
            return Self::new(goal, not_measured(), Outcome::Open);
        };
        let reason = comparison.outcome.reason();
        let found = format!("{:.2}x{}{reason}", comparison.times, comparison.by.remark());
        Self::new(goal, found, comparison.outcome)
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

    /// Judges whether figures are within their goal.
    pub fn of_figures(what: &str, goal: Goal, figures: &Figures) -> Self {
        let outcome = goal.judge(figures);
        let found = figures
            .median()
            .map(|median| format!("{median:.3}{}", outcome.reason()));
        Self::new(
            within(what, goal),
            found.unwrap_or_else(not_measured),
            outcome,
        )
    }

    /// Judges whether a count, which is the same in each run, is within its goal.
    pub fn of_count(what: &str, goal: Goal, count: Option<f64>) -> Self {
        let outcome = count.map_or(Outcome::Open, |count| goal.judge_count(count));
        Self::new(
            within(what, goal),
            count.map_or_else(not_measured, figure),
            outcome,
        )
    }

    /// Judges whether a side is nowhere slower than its rivals, in `rows`, which `what` describes.
    pub fn nowhere_slower<'r, S: Side>(
        what: &str,
        side: S,
        rivals: &[S],
        rows: impl Iterator<Item = &'r Row<S>>,
    ) -> Self {
        let mut compared = 0;
        let mut slower = Vec::new();
        let mut undecided = Vec::new();
        for (row, rival) in rows.flat_map(|row| rivals.iter().map(move |rival| (row, *rival))) {
            let Some(comparison) = row.compare(side, rival, Goal::NOT_SLOWER) else {
                continue;
            };
            compared += 1;
            let times = comparison.times;
            let by = comparison.by.remark();
            let reason = comparison.outcome.reason();
            let finding = format!("{}: {times:.2}x {}{by}{reason}", row.title(), rival.name());
            match comparison.outcome {
                Outcome::Met => {}
                Outcome::Missed => slower.push(finding),
                Outcome::Undecided(_) | Outcome::Open => undecided.push(finding),
            }
        }
        let outcome = match (compared, slower.is_empty(), undecided.is_empty()) {
            (0, ..) => Outcome::Open,
            (_, false, _) => Outcome::Missed,
            (_, true, false) => Outcome::Undecided("in some rows".to_owned()),
            (_, true, true) => Outcome::Met,
        };
        let mut found = match outcome {
            Outcome::Open => not_measured(),
            Outcome::Met => format!("nowhere in {compared} comparisons"),
            _ => listed(&slower, "slower", compared) + &listed(&undecided, "undecided", compared),
        };
        found.truncate(found.trim_end_matches("; ").len());
        let rivals = rivals
            .iter()
            .map(|rival| rival.name())
            .collect::<Vec<_>>()
            .join(" or ");
        let goal = format!(
            "{what}: {} at least {NOT_SLOWER}x {rivals}, in each row",
            side.name()
        );
        Self::new(goal, found, outcome)
    }

    /// Returns the outcome in a word.
    pub fn word(&self) -> &'static str {
        self.outcome.word()
    }

    /// Returns the finding, and the load under which it was made.
    pub fn found_under_load(&self) -> String {
        let load = self
            .load
            .map(|load| format!(", load {load:.2}"))
            .unwrap_or_default();
        format!("{}{load}", self.found)
    }
}

/// Returns how many of all comparisons these are, and lists them; nothing if there are none.
fn listed(findings: &[String], what: &str, compared: usize) -> String {
    match findings.len() {
        0 => String::new(),
        number => format!(
            "{what} in {number} of {compared} comparisons: {}; ",
            findings.join("; ")
        ),
    }
}

fn within(what: &str, goal: Goal) -> String {
    match goal {
        Goal::AtLeast(bound) => format!("{what}: at least {bound}"),
        Goal::AtMost(bound) => format!("{what}: at most {bound}"),
    }
}

fn not_measured() -> String {
    "not measured".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::{Who, row};

    fn of(figures: &[f64]) -> Figures {
        Figures(figures.to_vec())
    }

    #[test]
    fn a_spread_that_is_not_smaller_than_the_margin_decides_nothing() {
        let word = |goal: Goal, figures: &[f64]| goal.judge(&of(figures)).word();
        assert_eq!(word(Goal::AtLeast(2.0), &[2.9, 3.0, 3.1]), "met");
        assert_eq!(word(Goal::AtMost(2.0), &[2.9, 3.0, 3.1]), "MISSED");
        assert_eq!(word(Goal::AtLeast(2.0), &[1.0, 3.0, 5.0]), "undecided");
        assert_eq!(word(Goal::AtMost(2.0), &[]), "open");
        // One figure tells nothing about the next.
        assert_eq!(word(Goal::AtMost(2.0), &[1.0]), "undecided");
        assert_eq!(word(Goal::AtMost(2.0), &[f64::NAN; 3]), "undecided");
        // A count is the same each time.
        assert_eq!(word(Goal::AtMost(0.0), &[0.0; 3]), "met");
        assert_eq!(Goal::AtMost(0.0).judge_count(1.0), Outcome::Missed);
        let reason = Goal::AtLeast(2.0).judge(&of(&[1.0, 3.0, 5.0]));
        assert_eq!(
            reason,
            Outcome::Undecided("spread 2.00, margin 1.00".to_owned())
        );
        assert_eq!(Goal::AtMost(2.5).to_string(), "<=2.5");
    }

    /// Counts of one operation that differ each time.
    #[test]
    fn noise_is_no_verdict() {
        let verdict = Verdict::of_figures(
            "x",
            Goal::AtMost(0.6),
            &of(&[0.150, -0.092, 0.273, 0.9, 0.7]),
        );
        assert_eq!(
            (verdict.word(), verdict.found.as_str()),
            ("undecided", "0.273 (spread 0.55, margin 0.33)")
        );
    }

    #[test]
    fn a_goal_is_met_missed_or_open() {
        let fast = row("x", 2, [[9.0; 3], [3.0; 3]], [9.0, 3.0]);
        let word = |times, row| Verdict::faster(Who::New, Who::Old, "x", times, row).word();
        assert_eq!(
            [
                word(3.0, Some(&fast)),
                word(3.1, Some(&fast)),
                word(3.0, None)
            ],
            ["met", "MISSED", "open"]
        );
        assert_eq!(
            Verdict::of_count("x", Goal::AtMost(0.0), Some(0.0)).word(),
            "met"
        );
        assert_eq!(
            Verdict::of_count("x", Goal::AtMost(0.0), None).word(),
            "open"
        );
    }

    #[test]
    fn the_worst_row_counts() {
        let rows = [
            row("x", 1, [[9.0; 3], [3.0; 3]], [9.0, 3.0]),
            row("x", 4, [[2.0; 3], [4.0; 3]], [2.0, 4.0]),
        ];
        let verdict = Verdict::faster_in_all(Who::New, Who::Old, "x", 1.0, rows.iter());
        assert_eq!(
            (verdict.word(), verdict.found.as_str()),
            ("MISSED", "0.50x, the least: x, 4 threads")
        );
    }

    #[test]
    fn a_verdict_names_the_rows_that_are_slower() {
        let rows = [
            row("x", 1, [[9.0; 3], [3.0; 3]], [9.0, 3.0]),
            row("y", 1, [[2.0; 3], [4.0; 3]], [2.0, 4.0]),
            row("z", 2, [[2.0, 4.0, 8.0], [4.0; 3]], [4.0, 4.0]),
        ];
        let over = |workloads: &[&str]| {
            let rows = rows.iter().filter(|row| workloads.contains(&row.workload));
            Verdict::nowhere_slower("all", Who::New, &[Who::Old], rows)
        };
        let all = over(&["x", "y", "z"]);
        let found = "slower in 1 of 3 comparisons: y: 0.50x Old; \
            undecided in 1 of 3 comparisons: z, 2 threads: 1.00x Old (spread 0.75, margin 0.0500)";
        assert_eq!((all.word(), all.found.as_str()), ("MISSED", found));
        assert_eq!(over(&["x", "z"]).word(), "undecided");
        let some = over(&["x"]);
        assert_eq!(
            (some.word(), some.found.as_str()),
            ("met", "nowhere in 1 comparisons")
        );
        assert_eq!(over(&[]).word(), "open");
        assert_eq!(all.goal, "all: New at least 0.95x Old, in each row");
    }
}
