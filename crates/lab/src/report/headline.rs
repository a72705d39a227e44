//! What one wants to know first.

use std::fmt::Write as _;

use super::figure;
use crate::chapter::Chapter;
use crate::counted::Counted;
use crate::meetings::{free, pairs};
use crate::plan::Side;
use crate::verdict::Verdict;

/// The tables of all chapters in short, and the verdicts, for a terminal.
pub fn text(chapters: &[Chapter], counted: &Counted) -> String {
    let mut text = String::new();
    for chapter in chapters {
        // OK: a string takes everything, here and below.
        let _ = writeln!(
            text,
            "{:<42} {:>3} {:>9} {:>9} {:>9} {:>10} {:>9}",
            chapter.title, "n", "Before", "Seed", "New", "x Before", "x Seed"
        );
        for row in &chapter.rows {
            let [before, seed, new] = Side::ALL.map(|side| figure(row.nanos(side).median));
            let (to_before, to_seed) = (figure(row.ratio(Side::Before)), figure(row.ratio(Side::Seed)));
            let _ = writeln!(
                text,
                "  {:<40} {:>3} {before:>9} {seed:>9} {new:>9} {to_before:>10} {to_seed:>9}",
                row.workload, row.threads
            );
        }
        goals(&mut text, &chapter.verdicts);
    }
    for matrix in &counted.matrices {
        let _ = writeln!(text, "Calls that commute, on {}", matrix.on.name());
        goals(&mut text, &matrix.verdicts());
    }
    let pairs = pairs(&counted.meetings);
    for (mechanism, all, free) in free(&pairs) {
        let [before, seed, new] = free;
        let _ = writeln!(
            text,
            "{mechanism}: of {all} pairs of operations that commute, free of conflicts: Before {before}, Seed {seed}, New {new}"
        );
    }
    text + "ns of the clock for an operation of any of n threads, medians; x: how many times as fast New is\n"
}

fn goals(text: &mut String, verdicts: &[Verdict]) {
    for verdict in verdicts {
        let Verdict { goal, found, .. } = verdict;
        // OK: as above.
        let _ = writeln!(text, "  {:<6} {goal}: {found}", verdict.word());
    }
    text.push('\n');
}
