//! The activity of a mount, as tables for people and members for scripts: since it was mounted, or
//! between two reports.
//!
//! `stats` and `top` print it. Counters only grow, so the activity between two reports is their
//! difference.

use std::fmt::Write as _;
use std::time::Duration;

use extern4_fuse::Operation;

use super::holders::{Holder, total};
use super::report::Report;
use crate::json::Object;
use crate::text::{escape, human};

/// How many decimals of a rate mean something.
const DECIMALS: i32 = 4;

/// The activity of a mount in a period.
pub(crate) struct Activity {
    while_seconds: f64,
    /// The operations, the most frequent first.
    operations: Vec<Operation>,
    blocks: Share,
    names: Share,
    commits: u64,
    handles: u64,
    flushes: u64,
    bytes_logged: u64,
}

/// A part of a whole, both counted.
struct Share {
    part: u64,
    whole: u64,
}

impl Activity {
    /// Returns the activity since the mount.
    pub(crate) fn since_mount(report: &Report) -> Self {
        Self::between(&Report::default(), report)
    }

    /// Returns the activity between two reports.
    pub(crate) fn between(earlier: &Report, later: &Report) -> Self {
        let came = |name: &str| later.counter(name).saturating_sub(earlier.counter(name));
        let hits = came("block_hits");
        let walks = came("rcu_walks");
        Self {
            while_seconds: later.uptime.saturating_sub(earlier.uptime).as_secs_f64(),
            operations: operations_between(&earlier.operations, &later.operations),
            blocks: Share {
                part: hits,
                whole: hits
                    .saturating_add(came("block_misses"))
                    .saturating_add(came("block_waits")),
            },
            names: Share {
                part: walks.saturating_sub(came("lookups")),
                whole: walks,
            },
            commits: came("transactions"),
            handles: came("handles"),
            flushes: came("flushes"),
            bytes_logged: came("bytes_logged"),
        }
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.while_seconds > 0.0 {
            count as f64 / self.while_seconds
        } else {
            0.0
        }
    }

    /// Returns how many operations of all kinds there were a second.
    pub(crate) fn all_per_second(&self) -> f64 {
        let counts = self
            .operations
            .iter()
            .map(|operation| operation.times.count());
        self.per_second(counts.fold(0, u64::saturating_add))
    }

    /// Returns a table of the `most` most frequent operations, a line each below a line of
    /// headings. The counts are totals, or per second.
    pub(crate) fn operations(&self, per_second: bool, most: usize) -> String {
        let (count, errors) = if per_second {
            ("ops/s", "errors/s")
        } else {
            ("count", "errors")
        };
        let mut text = line(
            "operation",
            [count, errors, "p50", "p90", "p99", "max"].map(str::to_owned),
        );
        for operation in self.operations.iter().take(most) {
            let number = |number: u64| {
                if per_second {
                    format!("{:.1}", self.per_second(number))
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
    pub(crate) fn rest(&self) -> String {
        let percent = |share: &Share| match share.rate() {
            Some(rate) => format!("{:.1} %", rate * 100.0),
            None => "-".to_owned(),
        };
        let each = self
            .handles_per_commit()
            .map_or_else(|| "-".to_owned(), |each| format!("{each:.1}"));
        format!(
            "cached   blocks {}, names {}\njournal  {:.1} commits/s, {each} operations a commit, {:.1} flushes/s, {}/s\n",
            percent(&self.blocks),
            percent(&self.names),
            self.per_second(self.commits),
            self.per_second(self.flushes),
            human(self.per_second(self.bytes_logged) as u64),
        )
    }

    /// Returns the hit rates of the caches, with their names. The first rate is of lookups of
    /// metadata blocks. The second is of path walks; a hit is a walk that asked the file system for
    /// no name.
    pub(crate) fn rates(&self) -> [(&'static str, Option<f64>); 2] {
        [
            ("block_hit_rate", self.blocks.rate()),
            ("name_hit_rate", self.names.rate()),
        ]
    }

    /// Returns how many operations a commit made durable, on average.
    fn handles_per_commit(&self) -> Option<f64> {
        (self.commits > 0).then(|| self.handles as f64 / self.commits as f64)
    }

    /// Writes everything but the operations.
    pub(crate) fn write(&self, object: &mut Object<'_>) {
        object.rounded("operations_per_second", self.all_per_second(), DECIMALS);
        self.rates()
            .into_iter()
            .for_each(|(name, rate)| object.rounded(name, rate, DECIMALS));
        object.rounded(
            "commits_per_second",
            self.per_second(self.commits),
            DECIMALS,
        );
        object.rounded("handles_per_commit", self.handles_per_commit(), DECIMALS);
        object.rounded(
            "flushes_per_second",
            self.per_second(self.flushes),
            DECIMALS,
        );
    }

    /// Writes the operations.
    pub(crate) fn write_operations(&self, object: &mut Object<'_>) {
        object.objects("operations", &self.operations, |operation, item| {
            item.text("name", &operation.name);
            item.raw("count", operation.times.count());
            item.raw("errors", operation.errors);
            item.rounded(
                "per_second",
                self.per_second(operation.times.count()),
                DECIMALS,
            );
            let names = ["p50_ns", "p90_ns", "p99_ns", "max_ns"];
            names
                .into_iter()
                .zip(latencies(operation))
                .for_each(|(name, time)| item.maybe(name, time));
        });
    }
}

impl Share {
    /// Returns the part divided by the whole, or `None` if the whole is zero.
    fn rate(&self) -> Option<f64> {
        (self.whole > 0).then(|| self.part as f64 / self.whole as f64)
    }
}

fn operations_between(earlier: &[Operation], later: &[Operation]) -> Vec<Operation> {
    let came = |now: &Operation| {
        let mut came = now.clone();
        if let Some(then) = earlier.iter().find(|then| then.name == now.name) {
            came.errors = now.errors.saturating_sub(then.errors);
            came.times = now.times.since(&then.times);
        }
        (came.times.count() > 0).then_some(came)
    };
    let mut operations: Vec<_> = later.iter().filter_map(came).collect();
    operations.sort_by_key(|operation| std::cmp::Reverse(operation.times.count()));
    operations
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
    use extern4_fuse::Histogram;

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
        assert!((activity.all_per_second() - 20.0).abs() < 1e-9);
        let table = activity.operations(true, 9);
        let words: Vec<_> = table
            .lines()
            .nth(1)
            .expect("a line")
            .split_whitespace()
            .collect();
        assert_eq!(words[..3], ["read", "20.0", "2.0"]);
        assert_eq!(
            activity.rest(),
            "cached   blocks 75.0 %, names -\n\
             journal  1.0 commits/s, 10.0 operations a commit, 0.0 flushes/s, 0/s\n"
        );
        // Nothing happened, in no time.
        let nothing = Activity::between(&later, &later);
        assert_eq!(nothing.operations(true, 9).lines().count(), 1);
        assert!(
            nothing.rest().contains("blocks -")
                && nothing.rest().contains(" - operations a commit")
        );
        // A counter that was reset is no reason to fail.
        assert!(Activity::between(&later, &earlier).all_per_second() < 1e-9);
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
