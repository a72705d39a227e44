//! `extern4 quota`: shows, sets and checks the quotas of users, groups and projects.

pub(crate) mod check;
mod grace;
mod limit;
mod owners;
pub(crate) mod report;
mod set;

use std::io;

use clap::Subcommand;
use extern4::quota::{Kind, Quotas};

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(flatten)]
    report: report::Args,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Set the limits of users, groups and projects
    Set(set::Args),
    /// Set how long soft limits may be exceeded
    Grace(grace::Args),
    /// Compare what the quotas count with what users, groups and projects have
    Check(check::Args),
}

/// The names of the subcommands of `quota`.
pub(crate) const SUBCOMMANDS: [&str; 3] = ["set", "grace", "check"];

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    match &args.what {
        None => report::run(&args.report, app)?,
        Some(What::Set(args)) => drop(set::run(args, app)),
        Some(What::Grace(args)) => drop(grace::run(args, app)),
        Some(What::Check(args)) => check::run(args, app)?,
    }
    Ok(())
}

/// Returns the image that an image path names as a whole. Reports a path into the volume.
fn whole<'a>(image_path: &'a ImagePath, app: &mut App) -> Option<&'a Image> {
    let is_whole = image_path.path.as_os_str() == "/" || app.in_script();
    if !is_whole {
        app.fail_at(ExitStatus::Usage, image_path, "name the image alone");
    }
    is_whole.then_some(&image_path.image)
}

/// Returns the kinds of quota that a volume keeps out of the wanted ones; no wanted ones are all.
/// Reports a wanted kind that the volume does not keep.
fn kept(quotas: Quotas<'_>, wanted: &[Kind], image: &Image, app: &mut App) -> Option<Vec<Kind>> {
    let mut kept = quotas.kinds();
    if let Some(kind) = wanted.iter().find(|kind| !kept.contains(kind)) {
        app.fail_at(
            ExitStatus::Failed,
            image,
            format_args!("the volume keeps no quotas of {kind}s"),
        );
        return None;
    }
    if kept.is_empty() {
        app.fail_at(
            ExitStatus::Failed,
            image,
            "the volume keeps no quotas; tune -O quota adds them",
        );
        return None;
    }
    if !wanted.is_empty() {
        kept.retain(|kind| wanted.contains(kind));
    }
    Some(kept)
}
