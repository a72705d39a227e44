//! The report as programs read it: every repetition of every row.

use super::machine::Machine;
use crate::chapter::Chapter;
use crate::plan::{Plan, Side};
use crate::row::{Row, Sample};

pub(super) fn text(machine: &Machine, plan: &Plan, chapters: &[Chapter]) -> String {
    let Machine { processor, cpus, kernel, commit, load, build } = machine;
    let machine = object([
        ("processor", string(processor)),
        ("cpus", cpus.to_string()),
        ("kernel", string(kernel)),
        ("commit", string(commit)),
        ("build", string(build)),
        ("load", array(load.iter().map(|load| string(load)))),
    ]);
    let plan = object([
        ("repetitions", plan.repetitions.to_string()),
        ("span_ms", plan.span.as_millis().to_string()),
        ("period_ms", plan.period.as_millis().to_string()),
    ]);
    object([("machine", machine), ("plan", plan), ("chapters", array(chapters.iter().map(chapter)))]) + "\n"
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
    let verdicts = chapter.verdicts.iter().map(|verdict| {
        object([
            ("goal", string(&verdict.goal)),
            ("found", string(&verdict.found)),
            ("met", verdict.met.map_or_else(|| "null".to_owned(), |met| met.to_string())),
        ])
    });
    object([
        ("name", string(chapter.name)),
        ("rows", array(chapter.rows.iter().map(row))),
        ("counted", array(counted)),
        ("instructions", array(lengths)),
        ("facts", array(facts)),
        ("verdicts", array(verdicts)),
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
