//! The extent of a measurement: sides, workloads, numbers of threads, repetitions and time.
//!
//! `main` makes a [`Plan`] from the arguments, and every workload runs by it. All sides of a row
//! are measured in one process, in turn, equally often. A row that the plan leaves out is not in
//! the report.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use extern4_measure::load::{Done, Load};
use extern4_measure::rounds;
use extern4_measure::row;
use extern4_sync::allocations;

/// An implementation of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The code that the patch replaced.
    Baseline,
    /// The idea of the patch.
    Patch,
    /// The code of extern4 in production.
    Extern4,
    /// The code that Linux 6.19 merged, if that is not the patch.
    Merged,
}

impl Side {
    /// The sides that every mechanism has, in the order of the report.
    pub const ALL: [Self; 3] = [Self::Baseline, Self::Patch, Self::Extern4];
    /// All sides, in the order of the report. Some mechanisms have no [`Merged`](Self::Merged).
    pub const EVERY: [Self; 4] = [Self::Baseline, Self::Patch, Self::Merged, Self::Extern4];
    /// The sides that extern4 is compared with.
    pub const RIVALS: [Self; 3] = [Self::Baseline, Self::Patch, Self::Merged];

    /// Returns the name of the side in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Patch => "patch",
            Self::Extern4 => "extern4",
            Self::Merged => "6.19",
        }
    }

    /// Returns the side with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::EVERY.into_iter().find(|side| side.name() == name)
    }
}

impl row::Side for Side {
    fn name(self) -> &'static str {
        self.name()
    }
}

/// The extent of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The numbers of threads, measured one after the other.
    pub threads: Vec<usize>,
    /// Repetitions of each figure.
    pub repetitions: usize,
    /// The time for which threads work for one figure.
    pub span: Duration,
    /// The time from one listing of all open files to the next.
    pub period: Duration,
    /// Operations of each thread in a run of fixed length: attributes set, files removed.
    pub sets: u64,
    /// Measures all cells of a large table, not only some.
    pub every_cell: bool,
    /// If set, only workloads whose names contain this are measured.
    pub only: Option<String>,
    /// Has callgrind count instructions where noise hides which side is faster on one thread.
    pub counts_instructions: bool,
    /// Has callgrind count the allocator's share of the instructions.
    pub counts_allocators: bool,
    /// If set, the run repeats this one workload under callgrind and measures nothing.
    pub repeated: Option<Repeated>,
}

/// The only work of a run under callgrind.
#[derive(Clone, Debug)]
pub struct Repeated {
    /// The full name of the workload.
    pub workload: String,
    /// The side that runs it, on one thread.
    pub side: Side,
    /// The number of batches.
    pub batches: u64,
    /// The number of operations in these batches, once they are done.
    pub operations: Arc<AtomicU64>,
}

impl Repeated {
    /// Plans `batches` batches, none of which is done yet.
    pub fn new(workload: String, side: Side, batches: u64) -> Self {
        Self {
            workload,
            side,
            batches,
            operations: Arc::default(),
        }
    }
}

impl Plan {
    /// Returns the plan of a full report.
    pub fn full() -> Self {
        Self {
            threads: vec![1, 2, 4, 8, 16, 32, 64, 128, 512],
            repetitions: 11,
            span: Duration::from_millis(100),
            period: Duration::from_millis(100),
            sets: 4000,
            every_cell: true,
            only: None,
            counts_instructions: true,
            counts_allocators: true,
            repeated: None,
        }
    }

    /// Returns the plan of a run under callgrind.
    pub fn repeat(repeated: Repeated) -> Self {
        Self {
            threads: vec![1],
            every_cell: true,
            repeated: Some(repeated),
            ..Self::quick()
        }
    }

    /// Covers all of it in some minutes, on an idle machine.
    pub fn short() -> Self {
        Self {
            threads: vec![1, 2, 64, 512],
            repetitions: 5,
            span: Duration::from_millis(20),
            period: Duration::from_millis(10),
            sets: 1000,
            counts_instructions: false,
            ..Self::full()
        }
    }

    /// Covers all of it in seconds, to see that it works. The figures say little.
    pub fn quick() -> Self {
        Self {
            threads: vec![1, 2, 8],
            repetitions: 3,
            span: Duration::from_millis(4),
            period: Duration::from_millis(1),
            sets: 64,
            every_cell: false,
            only: None,
            counts_instructions: false,
            counts_allocators: false,
            repeated: None,
        }
    }

    /// Returns whether a workload is measured.
    pub fn wants(&self, workload: &str) -> bool {
        if let Some(repeated) = &self.repeated {
            return repeated.workload == workload;
        }
        self.only
            .as_ref()
            .is_none_or(|only| workload.contains(only.as_str()))
    }

    /// Returns the numbers of threads that a workload is measured with; empty if it is not
    /// measured.
    pub fn threads_of(&self, workload: &str) -> &[usize] {
        if self.wants(workload) {
            &self.threads
        } else {
            &[]
        }
    }

    /// Takes the figure of each of `sides` as often as planned, in turn. In a run under callgrind,
    /// takes one figure of one side and returns nothing for the others.
    pub fn interleave<T>(
        &self,
        sides: &[Side],
        mut take: impl FnMut(Side) -> T,
    ) -> Vec<(Side, Vec<T>)> {
        if let Some(repeated) = &self.repeated {
            return vec![(repeated.side, vec![take(repeated.side)])];
        }
        let Ok(taken) = rounds::interleave(self.repetitions, sides.len(), |at| {
            Ok::<_, Infallible>(take(sides[at]))
        });
        sides.iter().copied().zip(taken).collect()
    }

    /// Has `threads` threads call `batch` for the planned time, divided by `part`. `batch` returns
    /// how many operations it did. In a run under callgrind, each thread calls it as often as
    /// planned instead.
    pub fn work<S>(
        &self,
        part: u32,
        threads: usize,
        begin: impl Fn(usize) -> S + Sync,
        batch: impl Fn(&mut S) -> u64 + Sync,
    ) -> Done {
        let load = load(threads);
        let Some(repeated) = &self.repeated else {
            return load.repeat(|| thread::sleep(self.span / part), begin, batch);
        };
        let done = load.repeat_times(repeated.batches, begin, batch);
        // Relaxed: the sum is read when all threads are done.
        repeated.operations.fetch_add(done.ops, Ordering::Relaxed);
        done
    }
}

/// Returns a load of `threads` threads whose allocations are counted.
pub fn load(threads: usize) -> Load {
    Load::counting(threads, allocations::of_this_thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrequested_rows_are_not_measured() {
        let plan = Plan {
            only: Some("open".to_owned()),
            ..Plan::quick()
        };
        assert_eq!(
            (plan.threads_of("open and close"), plan.threads_of("stat")),
            (&[1, 2, 8][..], &[][..])
        );
        assert_eq!(Plan::quick().threads_of("stat"), [1, 2, 8]);
    }

    #[test]
    fn a_report_is_made_of_ten_repetitions_at_least() {
        assert!(Plan::full().repetitions >= 10 && Plan::full().threads.contains(&512));
        assert!(
            Side::EVERY
                .iter()
                .all(|side| Side::of_name(side.name()) == Some(*side))
        );
    }
}
