//! `extern4 man`: manual pages, made from the same text as `--help`.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::CommandFactory as _;

use crate::app::{App, host_reason};
use crate::status::Status;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write one page for each subcommand into this directory, instead of the main page to standard output
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut command = crate::args::Args::command();
    command.build();
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return io::stdout().write_all(&page);
    };
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
    if let Err(error) = written {
        app.fail(Status::Failed, format_args!("{}: {}", dir.display(), host_reason(&error)));
    }
    Ok(())
}
