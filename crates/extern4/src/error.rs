//! Errors of the library: the operation, its path, and the reason for the failure.
//!
//! Every call of the library returns it. A program decides by [`ErrorKind`] or by the error number;
//! the command maps the kind to its exit code. The text is for people and may change.

use std::fmt;
use std::path::{Path, PathBuf};

use extern4_block as block;
use extern4_disk::{CorruptKind, Structure};
use extern4_vfs::Errno;

/// The result of a library call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of failure of an [`Error`], as far as a program decides by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device or image file cannot be read, or cannot serve as one. If the system refuses to
    /// open the file, the kind is [`Os`](Self::Os).
    Io,
    /// The bytes are not an ext2, ext3 or ext4 volume.
    NotExt,
    /// The volume uses a feature that this version cannot read; the message names it.
    Unsupported,
    /// The volume's own structures break the format; the message says where. The error's source, an
    /// [`ext4::Error`](extern4_ext4::Error), has the place as a [`Corrupt`](crate::Corrupt).
    Corrupt,
    /// An operation failed as it would have failed on Linux, with this error number.
    Os(Errno),
    /// An argument makes no sense, such as a partition that does not exist.
    Invalid,
    /// A file ends before the bytes that the caller asks for.
    UnexpectedEof,
    /// A file's contents are not what the caller asks for, such as text in UTF-8.
    InvalidData,
}

impl ErrorKind {
    /// Returns the kind for an error number of the system, and [`Io`](Self::Io) without one.
    pub(crate) fn system(errno: Option<i32>) -> Self {
        let errno = errno
            .and_then(|errno| u16::try_from(errno).ok())
            .map(Errno::from_raw);
        errno.map_or(Self::Io, Self::Os)
    }
}

impl From<&extern4_ext4::Error> for ErrorKind {
    fn from(error: &extern4_ext4::Error) -> Self {
        use extern4_ext4::Error as E;
        match error {
            E::NotExt(_) => Self::NotExt,
            E::Unsupported(_) => Self::Unsupported,
            // Later changes get another error number than the one that met the damage.
            E::Damaged(_) => Self::Corrupt,
            // A volume that leads outside of itself is damaged, too.
            error if error.errno() == Errno::EUCLEAN => Self::Corrupt,
            E::Io(_) => Self::Io,
            error => Self::Os(error.errno()),
        }
    }
}

