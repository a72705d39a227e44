//! The options that `chown` and `chgrp` have in common, and the rules between them.
//!
//! Both commands flatten them into their arguments. Options that exclude each other are a usage
//! error.

use std::ffi::{OsStr, OsString};

use crate::owner::Owner;
use crate::targets::Traversal;
use crate::verbosity::Verbosity;

/// The options that both commands take.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Take owner and group from this file
    #[arg(long, value_name = "PATH")]
    pub(super) reference: Option<OsString>,
    /// Change everything below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links themselves
    #[arg(short = 'h', long, overrides_with = "dereference")]
    no_dereference: bool,
    /// Change what symbolic links lead to (the default without -R)
    #[arg(long)]
    dereference: bool,
    /// With -R, follow links on the command line to directories
    #[arg(short = 'H', overrides_with_all = ["logical", "physical"])]
    command_line: bool,
    /// With -R, follow all links to directories
    #[arg(short = 'L', overrides_with = "physical")]
    logical: bool,
    /// With -R, follow no links, and change them themselves (the default)
    #[arg(short = 'P')]
    physical: bool,
    /// With -R, refuse the root of a volume
    #[arg(long, overrides_with = "no_preserve_root")]
    pub(super) preserve_root: bool,
    /// With -R, change the root of a volume as any directory (the default)
    #[arg(long)]
    no_preserve_root: bool,
    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

impl Options {
    /// Checks the options, as far as they exclude each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.recursive && self.dereference && self.traversal() == Traversal::Physical {
            Err("-R --dereference needs -H or -L".to_owned())
        } else {
            Ok(())
        }
    }

    /// Reads the first operand, which is no owner if --reference is given.
    pub(crate) fn first(
        &self,
        text: &OsStr,
        read: fn(&str) -> Result<Owner, String>,
    ) -> Result<Option<Owner>, String> {
        if self.reference.is_some() {
            return Ok(None);
        }
        let text = text.to_str().ok_or("a name of a user or a group is text")?;
        read(text)
            .map(Some)
            .map_err(|message| format!("invalid value {text:?}: {message}"))
    }

    /// Returns which files are changed.
    pub(super) fn traversal(&self) -> Traversal {
        match (self.recursive, self.command_line, self.logical) {
            (false, ..) => Traversal::Single,
            (true, true, _) => Traversal::CommandLine,
            (true, false, true) => Traversal::Logical,
            (true, false, false) => Traversal::Physical,
        }
    }

    /// Returns whether the change is to symbolic links themselves.
    pub(super) fn is_of_links(&self) -> bool {
        self.no_dereference || self.traversal() == Traversal::Physical
    }
}
