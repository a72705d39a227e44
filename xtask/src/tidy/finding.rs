//! A place that breaks a rule, and its unit: the crate, or the documents.

use std::fmt;

/// A breach of a rule that [`allowed`](super::allowed) may still allow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The check that made it.
    pub(crate) check: &'static str,
    /// The file, from the root of the workspace.
    pub(crate) path: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The broken rule, in a few words.
    pub(crate) says: String,
}

impl Finding {
    pub(crate) fn new(check: &'static str, path: &str, line: usize, says: String) -> Self {
        Self {
            check,
            path: path.to_owned(),
            line,
            says,
        }
    }

    /// The crate in whose folder the file is, or `documents`.
    pub(crate) fn unit(&self) -> &str {
        unit(&self.path)
    }
}

/// The crate in whose folder `path` is, or `documents`.
pub(crate) fn unit(path: &str) -> &str {
    let mut folders = path.split('/');
    match folders.next() {
        Some("crates") if path.ends_with(".rs") => folders.next().unwrap_or_default(),
        Some(top @ ("xtask" | "fuzz")) => top,
        _ => "documents",
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}:{}: {}",
            self.check, self.path, self.line, self.says
        )
    }
}
