//! The activity of a mount, as tables for people and members for scripts.
//!
//! `stats` and `top` print it.

use std::fmt::Write as _;
use std::time::Duration;

use extern4_mountd::Operation;
use extern4_mountd::activity::Activity;
use extern4_mountd::control::holders::{Holder, total};

use crate::json::Object;
use crate::text::{escape, human};

/// How many decimals of a rate mean something.
const DECIMALS: i32 = 4;

/// Returns a table of the `most` most frequent operations, a line each below a line of headings.
/// The counts are totals, or per second.
pub(crate) fn operations(activity: &Activity, per_second: bool, most: usize) -> String {
    let (count, errors) = if per_second {
        ("ops/s", "errors/s")
    } else {
        ("count", "errors")
    };
    let mut text = line(
        "operation",
        [count, errors, "p50", "p90", "p99", "max"].map(str::to_owned),
    );
    for operation in activity.operations().iter().take(most) {
        let number = |number: u64| {
            if per_second {
                format!("{:.1}", activity.per_second(number))
            } else {
                number.to_string()
            }
        };
        let [p50, p90, p99, max] = latencies(operation).map(short);
        let columns = [
            number(operation.times.count()),
            number(operation.errors),
            p50,
            p90,
            p99,
            max,
        ];
        text += &line(&escape(operation.name.as_bytes()), columns);
    }
    text
}

/// Returns the lines about the caches and the journal.
pub(crate) fn caches_and_journal(activity: &Activity) -> String {
    let percent = |rate: Option<f64>| match rate {
        Some(rate) => format!("{:.1} %", rate * 100.0),
        None => "-".to_owned(),
    };
    let each = activity
        .handles_per_commit()
        .map_or_else(|| "-".to_owned(), |each| format!("{each:.1}"));
    format!(
        "cached   blocks {}, names {}\njournal  {:.1} commits/s, {each} operations a commit, {:.1} flushes/s, {}/s\n",
        percent(activity.block_hit_rate()),
        percent(activity.name_hit_rate()),
        activity.commits_per_second(),
        activity.flushes_per_second(),
        human(activity.logged_bytes_per_second() as u64),
    )
}

/// Returns the hit rates of the caches, with their names.
pub(crate) fn rates(activity: &Activity) -> [(&'static str, Option<f64>); 2] {
    [
        ("block_hit_rate", activity.block_hit_rate()),
        ("name_hit_rate", activity.name_hit_rate()),
    ]
}

/// Writes everything as members of an object.
pub(crate) fn write(activity: &Activity, object: &mut Object<'_>) {
    object.rounded(
        "operations_per_second",
        activity.operations_per_second(),
        DECIMALS,
    );
    rates(activity)
        .into_iter()
        .for_each(|(name, rate)| object.rounded(name, rate, DECIMALS));
    object.rounded(
        "commits_per_second",
        activity.commits_per_second(),
        DECIMALS,
    );
    object.rounded(
        "handles_per_commit",
        activity.handles_per_commit(),
        DECIMALS,
    );
    object.rounded(
        "flushes_per_second",
        activity.flushes_per_second(),
        DECIMALS,
    );
    object.objects("operations", activity.operations(), |operation, item| {
        item.text("name", &operation.name);
        item.raw("count", operation.times.count());
        item.raw("errors", operation.errors);
        item.rounded(
            "per_second",
            activity.per_second(operation.times.count()),
            DECIMALS,
        );
        let names = ["p50_ns", "p90_ns", "p99_ns", "max_ns"];
        names
            .into_iter()
            .zip(latencies(operation))
            .for_each(|(name, time)| item.maybe(name, time));
    });
}

/// Writes the processes that have files open, as members of an object.
pub(crate) fn write_holders(holders: &[Holder], object: &mut Object<'_>) {
    object.raw("open_files", total(holders));
    object.objects("processes", holders, |holder, item| {
        item.raw("pid", holder.pid);
        item.text("command", &holder.command);
        item.raw("open_files", holder.open_files);
    });
}

fn latencies(operation: &Operation) -> [Option<u64>; 4] {
    let times = &operation.times;
    let longest = (times.count() > 0).then_some(times.longest());
    [
        times.quantile(0.5),
        times.quantile(0.9),
        times.quantile(0.99),
        longest,
    ]
}

fn line(name: &str, columns: [String; 6]) -> String {
    let columns: String = columns
        .iter()
        .map(|column| format!(" {column:>10}"))
        .collect();
    format!("{name:<18}{columns}\n")
}

/// Returns a duration with three digits.
fn short(nanoseconds: Option<u64>) -> String {
    let Some(nanoseconds) = nanoseconds else {
        return "-".to_owned();
    };
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| nanoseconds >= *unit) else {
        return format!("{nanoseconds}ns");
    };
    let amount = nanoseconds as f64 / unit as f64;
    let digits = usize::from(amount < 99.95) + usize::from(amount < 9.995);
    format!("{amount:.digits$}{name}")
}

