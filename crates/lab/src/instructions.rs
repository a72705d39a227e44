//! What [`callgrind`] counts instructions of.

use std::sync::atomic::Ordering::Relaxed;

use crate::callgrind::Counts;
use crate::counted::Counted;
use crate::plan::{Plan, Repeated, Side};
use crate::{Result, callgrind, may_exec};

/// Operations of a short run, and of a long one.
const RUNS: [u64; 2] = [1_000, 11_000];

/// Counts for all sides what `may_exec` has operations for. Where there is no callgrind, nothing.
pub fn count(counted: &mut Counted, say: &mut dyn FnMut(&str)) -> Result<()> {
    if !callgrind::is_there() {
        say("no valgrind: instructions are not counted");
        return Ok(());
    }
    for operation in may_exec::REPEATED {
        say(&format!("{operation}: instructions"));
        for side in Side::ALL {
            let figure =
                callgrind::per_operation(operation, side, Counts::All, RUNS)?.ok_or("it is repeated")?;
            counted.note_instructions(operation, side, figure);
        }
    }
    Ok(())
}

/// The hidden command: an operation of `may_exec`, or batches of a workload.
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

/// Does batches of a workload, and tells how many operations these were.
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
        ] {
            for side in Side::ALL {
                let operations = |batches| repeat_workload(workload.to_owned(), side, batches);
                let one = operations(1);
                assert!(one > 0, "{workload}");
                assert_eq!(operations(3), 3 * one, "{workload}");
            }
        }
        assert_eq!(repeat_workload("nothing".to_owned(), Side::New, 1), 0);
    }
}
