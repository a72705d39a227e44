//! The operands of commands that give files other names: sources and a destination.
//!
//! `cp`, `mv` and `ln` flatten it into their arguments. `-t` and `-T` decide as in GNU's tools; too
//! few operands are a usage error.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::checked::Check;
use crate::text::quoted;

/// The sources and the destination, and the options that say which operand is the destination.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Operands {
    /// The sources, and at the end the destination: the new name, or a directory to put them into
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Put all sources into this directory
    #[arg(short, long, value_name = "DIRECTORY")]
    target_directory: Option<OsString>,
    /// Take the destination as the new name even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
}

/// How a destination is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestinationKind {
    /// A directory if it is one, else the new name.
    Either,
    /// A directory.
    Directory,
    /// The new name.
    Name,
}

impl Check for Operands {
    fn check(&mut self) -> Result<(), String> {
        if self.target_directory.is_some() {
            return Ok(());
        }
        match &*self.paths {
            [only] => Err(format!(
                "there is no destination after {}",
                quoted(only.display())
            )),
            [_, _, extra, ..] if self.no_target_directory => Err(format!(
                "{} is one operand too many for -T",
                quoted(extra.display())
            )),
            _ => Ok(()),
        }
    }
}

impl Operands {
    /// Returns the sources.
    pub(crate) fn sources(&self) -> &[OsString] {
        match self.target_directory {
            Some(_) => &self.paths,
            None => &self.paths[..self.paths.len() - 1],
        }
    }

    /// Returns the destination.
    pub(crate) fn destination(&self) -> &OsString {
        self.target_directory
            .as_ref()
            .unwrap_or(&self.paths[self.paths.len() - 1])
    }

    /// Returns how the destination is understood.
    pub(crate) fn kind(&self) -> DestinationKind {
        match (&self.target_directory, self.no_target_directory) {
            (Some(_), _) => DestinationKind::Directory,
            (None, true) => DestinationKind::Name,
            (None, false) => DestinationKind::Either,
        }
    }
}

/// Returns the path of the host that an operand of a script names by the prefix `host:`.
pub(crate) fn host_path(text: &OsStr) -> Option<&Path> {
    text.as_bytes()
        .strip_prefix(b"host:")
        .map(|path| Path::new(OsStr::from_bytes(path)))
}

/// Returns a path without the slashes at its end.
pub(crate) fn without_slashes(path: &OsString) -> OsString {
    let bytes = path.as_bytes();
    let end = bytes
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(1, |last| last + 1);
    OsStr::from_bytes(&bytes[..end.min(bytes.len())]).to_owned()
}
