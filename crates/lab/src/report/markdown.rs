//! The report as one reads it.

use std::fmt::Write as _;

use super::machine::Machine;
use super::{Report, chart, conflicts, curves, figure, meetings};
use crate::chapter::Chapter;
use crate::plan::{Plan, Side};
use crate::row::Row;
use crate::verdict::Verdict;

/// Numbers of threads whose counters are shown; the JSON has all.
const COUNTERS_OF: [usize; 3] = [1, 2, 8];

/// The whole report. Writing to a string never fails, so nothing here looks at what `writeln` says.
pub(super) fn text(report: &Report<'_>) -> String {
    let mut text = String::from("# The lab\n\n");
    head(&mut text, report.machine, report.plan);
    for chapter in report.chapters {
        let _ = writeln!(text, "## {}\n\n{}\n", chapter.title, chapter.idea);
        for (side, says) in Side::ALL.iter().zip(chapter.sides) {
            let _ = writeln!(text, "- **{}**: {says}", side.name());
        }
        let _ = writeln!(text, "\n![{}]({})", chapter.title, chart::file_name(chapter));
        let _ = writeln!(text, "\n### {}: what the patch reports\n\n{}", chapter.title, chapter.published);
        for workload in chapter.workloads() {
            let _ = writeln!(text, "\n### {}: {workload}\n\n{}\n", chapter.title, chapter.note(workload));
            times(&mut text, chapter.rows_of(workload));
            counters(&mut text, chapter.rows_of(workload));
        }
        curves::markdown(&mut text, chapter);
        counted(&mut text, chapter);
        lengths(&mut text, chapter);
        facts(&mut text, chapter);
        let _ = writeln!(text, "\n### {}: verdict\n", chapter.title);
        goals(&mut text, &chapter.verdicts);
    }
    conflicts::markdown(&mut text, &report.counted.matrices);
    meetings::markdown(&mut text, &report.counted.meetings);
    if report.chapters.iter().any(|chapter| !chapter.simulated.is_empty()) {
        curves::how(&mut text);
    }
    text
}

fn head(text: &mut String, machine: &Machine, plan: &Plan) {
    let Machine { processor, cpus, kernel, commit, load, line, build } = machine;
    let _ = writeln!(
        text,
        "{processor}, {cpus} CPUs, Linux {kernel}; commit {commit}, {build}. Load: {} at the beginning, {} at the end.\n",
        load[0], load[1]
    );
    let line: Vec<_> = line.iter().map(|nanos| figure(*nanos)).collect();
    let _ = writeln!(
        text,
        "A cache line takes {} ns from one CPU to the other and back: before each chapter, and at the end. Where it takes longer, so does what \
         both write, with whatever code.\n",
        line.join(", ")
    );
    let _ = writeln!(
        text,
        "One binary. The three take turns, {} times each after one that does not count, for {} ms. Times are nanoseconds of the \
         clock for an operation of any thread: the median, and the quartiles in parentheses. \"x Before\" says how many times as \
         fast New is: the median of the turns. With more threads than CPUs, threads wait for CPUs. Where quartiles of New and of \
         another overlap with one thread, callgrind counts the instructions of the thread, and these decide which of them is slower.\n",
        plan.repetitions,
        plan.span.as_millis()
    );
}

fn times<'a>(text: &mut String, rows: impl Iterator<Item = &'a Row>) {
    text.push_str("| threads | Before | Seed | New | x Before | x Seed |\n|---:|---:|---:|---:|---:|---:|\n");
    for row in rows {
        let [before, seed, new] = Side::ALL.map(|side| {
            let spread = row.nanos(side);
            let [median, lower, upper] = [spread.median, spread.lower, spread.upper].map(figure);
            format!("{median} ({lower}..{upper})")
        });
        let (to_before, to_seed) = (figure(row.ratio(Side::Before)), figure(row.ratio(Side::Seed)));
        let _ = writeln!(text, "| {} | {before} | {seed} | {new} | {to_before} | {to_seed} |", row.threads);
    }
}

fn counters<'a>(text: &mut String, rows: impl Iterator<Item = &'a Row>) {
    text.push_str("\n| counter | threads | Before | Seed | New |\n|---|---:|---:|---:|---:|\n");
    for row in rows.filter(|row| COUNTERS_OF.contains(&row.threads)) {
        for name in row.counter_names() {
            let [before, seed, new] =
                Side::ALL.map(|side| row.counter(side, name).map_or_else(|| "-".to_owned(), figure));
            let _ = writeln!(text, "| {name} | {} | {before} | {seed} | {new} |", row.threads);
        }
    }
}

fn counted(text: &mut String, chapter: &Chapter) {
    let _ = writeln!(text, "\n### {}: shared memory\n", chapter.title);
    if chapter.counted.is_empty() {
        text.push_str("Not counted: that takes a build of its own (`make lab`).\n");
        return;
    }
    text.push_str(
        "Locked instructions are those that the CPU executes for one operation, when nobody is in the way; a lock takes two. Lines in \
         conflict are cache lines that one of two threads writes and the other uses, both at this operation, each with a thing of its \
         own where there are several; counts of `Arc` and what the allocator does are not among them.\n\n\
         | operation | side | locked instructions | lines in conflict |\n|---|---|---:|---:|\n",
    );
    for figures in &chapter.counted {
        let (locked, conflicts) = (figure(figures.locked), figure(figures.conflicts));
        let _ =
            writeln!(text, "| {} | {} | {locked} | {conflicts} |", figures.operation, figures.side.name());
    }
}

fn lengths(text: &mut String, chapter: &Chapter) {
    if chapter.lengths.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n### {}: instructions\n\n| operation | side | instructions |\n|---|---|---:|",
        chapter.title
    );
    for length in &chapter.lengths {
        let instructions = figure(length.instructions);
        let _ = writeln!(text, "| {} | {} | {instructions} |", length.operation, length.side.name());
    }
}

fn facts(text: &mut String, chapter: &Chapter) {
    if chapter.facts.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n### {}: what it takes\n\n| | Before | Seed | New |\n|---|---:|---:|---:|",
        chapter.title
    );
    for fact in &chapter.facts {
        let [before, seed, new] = fact.figures.map(figure);
        let _ = writeln!(text, "| {} | {before} | {seed} | {new} |", fact.name);
    }
}

/// Goals, and how they were reached.
pub(super) fn goals(text: &mut String, verdicts: &[Verdict]) {
    text.push_str("| goal | found | |\n|---|---|---|\n");
    for verdict in verdicts {
        let _ = writeln!(text, "| {} | {} | {} |", verdict.goal, verdict.found, verdict.word());
    }
    text.push('\n');
}
