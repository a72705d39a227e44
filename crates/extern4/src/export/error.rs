//! The reasons why an export ends.

use std::io;

use extern4_tree::Error as TreeError;

use crate::build::Unreadable;

/// Why an export ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A file of the volume cannot be read.
    #[error("{}", .0.error)]
    Volume(Unreadable),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// An entry cannot be written.
    #[error(transparent)]
    Entry(TreeError),
    /// The output is there, and is not to be replaced.
    #[error("File exists")]
    Exists,
    /// The observer stopped the export.
    #[error("interrupted")]
    Interrupted,
}

impl From<Unreadable> for ExportError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Volume(unreadable)
    }
}

impl From<TreeError> for ExportError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Io { source, .. } => Self::Output(source),
            error => Self::Entry(error),
        }
    }
}
