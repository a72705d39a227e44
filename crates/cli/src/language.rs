//! The language of scripts and of the shell: subcommands with paths of one volume, directories to
//! start them in, redirections, and transactions.
//!
//! `script` and `shell` use it. Its commands are the subcommands themselves, with the same options,
//! output and exit codes.

pub(crate) mod command_line;
mod draft;
pub(crate) mod expert;
pub(crate) mod interpreter;
pub(crate) mod redirection;
pub(crate) mod statement;
pub(crate) mod words;

use std::ffi::{OsStr, OsString};

/// Returns the value of a variable of the environment.
pub(crate) fn variable(name: &OsStr) -> Option<OsString> {
    std::env::var_os(name)
}
