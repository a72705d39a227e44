//! Exit codes.

/// How a command ended. The worst of all that happened counts, in the order they stand here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// Everything succeeded.
    #[default]
    Success,
    /// Something failed: a missing file, a refused access, an unreadable image.
    Failed,
    /// A script makes no sense.
    Usage,
    /// An image is not an ext2, ext3 or ext4 volume, or uses a feature that cannot be read, or not written.
    Refused,
    /// A volume's structures are corrupt.
    Corrupt,
}

impl Status {
    /// The command line makes no sense; clap ends with the same code.
    pub(crate) const USAGE: u8 = 2;
    /// Whoever reads the output has closed it: what a shell reports for `SIGPIPE`.
    pub(crate) const CLOSED_PIPE: u8 = 128 + 13;

    /// The code for the process to end with.
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
