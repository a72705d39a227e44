//! A fault that a check finds, and its place.
//!
//! Every pass makes faults, `report` sorts them, and the caller of [`check`](crate::check) gets
//! them: the command prints them as text or JSON. A fault is plain data; its text names the
//! structure, its place and the broken rule.

use std::fmt;

use extern4_disk::quota::Kind;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};
use extern4_ext4::Error;

/// Something that is wrong with a volume, and where.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The place: the structure, and inode, group, block and byte offset as far as they are known.
    pub place: Place,
    /// The kind of fault.
    pub wrong: Wrong,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.wrong)
    }
}

impl Fault {
    pub(crate) fn new(place: Place, wrong: Wrong) -> Self {
        Self { place, wrong }
    }

    /// Returns the fault that two things disagree, as the short sentence `what` says.
    pub(crate) fn mismatch(place: Place, what: &'static str) -> Self {
        place.corrupt(CorruptKind::Mismatch { what }).into()
    }

    /// Returns the fault that `field` holds an impossible value.
    pub(crate) fn field(place: Place, field: &'static str, value: u64) -> Self {
        place.corrupt(CorruptKind::Field { field, value }).into()
    }

    /// Returns the fault that something at `place` could not be read, or not be understood.
    pub(crate) fn of_error(place: Place, error: Error) -> Self {
        match error {
            Error::Corrupt(corrupt) => corrupt.into(),
            error => Self::new(place, Wrong::Unreadable(Box::new(error))),
        }
    }
}

impl From<Corrupt> for Fault {
    fn from(corrupt: Corrupt) -> Self {
        Self::new(corrupt.place, Wrong::Format(corrupt.kind))
    }
}

/// The kinds of faults.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// A structure breaks a rule of the format by itself.
    #[error(transparent)]
    Format(CorruptKind),
    /// The device does not give the bytes, or they cannot be made sense of.
    #[error("cannot be read: {0}")]
    Unreadable(Box<Error>),
    /// A stored count differs from the counted one.
    #[error("{field} is {stored}, but it should be {counted}")]
    Count {
        /// The field, by its name in the format's documentation.
        field: &'static str,
        /// Its value.
        stored: u64,
        /// The number that the check counted.
        counted: u64,
    },
    /// Blocks that more than one owner claims.
    #[error("{} used by {first} and by {second}", Span("block", *start, *len))]
    Claimed {
        /// The first of the blocks.
        start: u64,
        /// How many.
        len: u64,
        /// One owner.
        first: Owner,
        /// The other one.
        second: Owner,
    },
    /// A bitmap has the wrong state for blocks or inodes.
    #[error("{} {}", Span(unit, *start, *len), if *in_use { "in use but marked as free" } else { "marked as in use but free" })]
    Marked {
        /// `block` or `inode`.
        unit: &'static str,
        /// The first of them.
        start: u64,
        /// How many.
        len: u64,
        /// Whether they are in use in truth.
        in_use: bool,
    },
    /// A quota file has a wrong count for an owner.
    #[error("{kind} {id} has {counted} {unit}, but {stored} are counted")]
    Quota {
        /// The kind of owner.
        kind: Kind,
        /// The owner's id.
        id: u32,
        /// `bytes` or `inodes`.
        unit: &'static str,
        /// The number that the file holds.
        stored: u64,
        /// The number that the check counted.
        counted: u64,
    },
    /// A quota file has no entry for an owner of files.
    #[error("{kind} {id} has files, but no entry")]
    NoQuota {
        /// The kind of owner.
        kind: Kind,
        /// The owner's id.
        id: u32,
        /// The bytes that the check counted.
        bytes: u64,
        /// The inodes that the check counted.
        inodes: u64,
    },
    /// A directory entry is wrong.
    #[error("the entry \"{}\" for inode {ino} {what}", name.escape_ascii())]
    Entry {
        /// Its name.
        name: Box<[u8]>,
        /// The inode that it names.
        ino: u32,
        /// The fault, as the end of a sentence.
        what: &'static str,
    },
}

/// An owner that claims a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A file, for its contents, its map or its attributes.
    Inode(u32),
    /// The fixed metadata of a group.
    Metadata {
        /// The group that the metadata describes or stands in.
        group: u32,
        /// The piece of that metadata.
        part: Part,
    },
}

/// A piece of fixed metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The superblock, the descriptors, or what is reserved for these to grow.
    Header,
    /// The block bitmap.
    BlockBitmap,
    /// The inode bitmap.
    InodeBitmap,
    /// The inode table.
    InodeTable,
    /// The block of multiple mount protection.
    Mmp,
}

impl Part {
    /// Returns the structure that stands there.
    pub(crate) const fn structure(self) -> Structure {
        match self {
            Self::Header => Structure::Superblock,
            Self::BlockBitmap => Structure::BlockBitmap,
            Self::InodeBitmap => Structure::InodeBitmap,
            Self::InodeTable => Structure::Inode,
            Self::Mmp => Structure::Mmp,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inode(ino) => write!(f, "inode {ino}"),
            Self::Metadata { group, part } => {
                let what = match part {
                    Part::Header => "the superblock and descriptors",
                    Part::BlockBitmap => "the block bitmap",
                    Part::InodeBitmap => "the inode bitmap",
                    Part::InodeTable => "the inode table",
                    Part::Mmp => "the MMP block",
                };
                write!(f, "{what} of group {group}")
            }
        }
    }
}

/// `block 7 is` or `blocks 7 to 9 are`.
struct Span(&'static str, u64, u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(unit, start, len) = self;
        match len {
            0 | 1 => write!(f, "{unit} {start} is"),
            _ => write!(f, "{unit}s {start} to {} are", start + (len - 1)),
        }
    }
}
