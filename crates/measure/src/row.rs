//! One line of a table: a workload with a number of threads, measured on several sides.
//!
//! The lab and `xtask bench` fill rows, and tables and verdicts read them. A side that was not
//! measured has no ratio. A comparison says by which figure it was decided.

use crate::figures::Figures;
use crate::load::Done;
use crate::verdict::{Goal, Outcome};

/// Something that is compared.
pub trait Side: Copy + Eq + 'static {
    /// Its name in a table.
    fn name(self) -> &'static str;
}

/// A counter next to a time: its name and its value.
pub type Counter = (&'static str, f64);

/// The counter that holds CPU time.
pub const CPU: &str = "CPU ns/op";
/// The counter that holds instructions, where noise does not tell which side is faster.
pub const INSTRUCTIONS: &str = "instructions/op";

/// One repetition of one side.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Nanoseconds of the clock for an operation of any thread.
    pub nanos: f64,
    /// Counts of the same time.
    pub counters: Vec<Counter>,
}

impl Sample {
    /// Returns the sample of a load.
    pub fn of(done: &Done) -> Self {
        let counters = vec![
            (CPU, done.cpu_nanos()),
            ("allocations/op", done.allocations_per_op()),
        ];
        Self {
            nanos: done.nanos(),
            counters,
        }
    }

    fn counter(&self, name: &str) -> Option<f64> {
        self.counters
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }
}

/// A workload with a number of threads, and the samples of all sides.
#[derive(Clone, Debug)]
pub struct Row<S> {
    /// The name of the workload.
    pub workload: &'static str,
    /// The number of threads.
    pub threads: usize,
    sides: Vec<(S, Vec<Sample>)>,
}

/// The figure that decides a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Time on the clock.
    Clock,
    /// CPU time, where that is steadier.
    Cpu,
    /// Instructions, where neither clock tells.
    Instructions,
}

/// How one side compares with another, measured by a goal for how many times as fast it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// How many times as fast it is: the median over the rounds.
    pub times: f64,
    /// The figure that decides.
    pub by: By,
    /// Whether the goal is reached.
    pub outcome: Outcome,
}

impl<S: Side> Row<S> {
    /// Returns a row of these samples.
    pub fn new(workload: &'static str, threads: usize, sides: Vec<(S, Vec<Sample>)>) -> Self {
        Self {
            workload,
            threads,
            sides,
        }
    }

    /// Returns the workload and the number of threads, for a sentence.
    pub fn title(&self) -> String {
        match self.threads {
            1 => self.workload.to_owned(),
            threads => format!("{}, {threads} threads", self.workload),
        }
    }

    /// Returns the sides, in the order of the table.
    pub fn sides(&self) -> impl Iterator<Item = S> + '_ {
        self.sides.iter().map(|(side, _)| *side)
    }

    /// Returns all repetitions of a side; none if it was not measured.
    pub fn samples(&self, side: S) -> &[Sample] {
        self.sides
            .iter()
            .find(|(known, _)| *known == side)
            .map_or(&[], |(_, samples)| samples)
    }

    /// Returns the nanoseconds of the clock.
    pub fn nanos(&self, side: S) -> Figures {
        self.samples(side)
            .iter()
            .map(|sample| sample.nanos)
            .collect()
    }

    /// Returns a counter in all repetitions of a side.
    pub fn figures(&self, side: S, counter: &str) -> Figures {
        self.samples(side)
            .iter()
            .filter_map(|sample| sample.counter(counter))
            .collect()
    }

    /// Returns the median of a counter, if a side has it.
    pub fn counter(&self, side: S, name: &str) -> Option<f64> {
        self.figures(side, name).median()
    }

    /// Returns the counters of any side, in the order in which they were noted.
    pub fn counter_names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (name, _) in self
            .sides
            .iter()
            .filter_map(|(_, samples)| samples.first())
            .flat_map(|s| &s.counters)
        {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }

    /// Adds a counter to all repetitions of a side.
    pub fn note(&mut self, side: S, name: &'static str, value: f64) {
        let samples = self
            .sides
            .iter_mut()
            .filter(|(known, _)| *known == side)
            .flat_map(|(_, samples)| samples);
        samples.for_each(|sample| sample.counters.push((name, value)));
    }

    /// Compares one side with another: is it as many times as fast as `goal` says? Instructions
    /// decide if they were counted and time does not tell. `None` if one of the sides was not
    /// measured.
    pub fn compare(&self, side: S, rival: S, goal: Goal) -> Option<Comparison> {
        let counted = (By::Instructions, self.ratios_of(side, rival, INSTRUCTIONS));
        let judge = |(by, ratios): (By, Figures)| {
            let times = ratios.median()?;
            Some(Comparison {
                times,
                by,
                outcome: goal.judge(&ratios),
            })
        };
        let by_time = judge(self.by_time(side, rival))?;
        let by_count = || judge(counted).filter(|comparison| comparison.outcome.is_decided());
        Some(if by_time.outcome.is_decided() {
            by_time
        } else {
            by_count().unwrap_or(by_time)
        })
    }

    /// Returns how many times as fast one side is as another, by time; not a number if one of them
    /// was not measured.
    pub fn ratio(&self, side: S, rival: S) -> f64 {
        self.by_time(side, rival).1.median().unwrap_or(f64::NAN)
    }

    /// Returns how many times as fast one side is as another in each round. Where one thread works,
    /// the steadier of clock and CPU time counts. Of several threads only the clock does: a thread
    /// that waits for another uses no CPU time.
    fn by_time(&self, side: S, rival: S) -> (By, Figures) {
        let clock = self.nanos(rival).ratios(&self.nanos(side));
        let cpu = self.ratios_of(side, rival, CPU);
        match (clock.spread(), cpu.spread()) {
            (Some(of_clock), Some(of_cpu)) if self.threads == 1 && of_cpu < of_clock => {
                (By::Cpu, cpu)
            }
            _ => (By::Clock, clock),
        }
    }

    /// Returns how many times as much of a counter a rival has, in each round.
    fn ratios_of(&self, side: S, rival: S, counter: &str) -> Figures {
        self.figures(rival, counter)
            .ratios(&self.figures(side, counter))
    }
}

