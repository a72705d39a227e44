//! `extern4-lab`: measures, and writes the report.
//!
//! `make lab` runs it twice. The audit's build counts (`count FILE`); the ordinary build measures
//! and reads those counts (`--counted FILE`). It ends with an error if an argument, a trace or a
//! file is wrong. A goal that is not met is a verdict in the report, and no error.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use extern4_lab::access_counts::AccessCounts;
use extern4_lab::plan::Plan;
use extern4_lab::report::headline;
use extern4_lab::traces::{self, Playing};
use extern4_lab::{Result, instructions, may_exec, repeat};

const USAGE: &str = "usage: extern4-lab [--quick | --short] [--only PART_OF_A_WORKLOAD'S_NAME] [--threads N,...] [--out FOLDER] [--counted FILE] | extern4-lab count FILE | extern4-lab traces [--quick] [FILE...]";

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: impl Iterator<Item = String>) -> Result<()> {
    let (mut plan, mut folder, mut counted) =
        (Plan::full(), PathBuf::from("target/lab"), AccessCounts::default());
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(USAGE);
        match arg.as_str() {
            "--quick" => plan = Plan::quick(),
            "--short" => plan = Plan::short(),
            "--only" => plan.only = Some(value()?),
            "--threads" => {
                plan.threads = value()?.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?
            }
            "--out" => folder = value()?.into(),
            "--counted" => counted = AccessCounts::read(value()?.as_ref())?,
            "count" => return count(value()?.as_ref()),
            "traces" => return traces(args),
            instructions::REPEAT => return repeat::run(args),
            _ => return Err(USAGE.into()),
        }
    }
    let say = &mut |what: &str| eprintln!("lab: {what}");
    instructions::count(&may_exec::REPEATED, &mut counted, say)?;
    let chapters = extern4_lab::run(&plan, &counted, &folder, say)?;
    print!("{}", headline::text(&chapters));
    println!("\nThe report: {}", folder.join("report.md").display());
    Ok(())
}

/// Plays the traces in `args`, or all if there are none, and prints tables.
fn traces(args: impl Iterator<Item = String>) -> Result<()> {
    let (quick, files): (Vec<_>, Vec<_>) = args.partition(|arg| arg == "--quick");
    let playing = if quick.is_empty() { Playing::FULL } else { Playing::QUICK };
    let files: Vec<_> = files.into_iter().map(PathBuf::from).collect();
    let files = if files.is_empty() { traces::all()? } else { files };
    let say = &mut |what: &str| eprintln!("lab: {what}");
    print!("{}", traces::run(&files, playing, say)?);
    Ok(())
}

#[cfg(feature = "audit")]
fn count(file: &std::path::Path) -> Result<()> {
    let mut counted = AccessCounts::default();
    extern4_lab::acl::count(&mut counted);
    extern4_lab::may_exec::count(&mut counted);
    extern4_lab::open_files::count(&mut counted);
    extern4_lab::mbcache::count(&mut counted);
    extern4_lab::buffer_cache::count(&mut counted);
    counted.write(file)
}

#[cfg(not(feature = "audit"))]
fn count(_: &std::path::Path) -> Result<()> {
    Err("this was built without the feature `audit`, which counts".into())
}
