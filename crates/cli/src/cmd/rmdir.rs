//! `extern4 rmdir`: removes empty directories.
//!
//! `args` calls [`run`]. A directory that is not empty is never removed.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use extern4::Errno;
use extern4::copy::own_name;

use crate::app::{App, Target};
use crate::exit_status::ExitStatus;
use crate::targets::written_paths;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directories to remove
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Remove the directories above too, as far as they are empty then
    #[arg(short, long)]
    parents: bool,
    /// Do not mind directories that are not empty
    #[arg(long)]
    ignore_fail_on_non_empty: bool,
    /// Print each directory before it is removed
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for image_path in written_paths(&args.image_paths, app) {
        let Some(target) = app.target(&image_path) else {
            continue;
        };
        if own_name(target.path()).is_none() {
            app.fail_at(
                ExitStatus::Failed,
                &image_path,
                "a root or '.' or '..' is not removed",
            );
            continue;
        }
        let above = if args.parents { usize::MAX } else { 1 };
        let is_inside = |path: &&Path| path.file_name().is_some();
        for path in target.path().ancestors().take_while(is_inside).take(above) {
            if !remove(args, &target, path, app) {
                break;
            }
        }
    }
    Ok(())
}

/// Removes one directory. Returns whether it is gone.
fn remove(args: &Args, target: &Target, path: &Path, app: &mut App) -> bool {
    let image_path = target.volume.image_path(path);
    if args.verbose {
        app.print(format_args!(
            "rmdir: removing directory, {}",
            image_path.quoted()
        ));
    }
    match target.session().remove_dir(path) {
        Ok(()) => return true,
        Err(error) if args.ignore_fail_on_non_empty && error.errno() == Errno::ENOTEMPTY => {}
        Err(error) => app.error(image_path, &error),
    }
    false
}
