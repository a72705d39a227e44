//! The report as programs read it: every repetition of every row.

use super::Report;
use super::machine::Machine;
use crate::chapter::Chapter;
use crate::coherence::CPUS;
use crate::conflicts::{Matrix, Share};
use crate::meetings::Meeting;
use crate::plan::Side;
use crate::row::{Row, Sample};
use crate::spec::{Kind, Nearness};
use crate::verdict::Verdict;

pub(super) fn text(report: &Report<'_>) -> String {
    let Machine { processor, cpus, kernel, commit, load, line, build } = report.machine;
    let machine = object([
        ("processor", string(processor)),
        ("cpus", cpus.to_string()),
        ("kernel", string(kernel)),
        ("commit", string(commit)),
        ("build", string(build)),
        ("load", array(load.iter().map(|load| string(load)))),
        ("line_ns", array(line.iter().map(|nanos| number(*nanos)))),
    ]);
    let plan = report.plan;
    let plan = object([
        ("repetitions", plan.repetitions.to_string()),
        ("span_ms", plan.span.as_millis().to_string()),
        ("period_ms", plan.period.as_millis().to_string()),
    ]);
    let chapters = array(report.chapters.iter().map(chapter));
    let matrices = array(report.counted.matrices.iter().map(matrix));
    let meetings = array(report.counted.meetings.iter().map(meeting));
    let fields = [
        ("machine", machine),
        ("plan", plan),
        ("chapters", chapters),
        ("conflicts", matrices),
        ("meetings", meetings),
    ];
    object(fields) + "\n"
}

fn chapter(chapter: &Chapter) -> String {
    let counted = chapter.counted.iter().map(|figure| {
        object([
            ("operation", string(&figure.operation)),
            ("side", string(figure.side.name())),
            ("locked_instructions", number(figure.locked)),
            ("lines_in_conflict", number(figure.conflicts)),
        ])
    });
    let lengths = chapter.lengths.iter().map(|length| {
        object([
            ("operation", string(&length.operation)),
            ("side", string(length.side.name())),
            ("instructions", number(length.instructions)),
        ])
    });
    let facts = chapter.facts.iter().map(|fact| {
        let figures = Side::ALL.map(|side| (side.name(), number(fact.figures[side as usize])));
        object([("name", string(fact.name)), ("sides", object(figures))])
    });
    let simulated = chapter.simulated.iter().map(|curve| {
        object([
            ("workload", string(curve.workload)),
            ("side", string(curve.side.name())),
            ("cpus", array(CPUS.iter().map(usize::to_string))),
            ("ns", array(curve.nanos.iter().map(|nanos| number(*nanos)))),
            ("measured_ns_of_2", number(curve.measured_with_two.unwrap_or(f64::NAN))),
        ])
    });
    object([
        ("name", string(chapter.name)),
        ("rows", array(chapter.rows.iter().map(row))),
        ("counted", array(counted)),
        ("instructions", array(lengths)),
        ("facts", array(facts)),
        ("simulated", array(simulated)),
        ("verdicts", array(chapter.verdicts.iter().map(verdict))),
    ])
}

fn meeting(meeting: &Meeting) -> String {
    object([
        ("mechanism", string(&meeting.mechanism)),
        ("operations", array(meeting.operations.iter().map(|operation| string(operation)))),
        ("side", string(meeting.side.name())),
        ("lines_in_conflict", meeting.lines.to_string()),
    ])
}

fn verdict(verdict: &Verdict) -> String {
    object([
        ("goal", string(&verdict.goal)),
        ("found", string(&verdict.found)),
        ("met", verdict.met.map_or_else(|| "null".to_owned(), |met| met.to_string())),
    ])
}

fn matrix(matrix: &Matrix) -> String {
    let nearness = Nearness::ALL.map(|near| (near.name(), share(matrix.near(near))));
    let cells = Kind::ALL.into_iter().enumerate().flat_map(|(row, one)| {
        Kind::ALL[row..].iter().map(move |other| {
            let calls = array([one, *other].map(|kind| string(kind.name())).into_iter());
            object([("calls", calls), ("pairs", share(matrix.cell(one, *other)))])
        })
    });
    let offenders = matrix.offenders();
    let offenders = offenders.iter().map(|offender| {
        object([
            ("fields", string(offender.field)),
            ("pairs", offender.pairs.to_string()),
            ("apart", offender.apart.to_string()),
        ])
    });
    let unseen = matrix.unseen.iter().map(|(kind, count)| (kind.name(), number(*count)));
    object([
        ("on", string(matrix.on.name())),
        ("locked_instructions_without_a_note", object(unseen)),
        ("all", share(matrix.all())),
        ("every_pair", share(matrix.whole())),
        ("reading", share(matrix.reading())),
        ("by_what_calls_share", object(nearness)),
        ("cells", array(cells)),
        ("offenders", array(offenders)),
        ("verdicts", array(matrix.verdicts().iter().map(verdict))),
    ])
}

fn share(share: Share) -> String {
    object([
        ("made", share.tests.to_string()),
        ("free_at_first", share.at_first.to_string()),
        ("free", share.free.to_string()),
    ])
}

fn row(row: &Row) -> String {
    object([
        ("workload", string(row.workload)),
        ("threads", row.threads.to_string()),
        ("new_times_before", number(row.ratio(Side::Before))),
        ("new_times_seed", number(row.ratio(Side::Seed))),
        ("sides", array(Side::ALL.map(|at| side(row, at)).into_iter())),
    ])
}

fn side(row: &Row, side: Side) -> String {
    let spread = row.nanos(side);
    object([
        ("side", string(side.name())),
        ("median_ns", number(spread.median)),
        ("lower_quartile_ns", number(spread.lower)),
        ("upper_quartile_ns", number(spread.upper)),
        ("repetitions", array(row.samples(side).iter().map(sample))),
    ])
}

fn sample(sample: &Sample) -> String {
    let counters = object(sample.counters.iter().map(|(name, n)| (*name, number(*n))));
    object([("ns", number(sample.nanos)), ("counters", counters)])
}

fn object<'a>(members: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let members = members.into_iter().map(|(key, value)| format!("{}:{value}", string(key)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(","))
}

/// What is not a number is not one in JSON either.
fn number(n: f64) -> String {
    if n.is_finite() { n.to_string() } else { "null".to_owned() }
}

fn string(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_what_is_no_number_is_null() {
        assert_eq!(string("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
        assert_eq!([number(0.5), number(f64::NAN)], ["0.5", "null"]);
        assert_eq!(object([("a", array([number(1.0)].into_iter()))]), r#"{"a":[1]}"#);
    }
}
