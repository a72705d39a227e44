//! `extern4 help`: prints the help of a subcommand, as its `--help` does.
//!
//! `args` calls [`run`]. It has clap read the command line with `--help`, so both texts are one.

use std::io::{self, Write as _};

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::text::quoted;
use crate::{args, other_tools, usage};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The subcommand (default: all of them, in a line each)
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let words = args.words.iter().map(String::as_str);
    if args::find(words.clone()).is_none() {
        let name = args.words.join(" ");
        app.fail(
            ExitStatus::Usage,
            format_args!("{} is not a subcommand", quoted(&name)),
        );
        other_tools::advice(&name)
            .iter()
            .for_each(|advice| usage::print(advice));
        return Ok(());
    }
    let line = ["extern4"]
        .into_iter()
        .chain(words)
        .chain(["--help"])
        .map(Into::into);
    if let Err(text) = args::Args::read(&line.collect::<Vec<_>>()) {
        text.print()?;
    }
    io::stdout().flush()
}
