//! Exit codes: how a command ended.
//!
//! Subcommands report each failure with one to `app`, and `main` ends with the worst. The guide and
//! the manual pages have the table. Comparisons and helpers of fsck(8) have other codes.

use extern4_mountd::control::client::AskError;

/// How a command ended. The worst of all results counts, in the order of the variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExitStatus {
    /// Everything succeeded.
    #[default]
    Success,
    /// Something failed: a missing file, a refused access, an unreadable image.
    Failed,
    /// The command line or a script is wrong.
    Usage,
    /// An image is not an ext2, ext3 or ext4 volume, or uses a feature that cannot be read, or not
    /// written.
    Refused,
    /// A volume's structures are corrupt.
    Corrupt,
}

impl ExitStatus {
    /// The command line or a script is wrong; clap ends with the same code.
    pub(crate) const USAGE: u8 = 2;
    /// A comparison failed; diff(1) ends with the same code, and with 1 for a difference.
    pub(crate) const TROUBLE: u8 = 2;
    /// The exit code after the reader of the output has closed it: the one that a shell reports for
    /// `SIGPIPE`.
    pub(crate) const CLOSED_PIPE: u8 = 128 + 13;

    /// Returns the exit code of the process.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => Self::USAGE,
            Self::Refused => 3,
            Self::Corrupt => 4,
        }
    }
}

/// A directory that is in no mount is refused; a mount that cannot be asked is a failure.
impl From<&AskError> for ExitStatus {
    fn from(error: &AskError) -> Self {
        if matches!(error, AskError::NoMount) {
            Self::Refused
        } else {
            Self::Failed
        }
    }
}
