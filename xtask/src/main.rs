//! House rules and chores of the workspace: `tidy` checks what rustc cannot, `bench` measures against rivals.

#![forbid(unsafe_code)]

mod bench;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => report(tidy::check(&tidy::workspace_root())),
        Some("bench") => match bench::run(&tidy::workspace_root()) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => {
                eprintln!("bench: a goal is missed");
                ExitCode::FAILURE
            }
            Err(error) => {
                eprintln!("bench: {error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: xtask tidy | xtask bench");
            ExitCode::from(2)
        }
    }
}

fn report(faults: Vec<String>) -> ExitCode {
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
