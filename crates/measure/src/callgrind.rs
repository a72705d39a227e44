//! Instructions of a whole process, counted by callgrind.

use std::process::Command;

/// Whether there is a callgrind.
pub fn is_there() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

/// Runs this program again under callgrind, with these arguments. Returns the instructions that it counts, and what the program wrote to
/// standard output. Counts only inside functions that `only` matches, if it is given.
///
/// # Errors
///
/// What callgrind says, if the program fails or nothing is counted: then it does not know the function.
pub fn run(args: &[&str], only: Option<&str>) -> Result<(f64, String), String> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.args(only.map(|only| format!("--toggle-collect={only}")));
    command.arg(std::env::current_exe().map_err(|e| e.to_string())?).args(args);
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let says = String::from_utf8_lossy(&output.stderr);
    let figure = says.lines().find_map(|line| line.split_once("Collected :"));
    let figure = figure.and_then(|(_, figure)| figure.trim().parse().ok());
    let figure = figure.filter(|figure| *figure > 0.0 && output.status.success());
    let figure = figure.ok_or_else(|| format!("{command:?}: {says}"))?;
    Ok((figure, String::from_utf8_lossy(&output.stdout).into_owned()))
}
