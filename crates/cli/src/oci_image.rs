//! Images of containers on a command line: `PATH[:REFERENCE]`, which follows `oci:`.
//!
//! `build` and `diff` open them with it, so that both read the same text alike. An archive may be
//! standard input or a pipe, whose reading a signal ends.

use std::ffi::OsStr;
use std::path::Path;

use extern4::build::{OciSource, Platform, SourceError, split_reference};

use crate::interruptible::archive;
use crate::stop::Stop;

/// Opens an image for a platform, or else for that of this machine. Contents that can be read only
/// once go to files without names in `spool`.
pub(crate) fn open(
    text: &OsStr,
    platform: Option<&Platform>,
    spool: &Path,
    stop: Stop,
) -> Result<OciSource, SourceError> {
    let (path, reference) = split_reference(text);
    let reference = reference.filter(|reference| !reference.is_empty());
    let is_input = path.as_os_str() == "-";
    if !is_input && path.is_dir() {
        return OciSource::open(path, reference, platform, spool);
    }
    let name = if is_input {
        Path::new("standard input")
    } else {
        path
    };
    let tar = archive(path, name, spool, stop)?;
    OciSource::from_archive(tar, name.to_string_lossy(), reference, platform, spool)
}

/// A clap parser for platforms.
pub(crate) fn platform(text: &str) -> Result<Platform, String> {
    Platform::parse(text).ok_or_else(|| "write it as linux/arm64 or linux/arm/v7".to_owned())
}
