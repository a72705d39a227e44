//! Why a volume cannot be built.
//!
//! All modules of this crate return these errors, and its callers print them. An error that
//! concerns a member of a source, or the image file, names it.

/// The result of building a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a volume cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A source cannot be read, or one of its members is not possible.
    #[error(transparent)]
    Source(#[from] extern4_tree::Error),
    /// The volume cannot be made.
    #[error(transparent)]
    Make(#[from] extern4_mkfs::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] extern4_block::Error),
    /// A member cannot be stored.
    #[error("'{path}': {reason}")]
    Member {
        /// The member's path in the volume.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The tree does not fit into a volume of the size that was asked for.
    #[error("the tree needs a volume of {least} bytes, and this one has {size}")]
    NoRoom {
        /// Bytes of the volume.
        size: u64,
        /// Bytes of the smallest volume that the tree fits in.
        least: u64,
    },
    /// The image file cannot be made.
    #[error("'{}': {}", path.display(), extern4_block::os_reason(source))]
    Output {
        /// The file.
        path: std::path::PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The caller stopped it.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// The contents of a member cannot be read.
    pub(crate) fn reading(path: &[u8], error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                "the file became shorter while it was read".to_owned()
            }
            _ => extern4_block::os_reason(error),
        };
        Self::Member {
            path: shown(path),
            reason,
        }
    }
}

/// A path for messages.
pub(crate) fn shown(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}
