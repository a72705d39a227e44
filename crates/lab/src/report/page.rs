//! The page of the lab that is committed: of each patch its own table, ours next to it, a chart, and the verdicts.

use std::fmt::Write as _;

use extern4_measure::verdict::Verdict;

use super::{Report, chart};
use crate::chapter::Chapter;

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
    }
    if !report.counted.matrices.is_empty() {
        text.push_str("\n## Pairs of calls that commute, free of conflicts on cache lines\n\n");
        report.counted.matrices.iter().for_each(|matrix| goals(&mut text, &matrix.verdicts()));
    }
    text
}

fn goals(text: &mut String, verdicts: &[Verdict]) {
    for verdict in verdicts {
        let _ = writeln!(text, "- {}: {}: {}", verdict.word(), verdict.goal, verdict.found);
    }
}
