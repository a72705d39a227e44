//! Instructions of an operation: callgrind counts them in a run of this program that does nothing
//! else.
//!
//! The difference in instructions between a long and a short run, divided by the difference in
//! operations, is the figure. Of a [`load`] only its batches count: the work of other threads, such
//! as commits, depends on its duration.
//!
//! `row` asks for it where the clock does not tell which side is faster. Without callgrind there is
//! no figure.

use extern4_measure::{callgrind, load};

use crate::Result;
use crate::access_counts::AccessCounts;
use crate::plan::Side;

/// The hidden command of this program that repeats an operation and prints how many operations it
/// did: `repeat WHAT SIDE TIMES`.
pub const REPEAT: &str = "repeat";

/// The part of a run whose instructions are counted.
#[derive(Clone, Copy, Debug)]
pub enum Counts {
    /// The whole run.
    All,
    /// Only the batches of a load.
    Batches,
}

/// Returns the instructions of an operation of one side, from a short run and a long one of `times`
/// repetitions. Returns `None` if the long run did no more operations than the short one.
pub fn per_operation(what: &str, side: Side, counts: Counts, times: [u64; 2]) -> Result<Option<f64>> {
    let run = |times: u64| -> Result<(f64, f64)> {
        let only = matches!(counts, Counts::Batches).then(|| format!("*{}*", load::COUNTED));
        let args = [REPEAT, what, side.name(), &times.to_string()];
        let (instructions, says) = callgrind::run(&args, only.as_deref())?;
        Ok((instructions, says.trim().parse()?))
    };
    let [(less, few), (more, many)] = [run(times[0])?, run(times[1])?];
    Ok((many > few).then(|| (more - less) / (many - few)))
}

/// Operations of a short run, and of a long one.
const RUNS: [u64; 2] = [1_000, 11_000];

/// Counts the instructions of operations that [`repeat`](crate::repeat) knows, for all sides; does
/// nothing without callgrind.
pub fn count(operations: &[&str], counted: &mut AccessCounts, say: &mut dyn FnMut(&str)) -> Result<()> {
    if !callgrind::is_there() {
        say("no valgrind: instructions are not counted");
        return Ok(());
    }
    for &operation in operations {
        say(&format!("{operation}: instructions"));
        for side in Side::EVERY {
            let figure = per_operation(operation, side, Counts::All, RUNS)?.ok_or("it is repeated")?;
            counted.note_instructions(operation, side, figure);
        }
    }
    Ok(())
}
