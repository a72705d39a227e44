//! Instructions of an operation: callgrind counts them in a run of this program that does nothing
//! else.
//!
//! The difference in instructions between a long and a short run, divided by the difference in
//! operations, is the figure. Of a [`load`] only its batches count: the work of other threads, such
//! as commits, depends on its duration.

use std::sync::atomic::Ordering::Relaxed;

use extern4_measure::{callgrind, load};

use crate::counted::Counted;
use crate::plan::{Plan, Repeated, Side};
use crate::{Result, may_exec};

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

/// Counts the operations of `may_exec` for all sides; does nothing without callgrind.
pub fn count(counted: &mut Counted, say: &mut dyn FnMut(&str)) -> Result<()> {
    if !callgrind::is_there() {
        say("no valgrind: instructions are not counted");
        return Ok(());
    }
    for operation in may_exec::REPEATED {
        say(&format!("{operation}: instructions"));
        for side in Side::EVERY {
            let figure = per_operation(operation, side, Counts::All, RUNS)?.ok_or("it is repeated")?;
            counted.note_instructions(operation, side, figure);
        }
    }
    Ok(())
}

/// Runs the hidden command: an operation of `may_exec`, or batches of a workload.
pub fn repeat(mut args: impl Iterator<Item = String>) -> Result<()> {
    let what = args.next().ok_or("what?")?;
    let side = args.next().and_then(|name| Side::of_name(&name)).ok_or("which side?")?;
    let times = args.next().ok_or("how often?")?.parse()?;
    if may_exec::REPEATED.contains(&&*what) {
        may_exec::repeat(&what, side, times)?;
        println!("{times}");
    } else {
        println!("{}", repeat_workload(what, side, times));
    }
    Ok(())
}

/// Does batches of a workload, and returns how many operations these were.
fn repeat_workload(workload: String, side: Side, batches: u64) -> u64 {
    let repeated = Repeated::new(workload, side, batches);
    crate::chapters(&Plan::repeat(repeated.clone()), &Counted::default(), &mut |_| {}, &mut || {});
    repeated.operations.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_every_kind_of_workload_can_be_counted() {
        for workload in [
            "null I/O",
            "stat, no ACL",
            "the first question, ACL not read yet",
            "stat",
            "open and close",
            "V=10, F=10",
            "lookups, no misses",
            "files made and removed on ext4",
        ] {
            for side in Side::ALL {
                let operations = |batches| repeat_workload(workload.to_owned(), side, batches);
                let one = operations(1);
                assert!(one > 0, "{workload}");
                assert_eq!(operations(3), 3 * one, "{workload}");
            }
        }
        assert_eq!(repeat_workload("nothing".to_owned(), Side::Extern4, 1), 0);
    }
}
