//! Metrics in the text format of Prometheus.
//!
//! `control` answers `GET /metrics` with it. Names and units of metrics do not change; counters
//! only grow.

use std::fmt::Write as _;
use std::time::Duration;

use super::report::Report;

/// Whether a metric only grows.
#[derive(Clone, Copy)]
enum Kind {
    /// The number of events so far.
    Total,
    /// The number of things at present.
    Now,
}

/// The meaning of the counters of caches and journal.
const COUNTERS: &[(&str, Kind, &str)] = &[
    ("dentries", Kind::Now, "Names in the cache, those that are known not to exist included."),
    ("inodes", Kind::Now, "Inodes in the cache."),
    ("inode_reads", Kind::Total, "Inodes read from their tables."),
    (
        "lookups",
        Kind::Total,
        "Names searched for in a directory of the volume, because the cache did not know them.",
    ),
    ("fast_searches", Kind::Total, "Search permissions of directories answered from a cached word."),
    ("full_searches", Kind::Total, "Search permissions of directories computed from mode and ACL."),
    ("rcu_walks", Kind::Total, "Paths that were walked in the cache without a lock."),
    (
        "walk_fallbacks",
        Kind::Total,
        "Of these, paths that were walked again with locks, because something was not cached.",
    ),
    (
        "walk_restarts",
        Kind::Total,
        "Of these, paths that were walked again because a name changed meanwhile.",
    ),
    ("files_opened", Kind::Total, "Times that a file was opened."),
    ("files_closed_by_thread", Kind::Total, "Files closed by the thread that opened them."),
    ("files_closed_on_cpu", Kind::Total, "Files closed by another thread on the CPU where they were opened."),
    (
        "files_closed_on_node",
        Kind::Total,
        "Files closed on another CPU of the NUMA node where they were opened.",
    ),
    ("files_closed_elsewhere", Kind::Total, "Files closed on another NUMA node."),
    ("block_hits", Kind::Total, "Metadata blocks found in the cache."),
    ("block_misses", Kind::Total, "Metadata blocks read from the image, for a lookup or ahead of one."),
    ("block_waits", Kind::Total, "Lookups of metadata blocks that waited for a read of another thread."),
    ("block_evictions", Kind::Total, "Metadata blocks given up to keep the cache within its bound."),
    ("blocks_resident", Kind::Now, "Metadata blocks in the cache."),
    ("device_reads", Kind::Total, "Reads of metadata sent to the image; one may fetch several blocks."),
    ("transactions", Kind::Total, "Transactions of the journal that have become durable."),
    ("handles", Kind::Total, "Operations that changed metadata; many share a transaction."),
    (
        "blocks_logged",
        Kind::Total,
        "Copies of blocks written to the journal; without one, metadata blocks written by commits.",
    ),
    ("bytes_logged", Kind::Total, "Bytes written to the journal."),
    ("revokes", Kind::Total, "Blocks that the journal must never replay, because they were freed."),
    ("flushes", Kind::Total, "Flushes of the image's or the journal's device."),
    ("checkpoints", Kind::Total, "Times that room in the journal was freed."),
    (
        "blocks_checkpointed",
        Kind::Total,
        "Blocks written from memory to their place, so that the journal no longer needs them.",
    ),
    ("journal_waits", Kind::Total, "Operations that waited for a commit or for room in the journal."),
    (
        "xattr_blocks_shared",
        Kind::Total,
        "Times that an inode took over an attribute block that another inode has.",
    ),
    ("xattr_blocks_made", Kind::Total, "Attribute blocks allocated, because none had the same attributes."),
    (
        "xattr_values_shared",
        Kind::Total,
        "Times that an attribute took over a large value that another attribute has.",
    ),
    (
        "mbcache_entries",
        Kind::Now,
        "Attribute blocks and large values that the cache of shareable ones knows.",
    ),
    ("mbcache_inserted", Kind::Total, "Entries put into the cache of shareable attribute blocks and values."),
    ("mbcache_removed", Kind::Total, "Its entries removed because their block or value was freed."),
    ("mbcache_evicted", Kind::Total, "Its entries given up to make room."),
    (
        "mbcache_busy",
        Kind::Total,
        "Entries not put in, because another thread was inserting at the same place.",
    ),
    (
        "mbcache_differing",
        Kind::Total,
        "Attribute blocks and values with the hash that was searched for, but other contents.",
    ),
];

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
    let labels =
        [("image", &*report.image), ("version", env!("CARGO_PKG_VERSION")), ("transport", &report.transport)];
    sample(out, "info", &labels, 1);
    family(out, "uptime_seconds", "gauge", "Seconds since the volume was mounted.");
    sample(out, "uptime_seconds", &[], report.uptime.as_secs_f64());
    family(
        out,
        "read_only",
        "gauge",
        "1 if nothing may be changed, because of the mount's options or an error; otherwise 0.",
    );
    sample(out, "read_only", &[], u8::from(report.read_only));
    for (name, count) in &report.counters {
        match COUNTERS.iter().find(|(known, ..)| known == name) {
            Some((_, Kind::Now, help)) => {
                family(out, name, "gauge", help);
                sample(out, name, &[], count);
            }
            known => {
                let (total, help) = (format!("{name}_total"), known.map_or("", |(.., help)| help));
                family(out, &total, "counter", help);
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
        sample(out, ERRORS, &[("operation", &operation.name)], operation.errors);
    }
    family(
        out,
        SECONDS,
        "histogram",
        "Seconds from when a request of the kernel was read until its answer was complete, by kind.",
    );
    for operation in &report.operations {
        let of = ("operation", &*operation.name);
        let (bucket, times) = (format!("{SECONDS}_bucket"), &operation.times);
        for power in LIMITS {
            // The buckets of the histogram have bounds one nanosecond below a power of two.
            let limit = Duration::from_nanos((1024 << (2 * power)) - 1);
            let within = times.count_within(limit);
            sample(out, &bucket, &[of, ("le", &limit.as_secs_f64().to_string())], within);
        }
        sample(out, &bucket, &[of, ("le", "+Inf")], times.count());
        sample(out, &format!("{SECONDS}_sum"), &[of], Duration::from_nanos(times.total()).as_secs_f64());
        sample(out, &format!("{SECONDS}_count"), &[of], times.count());
    }
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(out, "# HELP extern4_{name} {help}\n# TYPE extern4_{name} {kind}")
        .expect("a string takes everything");
}

fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
    let label = |(label, text): &(&str, &str)| format!("{label}=\"{}\"", quoted(text));
    let labels: Vec<_> = labels.iter().map(label).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    writeln!(out, "extern4_{name}{labels} {value}").expect("a string takes everything");
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters;
    use extern4::Stats;
    use extern4_fuse::{Histogram, Operation};

    #[test]
    fn every_counter_of_a_volume_says_what_it_means() {
        let mut stats = Stats::default();
        stats.journal = Some(Default::default());
        stats.sharing = Some(Default::default());
        let names: Vec<_> = counters::of(&stats).into_iter().map(|(name, _)| name).collect();
        let described: Vec<_> = COUNTERS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, described);
        for (name, _, help) in COUNTERS {
            assert!(help.ends_with('.') && help.len() > name.len() + 4, "{name}: {help}");
        }
    }

    #[test]
    fn every_line_is_a_metric_or_says_what_one_is() {
        let times = Histogram::from_counts([(3, 2), (60, 7), (usize::MAX, 1)], 5_000_000_000, 1 << 40);
        let report = Report {
            image: "a\"b\\\n".to_owned(),
            transport: "/dev/fuse".to_owned(),
            counters: vec![("block_hits".to_owned(), 5), ("inodes".to_owned(), 6)],
            operations: vec![Operation { name: "read".to_owned(), errors: 1, times }],
            ..Report::default()
        };
        let text = text(&report);
        for line in text.lines() {
            let is_sample = line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
            assert!(line.starts_with("# ") || line.starts_with("extern4_") && is_sample, "{line}");
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
