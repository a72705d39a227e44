//! `extern4 completions`: writes the script with which a shell completes command lines.
//!
//! `args` calls [`run`], and `make release` keeps its output. The script comes from the definition
//! of the command line, so it always fits.

use std::io::{self, Write as _};

use clap_complete::Shell;

use crate::app::App;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for
    shell: Shell,
}

pub(crate) fn run(args: &Args, _app: &mut App) -> io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::args::command(), "extern4", &mut script);
    io::stdout().write_all(&script)
}
