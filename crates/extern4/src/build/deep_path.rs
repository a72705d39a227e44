//! Paths that may be longer than a call takes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use extern4_vfs::lookup::PATH_MAX;

use crate::error::Result;
use crate::session::Session;

/// Returns a session in the directory at a path below the one of `top`.
pub(super) fn enter(top: &Session, path: &[u8]) -> Result<Session> {
    let (session, rest) = approach(top, path)?;
    if rest.is_empty() { Ok(session) } else { session.at(OsStr::from_bytes(rest)) }
}

/// Returns a session in a directory on the path, and the rest of it, which a call takes.
pub(super) fn approach<'p>(top: &Session, mut path: &'p [u8]) -> Result<(Session, &'p [u8])> {
    let mut session = top.clone();
    while path.len() >= PATH_MAX
        && let Some(end) = path[..PATH_MAX].iter().rposition(|byte| *byte == b'/')
    {
        session = session.at(OsStr::from_bytes(&path[..end]))?;
        path = &path[end + 1..];
    }
    Ok((session, path))
}

/// Splits a path into that of the directory and the last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
