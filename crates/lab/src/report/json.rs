//! The report in JSON, for programs: every repetition of every row.
//!
//! `report` writes it next to the Markdown. Figures that were not measured are `null`.

use extern4_measure::json::{self, Object};
use extern4_measure::row::Sample;
use extern4_measure::verdict::Verdict;

use super::Report;
use crate::chapter::Chapter;
use crate::coherence::CPUS;
use crate::conflicts::{Matrix, Share};
use crate::plan::Side;
use crate::row::Row;
use crate::spec::{Kind, Nearness};

pub(super) fn text(report: &Report<'_>) -> String {
    let Report { machine, plan, chapters, counted } = report;
    json::line(|object| {
        object.object("machine", |item| {
            machine.about.write(item);
            item.text("commit", &machine.commit);
            item.text("build", machine.build);
            item.numbers("line_ns", &machine.line);
        });
        object.object("plan", |item| {
            item.raw("repetitions", plan.repetitions);
            item.raw("span_ms", plan.span.as_millis());
            item.raw("period_ms", plan.period.as_millis());
        });
        object.objects("chapters", *chapters, chapter);
        object.objects("conflicts", &counted.matrices, matrix);
        object.objects("meetings", &counted.line_conflicts, |conflict, item| {
            item.text("mechanism", &conflict.mechanism);
            item.texts("operations", &conflict.operations);
            item.text("side", conflict.side.name());
            item.raw("lines_in_conflict", conflict.lines);
        });
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
        item.number("instructions", length.instructions);
    });
    object.objects("facts", &chapter.facts, |fact, item| {
        item.text("name", &fact.name);
        item.object("sides", |sides| {
            Side::ALL.iter().for_each(|side| sides.number(side.name(), fact.figures[*side as usize]));
        });
    });
    object.objects("simulated", &chapter.simulated, |curve, item| {
        item.text("workload", curve.workload);
        item.text("side", curve.side.name());
        item.numbers("cpus", CPUS);
        item.numbers("ns", curve.nanos);
        item.number("measured_ns_of_2", curve.measured_with_two.unwrap_or(f64::NAN));
    });
    object.objects("verdicts", &chapter.verdicts, verdict);
}

fn verdict(verdict: &Verdict, object: &mut Object<'_>) {
    object.text("goal", &verdict.goal);
    object.text("found", &verdict.found);
    object.maybe("met", verdict.outcome.is_met());
}

fn matrix(matrix: &Matrix, object: &mut Object<'_>) {
    object.text("on", matrix.on.name());
    object.object("locked_instructions_without_a_note", |item| {
        matrix.unseen.iter().for_each(|(kind, count)| item.number(kind.name(), *count));
    });
    object.object("all", |item| share(matrix.all(), item));
    object.object("every_pair", |item| share(matrix.whole(), item));
    object.object("reading", |item| share(matrix.reading(), item));
    object.object("by_what_calls_share", |item| {
        Nearness::ALL
            .into_iter()
            .for_each(|near| item.object(near.name(), |item| share(matrix.near(near), item)));
    });
    let pairs = |row: usize| Kind::ALL[row..].iter().map(move |other| [Kind::ALL[row], *other]);
    object.objects("cells", (0..Kind::ALL.len()).flat_map(pairs), |calls, item| {
        item.texts("calls", calls.map(Kind::name));
        item.object("pairs", |item| share(matrix.cell(calls[0], calls[1]), item));
    });
    object.objects("offenders", matrix.offenders(), |offender, item| {
        item.text("fields", offender.field);
        item.raw("pairs", offender.pairs);
        item.raw("apart", offender.apart);
    });
    object.objects("verdicts", &matrix.verdicts(), verdict);
}

fn share(share: Share, object: &mut Object<'_>) {
    object.raw("made", share.tests);
    object.raw("free_at_first", share.at_first);
    object.raw("free", share.free);
}

fn row(row: &Row, object: &mut Object<'_>) {
    object.text("workload", row.workload);
    object.raw("threads", row.threads);
    for side in row.sides().filter(|side| *side != Side::Extern4) {
        object.number(&format!("new_times_{}", side.name().to_lowercase()), row.ratio(Side::Extern4, side));
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
        sample.counters.iter().for_each(|(name, value)| item.number(name, *value))
    });
}
