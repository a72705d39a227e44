//! The activity of a mount: since it was mounted, or between two reports.
//!
//! The command's `stats` and `top` print it. Counters only grow, so the activity between two
//! reports is their difference.

use extern4_fuse::Operation;

use crate::control::report::Report;

/// The activity of a mount in a period.
#[derive(Clone, Debug)]
pub struct Activity {
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
#[derive(Clone, Copy, Debug)]
struct Share {
    part: u64,
    whole: u64,
}

impl Activity {
    /// Returns the activity since the mount.
    pub fn since_mount(report: &Report) -> Self {
        Self::between(&Report::default(), report)
    }

    /// Returns the activity between two reports.
    pub fn between(earlier: &Report, later: &Report) -> Self {
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

    /// Returns how often events that were counted in the period came a second; zero in no time.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.while_seconds > 0.0 {
            count as f64 / self.while_seconds
        } else {
            0.0
        }
    }

    /// Returns the operations that the kernel asked for, the most frequent first.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns how many operations of all kinds there were a second.
    pub fn operations_per_second(&self) -> f64 {
        let counts = self
            .operations
            .iter()
            .map(|operation| operation.times.count());
        self.per_second(counts.fold(0, u64::saturating_add))
    }

    /// Returns the part of the lookups of metadata blocks that the cache answered, from 0 to 1;
    /// `None` without any.
    pub fn block_hit_rate(&self) -> Option<f64> {
        self.blocks.rate()
    }

    /// Returns the part of the path walks that asked the file system for no name, from 0 to 1;
    /// `None` without any.
    pub fn name_hit_rate(&self) -> Option<f64> {
        self.names.rate()
    }

    /// Returns how many transactions of the journal became durable a second.
    pub fn commits_per_second(&self) -> f64 {
        self.per_second(self.commits)
    }

    /// Returns how many operations a commit made durable, on average; `None` without a commit.
    pub fn handles_per_commit(&self) -> Option<f64> {
        (self.commits > 0).then(|| self.handles as f64 / self.commits as f64)
    }

    /// Returns how many flushes of devices there were a second.
    pub fn flushes_per_second(&self) -> f64 {
        self.per_second(self.flushes)
    }

    /// Returns how many bytes were written to the journal a second.
    pub fn logged_bytes_per_second(&self) -> f64 {
        self.per_second(self.bytes_logged)
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

#[cfg(test)]
mod tests {
    use super::*;
    use extern4_fuse::Histogram;
    use std::time::Duration;

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
    fn activity_is_the_difference_of_two_reports() {
        let earlier = report(10, 100, &[("block_hits", 10), ("handles", 5)]);
        let later = report(
            12,
            140,
            &[("block_hits", 13), ("handles", 25), ("transactions", 2)],
        );
        let activity = Activity::between(&earlier, &later);
        assert!((activity.operations_per_second() - 20.0).abs() < 1e-9);
        assert_eq!(activity.operations()[0].errors, 4);
        assert_eq!(activity.handles_per_commit(), Some(10.0));
        assert_eq!(activity.block_hit_rate(), Some(1.0));
        assert_eq!(activity.name_hit_rate(), None);
        let nothing = Activity::between(&later, &later);
        assert!(nothing.operations().is_empty() && nothing.handles_per_commit().is_none());
        // A counter that was reset is no reason to fail.
        assert!(Activity::between(&later, &earlier).operations_per_second() < 1e-9);
    }
}
