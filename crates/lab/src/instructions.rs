//! How many instructions an operation takes: counted by callgrind, if there is one, from this program in a run that does nothing else.
//!
//! What a long run executes more than a short one is that of the operations in between.

use std::process::Command;

use crate::counted::Counted;
use crate::plan::Side;
use crate::{Result, may_exec};

/// The hidden command of this program that does an operation over and over: `repeat OPERATION SIDE TIMES`.
pub const REPEAT: &str = "repeat";

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
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe()?);
    let output = command.args([REPEAT, operation, side.name(), &times.to_string()]).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let figure = text.lines().find_map(|line| line.split_once("Collected :"));
    let figure = figure.and_then(|(_, figure)| figure.trim().parse().ok());
    figure.filter(|_| output.status.success()).ok_or_else(|| format!("{command:?}: {text}").into())
}

/// The hidden command.
pub fn repeat(mut args: impl Iterator<Item = String>) -> Result<()> {
    let operation = args.next().ok_or("which operation?")?;
    let side = args.next().and_then(|name| Side::of_name(&name)).ok_or("which side?")?;
    let times = args.next().ok_or("how often?")?.parse()?;
    may_exec::repeat(&operation, side, times)
}
