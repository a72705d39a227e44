//! House rules and chores of the workspace: `tidy` checks what rustc cannot, `bench` measures against rivals.

#![forbid(unsafe_code)]

mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => report(tidy::check(&tidy::workspace_root())),
        _ => {
            eprintln!("usage: xtask tidy");
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
