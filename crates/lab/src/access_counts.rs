//! The accesses of an operation to shared memory.
//!
//! A separate build with the feature `audit` counts them: its atomics and locks record each access,
//! and so cannot be timed. A file carries the counts to the build that measures. `main` writes that
//! file, and the chapters read it. An operation that was not counted has no figure, and the report
//! says so.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use extern4_measure::figures::Figures;

use crate::Result;
use crate::plan::Side;

/// The counts of one operation of one side.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name of the operation.
    pub operation: String,
    /// The side that executes it.
    pub side: Side,
    /// Locked instructions that the CPU executes for it. A lock without contention takes two.
    pub locked: f64,
    /// Cache lines that one of two threads writes and the other uses, while both do the operation
    /// on their own objects.
    pub conflicts: f64,
}

/// The instructions of one operation of one side.
#[derive(Clone, Debug, PartialEq)]
pub struct Length {
    /// The name of the operation.
    pub operation: String,
    /// The side that executes it.
    pub side: Side,
    /// Instructions, in each of several runs.
    pub instructions: Figures,
}

/// All counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessCounts {
    figures: Vec<Figure>,
    lengths: Vec<Length>,
}

impl AccessCounts {
    /// Returns the counts of an operation of a side, if there are any.
    pub fn get(&self, operation: &str, side: Side) -> Option<&Figure> {
        self.figures
            .iter()
            .find(|figure| figure.operation == operation && figure.side == side)
    }

    /// Returns the counts of these operations, of each side.
    pub fn of(&self, operations: &[&str]) -> Vec<Figure> {
        let of_each_side = |operation| {
            Side::ALL
                .into_iter()
                .filter_map(move |side| self.get(operation, side))
        };
        operations
            .iter()
            .flat_map(|operation| of_each_side(operation))
            .cloned()
            .collect()
    }

    /// Returns the instructions of an operation of a side, if they were counted.
    pub fn instructions(&self, operation: &str, side: Side) -> Option<&Length> {
        self.lengths
            .iter()
            .find(|length| length.operation == operation && length.side == side)
    }

    /// Adds the instructions of an operation of a side.
    pub fn note_instructions(&mut self, operation: &str, side: Side, instructions: Figures) {
        self.lengths.push(Length {
            operation: operation.to_owned(),
            side,
            instructions,
        });
    }

    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let figures = text
            .lines()
            .map(|line| parse(line).ok_or_else(|| format!("what is {line:?}?")));
        Ok(Self {
            figures: figures.collect::<std::result::Result<_, _>>()?,
            lengths: Vec::new(),
        })
    }

    /// Writes a file.
    pub fn write(&self, file: &Path) -> Result<()> {
        let mut text = String::new();
        for Figure {
            operation,
            side,
            locked,
            conflicts,
        } in &self.figures
        {
            writeln!(text, "{operation}\t{}\t{locked}\t{conflicts}", side.name())?;
        }
        Ok(fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?)
    }

    /// Counts the locked instructions of `one`, and the lines on which it conflicts with `other`,
    /// each on its own thread and CPU.
    #[cfg(feature = "audit")]
    pub fn count(&mut self, operation: &str, side: Side, one: impl Fn(), other: impl Fn() + Send) {
        use extern4_sync::audit;
        // Calls that are stepped through. Some work is done once in a few calls only.
        const STEPPED: u32 = 25;
        let [ours, theirs] = audit::side_by_side(on_cpu(0, &one), on_cpu(1, other));
        let conflicts = audit::conflicts(&ours, &theirs).len() as f64;
        let stepped = audit::locked_instructions(|| (0..STEPPED).for_each(|_| one()));
        let locked = stepped.map_or(f64::NAN, |((), locked)| locked as f64 / f64::from(STEPPED));
        self.figures.push(Figure {
            operation: operation.to_owned(),
            side,
            locked,
            conflicts,
        });
    }
}

/// Returns `act` bound to the CPU of this number among the CPUs that the thread may run on, if
/// there is one. Two threads on different CPUs use different copies of per-CPU data. The returned
/// function restores the thread's CPU set at its end.
#[cfg(feature = "audit")]
fn on_cpu(number: usize, act: impl Fn()) -> impl Fn() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    move || {
        let Ok(allowed) = sched_getaffinity(None) else {
            return act();
        };
        if let Some(cpu) = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .nth(number)
        {
            let mut only = CpuSet::new();
            only.set(cpu);
            // If the kernel refuses, some lines conflict without need.
            let _ = sched_setaffinity(None, &only);
        }
        act();
        let _ = sched_setaffinity(None, &allowed);
    }
}

fn parse(line: &str) -> Option<Figure> {
    let mut fields = line.split('\t');
    let figure = Figure {
        operation: fields.next()?.to_owned(),
        side: Side::of_name(fields.next()?)?,
        locked: fields.next()?.parse().ok()?,
        conflicts: fields.next()?.parse().ok()?,
    };
    fields.next().is_none().then_some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let figure = |side, locked| Figure {
            operation: "hit".to_owned(),
            side,
            locked,
            conflicts: 1.0,
        };
        let figures = vec![figure(Side::Baseline, 4.25), figure(Side::Extern4, 0.0)];
        let counted = AccessCounts {
            figures,
            ..AccessCounts::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counted");
        counted.write(&file).unwrap();
        let read = AccessCounts::read(&file).unwrap();
        assert_eq!(
            (read.get("hit", Side::Extern4), read.get("hit", Side::Patch)),
            (Some(&counted.figures[1]), None)
        );
        assert_eq!(read, counted);
        fs::write(&file, "hit\textern4\n").unwrap();
        assert!(AccessCounts::read(&file).is_err());
    }
}
