//! How much is measured: with how many threads, how often, and how long.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use extern4_measure::load::{Done, Load};
use extern4_measure::rounds;
use extern4_measure::row;
use extern4_sync::allocations;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the patch replaced.
    Baseline,
    /// The idea of the patch.
    Patch,
    /// Ours, in production.
    Extern4,
    /// What Linux 6.19 merged instead of the patch, where that is another thing.
    Merged,
}

impl Side {
    /// Those that every mechanism has, in the order in which they are told.
    pub const ALL: [Self; 3] = [Self::Baseline, Self::Patch, Self::Extern4];
    /// Those that any mechanism has.
    pub const EVERY: [Self; 4] = [Self::Baseline, Self::Patch, Self::Merged, Self::Extern4];
    /// Those that extern4 is compared with.
    pub const RIVALS: [Self; 3] = [Self::Baseline, Self::Patch, Self::Merged];

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Patch => "patch",
            Self::Extern4 => "extern4",
            Self::Merged => "6.19",
        }
    }

    /// The one that has this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::EVERY.into_iter().find(|side| side.name() == name)
    }
}

impl row::Side for Side {
    fn name(self) -> &'static str {
        self.name()
    }
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many threads, one after the other.
    pub threads: Vec<usize>,
    /// How often each figure is taken.
    pub repetitions: usize,
    /// How long threads are at work for a figure.
    pub span: Duration,
    /// How long from one listing of all open files to the next.
    pub period: Duration,
    /// Attributes that each thread sets in a run of the patch's table.
    pub sets: u64,
    /// All cells of a large table, or some.
    pub every_cell: bool,
    /// Only the workloads whose names have this in them.
    pub only: Option<String>,
    /// Where noise does not tell which side is faster on one thread, callgrind counts instructions.
    pub counts_instructions: bool,
    /// Callgrind counts what share of the instructions the allocator has.
    pub counts_allocators: bool,
    /// One workload is repeated so often, to be counted, and nothing is measured.
    pub repeated: Option<Repeated>,
}

/// What a run that is counted does, and nothing else.
#[derive(Clone, Debug)]
pub struct Repeated {
    /// The workload's whole name.
    pub workload: String,
    /// By whom, on one thread.
    pub side: Side,
    /// How many batches.
    pub batches: u64,
    /// How many operations these were, once they are done.
    pub operations: Arc<AtomicU64>,
}

impl Repeated {
    /// So many batches, none of which is done.
    pub fn new(workload: String, side: Side, batches: u64) -> Self {
        Self { workload, side, batches, operations: Arc::default() }
    }
}

impl Plan {
    /// What a report is made of.
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

    /// Of a run that is counted.
    pub fn repeat(repeated: Repeated) -> Self {
        Self { threads: vec![1], every_cell: true, repeated: Some(repeated), ..Self::quick() }
    }

    /// All of it in some minutes, on an idle machine.
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

    /// Seconds, to see that all of it works. The figures say little.
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

    /// Whether a workload is measured.
    pub fn wants(&self, workload: &str) -> bool {
        if let Some(repeated) = &self.repeated {
            return repeated.workload == workload;
        }
        self.only.as_ref().is_none_or(|only| workload.contains(only.as_str()))
    }

    /// With how many threads: with none where it is not.
    pub fn threads_of(&self, workload: &str) -> &[usize] {
        if self.wants(workload) { &self.threads } else { &[] }
    }

    /// Has each of `sides` take its figure as often as planned, in turn. In a run that is counted
    /// one side does it once, and nothing is said of the others.
    pub fn interleave<T>(&self, sides: &[Side], mut take: impl FnMut(Side) -> T) -> Vec<(Side, Vec<T>)> {
        if let Some(repeated) = &self.repeated {
            return vec![(repeated.side, vec![take(repeated.side)])];
        }
        let Ok(taken) =
            rounds::interleave(self.repetitions, sides.len(), |at| Ok::<_, Infallible>(take(sides[at])));
        sides.iter().copied().zip(taken).collect()
    }

    /// Has `threads` threads call `batch`, which says how many operations it did, for as long as is
    /// planned, or a part of that; so often, where it is counted.
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
        // Relaxed: it is read when all is done.
        repeated.operations.fetch_add(done.ops, Ordering::Relaxed);
        done
    }
}

/// So many threads, with their allocations counted.
pub fn load(threads: usize) -> Load {
    Load::counting(threads, allocations::of_this_thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_not_measured() {
        let plan = Plan { only: Some("open".to_owned()), ..Plan::quick() };
        assert_eq!((plan.threads_of("open and close"), plan.threads_of("stat")), (&[1, 2, 8][..], &[][..]));
        assert_eq!(Plan::quick().threads_of("stat"), [1, 2, 8]);
    }

    #[test]
    fn a_report_is_made_of_ten_repetitions_at_least() {
        assert!(Plan::full().repetitions >= 10 && Plan::full().threads.contains(&512));
        assert!(Side::EVERY.iter().all(|side| Side::of_name(side.name()) == Some(*side)));
    }
}