impl By {
    /// Returns a remark on a figure that the clock does not decide.
    pub fn remark(self) -> &'static str {
        match self {
            Self::Clock => "",
            Self::Cpu => " by CPU time",
            Self::Instructions => " by instructions",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Who {
        Old,
        New,
    }

    impl Side for Who {
        fn name(self) -> &'static str {
            match self {
                Self::Old => "Old",
                Self::New => "New",
            }
        }
    }

    /// Three rounds of each: the clock by `clock`, CPU time always as given.
    pub(crate) fn row(
        workload: &'static str,
        threads: usize,
        clock: [[f64; 3]; 2],
        cpu: [f64; 2],
    ) -> Row<Who> {
        let samples = |who: usize| {
            let sample = |nanos| Sample {
                nanos,
                counters: vec![(CPU, cpu[who])],
            };
            clock[who].map(sample).to_vec()
        };
        Row::new(
            workload,
            threads,
            vec![(Who::Old, samples(0)), (Who::New, samples(1))],
        )
    }

    fn compared(row: &Row<Who>, side: Who, rival: Who) -> (f64, By, &'static str) {
        let Comparison { times, by, outcome } =
            row.compare(side, rival, Goal::AtLeast(0.95)).unwrap();
        (times, by, outcome.word())
    }

    #[test]
    fn the_steadier_clock_decides() {
        let calm = row("x", 1, [[8.0; 3], [2.0; 3]], [4.0, 4.0]);
        assert_eq!(compared(&calm, Who::New, Who::Old), (4.0, By::Clock, "met"));
        // On the clock New looks faster in two of three rounds; its CPU time is steady, and higher.
        let clock = [[8.0, 2.0, 5.0], [2.0, 8.0, 4.0]];
        let noisy = row("x", 1, clock, [4.0, 5.0]);
        assert_eq!(
            compared(&noisy, Who::New, Who::Old),
            (0.8, By::Cpu, "MISSED")
        );
        assert_eq!(compared(&noisy, Who::Old, Who::New), (1.25, By::Cpu, "met"));
        // The CPU time of two threads lacks the time for which one waits for the other.
        assert_eq!(
            compared(&row("x", 2, clock, [4.0, 5.0]), Who::New, Who::Old),
            (1.25, By::Clock, "undecided")
        );
    }

    #[test]
    fn instructions_decide_where_times_do_not() {
        let mut row = row("x", 2, [[4.0, 2.0, 4.0], [4.0, 4.0, 2.0]], [4.0, 4.0]);
        assert_eq!(
            compared(&row, Who::New, Who::Old),
            (1.0, By::Clock, "undecided")
        );
        row.note(Who::Old, INSTRUCTIONS, 20.0);
        row.note(Who::New, INSTRUCTIONS, 30.0);
        assert_eq!(compared(&row, Who::New, Who::Old).1, By::Instructions);
        assert_eq!(compared(&row, Who::New, Who::Old).2, "MISSED");
        assert_eq!(
            compared(&row, Who::Old, Who::New),
            (1.5, By::Instructions, "met")
        );
    }

    #[test]
    fn a_side_that_was_not_measured_has_no_ratio() {
        let row = Row::new(
            "x",
            1,
            vec![(
                Who::New,
                vec![Sample {
                    nanos: 1.0,
                    counters: vec![("n", 3.0)],
                }],
            )],
        );
        assert!(row.ratio(Who::New, Who::Old).is_nan());
        assert_eq!(
            (row.counter(Who::New, "n"), row.counter(Who::Old, "n")),
            (Some(3.0), None)
        );
        assert_eq!(row.counter_names(), ["n"]);
    }
}
