//! JSON for scripts: one object a line, with the members that several subcommands write.
//!
//! Each subcommand with `--json` writes its lines with it. `docs/json.schema.json` describes every
//! key, and a test finds one that it does not. No control character is written as it is.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::Timespec;
pub(crate) use extern4_measure::json::{Object, line, rounded};

use crate::image_path::Image;
use crate::text::rfc3339;

/// Writes the image and the path of a file.
pub(crate) fn file(object: &mut Object<'_>, image: &Image, path: &Path) {
    object.text("image", &image.to_string());
    object.bytes("path", path.as_os_str().as_bytes());
}

/// Writes a time under `key` with `_rfc3339` appended, or `null` for one that is unknown or that
/// RFC 3339 cannot write.
pub(crate) fn time(object: &mut Object<'_>, key: &str, time: Option<Timespec>) {
    object.text_or_null(&format!("{key}_rfc3339"), time.and_then(rfc3339).as_deref());
}
