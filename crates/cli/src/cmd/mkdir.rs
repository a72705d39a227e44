//! `extern4 mkdir`: makes directories.
//!
//! `args` calls [`run`]. With `-p`, a directory that exists is no failure.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use extern4::Errno;

use crate::app::{App, Target};
use crate::mode_change::ModeChange;
use crate::targets::written_paths;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directories to make
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Make missing parent directories too; a directory that exists is no error
    #[arg(short, long)]
    parents: bool,
    /// Permission bits of the directories that are named, as chmod takes them (default: 755)
    #[arg(short, long, value_parser = ModeChange::argument)]
    mode: Option<ModeChange>,
    /// Print each directory that is made
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for image_path in written_paths(&args.image_paths, app) {
        let Some(target) = app.target(&image_path) else {
            continue;
        };
        if let Err(error) = make(args, &target, app) {
            app.error(&image_path, &error);
        }
    }
    Ok(())
}

fn make(args: &Args, target: &Target, app: &mut App) -> extern4::Result<()> {
    let session = target.session();
    let path = target.path();
    if args.parents {
        if session.metadata(path).is_ok_and(|found| found.is_dir()) {
            return Ok(());
        }
        for above in missing(target) {
            match session.create_dir(above) {
                Ok(()) => tell(args, target, above, app),
                Err(error) if error.errno() == Errno::EEXIST => {}
                Err(error) => return Err(error),
            }
        }
    }
    let Some(mode) = &args.mode else {
        session.create_dir(path)?;
        tell(args, target, path, app);
        return Ok(());
    };
    // Symbolic modes start with everything allowed. The umask does not apply to an explicit mode.
    let mode = mode.apply(0o777, false, 0o022);
    session.create_dir_with(path, 0o700)?;
    tell(args, target, path, app);
    let inherited = session.metadata(path)?.mode() & 0o2000;
    session.set_permissions(path, mode | inherited)
}

/// Returns the directories above the target that are not there, outermost first.
fn missing(target: &Target) -> Vec<&Path> {
    let above = target.path().ancestors().skip(1);
    let mut missing: Vec<_> = above
        .take_while(|path| target.session().metadata(path).is_err())
        .collect();
    missing.reverse();
    missing
}

fn tell(args: &Args, target: &Target, path: &Path, app: &mut App) {
    if args.verbose {
        let made = target.volume.image_path(path);
        app.print(format_args!("mkdir: created directory {}", made.quoted()));
    }
}
