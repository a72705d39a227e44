//! Cleans paths of archives and lists, so that an entry's path never leads out of its tree.
//!
//! Readers of tar archives, images and manifests pass every path to [`clean`]. It removes leading
//! slashes and empty components, and refuses `..`, NUL bytes, and names or paths that are too long.

/// The longest name in a directory.
const LONGEST_NAME: usize = 255;

/// The longest path that is accepted.
const LONGEST_PATH: usize = 65535;

/// A path in the form for an [`Entry`](crate::Entry).
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Cleaned {
    pub(crate) path: Vec<u8>,
    /// It began with `/`.
    pub(crate) absolute: bool,
    /// It ended with `/` or `/.`, so it names a directory.
    pub(crate) directory: bool,
}

/// Removes leading `/`, empty components and `.` from a path. The error says why there is no such
/// path in a tree.
pub(crate) fn clean(given: &[u8]) -> Result<Cleaned, &'static str> {
    if given.is_empty() {
        return Err("its name is empty");
    }
    if given.contains(&0) {
        return Err("its name has a NUL byte");
    }
    let mut path = Vec::with_capacity(given.len());
    for name in given.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => continue,
            b".." => return Err("its name has a component '..'"),
            name if name.len() > LONGEST_NAME => {
                return Err("its name has a component longer than 255 bytes");
            }
            name => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
            }
        }
    }
    if path.len() > LONGEST_PATH {
        return Err("its name is longer than 65535 bytes");
    }
    let last = given.rsplit(|byte| *byte == b'/').next();
    Ok(Cleaned { path, absolute: given[0] == b'/', directory: matches!(last, Some(b"" | b".")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        for (given, path, absolute, directory) in [
            ("a/b", "a/b", false, false),
            ("./a//b/", "a/b", false, true),
            ("/a/./b", "a/b", true, false),
            (".", "", false, true),
            ("./", "", false, true),
            ("/", "", true, true),
            ("a/.", "a", false, true),
            ("...", "...", false, false),
        ] {
            let cleaned = Cleaned { path: path.into(), absolute, directory };
            assert_eq!(clean(given.as_bytes()), Ok(cleaned), "{given}");
        }
        for wrong in ["", "..", "a/../b", "a/..", "../a", "a\0b", &"n".repeat(256), &"n/".repeat(40000)] {
            assert!(clean(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(clean("n".repeat(255).as_bytes()).is_ok());
    }
}
