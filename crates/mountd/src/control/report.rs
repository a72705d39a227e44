//! The report about a mount that is served.
//!
//! The serving process makes it, and `client` reads it. A reader accepts only a whole and valid
//! report; members that it does not know are ignored.

use std::time::Duration;

use extern4_fuse::{Histogram, Operation};
use serde_json::{Value, json};

use super::{Journaling, Served};
use crate::counters;

/// The version of a report. A later one may have more members, but no other meanings of the same
/// names.
const VERSION: u64 = 1;

/// The state and the counters of a mount, counted since it was mounted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The name of the mounted image.
    pub image: String,
    /// The process that serves it.
    pub daemon: u32,
    /// How long it has been serving.
    pub uptime: Duration,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// The path on which requests of the kernel arrive.
    pub transport: String,
    /// The words behind `-o` with which it was mounted.
    pub options: String,
    /// How the volume's journal is used, if it has one.
    pub journaling: Option<Journaling>,
    /// The address at which metrics are served.
    pub metrics: Option<String>,
    /// Damage of the volume that has not ended its use.
    pub warnings: Vec<String>,
    /// The counters of caches and journal, by name.
    pub counters: Vec<(String, u64)>,
    /// The kinds of requests, with their counts, errors and durations.
    pub operations: Vec<Operation>,
}

impl Report {
    /// Returns the report of the present state.
    pub(super) fn of(served: &Served) -> Self {
        let counters = counters::of(&served.volume.stats());
        Self {
            image: served.image.clone(),
            daemon: std::process::id(),
            uptime: served.start.elapsed(),
            read_only: served.volume.is_read_only(),
            transport: served.server.transport().name().to_owned(),
            options: served.setting.options.clone(),
            journaling: served.setting.journaling.clone(),
            metrics: served.metrics.map(|address| address.to_string()),
            warnings: served.volume.ext4().warnings(),
            counters: counters
                .into_iter()
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            operations: served.server.operations(),
        }
    }

    /// Returns a counter; zero for one that this volume does not have.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters
            .iter()
            .find(|(known, _)| known == name)
            .map_or(0, |(_, count)| *count)
    }

    /// Returns the report as a line that [`read`](Self::read) reads again.
    pub(super) fn json(&self) -> String {
        let counter = |(name, count): &(String, u64)| json!({ "name": name, "count": count });
        let journaling = self.journaling.as_ref();
        let value = json!({
            "version": VERSION,
            "image": self.image,
            "daemon": self.daemon,
            "uptime_ms": u64::try_from(self.uptime.as_millis()).unwrap_or(u64::MAX),
            "read_only": self.read_only,
            "transport": self.transport,
            "options": self.options,
            "data": journaling.map(|now| &now.data),
            "commit_seconds": journaling.map(|now| now.commit_seconds),
            "metrics": self.metrics,
            "warnings": self.warnings,
            "counters": self.counters.iter().map(counter).collect::<Vec<_>>(),
            "operations": self.operations.iter().map(operation_json).collect::<Vec<_>>(),
        });
        format!("{value}\n")
    }

    /// Reads a report. It checks everything, because the serving process may be another user's.
    pub(super) fn read(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if let Some(error) = value["error"].as_str() {
            return Err(error.to_owned());
        }
        if value["version"].as_u64() != Some(VERSION) {
            return Err("the mount is served by another version of this program".to_owned());
        }
        let list = |name: &str| value[name].as_array().map_or(&[][..], Vec::as_slice);
        Ok(Self {
            image: text(&value["image"]),
            daemon: number(&value["daemon"]).try_into().unwrap_or(0),
            uptime: Duration::from_millis(number(&value["uptime_ms"])),
            read_only: value["read_only"] == true,
            transport: text(&value["transport"]),
            options: text(&value["options"]),
            journaling: value["data"].as_str().map(|data| Journaling {
                data: data.to_owned(),
                commit_seconds: number(&value["commit_seconds"]),
            }),
            metrics: value["metrics"].as_str().map(ToOwned::to_owned),
            warnings: list("warnings").iter().map(text).collect(),
            counters: list("counters")
                .iter()
                .map(|c| (text(&c["name"]), number(&c["count"])))
                .collect(),
            operations: list("operations").iter().map(operation).collect(),
        })
    }
}

fn operation_json(operation: &Operation) -> Value {
    let times = &operation.times;
    // Each bucket's number, followed by its count.
    let pairs = times
        .counts()
        .flat_map(|(bucket, count)| [bucket as u64, count]);
    json!({
        "name": operation.name,
        "errors": operation.errors,
        "total_ns": times.total(),
        "max_ns": times.longest(),
        "buckets": pairs.collect::<Vec<_>>(),
    })
}

fn operation(value: &Value) -> Operation {
    let numbers: Vec<_> = value["buckets"]
        .as_array()
        .into_iter()
        .flatten()
        .map(number)
        .collect();
    let pairs = numbers
        .chunks_exact(2)
        .map(|pair| (usize::try_from(pair[0]).unwrap_or(usize::MAX), pair[1]));
    Operation {
        name: text(&value["name"]),
        errors: number(&value["errors"]),
        times: Histogram::from_counts(pairs, number(&value["total_ns"]), number(&value["max_ns"])),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Returns an answer that names the error of the request.
pub(super) fn error_line(error: &str) -> String {
    format!("{}\n", json!({ "version": VERSION, "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_report_is_read() {
        let times = Histogram::from_counts([(3, 1), (40, 7)], 12_345, 2_000);
        let report = Report {
            image: "a \"b\"\n".to_owned(),
            daemon: 7,
            uptime: Duration::from_millis(1234),
            read_only: true,
            transport: "io_uring".to_owned(),
            options: "ro,commit=5".to_owned(),
            journaling: Some(Journaling {
                data: "ordered".to_owned(),
                commit_seconds: 5,
            }),
            metrics: Some("127.0.0.1:1".to_owned()),
            warnings: vec!["inode 12".to_owned()],
            counters: vec![("block_hits".to_owned(), u64::MAX), ("a".to_owned(), 0)],
            operations: vec![Operation {
                name: "read".to_owned(),
                errors: 1,
                times,
            }],
        };
        let read = Report::read(&report.json()).expect("a report");
        assert_eq!(read, report);
        assert_eq!(
            (read.counter("block_hits"), read.counter("transactions")),
            (u64::MAX, 0)
        );
    }

    #[test]
    fn an_answer_that_is_no_report_does_no_harm() {
        for bad in [
            "",
            "{",
            "[]",
            "7",
            "null",
            "{\"version\":2}",
            &"[".repeat(1 << 16),
            &error_line("no"),
        ] {
            assert!(Report::read(bad).is_err());
        }
        assert_eq!(Report::read(&error_line("no")).err().as_deref(), Some("no"));
        let odd = r#"{"version":1,"daemon":-1,"operations":[7,{"buckets":[1e9,3,99999,2,1]}],"counters":{}}"#;
        let report = Report::read(odd).expect("members may be missing");
        assert_eq!(
            (report.operations.len(), report.operations[1].times.count()),
            (2, 5)
        );
    }
}
