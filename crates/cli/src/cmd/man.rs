//! `extern4 man`: shows manual pages, or writes them, made from the same text as `--help`.
//!
//! `args` calls [`run`], and `make install` and `make release` keep its output. The pages come from
//! the definition of the command line, so they have every option.

mod notes;
mod page;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::CommandFactory as _;

use self::page::Page;
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::text::quoted;
use crate::{args, fsck_helper, mkfs_helper, mount_helper, other_tools, usage};

/// The section of the manual for commands of users.
const USERS: &str = "1";

/// The section for commands of administrators.
const ADMINISTRATORS: &str = "8";

/// The command without a subcommand, and the start of the name of each subcommand's page.
const MAIN: &str = "extern4";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The subcommand, or mount.extern4, fsck.extern4 or mkfs.extern4 (default: extern4 itself). On
    /// a terminal, man(1) shows the page; elsewhere its source goes to standard output
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
    /// Write all pages into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "words")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if let Some(dir) = &args.dir {
        let written = std::fs::create_dir_all(dir).and_then(|()| write_pages(dir));
        if let Err(error) = written {
            app.fail_at(ExitStatus::Failed, dir.display(), host_reason(&error));
        }
        return Ok(());
    }
    let name = args.words.join("-");
    let Some(page) = pages().into_iter().find(|page| page.is_of(&name)) else {
        let name = quoted(args.words.join(" "));
        let reason =
            format_args!("there is no page {name}; extern4 man --dir DIR writes all pages");
        app.fail(ExitStatus::Usage, reason);
        other_tools::advice(&args.words.join(" "))
            .iter()
            .for_each(|advice| usage::print(advice));
        return Ok(());
    };
    let source = page.render()?;
    if io::stdout().is_terminal() && show(&source, app)? {
        return Ok(());
    }
    io::stdout().write_all(&source)
}

/// Has man(1) show a page on the terminal. Returns false if there is no such program.
fn show(source: &[u8], app: &mut App) -> io::Result<bool> {
    let mut man = match Command::new("man")
        .args(["-l", "-"])
        .stdin(Stdio::piped())
        .spawn()
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        spawned => spawned?,
    };
    // A reader that ends early does not need the rest.
    let _ = man.stdin.take().map(|mut input| input.write_all(source));
    let status = man.wait()?;
    if !status.success() {
        app.fail(
            ExitStatus::Failed,
            format_args!("man -l -: {status}; extern4 man ... | cat has the source"),
        );
    }
    Ok(true)
}

/// Writes the pages into a directory.
fn write_pages(dir: &Path) -> io::Result<()> {
    pages()
        .iter()
        .try_for_each(|page| std::fs::write(dir.join(page.file_name()), page.render()?))
}

/// Returns the pages of the command, its subcommands and the helpers of mount(8), fsck(8) and
/// mkfs(8).
fn pages() -> Vec<Page> {
    let mut command = args::command();
    command.build();
    let mut pages = vec![
        Page::of(mount_helper::command(), ADMINISTRATORS),
        Page::of(fsck_helper::Args::command(), ADMINISTRATORS),
    ];
    let mkfs = command.find_subcommand("mkfs").map(mkfs_helper::command);
    pages.extend(mkfs.map(|command| Page::of(command, ADMINISTRATORS)));
    add_pages(command, &mut pages);
    pages
}

/// Adds the pages of a command and its subcommands.
fn add_pages(command: clap::Command, pages: &mut Vec<Page>) {
    for subcommand in command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set())
    {
        add_pages(subcommand.clone(), pages);
    }
    pages.push(Page::of(command, USERS));
}
