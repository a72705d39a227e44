//! Paths below a directory of a volume, and messages about them.
//!
//! `export`, `tar`, `build` and `diff` use it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::Session;
use extern4::build::Unreadable;

use crate::app::{App, Target};

/// Reports a file that a walk over `target` cannot read.
pub(crate) fn report_unreadable(unreadable: &Unreadable, target: &Target, app: &mut App) {
    let path = path_below(target.path(), &unreadable.path);
    app.error(target.volume.image_path(&path), &unreadable.error);
}

/// Returns a session that stands in a directory, given by a path of any length. The empty path is
/// that of the session's own directory.
pub(crate) fn at(session: &Session, path: &[u8]) -> extern4::Result<Session> {
    if path.is_empty() {
        return Ok(session.clone());
    }
    let (session, rest) = session.approach(Path::new(OsStr::from_bytes(path)))?;
    session.at(rest)
}

/// Returns the path in the volume of a path below a directory.
pub(crate) fn path_below(top: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() {
        top.to_owned()
    } else {
        top.join(OsStr::from_bytes(path))
    }
}
