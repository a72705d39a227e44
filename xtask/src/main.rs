//! House rules and chores of the workspace: `tidy` checks what rustc cannot, `bench` measures
//! against rivals.

#![forbid(unsafe_code)]

mod bench;
mod tidy;

use std::process::ExitCode;

/// Counts, for the rows that are about allocations.
#[global_allocator]
static ALLOCATOR: extern4_sync::allocations::Counting = extern4_sync::allocations::Counting;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map(String::as_str) {
        Some("tidy") => tidy(rest),
        Some("bench") => match bench::run(&tidy::workspace_root(), rest) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => {
                eprintln!("bench: a goal is missed");
                ExitCode::FAILURE
            }
            Err(error) => failed(&error),
        },
        // Loops that `bench` runs in processes of their own.
        Some("stat-loop") => bench::call_loop(bench::Call::Stat, rest)
            .map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS),
        Some("open-loop") => bench::call_loop(bench::Call::Open, rest)
            .map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS),
        Some("search-loop") => {
            bench::search_loop(rest).map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
        }
        Some("write-loop") => {
            bench::write_loop(rest).map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
        }
        _ => {
            eprintln!(
                "usage: xtask tidy [--list [CHECK [CRATE]] | --tighten] | xtask bench [PART OF A ROW'S NAME...]"
            );
            ExitCode::from(2)
        }
    }
}

fn failed(error: &str) -> ExitCode {
    eprintln!("bench: {error}");
    ExitCode::FAILURE
}

/// Checks the workspace, prints findings, or lowers the numbers of those that are allowed.
fn tidy(args: &[String]) -> ExitCode {
    let root = tidy::workspace_root();
    match args.first().map(String::as_str) {
        None => report(tidy::check(&root)),
        Some("--list") => {
            for finding in tidy::list(&root, args.get(1), args.get(2)) {
                println!("{finding}");
            }
            ExitCode::SUCCESS
        }
        Some("--tighten") => report(tidy::tighten(&root).err().into_iter().collect()),
        Some(other) => report(vec![format!("{other}: not --list or --tighten")]),
    }
}

fn report(faults: Vec<String>) -> ExitCode {
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
