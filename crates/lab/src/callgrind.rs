//! Instructions of an operation, counted by callgrind from this program in a run that does nothing else.
//!
//! What a long run executes more than a short one is that of the operations in between. Of a [`crowd`](crate::crowd) only its batches count: what
//! other threads do meanwhile, as who commits what has been changed, depends on how long it takes.

use std::process::Command;

use crate::Result;
use crate::plan::Side;

/// The hidden command of this program that does something over and over, and says how many operations that were: `repeat WHAT SIDE TIMES`.
pub const REPEAT: &str = "repeat";

/// What is counted of a crowd.
const BATCHES: &str = "--toggle-collect=*crowd::counted_batch*";

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub enum Counts {
    /// The whole run.
    All,
    /// Batches of a [`crowd`](crate::crowd).
    Batches,
}

/// Whether there is a callgrind.
pub fn is_there() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

/// Instructions of an operation of one side, by a short run and a long one, of so many times each. `None` if it is nothing that is done a
/// number of times.
pub fn per_operation(what: &str, side: Side, counts: Counts, times: [u64; 2]) -> Result<Option<f64>> {
    let [(less, few), (more, many)] =
        [run(what, side, counts, times[0])?, run(what, side, counts, times[1])?];
    Ok((many > few).then(|| (more - less) / (many - few)))
}

/// Instructions of a whole run, and the operations in it.
fn run(what: &str, side: Side, counts: Counts, times: u64) -> Result<(f64, f64)> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    if matches!(counts, Counts::Batches) {
        command.arg(BATCHES);
    }
    command.arg(std::env::current_exe()?);
    let output = command.args([REPEAT, what, side.name(), &times.to_string()]).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let figure = text.lines().find_map(|line| line.split_once("Collected :"));
    let figure = figure.and_then(|(_, figure)| figure.trim().parse().ok());
    // Nothing at all: callgrind does not know the name.
    let figure = figure
        .filter(|figure| *figure > 0.0 && output.status.success())
        .ok_or_else(|| format!("{command:?}: {text}"))?;
    Ok((figure, String::from_utf8(output.stdout)?.trim().parse()?))
}
