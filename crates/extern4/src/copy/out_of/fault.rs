//! The reason why a file got no copy on the host, by side.

use std::io;

use super::super::failure::{Failure, Refusal};
use crate::error::{Error, ErrorKind};

/// The reason why a file got no copy on the host, by side.
pub(super) enum Fault {
    /// The original cannot be read.
    Volume(Error),
    /// The copy cannot be written.
    Host(io::Error),
    /// The original must not be copied.
    Refused(Refusal),
    /// The observer has ended the copy.
    Stopped,
}

impl Fault {
    /// Returns the fault of a file whose spans do not follow on each other.
    pub(super) fn block_map() -> Self {
        Self::Volume(
            Error::new(ErrorKind::Corrupt, "copy").because("its block map does not go forward"),
        )
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Volume(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

impl From<rustix::io::Errno> for Fault {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Host(error.into())
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Volume(error) => Self::From(error.into()),
            Fault::Host(error) => Self::To(error.into()),
            Fault::Refused(refusal) => Self::from(refusal),
            Fault::Stopped => Self::Stopped,
        }
    }
}
