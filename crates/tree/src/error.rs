//! The errors of reading or writing a tree.
//!
//! Sources, sinks and writers of this crate return them. Each names the host's file, or the archive
//! with the position, or the line of the manifest. A sink's refusal becomes an error with the place
//! of the entry in its source. Programs print the text as it is.

use std::io;

/// The result of reading or writing a tree.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reasons why a tree cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory of the host could not be read or written.
    #[error("'{name}': {}", reason(source))]
    Io {
        /// The file.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// A file or directory of the host that the caller may not read.
    #[error(
        "'{name}': Permission denied (as root it can be read; else make a tar of the tree as root, \
         or run the command in 'unshare -Ur')"
    )]
    Unreadable {
        /// The file.
        name: String,
    },
    /// A file of the host has changed since the scan.
    #[error("'{name}': the file changed while it was read")]
    Changed {
        /// The file.
        name: String,
    },
    /// A file or directory of the host is gone.
    #[error("'{name}': No such file or directory (it vanished while the tree was read)")]
    Vanished {
        /// The file.
        name: String,
    },
    /// A member of an archive is damaged, or must not be there.
    #[error("{archive}: member '{member}' at byte {position}: {reason}")]
    Member {
        /// The archive.
        archive: String,
        /// The member's path.
        member: String,
        /// The offset of the member's header in the archive, after decompression.
        position: u64,
        /// The reason.
        reason: String,
    },
    /// An archive is damaged or of an unknown kind.
    #[error("{archive}: at byte {position}: {reason}")]
    Archive {
        /// The archive.
        archive: String,
        /// The offset after decompression.
        position: u64,
        /// The reason.
        reason: String,
    },
    /// A line of a manifest is wrong.
    #[error("{manifest}, line {line}: {reason}")]
    Line {
        /// The manifest.
        manifest: String,
        /// The line, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// An image of a container is damaged, or there is no such image.
    #[error("{image}: {reason}")]
    Image {
        /// The image.
        image: String,
        /// The reason.
        reason: String,
    },
    /// A sink does not have the target of a hard link. The source of the link adds the place.
    #[error("'{path}': the target '{target}' of the hard link does not exist")]
    NoTarget {
        /// The path of the link.
        path: String,
        /// The path that the link names.
        target: String,
    },
    /// A sink refuses an entry. The source of the entry adds the place.
    #[error("'{path}': {reason}")]
    Refused {
        /// The path of the entry.
        path: String,
        /// The reason.
        reason: String,
    },
    /// An error of a source outside of this crate.
    #[error(transparent)]
    Source(Box<dyn std::error::Error + Send + Sync>),
    /// An error of the sink that is not about the entry.
    #[error(transparent)]
    Sink(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Returns an error of the host's file with that name.
    pub(crate) fn io(name: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let name = name.into();
        let source = source.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Unreadable { name },
            _ => Self::Io { name, source },
        }
    }
}

/// Returns the text of an error of the host, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text
            .trim_end_matches(&format!(" (os error {number})"))
            .to_owned(),
        None => text,
    }
}

/// Returns a path for messages.
pub(crate) fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        ".".to_owned()
    } else {
        String::from_utf8_lossy(path).into_owned()
    }
}
