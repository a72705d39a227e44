//! The hidden command that callgrind runs: it repeats one operation, or batches of one workload.
//!
//! `main` runs it when `instructions` starts this program again. It measures nothing itself.

use std::sync::atomic::Ordering::Relaxed;

use crate::access_counts::AccessCounts;
use crate::plan::{Plan, Repeated, Side};
use crate::{Result, may_exec};

/// Runs the hidden command: an operation of `may_exec`, or batches of a workload.
pub fn run(mut args: impl Iterator<Item = String>) -> Result<()> {
    let what = args.next().ok_or("what?")?;
    let side = args
        .next()
        .and_then(|name| Side::of_name(&name))
        .ok_or("which side?")?;
    let batches = args.next().ok_or("how often?")?.parse()?;
    let operations = match may_exec::repeat(&what, side, batches) {
        Some(operations) => operations,
        None => repeat_workload(what, side, batches),
    };
    println!("{operations}");
    Ok(())
}

/// Does batches of a workload, and returns how many operations these were.
fn repeat_workload(workload: String, side: Side, batches: u64) -> u64 {
    let repeated = Repeated::new(workload, side, batches);
    crate::chapters(
        &Plan::repeat(repeated.clone()),
        &AccessCounts::default(),
        &mut |_| {},
    );
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
            "files removed on ext4",
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
