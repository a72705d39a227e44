//! `extern4 mkfifo`: makes pipes.
//!
//! `args` calls [`run`]. A path that exists is a failure, and the others are still made.

use std::ffi::OsString;
use std::io;

use extern4::NewKind;

use super::mknod::make;
use crate::app::App;
use crate::mode_change::ModeChange;
use crate::targets::written_paths;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pipes to make
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Permission bits, as chmod takes them (default: 644)
    #[arg(short, long, value_parser = ModeChange::argument)]
    mode: Option<ModeChange>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for image_path in written_paths(&args.image_paths, app) {
        let Some(target) = app.target(&image_path) else {
            continue;
        };
        if let Err(error) = make(&target, NewKind::Fifo, args.mode.as_ref()) {
            app.error(&image_path, &error);
        }
    }
    Ok(())
}
