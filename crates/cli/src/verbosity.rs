//! The options that say how much a command tells about the files that it changes.
//!
//! `chmod`, `chown` and `chgrp` flatten it into their arguments. Without any of them, a command
//! prints failures only. With `-f` it does not print failures; they still set the exit code.

/// How much a command tells.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Verbosity {
    /// Print a line about each file that changes
    #[arg(short, long)]
    changes: bool,
    /// Print a line about each file
    #[arg(short, long)]
    verbose: bool,
    /// Print no messages about files that cannot be changed
    #[arg(short = 'f', long, visible_alias = "quiet")]
    pub(crate) silent: bool,
}

impl Verbosity {
    /// Returns whether a file is told about.
    pub(crate) fn tells(&self, has_changed: bool) -> bool {
        self.verbose || self.changes && has_changed
    }
}
