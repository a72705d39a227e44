//! `extern4 chmod`: changes permission bits.

use std::ffi::OsString;
use std::io;

use crate::app::App;
use crate::mode_change::ModeChange;
use crate::targets::{change, written_paths};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// An octal mode, or clauses such as u+rwX,go-w
    #[arg(value_name = "MODE", value_parser = ModeChange::argument, allow_hyphen_values = true)]
    mode: ModeChange,
    /// Files to change
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Change everything below directories too; symbolic links are left alone
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// The umask for a clause that names no class of users: that of new files.
const UMASK: u32 = 0o022;

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for image_path in written_paths(&args.image_paths, app) {
        let Some(target) = app.target(&image_path) else { continue };
        change(&target, args.recursive, app, |session, path, found| {
            if found.is_symlink() {
                return Ok(());
            }
            session.set_permissions(path, args.mode.apply(found.mode(), found.is_dir(), UMASK))
        });
    }
    Ok(())
}
