//! The page of the lab that is committed: of each patch its own table, ours next to it, a chart, and the verdicts.

use std::fmt::Write as _;

use extern4_measure::verdict::Verdict;

use super::{Report, chart, markdown};
use crate::chapter::Chapter;
use crate::plan::Plan;

const HEAD: &str = "# The lab, on a page\n\n\
    Five patches to Linux replaced something on a hot path. **Before** is what a patch replaced and **Seed** is the idea of the patch, both \
    built here; **New** is extern4's code in production. \"gain\" says how many times as fast as before: the patch in its own report, and Seed \
    and New here, as the median of the rounds. Different machines, so compare the gains. `make lab` builds the full report, with every \
    row, in `target/lab`; this page is its `page` folder.\n\n";

/// The whole page. Writing to a string never fails, so nothing here looks at what `writeln` says.
pub(super) fn text(report: &Report<'_>) -> String {
    let mut text = HEAD.to_owned();
    let (machine, plan) = (report.machine, report.plan);
    let _ = writeln!(
        text,
        "{}; commit {}, {}. {} rounds of {} ms for each figure; CPU time decides where it is steadier than the clock.",
        machine.about.line(),
        machine.commit,
        machine.build,
        plan.repetitions,
        plan.span.as_millis()
    );
    for chapter in report.chapters {
        let Chapter { title, theirs, table, .. } = chapter;
        let _ = writeln!(text, "\n## {title}\n\n{theirs}\n\n![{title}]({})\n", chart::file_name(chapter));
        if let Some(table) = table {
            text += &table.markdown();
        }
        text.push('\n');
        goals(&mut text, &chapter.verdicts);
        markdown::facts(&mut text, chapter);
    }
    if !report.counted.matrices.is_empty() {
        text.push_str("\n## Pairs of calls that commute, free of conflicts on cache lines\n\n");
        report.counted.matrices.iter().for_each(|matrix| goals(&mut text, &matrix.verdicts()));
    }
    left_out(&mut text, plan);
    text
}

/// What the page does not tell.
fn left_out(text: &mut String, plan: &Plan) {
    text.push_str(LEFT_OUT);
    if !plan.counts_instructions {
        text.push_str("- This was a short run: where times do not decide whether New is slower, instructions were not counted.\n");
    }
    let numbers = [1, 2, 4, 8, 16, 32, 64, 128, 512];
    let out: Vec<_> = numbers.iter().filter(|n| !plan.threads.contains(n)).map(usize::to_string).collect();
    if !out.is_empty() {
        let _ = writeln!(text, "- Not measured in this run: {} threads.", out.join(", "));
    }
}

const LEFT_OUT: &str = "\n## Left out\n\n\
    - The rows fork, exec and sh of the first patch's table: a library starts no processes.\n\
    - Machines of the patches: all figures of \"here\" are of the one machine above, and with more threads than it has CPUs, threads wait.\n\
    - Rows of single workloads, counters, and curves for more CPUs: the full report has them. A curve whose prediction for two CPUs is off by \
    more than 25 % is not printed there either.\n\
    - Recorded traces by number of threads: `extern4-lab traces` prints them.\n";

fn goals(text: &mut String, verdicts: &[Verdict]) {
    for verdict in verdicts {
        let _ = writeln!(text, "- {}: {}: {}", verdict.word(), verdict.goal, verdict.found);
    }
}
