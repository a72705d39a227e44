//! `extern4 mkdir`: makes directories.

use std::ffi::OsString;
use std::io;

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
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for image_path in written_paths(&args.image_paths, app) {
        let Some(target) = app.target(&image_path) else { continue };
        if let Err(error) = make(args, &target) {
            app.error(&image_path, &error);
        }
    }
    Ok(())
}

fn make(args: &Args, target: &Target) -> extern4::Result<()> {
    let (session, path) = (target.session(), target.path());
    if args.parents {
        if session.metadata(path).is_ok_and(|found| found.is_dir()) {
            return Ok(());
        }
        path.parent().map_or(Ok(()), |parent| session.create_dir_all(parent))?;
    }
    let Some(mode) = &args.mode else { return session.create_dir(path) };
    // Symbolic modes start with everything allowed. The umask does not apply to an explicit mode.
    let mode = mode.apply(0o777, false, 0o022);
    session.create_dir_with(path, 0o700)?;
    let inherited = session.metadata(path)?.mode() & 0o2000;
    session.set_permissions(path, mode | inherited)
}
