//! Errors of devices, partition tables and the buffer cache.
//!
//! Errors are cheap to clone: every thread that waited for a failed read gets a copy of its error.
//!
//! Each names the operation, the offset and the length, so that a message can say where a device
//! failed. `jbd2`, `ext4` and the builders return them inside their errors.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::partition::Fault;

/// The result of a device or cache operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Make earlier writes durable.
    Flush,
    /// Give up the contents of a range.
    Discard,
    /// Make a range read as zeroes.
    WriteZeroes,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "zero",
        })
    }
}

/// A device or cache operation that failed. Offsets and lengths are bytes from the start of the
/// device asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on an open device.
    #[error("cannot {op} {len} bytes at offset {offset}: {}", os_reason(source))]
    Io {
        /// The operation that failed.
        op: Op,
        /// Start of the part that failed.
        offset: u64,
        /// Bytes not yet done.
        len: u64,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// A read met the end of the device's data. The image has become shorter since it was opened.
    #[error("the device ends at offset {offset}, {missing} bytes short")]
    UnexpectedEnd {
        /// Where the data ended.
        offset: u64,
        /// Bytes asked for beyond that.
        missing: u64,
    },
    /// A range does not lie inside the device.
    #[error("cannot {op} {len} bytes at offset {offset}: the device has {size} bytes")]
    OutOfRange {
        /// The operation that failed.
        op: Op,
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        len: u64,
        /// Size of the device.
        size: u64,
    },
    /// A block number does not lie inside the volume.
    #[error("block {block} is outside the volume of {block_count} blocks")]
    BlockOutOfRange {
        /// The block asked for, or the last one of a range.
        block: u64,
        /// Number of blocks in the volume.
        block_count: u64,
    },
    /// A change was requested on a device that is open for reading.
    #[error("cannot {op} at offset {offset}: the device is read-only")]
    ReadOnly {
        /// The operation that failed.
        op: Op,
        /// Start of the range.
        offset: u64,
    },
    /// A file cannot be opened as a device.
    #[error("cannot open {}: {}", path.display(), os_reason(source))]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// A file exists but cannot serve as a device.
    #[error("cannot use {}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why not, as the end of a sentence.
        reason: String,
    },
    /// Another program, or the kernel, has the file in use.
    #[error("cannot use {}: {reason}", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// How the file is in use, as the end of a sentence.
        reason: String,
    },
    /// A cache was asked for with a block size that is not a power of two from 512 to 65536.
    #[error("{0} is not a usable block size")]
    BlockSize(u32),
    /// A disk says that it has a GPT, but neither copy of it can be used.
    #[error("the partition table is damaged: {primary}; its backup: {backup}")]
    PartitionTable {
        /// The fault of the first copy.
        primary: Box<Fault>,
        /// The fault of the copy at the end.
        backup: Box<Fault>,
    },
}

/// Returns the operating system's message, without the number that Rust appends.
pub fn os_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text
            .trim_end_matches(&format!(" (os error {number})"))
            .to_owned(),
        None => text,
    }
}

impl Error {
    /// Returns an [`Error::Io`] of `op` at `offset`, with `len` bytes not done.
    pub fn io(op: Op, offset: u64, len: u64, source: io::Error) -> Self {
        Self::Io {
            op,
            offset,
            len,
            source: Arc::new(source),
        }
    }

    /// Returns the reason without the name of the file, for messages that already have the name.
    pub fn reason(&self) -> String {
        match self {
            Self::Open { source, .. } => os_reason(source),
            Self::Refused { reason, .. } | Self::Busy { reason, .. } => reason.clone(),
            _ => self.to_string(),
        }
    }

    /// Returns the operating system's error, if this has one.
    pub fn io_source(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } | Self::Open { source, .. } => Some(source),
            _ => None,
        }
    }
}
