//! The lab's report on one page, in Markdown: each patch's own table with the lab's figures next to
//! it, a chart, and the verdicts.
//!
//! `report::write` calls [`text`] and writes the page next to the full report. It is the page that
//! is committed in `docs/lab`, so all its figures are from one run. It names the machine and lists
//! the rows and figures that it leaves out.

use std::fmt::Write as _;

use extern4_measure::table::figure;
use extern4_measure::verdict::{Outcome, Verdict};

use super::{Report, chart};
use crate::chapter::{Chapter, Fact};
use crate::plan::Plan;

const HEAD: &str = "# The lab, on a page\n\n\
    Five patches to Linux replaced something on a hot path. **baseline** is the code that a patch replaced and **patch** is its idea, both \
    built here; **extern4** is the code in production. \"gain\" says how many times as fast as the baseline: the patch in its own report, and patch \
    and extern4 here, as the median of the rounds. Different machines, so compare the gains. `make lab` builds the full report, with every \
    row, in `target/lab`; this page is its `page` folder. A verdict needs a spread (the distance of the quartiles) that is smaller than its margin (the \
    distance from the median to the bound); otherwise it is undecided. \"load\" in a verdict says how many CPUs other programs used meanwhile.\n";

/// Returns the whole page. Writing to a string never fails, so the code ignores the results of
/// `writeln`.
pub(super) fn text(report: &Report<'_>) -> String {
    let mut text = HEAD.to_owned();
    let machine = report.machine;
    let plan = report.plan;
    let _ = writeln!(
        text,
        "{}; commit {}, {}. {} rounds of {} ms for each figure; with one thread, CPU time decides where it is steadier than the clock.",
        machine.about.line(),
        machine.commit,
        machine.build,
        plan.repetitions,
        plan.span.as_millis()
    );
    for chapter in report.chapters {
        let Chapter {
            title,
            theirs,
            table,
            ..
        } = chapter;
        let _ = writeln!(
            text,
            "\n## {title}\n{theirs} ![{title}]({})\n",
            chart::file_name(chapter)
        );
        if let Some(table) = table {
            text += &table.markdown();
        }
        text.push('\n');
        goals(&mut text, &chapter.verdicts);
        facts(&mut text, &chapter.facts);
    }
    left_out(&mut text, plan);
    text
}

/// Writes which rows and figures the page leaves out.
fn left_out(text: &mut String, plan: &Plan) {
    text.push_str(LEFT_OUT);
    if !plan.counts_instructions {
        text.push_str(" In a short run no instructions are counted where times do not decide.");
    }
    let numbers = [1, 2, 4, 8, 16, 32, 64, 128, 512];
    let out: Vec<_> = numbers
        .iter()
        .filter(|n| !plan.threads.contains(n))
        .map(usize::to_string)
        .collect();
    if !out.is_empty() {
        let _ = write!(
            text,
            " This run has no figures of {} threads.",
            out.join(", ")
        );
    }
    text.push('\n');
}

const LEFT_OUT: &str = "\n## Left out\n\
    The rows fork, exec and sh of the first patch's table: a library starts no processes. The machines of the patches: all figures of \
    \"here\" are of the one machine above, and with more threads than it has CPUs, threads wait. Rows of single workloads, \
    instructions and counters are in the full report.";

/// Writes a line for all goals that are met, and one for each other.
fn goals(text: &mut String, verdicts: &[Verdict]) {
    let line = |verdict: &Verdict| format!("{}: {}", verdict.goal, verdict.found_under_load());
    let (met, others): (Vec<_>, Vec<_>) = verdicts
        .iter()
        .partition(|verdict| verdict.outcome == Outcome::Met);
    if !met.is_empty() {
        let met: Vec<_> = met.into_iter().map(line).collect();
        let _ = writeln!(text, "- met: {}.", met.join(". "));
    }
    for verdict in others {
        let _ = writeln!(text, "- {}: {}.", verdict.word(), line(verdict));
    }
}

/// Writes a line with the figures of all sides.
fn facts(text: &mut String, facts: &[Fact]) {
    let line = |fact: &Fact| format!("{} {}", fact.name, fact.figures.map(figure).join(" / "));
    if !facts.is_empty() {
        let facts: Vec<_> = facts.iter().map(line).collect();
        let _ = writeln!(text, "- baseline / patch / extern4: {}.", facts.join("; "));
    }
}
