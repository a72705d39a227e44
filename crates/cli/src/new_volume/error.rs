//! Why no volume was made, and the message and exit code for it.
//!
//! `mkfs` and `build` return it from every step. It is reported once, at the file that it is about.

use extern4::build::{Error as BuildError, SourceError};
use extern4_mkfs::Error as MakeError;

use crate::app::{App, status_of};
use crate::exit_status::ExitStatus;
use crate::image_path::Image;

/// Why no volume was made.
pub(crate) enum NewVolumeError {
    /// The options are wrong.
    Usage(String),
    /// A source is a volume that cannot be read.
    Volume(Box<extern4::Error>),
    /// The file or device cannot become the volume.
    Target(String),
    /// Anything else.
    Failed(String),
    /// A message has told of it.
    Reported,
    /// A signal ended the work.
    Stopped,
}

impl NewVolumeError {
    pub(crate) fn target(error: impl ToString) -> Self {
        Self::Target(error.to_string())
    }

    pub(crate) fn failed(error: impl ToString) -> Self {
        Self::Failed(error.to_string())
    }

    /// Reports it, for a volume that was to be made in `image`.
    pub(crate) fn report(self, image: &Image, app: &mut App) {
        match self {
            Self::Usage(reason) => app.fail(ExitStatus::Usage, reason),
            Self::Volume(error) => app.fail(status_of(error.kind()), error),
            Self::Target(reason) => app.fail_at(ExitStatus::Failed, image, reason),
            Self::Failed(reason) => app.fail(ExitStatus::Failed, reason),
            Self::Reported => {}
            Self::Stopped => app.report_stop("no volume was made"),
        }
    }
}

impl From<MakeError> for NewVolumeError {
    fn from(error: MakeError) -> Self {
        match error {
            MakeError::Options(reason) => Self::Usage(reason),
            error => Self::target(error),
        }
    }
}

impl From<extern4::Error> for NewVolumeError {
    fn from(error: extern4::Error) -> Self {
        Self::target(error)
    }
}

impl From<BuildError> for NewVolumeError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Make(error) => error.into(),
            BuildError::Source(error) => error.into(),
            error @ (BuildError::Device(_) | BuildError::NoRoom { .. }) => Self::target(error),
            error => Self::failed(error),
        }
    }
}

impl From<SourceError> for NewVolumeError {
    fn from(error: SourceError) -> Self {
        let error = match error {
            SourceError::Source(error) => error.downcast::<extern4::Error>(),
            error => Err(error.into()),
        };
        match error {
            Ok(error) => Self::Volume(error),
            Err(error) => Self::failed(error),
        }
    }
}
