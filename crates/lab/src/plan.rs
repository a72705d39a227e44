//! How much is measured: with how many threads, how often, and how long.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the patch replaced.
    Before,
    /// The idea of the patch.
    Seed,
    /// Ours, in production.
    New,
}

impl Side {
    /// All, in the order in which they are told.
    pub const ALL: [Self; 3] = [Self::Before, Self::Seed, Self::New];
    /// Those that New is compared with.
    pub const RIVALS: [Self; 2] = [Self::Before, Self::Seed];

    /// As it is told.
    pub fn name(self) -> &'static str {
        match self {
            Self::Before => "Before",
            Self::Seed => "Seed",
            Self::New => "New",
        }
    }

    /// The one that has this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|side| side.name() == name)
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
    /// All cells of a large table, or some.
    pub every_cell: bool,
    /// Only the workloads whose names have this in them.
    pub only: Option<String>,
    /// Where noise does not tell which side is faster on one thread, callgrind counts instructions.
    pub counts_instructions: bool,
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
            threads: vec![1, 2, 4, 8, 16, 32, 64],
            repetitions: 11,
            span: Duration::from_millis(100),
            period: Duration::from_millis(100),
            every_cell: true,
            only: None,
            counts_instructions: true,
            repeated: None,
        }
    }

    /// Of a run that is counted.
    pub fn repeat(repeated: Repeated) -> Self {
        Self { threads: vec![1], every_cell: true, repeated: Some(repeated), ..Self::quick() }
    }

    /// Seconds, to see that all of it works. The figures say little.
    pub fn quick() -> Self {
        Self {
            threads: vec![1, 2, 8],
            repetitions: 3,
            span: Duration::from_millis(4),
            period: Duration::from_millis(1),
            every_cell: false,
            only: None,
            counts_instructions: false,
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

    /// Has each side take its figure as often as planned, in turn, so that whatever else the machine does meets all of them.
    /// Each round begins with another side. A first round is thrown away. In a run that is counted one side does it once, and stands for
    /// the others.
    pub fn interleave<T: Clone>(&self, mut take: impl FnMut(Side) -> T) -> [Vec<T>; 3] {
        if let Some(repeated) = &self.repeated {
            let taken = vec![take(repeated.side)];
            return [taken.clone(), taken.clone(), taken];
        }
        let mut taken = [const { Vec::new() }; 3];
        for round in 0..=self.repetitions {
            for turn in 0..3 {
                let at = (round + turn) % 3;
                let figure = take(Side::ALL[at]);
                if round > 0 {
                    taken[at].push(figure);
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_and_the_first_round_does_not_count() {
        let mut order = Vec::new();
        let plan = Plan { repetitions: 2, ..Plan::quick() };
        let taken = plan.interleave(|side| {
            order.push(side);
            order.len()
        });
        assert_eq!(order[..6], [Side::Before, Side::Seed, Side::New, Side::Seed, Side::New, Side::Before]);
        assert_eq!(taken, [vec![6, 8], vec![4, 9], vec![5, 7]]);
    }

    #[test]
    fn what_is_not_asked_for_is_not_measured() {
        let plan = Plan { only: Some("open".to_owned()), ..Plan::quick() };
        assert_eq!((plan.threads_of("open and close"), plan.threads_of("stat")), (&[1, 2, 8][..], &[][..]));
        assert_eq!(Plan::quick().threads_of("stat"), [1, 2, 8]);
    }

    #[test]
    fn a_report_is_made_of_ten_repetitions_at_least() {
        assert!(Plan::full().repetitions >= 10 && Plan::full().threads == [1, 2, 4, 8, 16, 32, 64]);
        assert!(Side::ALL.iter().all(|side| Side::of_name(side.name()) == Some(*side)));
    }
}
