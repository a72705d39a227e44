//! Paths that may be longer than a call takes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::Result;
use crate::session::Session;

/// Returns a session in the directory at a path below the one of `top`.
pub(crate) fn enter(top: &Session, path: &[u8]) -> Result<Session> {
    if path.is_empty() {
        return Ok(top.clone());
    }
    let (session, rest) = top.approach(Path::new(OsStr::from_bytes(path)))?;
    session.at(rest)
}

/// Splits a path into that of the directory and the last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
