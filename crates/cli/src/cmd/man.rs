//! `extern4 man`: writes manual pages, made from the same text as `--help`.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use crate::app::{App, host_reason};
use crate::args::GUIDE;
use crate::exit_status::ExitStatus;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write one page for each subcommand into this directory, instead of the main page to standard
    /// output
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut command = crate::args::Args::command();
    command.build();
    let Some(dir) = &args.dir else {
        return io::stdout().write_all(&page(command)?);
    };
    let written = std::fs::create_dir_all(dir).and_then(|()| write_pages(command, dir));
    if let Err(error) = written {
        app.fail_at(ExitStatus::Failed, dir.display(), host_reason(&error));
    }
    Ok(())
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: clap::Command, dir: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand.clone(), dir)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    std::fs::write(dir.join(format!("{name}.1")), page(command)?)
}

/// Returns the page of a command. It ends with the address of the guide.
fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    writeln!(page, ".SH \"SEE ALSO\"\n{GUIDE}")?;
    Ok(page)
}
