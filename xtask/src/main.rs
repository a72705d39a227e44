//! House rules and chores of the workspace: `tidy` checks what rustc cannot, `bench` measures
//! against rivals, `growth` with growing sizes.

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
        Some("bench") => goals(bench::run(&tidy::workspace_root(), rest)),
        Some("growth") => goals(bench::growth(&tidy::workspace_root(), rest)),
        other => match other.and_then(|name| bench::subcommand(name, rest)) {
            Some(Ok(())) => ExitCode::SUCCESS,
            Some(Err(error)) => failed(&error),
            None => {
                eprintln!(
                    "usage: xtask tidy [--list [CHECK [CRATE]] | --tighten] \
                     | xtask bench [PART OF A ROW'S NAME...] | xtask growth [MOST FILES]"
                );
                ExitCode::from(2)
            }
        },
    }
}

/// Ends with success if every goal was met.
fn goals(met: bench::Result<bool>) -> ExitCode {
    match met {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("bench: a goal is missed");
            ExitCode::FAILURE
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &str) -> ExitCode {
    eprintln!("bench: {error}");
    ExitCode::FAILURE
}

/// Checks the workspace, prints findings, or lowers the allowed numbers.
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
    if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
