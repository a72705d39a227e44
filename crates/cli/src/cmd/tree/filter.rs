//! The patterns of `-P` and `-I`.
//!
//! `walk` asks it for each name. Patterns are separated by `|`, and one with a slash at its end
//! matches only directories.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use extern4::Glob;

/// Patterns of names.
pub(super) struct Patterns(Vec<Pattern>);

struct Pattern {
    glob: Glob,
    of_directories: bool,
}

impl Patterns {
    pub(super) fn new(texts: &[OsString], ignores_case: bool) -> Self {
        let parts = texts
            .iter()
            .flat_map(|text| text.as_bytes().split(|byte| *byte == b'|'));
        let patterns = parts.filter(|part| !part.is_empty()).map(|part| {
            let name = part.strip_suffix(b"/").unwrap_or(part);
            // A caret takes a set for the others, as an exclamation mark does.
            Pattern {
                glob: Glob::new(name, ignores_case),
                of_directories: name.len() < part.len(),
            }
        });
        Self(patterns.collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a pattern matches the name of a file.
    pub(super) fn matches(&self, name: &[u8], is_directory: bool) -> bool {
        let mut patterns = self
            .0
            .iter()
            .filter(|pattern| is_directory || !pattern.of_directories);
        patterns.any(|pattern| pattern.glob.matches(name))
    }
}