/// A failure: the operation, its path, and the reason.
///
/// It becomes a [`std::io::Error`] with `?` or `into`, whose kind then is that of the same failure
/// in `std::fs`.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    action: &'static str,
    path: Option<PathBuf>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, action: &'static str) -> Self {
        Self {
            kind,
            action,
            path: None,
            cause: None,
        }
    }

    pub(crate) fn at(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    pub(crate) fn because(
        mut self,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Returns the error for a failed VFS operation on `path`.
    pub(crate) fn vfs(action: &'static str, path: &Path, error: extern4_vfs::Error) -> Self {
        Self::from_vfs(action, error).at(path)
    }

    /// Returns the error for a failed VFS operation.
    pub(crate) fn from_vfs(action: &'static str, error: extern4_vfs::Error) -> Self {
        let of_ext4 = error
            .cause()
            .and_then(|cause| cause.downcast_ref::<extern4_ext4::Error>());
        let kind = match (error.errno(), of_ext4.map(ErrorKind::from)) {
            (Errno::EUCLEAN, _) | (_, Some(ErrorKind::Corrupt)) => ErrorKind::Corrupt,
            (errno, _) => ErrorKind::Os(errno),
        };
        let new = Self::new(kind, action);
        // For a bare error number, the kind says everything.
        if error.cause().is_some() {
            new.because(error)
        } else {
            new
        }
    }

    /// Returns the error for a failed call of the ext4 layer. Unlike the VFS, it says whether a
    /// volume is unsupported.
    pub(crate) fn ext4(action: &'static str, error: extern4_ext4::Error) -> Self {
        Self::new(ErrorKind::from(&error), action).because(error)
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the Linux error number that fits the failure best.
    pub fn errno(&self) -> Errno {
        match self.kind {
            ErrorKind::Io | ErrorKind::UnexpectedEof => Errno::EIO,
            ErrorKind::NotExt | ErrorKind::Invalid | ErrorKind::InvalidData => Errno::EINVAL,
            ErrorKind::Unsupported => Errno::EOPNOTSUPP,
            ErrorKind::Corrupt => Errno::EUCLEAN,
            ErrorKind::Os(errno) => errno,
        }
    }

    fn ext4_cause(&self) -> Option<&extern4_ext4::Error> {
        self.cause.as_ref()?.downcast_ref()
    }

    /// Returns whether a volume could not be opened because of its superblock: there is none, or
    /// it breaks the format. A [backup](crate::VolumeOptions::superblock) may then help.
    pub fn blames_superblock(&self) -> bool {
        match self.ext4_cause() {
            Some(extern4_ext4::Error::NotExt(_)) => true,
            // A copy does not bring back what is cut off.
            Some(extern4_ext4::Error::Corrupt(corrupt)) => {
                corrupt.place.structure == Structure::Superblock
                    && !matches!(corrupt.kind, CorruptKind::CutOff { .. })
            }
            _ => false,
        }
    }

    /// Returns whether a volume could not be opened because its
    /// [journal](crate::VolumeOptions::journal) is on another device.
    pub fn needs_external_journal(&self) -> bool {
        let needed = extern4_ext4::Unsupported::ExternalJournal;
        matches!(self.ext4_cause(), Some(extern4_ext4::Error::Unsupported(found)) if *found == needed)
    }

    /// Returns the path of the operation, if it had one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.action)?;
        if let Some(path) = &self.path {
            write!(f, " {}", path.display())?;
        }
        match (&self.cause, self.kind) {
            (Some(cause), _) => match cause.downcast_ref::<block::Error>() {
                // Its own text would name the file again.
                Some(device) if self.path.is_some() => write!(f, ": {}", device.reason()),
                _ => write!(f, ": {cause}"),
            },
            (None, ErrorKind::Os(errno)) => write!(f, ": {errno}"),
            (None, _) => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::UnexpectedEof => std::io::ErrorKind::UnexpectedEof,
            ErrorKind::InvalidData => std::io::ErrorKind::InvalidData,
            _ => std::io::Error::from_raw_os_error(i32::from(error.errno().raw())).kind(),
        };
        std::io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use extern4_disk::Place;
    use extern4_ext4::{self as ext4, Unsupported};

    use super::*;

    /// From the file system to the library, whichever way the error takes.
    #[test]
    fn damage_keeps_its_kind() {
        let corrupt = Place::new(Structure::Inode)
            .ino(12)
            .corrupt(CorruptKind::Loop { what: "it" });
        let outside = block::Error::BlockOutOfRange {
            block: 9,
            block_count: 8,
        };
        let damage: [ext4::Error; 3] = [
            corrupt.into(),
            outside.into(),
            ext4::Error::Damaged("it is".into()),
        ];
        for error in damage {
            assert_eq!(ErrorKind::from(&error), ErrorKind::Corrupt, "{error:?}");
            let found = Error::vfs("read", Path::new("/f"), error.clone().into());
            assert_eq!(
                (found.kind(), found.errno()),
                (ErrorKind::Corrupt, Errno::EUCLEAN),
                "{error:?}"
            );
            let as_io = std::io::Error::from(found);
            let inner = as_io
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<Error>());
            assert_eq!(
                inner.map(Error::kind),
                Some(ErrorKind::Corrupt),
                "{error:?}"
            );
        }
        let others: [(ext4::Error, ErrorKind, Errno); 5] = [
            (
                ext4::Error::NotExt("it is"),
                ErrorKind::NotExt,
                Errno::EINVAL,
            ),
            (
                Unsupported::JournalDevice.into(),
                ErrorKind::Unsupported,
                Errno::EOPNOTSUPP,
            ),
            (
                block::Error::UnexpectedEnd {
                    offset: 0,
                    missing: 1,
                }
                .into(),
                ErrorKind::Io,
                Errno::EIO,
            ),
            (
                ext4::Error::Stopped("it".into()),
                ErrorKind::Os(Errno::EROFS),
                Errno::EROFS,
            ),
            (
                Errno::ENOSPC.into(),
                ErrorKind::Os(Errno::ENOSPC),
                Errno::ENOSPC,
            ),
        ];
        for (error, kind, errno) in others {
            assert_eq!(ErrorKind::from(&error), kind, "{error:?}");
            assert_eq!(
                Error::from_vfs("read", error.clone().into()).kind(),
                ErrorKind::Os(errno),
                "{error:?}"
            );
        }
    }
}
