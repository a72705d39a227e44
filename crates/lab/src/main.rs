//! `extern4-lab`: measures, and writes the report.
//!
//! `make lab` runs it twice. The audit's build counts (`count FILE`); the ordinary build measures
//! and reads those counts (`--counted FILE`). Before it measures, it waits until the machine is
//! idle. It ends with an error if the machine stays busy, or if an argument or a file is wrong. A
//! goal that is not met is a verdict in the report, and no error.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use extern4_lab::access_counts::AccessCounts;
use extern4_lab::plan::{Plan, Side};
use extern4_lab::report::headline;
use extern4_lab::{Result, instructions, may_exec, open_files, repeat};
use extern4_measure::{callgrind, machine};

const USAGE: &str = "usage: extern4-lab [--quick | --short] [--busy] [--only PART_OF_A_WORKLOAD'S_NAME] [--threads N,...] [--out FOLDER] [--counted FILE] | extern4-lab count FILE";

/// The load average below which figures can be trusted.
const IDLE: f64 = 1.0;
/// The time for which a busy machine is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

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
    let mut plan = Plan::full();
    let mut folder = PathBuf::from("target/lab");
    let mut counted = AccessCounts::default();
    let mut may_be_busy = false;
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(USAGE);
        match arg.as_str() {
            "--quick" => plan = Plan::quick(),
            "--short" => plan = Plan::short(),
            "--busy" => may_be_busy = true,
            "--only" => plan.only = Some(value()?),
            "--threads" => {
                plan.threads = value()?
                    .split(',')
                    .map(str::parse)
                    .collect::<std::result::Result<_, _>>()?
            }
            "--out" => folder = value()?.into(),
            "--counted" => counted = AccessCounts::read(value()?.as_ref())?,
            "count" => return count(value()?.as_ref()),
            instructions::REPEAT => return repeat::run(args),
            _ => return Err(USAGE.into()),
        }
    }
    let say = &mut |what: &str| eprintln!("lab: {what}");
    if !may_be_busy {
        wait_until_idle(say)?;
    }
    if callgrind::is_there() {
        for (operations, sides) in [
            (&may_exec::REPEATED[..], &Side::EVERY[..]),
            (&open_files::REPEATED[..], &Side::ALL[..]),
        ] {
            let operations = operations.iter().filter(|operation| plan.wants(operation));
            instructions::count(operations.copied(), sides, &mut counted, say)?;
        }
    } else {
        say(
            "valgrind is not installed: instructions are not counted, and verdicts on them stay open",
        );
    }
    let chapters = extern4_lab::run(&plan, &counted, &folder, say)?;
    print!("{}", headline::text(&chapters));
    println!("\nThe report: {}", folder.join("report.md").display());
    Ok(())
}

/// Waits for a machine on which hardly anything else runs.
///
/// # Errors
///
/// It does not come to rest.
fn wait_until_idle(say: &mut dyn FnMut(&str)) -> Result<()> {
    let waits = |load| {
        say(&format!(
            "load {load}: waits until it is below {IDLE}; --busy measures all the same"
        ))
    };
    machine::wait_until_idle(IDLE, PATIENCE, waits).map_err(|load| {
        let minutes = PATIENCE.as_secs() / 60;
        format!("the load is still {load} after {minutes} minutes, not below {IDLE}: nothing was measured")
            .into()
    })
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
