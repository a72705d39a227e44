//! Goals, and whether the figures reach them.

use crate::plan::Side;
use crate::row::{Row, Slower};

/// A goal, and what was reached of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What is wanted, with its bound.
    pub goal: String,
    /// What was found, as it is told.
    pub found: String,
    /// Whether it is reached; `None` if that was not measured.
    pub met: Option<bool>,
}

impl Verdict {
    /// New is at least `times` as fast as Before in `row`, if there is one.
    pub fn faster(what: &str, times: f64, row: Option<&Row>) -> Self {
        Self::faster_than(Side::Before, what, times, row)
    }

    /// New is at least `times` as fast as another in `row`, if there is one.
    pub fn faster_than(rival: Side, what: &str, times: f64, row: Option<&Row>) -> Self {
        let ratio = row.map(|row| row.ratio(rival));
        Self {
            goal: format!("{what}: New at least {times}x {}", rival.name()),
            found: ratio.map_or_else(not_measured, |ratio| format!("{ratio:.2}x")),
            met: ratio.map(|ratio| ratio >= times),
        }
    }

    /// The same in each of some rows.
    pub fn faster_in_all<'a>(what: &str, times: f64, rows: impl Iterator<Item = &'a Row>) -> Self {
        let worst = rows.min_by(|a, b| a.ratio(Side::Before).total_cmp(&b.ratio(Side::Before)));
        let mut verdict = Self::faster(what, times, worst);
        if let Some(worst) = worst {
            verdict.found += &format!(" with {}, the least", worst.threads);
        }
        verdict
    }

    /// Something of New's is at most so much.
    pub fn at_most(what: &str, bound: f64, figure: Option<f64>) -> Self {
        Self {
            goal: format!("{what}: at most {bound}"),
            found: figure.map_or_else(not_measured, |figure| format!("{figure:.3}")),
            met: figure.map(|figure| figure <= bound),
        }
    }

    /// With one thread New is nowhere slower than another, beyond what noise explains; where it explains the difference, by instructions.
    pub fn nowhere_slower<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let compared = rows.filter(|row| row.threads == 1);
        let compared = compared.flat_map(|row| Side::RIVALS.map(|rival| (row, rival)));
        Self::not_slower("one thread: New nowhere slower than Before or Seed", compared)
    }

    /// With any number of threads New is nowhere slower than one of them, beyond what noise explains.
    pub fn no_row_slower<'a>(rival: Side, rows: impl Iterator<Item = &'a Row>) -> Self {
        let goal = format!("any number of threads: New nowhere slower than {}", rival.name());
        Self::not_slower(&goal, rows.map(|row| (row, rival)))
    }

    fn not_slower<'a>(goal: &str, compared: impl Iterator<Item = (&'a Row, Side)>) -> Self {
        let compared: Vec<_> = compared.collect();
        let slower: Vec<_> = compared
            .iter()
            .filter_map(|(row, rival)| {
                let instructions = match row.is_slower(*rival)? {
                    Slower::ByTime => String::new(),
                    Slower::ByInstructions(share) => format!(", with {share:.2}x the instructions"),
                };
                let threads =
                    if row.threads == 1 { String::new() } else { format!(", {} threads", row.threads) };
                let (ratio, rival) = (row.ratio(*rival), rival.name());
                Some(format!("{}{threads}: {ratio:.2}x {rival}{instructions}", row.workload))
            })
            .collect();
        let found = match (compared.is_empty(), slower.is_empty()) {
            (true, _) => not_measured(),
            (_, true) => "nowhere".to_owned(),
            (_, false) => slower.join("; "),
        };
        Self { goal: goal.to_owned(), found, met: (!compared.is_empty()).then_some(slower.is_empty()) }
    }

    /// The outcome in a word.
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
    use crate::row::tests::row;

    #[test]
    fn a_goal_is_met_missed_or_open() {
        let fast = row("x", 2, [9.0, 5.0, 3.0]);
        assert_eq!(Verdict::faster("x", 3.0, Some(&fast)).word(), "met");
        assert_eq!(Verdict::faster("x", 3.1, Some(&fast)).word(), "MISSED");
        assert_eq!(Verdict::faster("x", 3.0, None).word(), "open");
        assert_eq!(Verdict::at_most("x", 0.0, Some(0.0)).word(), "met");
    }

    #[test]
    fn the_worst_row_counts() {
        let rows = [row("x", 1, [9.0, 5.0, 3.0]), row("x", 4, [2.0, 5.0, 3.0])];
        let verdict = Verdict::faster_in_all("x", 1.0, rows.iter());
        assert_eq!((verdict.word(), verdict.found.as_str()), ("MISSED", "0.67x with 4, the least"));
    }

    #[test]
    fn to_be_slower_with_one_thread_is_found() {
        let rows = [row("x", 1, [4.0, 2.0, 3.0]), row("y", 2, [1.0, 1.0, 9.0])];
        let verdict = Verdict::nowhere_slower(rows.iter());
        assert_eq!((verdict.word(), verdict.found.as_str()), ("MISSED", "x: 0.67x Seed"));
        assert_eq!(Verdict::nowhere_slower(rows[1..].iter()).word(), "open");
        let verdict = Verdict::no_row_slower(Side::Before, rows.iter());
        assert_eq!((verdict.word(), verdict.found.as_str()), ("MISSED", "y, 2 threads: 0.11x Before"));
    }
}
