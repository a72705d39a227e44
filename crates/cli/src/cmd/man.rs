//! `extern4 man`: writes manual pages, made from the same text as `--help`.
//!
//! `args` calls [`run`], and `make install` and `make release` keep its output. The pages come from
//! the definition of the command line, so they have every option.

mod notes;
mod page;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use self::page::Page;
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::{args, fsck_helper, mkfs_helper, mount_helper};

/// The section of the manual for commands of users.
const USERS: &str = "1";

/// The section for commands of administrators.
const ADMINISTRATORS: &str = "8";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write all pages into this directory, one for each subcommand and for mount.extern4,
    /// fsck.extern4 and mkfs.extern4, instead of the main page to standard output
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut command = args::command();
    command.build();
    let Some(dir) = &args.dir else {
        return io::stdout().write_all(&Page::of(command, USERS).render()?);
    };
    let written = std::fs::create_dir_all(dir).and_then(|()| write_pages(command, dir));
    if let Err(error) = written {
        app.fail_at(ExitStatus::Failed, dir.display(), host_reason(&error));
    }
    Ok(())
}

/// Writes the pages of the command, its subcommands and the helpers of mount(8), fsck(8) and
/// mkfs(8).
fn write_pages(command: clap::Command, dir: &Path) -> io::Result<()> {
    let mut pages = vec![
        Page::of(mount_helper::command(), ADMINISTRATORS),
        Page::of(fsck_helper::Args::command(), ADMINISTRATORS),
    ];
    let mkfs = command.find_subcommand("mkfs").map(mkfs_helper::command);
    pages.extend(mkfs.map(|command| Page::of(command, ADMINISTRATORS)));
    add_pages(command, &mut pages);
    pages.iter().try_for_each(|page| std::fs::write(dir.join(page.file_name()), page.render()?))
}

/// Adds the pages of a command and its subcommands.
fn add_pages(command: clap::Command, pages: &mut Vec<Page>) {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        add_pages(subcommand.clone(), pages);
    }
    pages.push(Page::of(command, USERS));
}
