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

/// Something about a partition table that breaks its format. Sectors count from the start of the
/// device.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A sector of the table cannot be read.
    #[error("sector {lba}: {source}")]
    Unreadable {
        /// The sector.
        lba: u64,
        /// Why not.
        source: Box<Error>,
    },
    /// A partition ends before it starts, or after the last byte that can be addressed.
    #[error("partition {number} cannot go from sector {first} to {last}")]
    Range {
        /// The partition's number.
        number: u32,
        /// Its first sector.
        first: u64,
        /// Its last sector.
        last: u64,
    },
    /// A partition has a type, but no sectors.
    #[error("partition {number} has no sectors")]
    Empty {
        /// The partition's number.
        number: u32,
    },
    /// The device ends before a partition does.
    #[error(
        "partition {number} is cut off: it has {len} bytes from byte {start} on, and the disk only {held} of them"
    )]
    CutOff {
        /// The partition's number.
        number: u32,
        /// Where it starts, in bytes.
        start: u64,
        /// Its length in bytes.
        len: u64,
        /// How many of these the device has.
        held: u64,
    },
    /// Two partitions have sectors in common.
    #[error("partitions {first} and {second} overlap")]
    Overlap {
        /// The one that starts first.
        first: u32,
        /// The other one.
        second: u32,
    },
    /// The MBR of a disk with a GPT names partitions, too. Like Linux, this crate uses the GPT.
    #[error("the MBR names partitions, too (a hybrid MBR); the GPT is what counts")]
    Hybrid,
    /// A disk has a GPT, but no MBR that says so.
    #[error("there is no protective MBR, without which Linux does not look for this GPT")]
    Unprotected,
    /// The second header of a GPT is after the end of the device.
    #[error(
        "the backup of the GPT should be in sector {lba}, and the disk has {sectors}: it may be cut off"
    )]
    NoBackup {
        /// Where the first header says it is.
        lba: u64,
        /// Sectors in the device.
        sectors: u64,
    },
    /// An extended boot record lacks its signature.
    #[error("sector {lba} is no extended boot record")]
    NoExtendedRecord {
        /// The sector.
        lba: u64,
    },
    /// The chain of extended boot records returns to a record that it has passed.
    #[error("the chain of logical partitions returns to sector {lba}")]
    Loop {
        /// The sector it returns to.
        lba: u64,
    },
    /// There are more logical partitions than this crate reads.
    #[error("more than {limit} logical partitions")]
    TooManyLogical {
        /// How many are read.
        limit: usize,
    },
    /// A sector that should hold a GPT header holds something else.
    #[error("sector {lba} holds no GPT header")]
    NoHeader {
        /// The sector.
        lba: u64,
    },
    /// A GPT header has impossible fields: its own size or place, or the size or place of its
    /// entries.
    #[error("the GPT header in sector {lba} contradicts itself or the device")]
    BadHeader {
        /// The sector.
        lba: u64,
    },
    /// A GPT header does not match its checksum.
    #[error("the checksum of the GPT header in sector {lba} is {found:#010x}, not {stored:#010x}")]
    HeaderChecksum {
        /// The sector.
        lba: u64,
        /// The checksum that it holds.
        stored: u32,
        /// The checksum that its bytes have.
        found: u32,
    },
    /// The entries of a GPT do not match their checksum.
    #[error(
        "the checksum of the GPT entries from sector {lba} on is {found:#010x}, not {stored:#010x}"
    )]
    EntriesChecksum {
        /// The first sector of the entries.
        lba: u64,
        /// The checksum that the header holds.
        stored: u32,
        /// The checksum that the entries have.
        found: u32,
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
