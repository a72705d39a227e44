//! Instructions of an operation: callgrind counts them in a run of this program that does nothing
//! else.
//!
//! Only the work of a [`load`] counts: how the program begins and ends is noise, and the work of
//! other threads, such as commits, depends on time. Several runs show that the count is the same
//! each time. A count that is not positive is an error.
//!
//! `row` asks for it where the clock does not tell which side is faster. Without callgrind there is
//! no figure.

use extern4_measure::figures::Figures;
use extern4_measure::{callgrind, load};

use crate::Result;
use crate::access_counts::AccessCounts;
use crate::plan::Side;

/// The hidden command of this program that repeats an operation and prints how many operations it
/// did: `repeat WHAT SIDE BATCHES`.
pub const REPEAT: &str = "repeat";

/// Runs of each count.
const RUNS: usize = 3;
/// Batches of a run.
const BATCHES: u64 = 50;

/// Returns the instructions of an operation of one side, in each of several runs.
///
/// # Errors
///
/// Callgrind or the program fails, or there is nothing to count.
pub fn per_operation(what: &str, side: Side) -> Result<Figures> {
    let args = [REPEAT, what, side.name(), &BATCHES.to_string()];
    let run = |_| {
        let (instructions, says) = callgrind::run(&args, Some(&format!("*{}*", load::COUNTED)))?;
        match says.trim().parse::<f64>()? {
            operations if operations > 0.0 => Ok(instructions / operations),
            _ => Err(format!("{what} was not repeated").into()),
        }
    };
    (0..RUNS).map(run).collect()
}

/// Counts the instructions of operations that [`repeat`](crate::repeat) knows, for these sides.
pub fn count<'o>(
    operations: impl Iterator<Item = &'o str>,
    sides: &[Side],
    counted: &mut AccessCounts,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    for operation in operations {
        say(&format!("{operation}: instructions"));
        for &side in sides {
            counted.note_instructions(operation, side, per_operation(operation, side)?);
        }
    }
    Ok(())
}
