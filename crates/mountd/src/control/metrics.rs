//! Metrics in the text format of Prometheus.
//!
//! `control` answers `GET /metrics` with it. Names and units of metrics do not change; counters
//! only grow.

use std::fmt::Write as _;
use std::time::Duration;

use super::report::Report;
use crate::counters::{self, Kind};

/// The buckets of durations that are exported: from 1 us to 17 s, each four times the last.
const LIMITS: std::ops::RangeInclusive<u32> = 0..=12;

/// Returns all metrics of a mount.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    let out = &mut text;
    family(
        out,
        "info",
        "gauge",
        "The mounted image, the version of this program and the transport of requests. Always 1.",
    );
    let labels = [
        ("image", &*report.image),
        ("version", env!("CARGO_PKG_VERSION")),
        ("transport", &report.transport),
    ];
    sample(out, "info", &labels, 1);
    family(
        out,
        "uptime_seconds",
        "gauge",
        "Seconds since the volume was mounted.",
    );
    sample(out, "uptime_seconds", &[], report.uptime.as_secs_f64());
    family(
        out,
        "read_only",
        "gauge",
        "1 if nothing may be changed, because of the mount's options or an error; otherwise 0.",
    );
    sample(out, "read_only", &[], u8::from(report.read_only));
    for (name, count) in &report.counters {
        let known = counters::named(name);
        let meaning = known.map_or("", |counter| counter.meaning);
        match known.map(|counter| counter.kind) {
            Some(Kind::Now) => {
                family(out, name, "gauge", meaning);
                sample(out, name, &[], count);
            }
            _ => {
                let total = format!("{name}_total");
                family(out, &total, "counter", meaning);
                sample(out, &total, &[], count);
            }
        }
    }
    operations(report, out);
    text
}

fn operations(report: &Report, out: &mut String) {
    const ERRORS: &str = "operation_errors_total";
    const SECONDS: &str = "operation_duration_seconds";
    family(
        out,
        ERRORS,
        "counter",
        "Requests of the kernel that failed, by kind. Lookups of missing names and attributes do not count.",
    );
    for operation in &report.operations {
        sample(
            out,
            ERRORS,
            &[("operation", &operation.name)],
            operation.errors,
        );
    }
    family(
        out,
        SECONDS,
        "histogram",
        "Seconds from when a request of the kernel was read until its answer was complete, by kind.",
    );
    for operation in &report.operations {
        let of = ("operation", &*operation.name);
        let bucket = format!("{SECONDS}_bucket");
        let times = &operation.times;
        for power in LIMITS {
            // The buckets of the histogram have bounds one nanosecond below a power of two.
            let limit = Duration::from_nanos((1024 << (2 * power)) - 1);
            let within = times.count_within(limit);
            sample(
                out,
                &bucket,
                &[of, ("le", &limit.as_secs_f64().to_string())],
                within,
            );
        }
        sample(out, &bucket, &[of, ("le", "+Inf")], times.count());
        sample(
            out,
            &format!("{SECONDS}_sum"),
            &[of],
            Duration::from_nanos(times.total()).as_secs_f64(),
        );
        sample(out, &format!("{SECONDS}_count"), &[of], times.count());
    }
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(
        out,
        "# HELP extern4_{name} {help}\n# TYPE extern4_{name} {kind}"
    )
    .expect("a string takes everything");
}

fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
    let label = |(label, text): &(&str, &str)| format!("{label}=\"{}\"", quoted(text));
    let labels: Vec<_> = labels.iter().map(label).collect();
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", labels.join(","))
    };
    writeln!(out, "extern4_{name}{labels} {value}").expect("a string takes everything");
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use extern4_fuse::{Histogram, Operation};

    #[test]
    fn every_line_is_a_metric_or_says_what_one_is() {
        let times =
            Histogram::from_counts([(3, 2), (60, 7), (usize::MAX, 1)], 5_000_000_000, 1 << 40);
        let report = Report {
            image: "a\"b\\\n".to_owned(),
            transport: "/dev/fuse".to_owned(),
            counters: vec![("block_hits".to_owned(), 5), ("inodes".to_owned(), 6)],
            operations: vec![Operation {
                name: "read".to_owned(),
                errors: 1,
                times,
            }],
            ..Report::default()
        };
        let text = text(&report);
        for line in text.lines() {
            let is_sample = line
                .rsplit_once(' ')
                .is_some_and(|(_, value)| value.parse::<f64>().is_ok());
            assert!(
                line.starts_with("# ") || line.starts_with("extern4_") && is_sample,
                "{line}"
            );
        }
        for line in [
            "extern4_info{image=\"a\\\"b\\\\\\n\",version=\"0.1.0\",transport=\"/dev/fuse\"} 1",
            "# TYPE extern4_block_hits_total counter",
            "extern4_block_hits_total 5",
            "extern4_inodes 6",
            "extern4_operation_errors_total{operation=\"read\"} 1",
            "extern4_operation_duration_seconds_bucket{operation=\"read\",le=\"0.000001023\"} 2",
            "extern4_operation_duration_seconds_bucket{operation=\"read\",le=\"17.179869183\"} 9",
            "extern4_operation_duration_seconds_bucket{operation=\"read\",le=\"+Inf\"} 10",
            "extern4_operation_duration_seconds_sum{operation=\"read\"} 5",
            "extern4_operation_duration_seconds_count{operation=\"read\"} 10",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
