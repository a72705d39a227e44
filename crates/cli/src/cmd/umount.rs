//! `extern4 umount`: takes a mount away, and waits until everything is on the volume. What could not be written is an error.

use std::io;
use std::path::PathBuf;

use crate::app::{App, host_reason};
use crate::control::waiting::Listener;
use crate::status::Status;
use crate::text::escape;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where volumes are mounted
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for dir in &args.dirs {
        let still_there = || {
            let why =
                "there is much to be written, or other processes have it mounted in namespaces of their own";
            app.note(format_args!("{}: waits for the volume: {why}", dir.display()));
        };
        let listener = Listener::of(dir);
        match extern4_fuse::unmount(dir, still_there) {
            Ok(true) => {
                if let Some(why) = listener.and_then(Listener::lost) {
                    let why = escape(why.as_bytes());
                    app.fail(
                        Status::Failed,
                        format_args!("{}: not all is on the volume: {why}", dir.display()),
                    );
                }
            }
            Ok(false) => app.note(format_args!("{}: the volume is mounted elsewhere, too", dir.display())),
            // Source: `extern4_fuse::unmount`.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                app.fail(Status::Failed, format_args!("{}: not mounted by extern4", dir.display()));
            }
            Err(error) => {
                app.fail(Status::Failed, format_args!("{}: {}", dir.display(), host_reason(&error)))
            }
        }
    }
    Ok(())
}
