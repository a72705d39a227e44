//! How many instructions an operation takes: counted by callgrind, if there is one, from this program in a run that does nothing else.
//!
//! What a long run executes more than a short one is that of the operations in between.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::counted::Counted;
use crate::plan::{Plan, Repeated, Side};
use crate::{Result, may_exec};

/// The hidden command of this program that does an operation over and over: `repeat OPERATION SIDE TIMES`.
pub const REPEAT: &str = "repeat";

/// The hidden command that does batches of a workload, and says how many operations these were: `batches WORKLOAD SIDE BATCHES`.
pub const BATCHES: &str = "batches";

/// How many batches a short run does, and a long one.
const RUNS: [u64; 2] = [4, 204];

/// The operations of the batches of this run.
static REPEATED: AtomicU64 = AtomicU64::new(0);

const SHORT: u32 = 1_000;
const LONG: u32 = 11_000;

/// Counts for all sides what [`repeat`] knows. Where there is no callgrind, nothing.
pub fn count(counted: &mut Counted, say: &mut dyn FnMut(&str)) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        say("no valgrind: instructions are not counted");
        return Ok(());
    }
    for operation in may_exec::REPEATED {
        say(&format!("{operation}: instructions"));
        for side in Side::ALL {
            let more = collected(operation, side, LONG)? - collected(operation, side, SHORT)?;
            counted.note_instructions(operation, side, more / f64::from(LONG - SHORT));
        }
    }
    Ok(())
}

/// Instructions of a whole run.
fn collected(operation: &str, side: Side, times: u32) -> Result<f64> {
    Ok(collect(&[REPEAT, operation, side.name(), &times.to_string()])?.0)
}

/// Instructions of a run of this program with these words, and what it says.
fn collect(words: &[&str]) -> Result<(f64, String)> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe()?);
    let output = command.args(words).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let figure = text.lines().find_map(|line| line.split_once("Collected :"));
    let figure = figure.and_then(|(_, figure)| figure.trim().parse().ok());
    let figure = figure.filter(|_| output.status.success()).ok_or_else(|| format!("{command:?}: {text}"))?;
    Ok((figure, String::from_utf8(output.stdout)?))
}

/// Instructions that a side takes for an operation of a workload with one thread; `None` if they cannot be counted.
pub fn of_workload(workload: &str, side: Side) -> Option<f64> {
    let run = |batches: u64| -> Result<(f64, f64)> {
        let (instructions, said) = collect(&[BATCHES, workload, side.name(), &batches.to_string()])?;
        Ok((instructions, said.trim().parse()?))
    };
    let [short, long] = RUNS.map(|batches| run(batches).ok());
    let ((less, few), (more, many)) = (short?, long?);
    (many > few).then(|| (more - less) / (many - few))
}

/// Notes so many operations of a run that is counted.
pub(crate) fn note_repeated(operations: u64) {
    // Relaxed: it is read when all have ended.
    REPEATED.fetch_add(operations, Relaxed);
}

/// The hidden command.
pub fn repeat(mut args: impl Iterator<Item = String>) -> Result<()> {
    let operation = args.next().ok_or("which operation?")?;
    let side = args.next().and_then(|name| Side::of_name(&name)).ok_or("which side?")?;
    let times = args.next().ok_or("how often?")?.parse()?;
    may_exec::repeat(&operation, side, times)
}

/// The other one.
pub fn batches(mut args: impl Iterator<Item = String>) -> Result<()> {
    let workload = args.next().ok_or("which workload?")?;
    let side = args.next().and_then(|name| Side::of_name(&name)).ok_or("which side?")?;
    let batches = args.next().ok_or("how many?")?.parse()?;
    let plan = Plan::repeat(Repeated { workload, side, batches });
    println!("{}", repeated(&plan));
    Ok(())
}

fn repeated(plan: &Plan) -> u64 {
    crate::chapters(plan, &Counted::default(), &mut |_| {});
    REPEATED.swap(0, Relaxed)
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
                let operations = |batches| {
                    repeated(&Plan::repeat(Repeated { workload: workload.to_owned(), side, batches }))
                };
                let one = operations(1);
                assert!(one > 0, "{workload}");
                assert_eq!(operations(3), 3 * one, "{workload}");
            }
        }
        let unknown = Repeated { workload: "nothing".to_owned(), side: Side::New, batches: 1 };
        assert_eq!(repeated(&Plan::repeat(unknown)), 0);
    }
}
