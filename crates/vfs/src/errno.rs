//! Errors of the VFS: the Linux error numbers, and the error that carries one with its cause.
//!
//! All calls of the VFS fail with an [`Error`]. It compares by its number, so a caller can match on
//! that. A cause, such as a corrupt structure, is for messages only and changes no behaviour. File
//! systems make errors here; the FUSE server sends the number, and `extern4::Error` shows both.

use std::error::Error as StdError;
use std::fmt;
use std::num::{NonZeroU16, NonZeroUsize};

/// A Linux error number.
///
/// A newtype with constants rather than an enum: a file system may return a number that has no name
/// here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(NonZeroU16);

macro_rules! errnos {
    ($($name:ident $number:literal $text:literal)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno::from_raw($number);)*

            /// Returns the symbol, such as `ENOENT`; `None` for a number without a name here.
            pub const fn name(self) -> Option<&'static str> {
                match self.raw() { $($number => Some(stringify!($name)),)* _ => None }
            }

            /// Returns the message of `strerror`.
            pub const fn message(self) -> &'static str {
                match self.raw() { $($number => $text,)* _ => "Unknown error" }
            }
        }
    };
}

errnos! {
    EPERM 1 "Operation not permitted"
    ENOENT 2 "No such file or directory"
    EIO 5 "Input/output error"
    ENXIO 6 "No such device or address"
    E2BIG 7 "Argument list too long"
    EBADF 9 "Bad file descriptor"
    EAGAIN 11 "Resource temporarily unavailable"
    ENOMEM 12 "Cannot allocate memory"
    EACCES 13 "Permission denied"
    EBUSY 16 "Device or resource busy"
    EEXIST 17 "File exists"
    EXDEV 18 "Invalid cross-device link"
    ENODEV 19 "No such device"
    ENOTDIR 20 "Not a directory"
    EISDIR 21 "Is a directory"
    EINVAL 22 "Invalid argument"
    ENFILE 23 "Too many open files in system"
    ENOTTY 25 "Inappropriate ioctl for device"
    ETXTBSY 26 "Text file busy"
    EFBIG 27 "File too large"
    ENOSPC 28 "No space left on device"
    EROFS 30 "Read-only file system"
    EMLINK 31 "Too many links"
    ERANGE 34 "Numerical result out of range"
    ENAMETOOLONG 36 "File name too long"
    ENOSYS 38 "Function not implemented"
    ENOTEMPTY 39 "Directory not empty"
    ELOOP 40 "Too many levels of symbolic links"
    ENODATA 61 "No data available"
    EOVERFLOW 75 "Value too large for defined data type"
    EILSEQ 84 "Invalid or incomplete multibyte or wide character"
    EOPNOTSUPP 95 "Operation not supported"
    ESTALE 116 "Stale file handle"
    EUCLEAN 117 "Structure needs cleaning"
    EDQUOT 122 "Disk quota exceeded"
    ENOKEY 126 "Required key not available"
}

impl Errno {
    /// Returns the error number `number`, also one without a constant here. 0, which stands for no
    /// error, becomes `EIO`.
    pub const fn from_raw(number: u16) -> Self {
        // 5 is EIO. The constant cannot be used here, because this function makes it.
        let number = if number == 0 { 5 } else { number };
        Self(NonZeroU16::new(number).expect("not 0"))
    }

    /// Returns the number, as in `errno.h` of Linux.
    pub const fn raw(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

/// Why a VFS operation failed: a number for programs, and where a file system has more to say, its
/// cause.
///
/// The common outcomes (`ENOENT`, `EACCES`, ...) allocate nothing.
pub struct Error {
    /// The error number, as a whole word. A smaller field would be copied by other loads than the
    /// store that wrote it, and a CPU waits for such a load.
    number: NonZeroUsize,
    /// One more pointer makes a result two words, which fit into registers.
    cause: Option<Box<Cause>>,
}

type Cause = Box<dyn StdError + Send + Sync>;

/// The result of a VFS operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns an error that has a cause worth telling, such as the corrupt structure behind
    /// `EUCLEAN`.
    pub fn with_cause(errno: Errno, cause: impl Into<Cause>) -> Self {
        Self {
            number: errno.0.into(),
            cause: Some(Box::new(cause.into())),
        }
    }

    /// Returns the error number.
    pub const fn errno(&self) -> Errno {
        // OK: it was an error number's.
        Errno::from_raw(self.number.get() as u16)
    }

    /// Returns the cause, if the file system told one.
    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.cause.as_deref().map(|cause| &**cause)
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self {
            number: errno.0.into(),
            cause: None,
        }
    }
}

impl PartialEq<Errno> for Error {
    fn eq(&self, other: &Errno) -> bool {
        self.errno() == *other
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("errno", &self.errno())
            .field("cause", &self.cause)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{}: {cause}", self.errno()),
            None => write!(f, "{}", self.errno()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause
            .as_deref()
            .map(|cause| &**cause as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_two_words() {
        assert_eq!(size_of::<Result<()>>(), 2 * size_of::<usize>());
    }

    #[test]
    fn an_error_has_a_number() {
        assert_eq!(
            (Errno::from_raw(0), Errno::from_raw(13).name()),
            (Errno::EIO, Some("EACCES"))
        );
        let refused = Error::with_cause(Errno::EACCES, "why");
        assert_eq!(
            (refused.errno(), refused.to_string()),
            (Errno::EACCES, "Permission denied: why".to_owned())
        );
        assert_eq!(
            format!("{:?} {}", Errno::from_raw(999), Errno::from_raw(999)),
            "errno 999 Unknown error"
        );
    }
}
