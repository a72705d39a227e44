//! Instructions of a whole process, counted by callgrind.
//!
//! The lab and the benchmark of searches call it where noise hides which side is faster. It runs
//! this program once more with other arguments. Without callgrind, or if the program fails, there
//! is an error and no figure.

use std::collections::HashMap;
use std::process::Command;

/// Returns whether there is a callgrind.
pub fn is_there() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

/// Runs this program again under callgrind, with these arguments. Returns the instructions and the
/// standard output of the program. Counts only inside functions that `only` matches, if it is
/// given.
///
/// # Errors
///
/// The program fails, or callgrind counts nothing, since it does not know the function. The error
/// has the output of callgrind.
pub fn run(args: &[&str], only: Option<&str>) -> Result<(f64, String), String> {
    count(args, only, "/dev/null")
}

/// Runs this program again under callgrind and returns the instructions of each function that
/// `only` matches, without the instructions of the functions that it calls.
///
/// # Errors
///
/// The errors of [`run`].
pub fn functions(args: &[&str], only: &str) -> Result<HashMap<String, f64>, String> {
    let file = std::env::temp_dir().join(format!("callgrind.{}", std::process::id()));
    let counted = count(args, Some(only), &file.to_string_lossy());
    let text = std::fs::read_to_string(&file).map_err(|e| e.to_string());
    // The file is read already; it is missing if callgrind has failed.
    let _ = std::fs::remove_file(&file);
    counted?;
    Ok(by_function(&text?))
}

fn count(args: &[&str], only: Option<&str>, file: &str) -> Result<(f64, String), String> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", &format!("--callgrind-out-file={file}")]);
    command.args(only.map(|only| format!("--toggle-collect={only}")));
    command
        .arg(std::env::current_exe().map_err(|e| e.to_string())?)
        .args(args);
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let says = String::from_utf8_lossy(&output.stderr);
    let figure = says.lines().find_map(|line| line.split_once("Collected :"));
    let figure = figure.and_then(|(_, figure)| figure.trim().parse().ok());
    let figure = figure.filter(|figure| *figure > 0.0 && output.status.success());
    let figure = figure.ok_or_else(|| format!("{command:?}: {says}"))?;
    Ok((figure, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Returns the cost of each function in an output file of callgrind.
///
/// `fn=(ID) NAME` begins a function; NAME is there the first time only, also in `cfn=`. A line of
/// numbers is a place and its cost. The line after `calls=` is the cost of a call, which is not the
/// function's own.
fn by_function(text: &str) -> HashMap<String, f64> {
    let mut names = HashMap::<&str, &str>::new();
    let mut costs = HashMap::<String, f64>::new();
    let mut function = "";
    let mut is_call = false;
    for line in text.lines() {
        let of = line
            .strip_prefix("fn=")
            .or_else(|| line.strip_prefix("cfn="));
        if let Some((id, name)) = of.and_then(|of| of.split_once(')')) {
            if !name.is_empty() {
                names.insert(id, name.trim());
            }
            if line.starts_with("fn=") {
                function = names.get(id).copied().unwrap_or_default();
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            let cost = line
                .split_whitespace()
                .nth(1)
                .and_then(|cost| cost.parse::<f64>().ok());
            if let Some(cost) = cost.filter(|_| !std::mem::take(&mut is_call)) {
                *costs.entry(function.to_owned()).or_default() += cost;
            }
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::by_function;

    #[test]
    fn a_call_is_no_cost_of_its_caller() {
        let text = "events: Ir\nfn=(1) main\n10 5\ncfn=(2) malloc\ncalls=1 20\n11 100\n+1 2\n\nfn=(2)\n20 90\n* 10\n";
        let costs = by_function(text);
        assert_eq!(
            (costs["main"], costs["malloc"], costs.len()),
            (7.0, 100.0, 2)
        );
    }
}
