//! The report in JSON, for programs: every repetition of every row.
//!
//! `report` writes it next to the Markdown. Figures that were not measured are `null`.

use extern4_measure::json::{self, Object};
use extern4_measure::row::Sample;
use extern4_measure::verdict::Verdict;

use super::Report;
use crate::chapter::Chapter;
use crate::plan::Side;
use crate::row::Row;

pub(super) fn text(report: &Report<'_>) -> String {
    let Report {
        machine,
        plan,
        chapters,
    } = report;
    json::line(|object| {
        object.object("machine", |item| {
            machine.about.write(item);
            item.text("commit", &machine.commit);
            item.text("build", machine.build);
        });
        object.object("plan", |item| {
            item.raw("repetitions", plan.repetitions);
            item.raw("span_ms", plan.span.as_millis());
            item.raw("period_ms", plan.period.as_millis());
        });
        object.objects("chapters", *chapters, chapter);
    })
}

fn chapter(chapter: &Chapter, object: &mut Object<'_>) {
    object.text("name", chapter.name);
    object.objects("rows", &chapter.rows, row);
    object.objects("counted", &chapter.counted, |figure, item| {
        item.text("operation", &figure.operation);
        item.text("side", figure.side.name());
        item.number("locked_instructions", figure.locked);
        item.number("lines_in_conflict", figure.conflicts);
    });
    object.objects("instructions", &chapter.lengths, |length, item| {
        item.text("operation", &length.operation);
        item.text("side", length.side.name());
        item.numbers("instructions", &length.instructions.0);
    });
    object.objects("facts", &chapter.facts, |fact, item| {
        item.text("name", &fact.name);
        item.object("sides", |sides| {
            Side::ALL
                .iter()
                .for_each(|side| sides.number(side.name(), fact.figures[*side as usize]));
        });
    });
    object.objects("verdicts", &chapter.verdicts, verdict);
}

fn verdict(verdict: &Verdict, object: &mut Object<'_>) {
    object.text("goal", &verdict.goal);
    object.text("found", &verdict.found);
    object.text("outcome", verdict.word());
    object.rounded("load", verdict.load, 2);
}

fn row(row: &Row, object: &mut Object<'_>) {
    object.text("workload", row.workload);
    object.raw("threads", row.threads);
    for side in row.sides().filter(|side| *side != Side::Extern4) {
        object.number(
            &format!("new_times_{}", side.name().to_lowercase()),
            row.ratio(Side::Extern4, side),
        );
    }
    object.objects("sides", row.sides(), |at, item| {
        let nanos = row.nanos(at);
        let (lower, upper) = nanos.quartiles().unzip();
        item.text("side", at.name());
        item.maybe("median_ns", nanos.median());
        item.maybe("lower_quartile_ns", lower);
        item.maybe("upper_quartile_ns", upper);
        item.objects("repetitions", row.samples(at), sample);
    });
}

fn sample(sample: &Sample, object: &mut Object<'_>) {
    object.number("ns", sample.nanos);
    object.object("counters", |item| {
        sample
            .counters
            .iter()
            .for_each(|(name, value)| item.number(name, *value))
    });
}
