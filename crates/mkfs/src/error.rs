//! The errors of making a volume.
//!
//! All functions of this crate return them. Wrong options, a device of the wrong size and
//! unsupported features are found while the volume is planned, before anything is written. Only
//! [`Error::Device`] can come from writing. The command maps the variants to exit codes, and
//! `build` passes them on.

/// The result of making a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reasons why a volume cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options that are wrong, or that exclude each other.
    #[error("{0}")]
    Options(String),
    /// A line of `mke2fs.conf` that is not understood.
    #[error("mke2fs.conf, line {line}: {reason}")]
    Config {
        /// The line, from 1.
        line: usize,
        /// The reason.
        reason: &'static str,
    },
    /// The device is too small for such a volume, or too large.
    #[error("{0}")]
    Size(String),
    /// A feature that extern4 cannot write.
    #[error("the feature '{0}' is not supported")]
    Feature(String),
    /// The external journal has wrong contents.
    #[error("the external journal: {0}")]
    Damaged(extern4_disk::Corrupt),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] extern4_block::Error),
    /// The planned superblock contradicts itself.
    #[error("these options make no valid volume: {0}")]
    Contradiction(#[from] extern4_disk::Corrupt),
}

impl Error {
    pub(crate) fn options(text: impl Into<String>) -> Self {
        Self::Options(text.into())
    }
}