/// Returns a line with the processes that have files open.
pub(crate) fn open_files(holders: &[Holder], most: usize) -> String {
    let mut text = format!("files    {} open", total(holders));
    for (
        at,
        Holder {
            pid,
            command,
            open_files,
        },
    ) in holders.iter().take(most).enumerate()
    {
        let separator = if at == 0 { ": " } else { ", " };
        let command = escape(command.as_bytes());
        write!(text, "{separator}{open_files} by {command} ({pid})")
            .expect("a string takes everything");
    }
    text + if holders.len() > most {
        ", ...\n"
    } else {
        "\n"
    }
}

/// Returns a time as a clock shows it.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use extern4_mountd::Histogram;
    use extern4_mountd::control::report::Report;

    fn report(seconds: u64, reads: u64, counters: &[(&str, u64)]) -> Report {
        let times = Histogram::from_counts([(40, reads)], reads * 2000, 2000);
        Report {
            uptime: Duration::from_secs(seconds),
            operations: vec![Operation {
                name: "read".to_owned(),
                errors: reads / 10,
                times,
            }],
            counters: counters
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect(),
            ..Report::default()
        }
    }

    #[test]
    fn activity_between_two_reports_is_shown_by_the_second() {
        let earlier = report(
            10,
            100,
            &[("block_hits", 10), ("block_misses", 10), ("handles", 5)],
        );
        let later = report(
            12,
            140,
            &[
                ("block_hits", 13),
                ("block_misses", 11),
                ("handles", 25),
                ("transactions", 2),
            ],
        );
        let activity = Activity::between(&earlier, &later);
        assert!((activity.operations_per_second() - 20.0).abs() < 1e-9);
        let table = operations(&activity, true, 9);
        let words: Vec<_> = table
            .lines()
            .nth(1)
            .expect("a line")
            .split_whitespace()
            .collect();
        assert_eq!(words[..3], ["read", "20.0", "2.0"]);
        assert_eq!(
            caches_and_journal(&activity),
            "cached   blocks 75.0 %, names -\n\
             journal  1.0 commits/s, 10.0 operations a commit, 0.0 flushes/s, 0/s\n"
        );
        // Nothing happened, in no time.
        let nothing = Activity::between(&later, &later);
        assert_eq!(operations(&nothing, true, 9).lines().count(), 1);
        assert!(
            caches_and_journal(&nothing).contains("blocks -")
                && caches_and_journal(&nothing).contains(" - operations a commit")
        );
        // A counter that was reset is no reason to fail.
        assert!(Activity::between(&later, &earlier).operations_per_second() < 1e-9);
    }

    #[test]
    fn durations_have_three_digits() {
        let check = |nanoseconds: u64, shown: &str| assert_eq!(short(Some(nanoseconds)), shown);
        check(0, "0ns");
        check(999, "999ns");
        check(1234, "1.23us");
        check(99_960, "100us");
        check(12_345_678, "12.3ms");
        check(123_000_000_000, "123s");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
