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
    /// It ended with `/`, so it names a directory.
    pub(crate) directory: bool,
    /// Its last component was `.`, so it names a directory that is there already.
    pub(crate) is_step: bool,
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
    let is_step = given == b"." || given.ends_with(b"/.");
    Ok(Cleaned {
        path,
        absolute: given[0] == b'/',
        directory: given.ends_with(b"/"),
        is_step,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        for (given, path, absolute, directory, is_step) in [
            ("a/b", "a/b", false, false, false),
            ("./a//b/", "a/b", false, true, false),
            ("/a/./b", "a/b", true, false, false),
            (".", "", false, false, true),
            ("./", "", false, true, false),
            ("/", "", true, true, false),
            ("a/.", "a", false, false, true),
            ("...", "...", false, false, false),
        ] {
            let cleaned = Cleaned {
                path: path.into(),
                absolute,
                directory,
                is_step,
            };
            assert_eq!(clean(given.as_bytes()), Ok(cleaned), "{given}");
        }
        for wrong in [
            "",
            "..",
            "a/../b",
            "a/..",
            "../a",
            "a\0b",
            &"n".repeat(256),
            &"n/".repeat(40000),
        ] {
            assert!(clean(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(clean("n".repeat(255).as_bytes()).is_ok());
    }
}
