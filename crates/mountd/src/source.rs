//! Where a volume is on the host.
//!
//! A mount opens it, the mount table shows its name, and `mount_table` finds mounts of it.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use extern4::part::Part;
use extern4::terminal::escape;

/// An image file or block device, and the part of it that a volume fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The image file or block special file.
    pub file: PathBuf,
    /// The part of the file.
    pub part: Part,
}

impl Source {
    /// Returns the same source by the resolved path of its file, where that can be resolved.
    pub(crate) fn resolved(&self) -> Self {
        Self {
            file: self
                .file
                .canonicalize()
                .unwrap_or_else(|_| self.file.clone()),
            part: self.part,
        }
    }
}

/// Writes it as image paths and the mount table name it: `disk.img`, `disk.img#2`, `disk.img@512`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(self.file.as_os_str().as_bytes()))?;
        write!(f, "{}", self.part)
    }
}

/// Returns whether two paths of the host lead to the same file.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| {
        std::fs::metadata(path)
            .map(|found| (found.dev(), found.ino()))
            .ok()
    };
    id(one).is_some_and(|found| Some(found) == id(other))
}
