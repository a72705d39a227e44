//! One line of a table: a workload with so many threads, of all three sides.

use crate::crowd::Done;
use crate::plan::{Plan, Side};
use crate::spread::Spread;

/// A counter beside a time: what it counts, and the figure.
pub type Counter = (&'static str, f64);

/// One repetition of one side.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Nanoseconds of the clock for an operation of any thread.
    pub nanos: f64,
    /// What was counted beside.
    pub counters: Vec<Counter>,
}

impl Sample {
    /// That of what a crowd has done.
    pub fn of(done: &Done) -> Self {
        let allocations = done.per_op(done.allocations as f64);
        Self {
            nanos: done.nanos(),
            counters: vec![("CPU ns/op", done.cpu_nanos()), ("allocations/op", allocations)],
        }
    }
}

/// A workload with so many threads.
#[derive(Clone, Debug)]
pub struct Row {
    /// What is done.
    pub workload: &'static str,
    /// By how many.
    pub threads: usize,
    samples: [Vec<Sample>; 3],
}

impl Row {
    /// Takes the figures of a row.
    pub fn measure(
        plan: &Plan,
        workload: &'static str,
        threads: usize,
        take: impl FnMut(Side) -> Sample,
    ) -> Self {
        Self { workload, threads, samples: plan.interleave(take) }
    }

    /// All repetitions of a side.
    pub fn samples(&self, side: Side) -> &[Sample] {
        &self.samples[side as usize]
    }

    /// Nanoseconds of a side.
    pub fn nanos(&self, side: Side) -> Spread {
        Spread::of(self.samples(side).iter().map(|sample| sample.nanos))
    }

    /// How many times as fast New is as another: the median of the rounds, each of which compares what was measured one after the
    /// other.
    pub fn ratio(&self, rival: Side) -> f64 {
        let pairs = self.samples(rival).iter().zip(self.samples(Side::New));
        Spread::of(pairs.map(|(rival, new)| rival.nanos / new.nanos)).median
    }

    /// What is counted for any side, in the order in which it was noted.
    pub fn counter_names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (name, _) in
            Side::ALL.iter().filter_map(|side| self.samples(*side).first()).flat_map(|s| &s.counters)
        {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }

    /// The median of a counter, if it is counted for that side.
    pub fn counter(&self, side: Side, name: &str) -> Option<f64> {
        let of = |sample: &Sample| sample.counters.iter().find(|(known, _)| *known == name).map(|(_, n)| *n);
        let figures: Vec<f64> = self.samples(side).iter().filter_map(of).collect();
        (!figures.is_empty()).then(|| Spread::of(figures).median)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row in which the sides took so many nanoseconds.
    pub(crate) fn row(workload: &'static str, threads: usize, nanos: [f64; 3]) -> Row {
        let sample =
            |side: Side| Sample { nanos: nanos[side as usize], counters: vec![("n", nanos[side as usize])] };
        Row::measure(&Plan::quick(), workload, threads, sample)
    }

    #[test]
    fn a_ratio_says_how_much_faster_new_is() {
        let row = row("x", 1, [8.0, 4.0, 2.0]);
        assert_eq!((row.ratio(Side::Before), row.ratio(Side::Seed)), (4.0, 2.0));
        assert_eq!(row.counter(Side::Seed, "n"), Some(4.0));
        assert_eq!((row.counter(Side::Seed, "m"), row.counter_names()), (None, vec!["n"]));
    }
}
