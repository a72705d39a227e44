//! The reasons why a file is not copied.
//!
//! A copy tells its observer each of them, and goes on with the next file. The first one is the
//! error of the whole copy.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::Error;

/// A file that was not copied, or not with everything that was to be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot copy {} to {}: {error}", from.display(), to.display())]
pub struct CopyFailure {
    /// The path of the original.
    pub from: PathBuf,
    /// The path of the copy.
    pub to: PathBuf,
    /// The side that the error is about.
    pub side: CopySide,
    /// Why the file was not copied, or not whole.
    #[source]
    pub error: CopyError,
}

/// A side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopySide {
    /// The original.
    From,
    /// The copy.
    To,
}

/// The reason of a failure.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A call of a volume failed.
    #[error(transparent)]
    Volume(#[from] Error),
    /// A call of the host failed.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// The copy would not be what the caller wants.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl From<Errno> for CopyError {
    fn from(error: Errno) -> Self {
        Self::Host(error.into())
    }
}

/// The reason why a copy is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A directory is copied only with everything below it.
    #[error("is a directory")]
    IsDirectory,
    /// A device, pipe or socket of a volume has no contents. It is copied as such with everything
    /// below a directory.
    #[error("is a device, pipe or socket, which has no contents")]
    Special,
    /// The contents of a directory were to be copied.
    #[error("not a directory")]
    NotDirectory,
    /// Neither side is in a volume.
    #[error("neither it nor its copy is in a volume")]
    NoVolume,
    /// No file of a tree can have this name.
    #[error("not a file name")]
    BadName,
    /// Another directory has taken the place of the directory that is being copied.
    #[error("another directory has taken the place of its own")]
    Moved,
    /// A symbolic link that is followed leads back to a directory above it.
    #[error("the link leads back to a directory above it")]
    LinkLoop,
    /// The source has no name that its copy in a directory could have.
    #[error("the copy needs a name")]
    Nameless,
    /// A path with `..` cannot be made below the destination.
    #[error("the path has '..'")]
    DotDot,
    /// A link is to lead to a file of another volume.
    #[error("a link leads only to files of its own volume")]
    OtherVolume,
    /// The copy of a directory would be below that directory.
    #[error("a directory is not copied into itself")]
    IntoItself,
    /// Original and copy are one file.
    #[error("the copy would be the same file")]
    SameFile,
    /// The source is the image that is written.
    #[error("the image is not copied into itself")]
    OwnImage,
    /// The destination ends in a slash, and there is no such directory.
    #[error("there is no directory of this name")]
    NoDirectory,
    /// The destination is a symbolic link to a file that is not there.
    #[error("the copy would go through a dangling symbolic link")]
    DanglingLink,
    /// A directory has the name of a file that is copied.
    #[error("there is a directory of this name where the file would go")]
    DirectoryInPlace,
    /// A file has the name of a directory that is copied.
    #[error("there is a file of this name where the directory would go")]
    FileInPlace,
    /// The destination is neither a regular file nor a directory.
    #[error("the copy would go into a pipe, socket or device")]
    NotRegular,
}

/// The reason why a file got no copy in a volume.
pub(super) enum Failure {
    /// The original cannot be read, or it must not be copied.
    From(CopyError),
    /// The copy cannot be written.
    To(CopyError),
    /// The file that is there stays, as the observer wants.
    Stays,
    /// The observer has ended the copy.
    Stopped,
}

impl Failure {
    /// Returns the failure of the copy of `from` to `to`; `None` if there is nothing to report.
    pub(super) fn report(self, from: &Path, to: &Path) -> Option<CopyFailure> {
        let (side, error) = match self {
            Self::From(error) => (CopySide::From, error),
            Self::To(error) => (CopySide::To, error),
            Self::Stays | Self::Stopped => return None,
        };
        Some(CopyFailure {
            from: from.to_owned(),
            to: to.to_owned(),
            side,
            error,
        })
    }

    /// Returns the failure of a copy that is refused for its original.
    pub(super) fn from(refusal: Refusal) -> Self {
        Self::From(refusal.into())
    }

    /// Returns the failure of a copy that is refused for its destination.
    pub(super) fn to(refusal: Refusal) -> Self {
        Self::To(refusal.into())
    }
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        Self::From(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::To(error.into())
    }
}
