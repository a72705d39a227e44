//! Why an update ends, or one of its steps.

use crate::build::tree_walk::Unreadable;
use crate::error::Error;

/// Why an update ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// A source cannot be read.
    #[error(transparent)]
    Source(#[from] extern4_build::Error),
    /// A file of the volume cannot be read.
    #[error("{}", .0.error)]
    Volume(Unreadable),
    /// The caller stopped it.
    #[error("interrupted")]
    Interrupted,
}

/// Why a step ends.
pub(super) enum Failure {
    Source(extern4_build::Error),
    Volume(Error),
    Interrupted,
}

pub(super) type Result<T> = std::result::Result<T, Failure>;

impl From<extern4_build::Error> for Failure {
    fn from(error: extern4_build::Error) -> Self {
        Self::Source(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Volume(error)
    }
}

impl Failure {
    /// Returns the error of an update that ends with this failure at `path`.
    pub(super) fn at(self, path: &[u8]) -> UpdateError {
        match self {
            Self::Source(error) => UpdateError::Source(error),
            Self::Volume(error) => UpdateError::Volume(Unreadable {
                path: path.to_vec(),
                error,
            }),
            Self::Interrupted => UpdateError::Interrupted,
        }
    }
}
