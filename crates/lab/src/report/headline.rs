//! The headline: a summary for a terminal.
//!
//! `main` prints it when the report has been written.

use std::fmt::Write as _;

use extern4_measure::table::{Table, maybe};
use extern4_measure::verdict::Verdict;

use super::{ratio_titles, ratios, side_titles};
use crate::chapter::Chapter;

/// Returns short tables of all chapters, and the verdicts, for a terminal.
pub fn text(chapters: &[Chapter]) -> String {
    let mut text = String::new();
    for chapter in chapters {
        let sides = chapter.measured_sides();
        let titles = [chapter.title.to_owned(), "n".to_owned()].into_iter();
        let mut table = Table::new(
            1,
            titles
                .chain(side_titles(&sides))
                .chain(ratio_titles(&sides)),
        );
        for row in &chapter.rows {
            let medians = sides.iter().map(|side| maybe(row.nanos(*side).median()));
            let names = [format!("  {}", row.workload), row.threads.to_string()].into_iter();
            table.line(names.chain(medians).chain(ratios(row, &sides)));
        }
        text += &table.text();
        goals(&mut text, &chapter.verdicts);
    }
    text + "ns of the clock for an operation of any of n threads, medians; x: how many times as fast extern4 is, by the \
        clock, or with one thread by CPU time if that is steadier\n"
}

fn goals(text: &mut String, verdicts: &[Verdict]) {
    for verdict in verdicts {
        // OK: writing to a string never fails.
        let _ = writeln!(
            text,
            "  {:<9} {}: {}",
            verdict.word(),
            verdict.goal,
            verdict.found_under_load()
        );
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    #[test]
    fn rows_have_a_line_each() {
        let rows = vec![row("x", 1, [8.0, 4.0, 2.0])];
        let chapter = Chapter {
            title: "T",
            rows,
            ..Chapter::default()
        };
        let text = text(&[chapter]);
        let cells = |line: usize| {
            text.lines()
                .nth(line)
                .unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            cells(0),
            [
                "T", "n", "baseline", "patch", "extern4", "x", "baseline", "x", "patch"
            ]
        );
        assert_eq!(cells(1), ["x", "1", "8.00", "4.00", "2.00", "4.00", "2.00"]);
    }
}
