//! The header of twelve bytes at the start of every block of the log, except the copies.
//!
//! The other blocks of this module begin with it, and `jbd2` tells by it what a block of the log
//! is. A block without a valid header is no error: there the log ends. A [`Tid`] compares correctly
//! across the overflow of its 32 bits.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use core::fmt;

/// The magic number of the journal's blocks.
pub const MAGIC: u32 = 0xC03B_3998;

/// The number of a transaction.
///
/// Numbers are consecutive and wrap around at 2^32. "Earlier" has a meaning only between two
/// numbers less than 2^31 apart, so there is no `Ord`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Tid(pub u32);

impl Tid {
    /// Returns the number of the next transaction.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns whether this transaction is younger than `other`.
    pub const fn is_after(self, other: Self) -> bool {
        let ahead = self.0.wrapping_sub(other.0);
        ahead != 0 && ahead < 1 << 31
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of a block of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Describes the copies that follow it.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// The journal's superblock, without features.
    SuperblockV1,
    /// The journal's superblock.
    SuperblockV2,
    /// Lists blocks that recovery must not replay.
    Revoke,
}

impl BlockKind {
    const fn from_disk(value: u32) -> Option<Self> {
        Some(match value {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            _ => return None,
        })
    }

    const fn to_disk(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }
}

/// `journal_header_t` as it is on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawBlockHeader {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
}

const _: () = assert!(size_of::<RawBlockHeader>() == BlockHeader::SIZE);

/// The header of a block of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The kind of the block.
    pub kind: BlockKind,
    /// The transaction that the block belongs to; meaningless in a superblock.
    pub tid: Tid,
}

impl BlockHeader {
    /// Size on the disk, in bytes.
    pub const SIZE: usize = 12;

    /// Reads the header at the start of `block`; `None` if the magic number is wrong or the kind
    /// unknown.
    ///
    /// `None` is no error: the log ends where the next header is missing.
    pub fn recognise(block: &[u8]) -> Option<Self> {
        let (raw, _) = RawBlockHeader::ref_from_prefix(block).ok()?;
        if raw.h_magic.get() != MAGIC {
            return None;
        }
        Some(Self {
            kind: BlockKind::from_disk(raw.h_blocktype.get())?,
            tid: Tid(raw.h_sequence.get()),
        })
    }

    /// Returns the header as it is on the disk.
    pub fn encode(self) -> RawBlockHeader {
        RawBlockHeader {
            h_magic: MAGIC.into(),
            h_blocktype: self.kind.to_disk().into(),
            h_sequence: self.tid.0.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_numbers_compare_across_the_wrap() {
        assert!(Tid(1).is_after(Tid(0)));
        assert!(!Tid(1).is_after(Tid(1)));
        assert!(!Tid(0).is_after(Tid(1)));
        assert!(Tid(3).is_after(Tid(u32::MAX - 3)));
        assert!(!Tid(u32::MAX - 3).is_after(Tid(3)));
        assert_eq!(Tid(u32::MAX).next(), Tid(0));
    }

    #[test]
    fn header_round_trips_and_rejects_strangers() {
        for kind in 0..8 {
            let bytes = [
                MAGIC.to_be_bytes(),
                u32::to_be_bytes(kind),
                77_u32.to_be_bytes(),
            ]
            .concat();
            let header = BlockHeader::recognise(&bytes);
            assert_eq!(header.is_some(), (1..=5).contains(&kind));
            if let Some(header) = header {
                assert_eq!(header.encode().as_bytes(), bytes);
            }
        }
        assert_eq!(BlockHeader::recognise(&[0; 12]), None);
        assert_eq!(BlockHeader::recognise(&[0xC0, 0x3B]), None);
    }
}
