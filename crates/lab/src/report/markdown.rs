//! The full report in Markdown, for readers: every row, every verdict, how it was measured.
//!
//! `report` writes it. It leaves out no row that was measured, and names the goals that were not
//! met.

use std::fmt::Write as _;

use extern4_measure::table::{Table, figure, maybe};
use extern4_measure::verdict::Verdict;

use super::machine::Machine;
use super::{Report, chart, ratio_titles, ratios, side_titles};
use crate::chapter::Chapter;
use crate::plan::{Plan, Side};
use crate::row::Row;

/// Numbers of threads whose counters are shown; the JSON has all.
const COUNTERS_OF: [usize; 3] = [1, 2, 8];

/// Returns the whole report. Writing to a string never fails, so the code ignores the results of
/// `writeln`.
pub(super) fn text(report: &Report<'_>) -> String {
    let mut text = String::from("# The lab\n\n");
    head(&mut text, report.machine, report.plan);
    for chapter in report.chapters {
        let sides = chapter.measured_sides();
        let _ = writeln!(text, "## {}\n\n{}\n", chapter.title, chapter.idea);
        for (side, says) in sides.iter().zip(chapter.sides) {
            let _ = writeln!(text, "- **{}**: {says}", side.name());
        }
        let _ = writeln!(
            text,
            "\n![{}]({})",
            chapter.title,
            chart::file_name(chapter)
        );
        let _ = writeln!(
            text,
            "\n### {}: what the patch reports\n\n{}",
            chapter.title, chapter.published
        );
        for workload in chapter.workloads() {
            let _ = writeln!(
                text,
                "\n### {}: {workload}\n\n{}\n",
                chapter.title,
                chapter.note(workload)
            );
            times(&mut text, &sides, chapter.rows_of(workload));
            counters(&mut text, &sides, chapter.rows_of(workload));
        }
        counted(&mut text, chapter);
        lengths(&mut text, chapter);
        facts(&mut text, chapter);
        let _ = writeln!(text, "\n### {}: verdict\n", chapter.title);
        goals(&mut text, &chapter.verdicts);
    }
    text
}

fn head(text: &mut String, machine: &Machine, plan: &Plan) {
    let Machine {
        about,
        commit,
        build,
    } = machine;
    let _ = writeln!(text, "{}; commit {commit}, {build}.\n", about.line());
    let _ = writeln!(
        text,
        "One binary. The sides take turns, {} times each after one that does not count, for {} ms. Times are nanoseconds of the \
         clock for an operation of any thread: the median, and the quartiles in parentheses. \"x baseline\" says how many times as \
         fast extern4 is: the median of the turns, by the clock; with one thread by CPU time, if that is steadier. With more threads than CPUs, \
         threads wait for CPUs. A verdict needs a spread that is smaller than its margin, as the page says. Where time does not tell with one thread \
         whether extern4 is slower, callgrind counts the instructions of the thread, and these decide. \"load\" says how many CPUs other programs \
         used meanwhile.\n",
        plan.repetitions,
        plan.span.as_millis()
    );
}

fn times<'a>(text: &mut String, sides: &[Side], rows: impl Iterator<Item = &'a Row>) {
    let threads = ["threads".to_owned()].into_iter();
    let mut table = Table::new(
        0,
        threads.chain(side_titles(sides)).chain(ratio_titles(sides)),
    );
    for row in rows {
        let of_side = |side: &Side| {
            let nanos = row.nanos(*side);
            let Some((lower, upper)) = nanos.quartiles() else {
                return "-".to_owned();
            };
            format!(
                "{} ({}..{})",
                maybe(nanos.median()),
                figure(lower),
                figure(upper)
            )
        };
        let threads = [row.threads.to_string()].into_iter();
        table.line(
            threads
                .chain(sides.iter().map(of_side))
                .chain(ratios(row, sides)),
        );
    }
    *text += &table.markdown();
}

fn counters<'a>(text: &mut String, sides: &[Side], rows: impl Iterator<Item = &'a Row>) {
    let mut table = Table::new(
        1,
        ["counter".to_owned(), "threads".to_owned()]
            .into_iter()
            .chain(side_titles(sides)),
    );
    for row in rows.filter(|row| COUNTERS_OF.contains(&row.threads)) {
        for name in row.counter_names() {
            let names = [name.to_owned(), row.threads.to_string()].into_iter();
            table.line(names.chain(sides.iter().map(|side| maybe(row.counter(*side, name)))));
        }
    }
    let _ = write!(text, "\n{}", table.markdown());
}

fn counted(text: &mut String, chapter: &Chapter) {
    let _ = writeln!(text, "\n### {}: shared memory\n", chapter.title);
    if chapter.counted.is_empty() {
        text.push_str("Not counted: that takes a build of its own (`make lab`).\n");
        return;
    }
    text.push_str(
        "Locked instructions are those that the CPU executes for one operation, when no other thread is in the way, in the audit's build: \
         there, a lock takes two. Lines in conflict are cache lines that one of two threads writes and the other uses, both at this \
         operation, each with a thing of its own where there are several. Counts of `Arc` and the allocator's lines are not among \
         them.\n\n",
    );
    let mut table = Table::new(
        2,
        [
            "operation",
            "side",
            "locked instructions",
            "lines in conflict",
        ],
    );
    for figures in &chapter.counted {
        let locked = figure(figures.locked);
        let conflicts = figure(figures.conflicts);
        table.line([&figures.operation, figures.side.name(), &locked, &conflicts]);
    }
    *text += &table.markdown();
}

fn lengths(text: &mut String, chapter: &Chapter) {
    let mut table = Table::new(2, ["operation", "side", "instructions"]);
    for length in &chapter.lengths {
        table.line([
            &length.operation,
            length.side.name(),
            &maybe(length.instructions.median()),
        ]);
    }
    section(text, chapter, "instructions", &table);
}

fn facts(text: &mut String, chapter: &Chapter) {
    let mut table = Table::new(1, ["", "baseline", "patch", "extern4"]);
    for fact in &chapter.facts {
        let [baseline, patch, extern4] = fact.figures.map(figure);
        table.line([&fact.name, &baseline, &patch, &extern4]);
    }
    section(text, chapter, "what it takes", &table);
}

/// Writes a table under a title, unless it is empty.
fn section(text: &mut String, chapter: &Chapter, title: &str, table: &Table) {
    if !table.is_empty() {
        let _ = writeln!(
            text,
            "\n### {}: {title}\n\n{}",
            chapter.title,
            table.markdown()
        );
    }
}

/// Writes the goals and whether they are met.
pub(super) fn goals(text: &mut String, verdicts: &[Verdict]) {
    let mut table = Table::new(3, ["goal", "found", ""]);
    for verdict in verdicts {
        table.line([&verdict.goal, &verdict.found_under_load(), verdict.word()]);
    }
    let _ = writeln!(text, "{}", table.markdown());
}
