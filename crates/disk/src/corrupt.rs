//! Errors for bytes of a volume that break the format, and the place of those bytes.
//!
//! Every decoder of this crate returns [`Corrupt`] for bytes that break the format. It is plain
//! data: tests compare the exact kind, and the layers above print it or turn it into `EUCLEAN`.
//!
//! A place names as much of inode, group, block and byte as the decoder knew.

use core::fmt;

/// A structure of the volume, named as the format's documentation names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// The superblock or one of its backups.
    Superblock,
    /// A block group descriptor.
    GroupDescriptor,
    /// A block bitmap.
    BlockBitmap,
    /// An inode bitmap.
    InodeBitmap,
    /// An inode record.
    Inode,
    /// A node of an extent tree.
    ExtentNode,
    /// An indirect, double or triple indirect block.
    IndirectBlock,
    /// A block of a linear directory, or a leaf of a hashed one.
    DirectoryBlock,
    /// A root or interior node of a directory's hash tree.
    HtreeNode,
    /// Data kept inside the inode.
    InlineData,
    /// Extended attributes: inside the inode, in a block or in an EA inode.
    Xattr,
    /// A POSIX ACL inside an extended attribute.
    Acl,
    /// A symbolic link's target.
    Symlink,
    /// The list of orphans or the orphan file.
    Orphan,
    /// The multiple mount protection block.
    Mmp,
    /// A quota file.
    Quota,
    /// The journal's superblock.
    JournalSuperblock,
    /// A descriptor, commit or revoke block of the journal.
    JournalBlock,
    /// A record of the fast commit area.
    FastCommit,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::GroupDescriptor => "group descriptor",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::Inode => "inode",
            Self::ExtentNode => "extent node",
            Self::IndirectBlock => "indirect block",
            Self::DirectoryBlock => "directory block",
            Self::HtreeNode => "htree node",
            Self::InlineData => "inline data",
            Self::Xattr => "extended attributes",
            Self::Acl => "ACL",
            Self::Symlink => "symbolic link",
            Self::Orphan => "orphan list",
            Self::Mmp => "MMP block",
            Self::Quota => "quota file",
            Self::JournalSuperblock => "journal superblock",
            Self::JournalBlock => "journal block",
            Self::FastCommit => "fast commit record",
        })
    }
}

/// The place of a structure: as much of inode, group, block and byte offset as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The part of the volume that the structure belongs to, such as `the journal`.
    pub part: Option<&'static str>,
    /// The kind of structure.
    pub structure: Structure,
    /// The inode it belongs to.
    pub ino: Option<u32>,
    /// The block group it belongs to or describes.
    pub group: Option<u32>,
    /// The block of the volume that holds it.
    pub block: Option<u64>,
    /// Byte offset inside that block, or inside the structure.
    pub offset: Option<u32>,
}

impl Place {
    /// Returns a place without a position; the other methods add what is known.
    pub const fn new(structure: Structure) -> Self {
        Self {
            part: None,
            structure,
            ino: None,
            group: None,
            block: None,
            offset: None,
        }
    }

    /// Returns this place with `part` as the part of the volume.
    pub const fn of(mut self, part: &'static str) -> Self {
        self.part = Some(part);
        self
    }

    /// Returns this place with inode `ino`.
    pub const fn ino(mut self, ino: u32) -> Self {
        self.ino = Some(ino);
        self
    }

    /// Returns this place with block group `group`.
    pub const fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    /// Returns this place with block `block` of the volume.
    pub const fn block(mut self, block: u64) -> Self {
        self.block = Some(block);
        self
    }

    /// Returns this place with the byte offset `offset`.
    pub const fn offset(mut self, offset: u32) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Returns this place with an index into the bytes that hold the structure as the byte offset.
    pub(crate) fn byte(self, index: usize) -> Self {
        // A structure is at most a 64 KiB block, so the number always fits; an invalid one is only
        // shown, never used.
        self.offset(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Returns the error that `kind` was found here.
    pub const fn corrupt(self, kind: CorruptKind) -> Corrupt {
        Corrupt { kind, place: self }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(part) = self.part {
            write!(f, "{part}: ")?;
        }
        write!(f, "{}", self.structure)?;
        if let Some(ino) = self.ino {
            write!(f, ", inode {ino}")?;
        }
        if let Some(group) = self.group {
            write!(f, ", group {group}")?;
        }
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        Ok(())
    }
}

/// The rule of the format that the bytes break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CorruptKind {
    /// A magic number is not the expected one.
    #[error("bad magic number {found:#x}, expected {expected:#x}")]
    Magic {
        /// The value read.
        found: u32,
        /// The value the format asks for.
        expected: u32,
    },
    /// A stored checksum does not match the bytes it covers.
    #[error("checksum {stored:#010x} does not match the contents ({computed:#010x})")]
    Checksum {
        /// The checksum stored.
        stored: u32,
        /// The checksum computed.
        computed: u32,
    },
    /// The bytes end before the structure does.
    #[error("truncated: {have} bytes, {need} needed")]
    Truncated {
        /// Bytes needed.
        need: u64,
        /// Bytes present.
        have: u64,
    },
    /// The device ends before the volume does.
    #[error("the volume is cut off: it has {need} bytes, and the device {have}")]
    CutOff {
        /// Bytes of the volume.
        need: u64,
        /// Bytes of the device.
        have: u64,
    },
    /// A field holds a value that the format does not allow.
    #[error("{field} has the impossible value {value}")]
    Field {
        /// The field, by its name in the format's documentation.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A block number outside the volume, or inside its fixed metadata.
    #[error("{field} points at block {block}, outside of the volume")]
    BlockOutOfRange {
        /// The field, by its name in the format's documentation.
        field: &'static str,
        /// Its value.
        block: u64,
    },
    /// An inode number outside the volume, or a reserved one.
    #[error("{field} names inode {ino}, which cannot be")]
    InodeOutOfRange {
        /// The field, by its name in the format's documentation.
        field: &'static str,
        /// Its value.
        ino: u64,
    },
    /// Entries that should ascend do not ascend, or they overlap.
    #[error("{what} out of order or overlapping")]
    Order {
        /// The kind of entry.
        what: &'static str,
    },
    /// A structure refers to itself, directly or through others.
    #[error("{what} forms a loop")]
    Loop {
        /// The kind of structure.
        what: &'static str,
    },
    /// Two structures that must agree differ.
    #[error("{what}")]
    Mismatch {
        /// The disagreement, as a short sentence.
        what: &'static str,
    },
}

/// Bytes of the volume that break the format, and their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{place}: {kind}")]
pub struct Corrupt {
    /// The rule that is broken.
    pub kind: CorruptKind,
    /// The place of the bytes.
    pub place: Place,
}
