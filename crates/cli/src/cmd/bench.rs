//! `extern4 bench`: measures how fast operations are on this machine. It runs a short suite, with
//! the kernel's own mount for comparison, or one operation by itself.
//!
//! `args` calls [`run`]. It changes no image that it is given: what writes works on a copy.

mod copy;
mod ops;
mod suite;
mod walk;

use std::io;

use clap::Subcommand;
use extern4_measure::load::Done;

use crate::app::{App, Opening};
use crate::exit_status::ExitStatus;
use crate::json::Object;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(flatten)]
    suite: suite::Args,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Get the attributes of one path over and over
    Walk(walk::Args),
    /// Change files over and over, in a copy of the image
    Ops(ops::Args),
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if !matches!(args.what, Some(What::Walk(_))) && *app.opening() != Opening::default() {
        app.fail(
            ExitStatus::Usage,
            "changes go to a copy of the image: --journal and --superblock are only for walk",
        );
        return Ok(());
    }
    match &args.what {
        None => suite::run(&args.suite, app),
        Some(What::Walk(args)) => walk::run(args, app),
        Some(What::Ops(args)) => ops::run(args, app),
    }
}

/// Reads a duration in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("between 0.001 and 86400".to_owned())
    }
}

/// Writes the result of threads that did one operation over and over.
fn write(done: &Done, threads: u32, object: &mut Object<'_>) {
    object.raw("ops_per_s", done.per_second().round() as u64);
    object.rounded("ns_per_op", done.nanos() * f64::from(threads), 1);
    object.rounded("allocs_per_op", done.allocations_per_op(), 4);
}

/// Returns the result of threads in words: how often, how long each operation takes in its thread,
/// and its allocations.
fn sentence(done: &Done, threads: u32) -> String {
    let each = done.nanos() * f64::from(threads);
    let allocations = done.allocations_per_op();
    format!(
        "{:.0} operations/s, {each:.1} ns each, {allocations:.4} allocations each",
        done.per_second()
    )
}
