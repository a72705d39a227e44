//! The names of members.

/// Returns a path as the name of a member: without slashes at its ends, `.` and empty parts.
///
/// ```
/// assert_eq!(extern4::tar::member_name(b"/./etc//ssh/"), b"etc/ssh");
/// ```
pub fn member_name(path: &[u8]) -> Vec<u8> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
        .collect::<Vec<_>>()
        .join(&b'/')
}

/// Returns the name of the member at `path` below the member `name`.
pub(super) fn join(name: &[u8], path: &[u8]) -> Vec<u8> {
    match (name, path) {
        (b"", path) => path.to_vec(),
        (name, b"") => name.to_vec(),
        (name, path) => [name, b"/", path].concat(),
    }
}
