//! New volumes, as `mkfs` and `build` make them: their sizes, targets, sources and defaults.
//!
//! The two subcommands share it, so that an option that both have means the same.

mod error;
mod filling;
pub(crate) mod size;
mod source;
mod target;

use std::os::unix::ffi::OsStrExt as _;

use clap::builder::PossibleValuesParser;
use extern4_mkfs::{Config, TARGETS};

pub(crate) use self::error::NewVolumeError;
pub(crate) use self::filling::{
    Filling, contents_line, json_container, json_contents, json_numbers, threads,
};
pub(crate) use self::source::{Argument, SourceOptions};
pub(crate) use self::target::{Room, device};
use crate::app::host_reason;
use crate::text::{escape, quoted};

/// The environment variable that names the configuration, as mke2fs has it.
pub(crate) const CONFIG_VARIABLE: &str = "MKE2FS_CONFIG";

/// Returns `SOURCE_DATE_EPOCH` of reproducible builds, if it is set.
pub(crate) fn epoch() -> Result<Option<i64>, NewVolumeError> {
    let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let wrong = |_| {
        NewVolumeError::Usage(format!(
            "SOURCE_DATE_EPOCH is '{text}', and no number of seconds"
        ))
    };
    text.parse().map(Some).map_err(wrong)
}

/// Returns the parser of the names of systems that a volume can be made for.
pub(crate) fn systems() -> PossibleValuesParser {
    PossibleValuesParser::new(TARGETS.map(|(name, _)| name))
}

/// Returns the features that a volume for a system is made without, as `-O` takes them.
pub(crate) fn features_for(system: &str) -> String {
    let found = TARGETS.iter().find(|(name, _)| *name == system);
    found.map_or("", |(_, features)| *features).to_owned()
}

/// Returns the configuration that `MKE2FS_CONFIG` names, or else that of e2fsprogs as its authors
/// ship it.
pub(crate) fn config() -> Result<Config, NewVolumeError> {
    match std::env::var_os(CONFIG_VARIABLE) {
        None => Ok(Config::default()),
        Some(path) => {
            let failed = |reason: String| {
                NewVolumeError::Failed(format!("{}: {reason}", quoted(escape(path.as_bytes()))))
            };
            let text =
                std::fs::read_to_string(&path).map_err(|error| failed(host_reason(&error)))?;
            Config::parse(&text).map_err(|error| failed(error.to_string()))
        }
    }
}
