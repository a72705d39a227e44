//! One line of a table: a workload with so many threads, of all three sides.

use crate::callgrind::{self, Counts};
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

/// How many instructions an operation takes, where noise does not tell which side is faster.
const INSTRUCTIONS: &str = "instructions/op";
/// How many batches a short run does that is counted, and a long one.
const COUNTED_BATCHES: [u64; 2] = [4, 204];

/// A workload with so many threads.
#[derive(Clone, Debug)]
pub struct Row {
    /// What is done.
    pub workload: &'static str,
    /// By how many.
    pub threads: usize,
    samples: [Vec<Sample>; 3],
}

/// More instructions than another's are too many from here on: below, two runs may differ by what begins and ends them.
const INSTRUCTIONS_EXPLAINED: f64 = 1.01;

/// How it is known that New is slower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slower {
    /// It takes longer.
    ByTime,
    /// It takes so many times as many instructions.
    ByInstructions(f64),
}

impl Row {
    /// Takes the figures of a row.
    pub fn measure(
        plan: &Plan,
        workload: &'static str,
        threads: usize,
        take: impl FnMut(Side) -> Sample,
    ) -> Self {
        let mut row = Self { workload, threads, samples: plan.interleave(take) };
        let counts = plan.counts_instructions && threads == 1;
        if counts && !Side::RIVALS.iter().all(|rival| row.is_decided(*rival)) && callgrind::is_there() {
            row.count_instructions();
        }
        row
    }

    /// Whether noise leaves no doubt which is faster, New or another.
    fn is_decided(&self, rival: Side) -> bool {
        let (new, rival) = (self.nanos(Side::New), self.nanos(rival));
        new.exceeds(&rival) || rival.exceeds(&new)
    }

    fn count_instructions(&mut self) {
        for side in Side::ALL {
            let figure = callgrind::per_operation(self.workload, side, Counts::Batches, COUNTED_BATCHES);
            if let Some(figure) = figure.expect("a run that is counted") {
                self.note(side, INSTRUCTIONS, figure);
            }
        }
    }

    /// Notes a figure beside all repetitions of a side.
    fn note(&mut self, side: Side, name: &'static str, figure: f64) {
        self.samples[side as usize].iter_mut().for_each(|sample| sample.counters.push((name, figure)));
    }

    /// New is slower than another, beyond what noise explains; or, with one thread, noise does not tell, and New takes more instructions:
    /// so many more.
    pub fn is_slower(&self, rival: Side) -> Option<Slower> {
        if self.is_decided(rival) {
            return self.nanos(Side::New).exceeds(&self.nanos(rival)).then_some(Slower::ByTime);
        }
        let instructions = |side| self.counter(side, INSTRUCTIONS);
        let share = instructions(Side::New)? / instructions(rival)?;
        (share > INSTRUCTIONS_EXPLAINED).then_some(Slower::ByInstructions(share))
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

    #[test]
    fn instructions_decide_where_times_do_not() {
        let mut row = row("x", 1, [4.0, 2.0, 2.0]);
        assert_eq!(
            (row.is_slower(Side::Seed), row.is_slower(Side::Before)),
            (None, None),
            "nobody has counted"
        );
        [(Side::Before, 10.0), (Side::Seed, 20.0), (Side::New, 30.0)]
            .into_iter()
            .for_each(|(side, figure)| row.note(side, INSTRUCTIONS, figure));
        assert_eq!(row.is_slower(Side::Seed), Some(Slower::ByInstructions(1.5)));
        assert_eq!(row.is_slower(Side::Before), None, "its time tells");
        assert_eq!(self::row("x", 1, [1.0, 2.0, 2.0]).is_slower(Side::Before), Some(Slower::ByTime));
    }
}
