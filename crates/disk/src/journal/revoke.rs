//! Revoke blocks: the file system blocks that recovery must not replay.
//!
//! A transaction may free a block of journaled metadata, and the block may then go to a file whose
//! data is not journaled. Replaying the old copy would destroy that data, so the transaction that
//! frees the block revokes it. Recovery then skips copies of the block in this and in earlier
//! transactions; it replays copies of later ones.
//!
//! `jbd2` encodes the list at a commit and decodes it at recovery. A length that does not fit the
//! block is refused.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{BlockHeader, BlockKind, RawBlockHeader, Tid};
use super::format::{Format, truncated};
use crate::corrupt::{Corrupt, CorruptKind, Place};

/// `jbd2_journal_revoke_header_t` as it is on the disk. Block numbers of 4 or 8 bytes follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawRevoke {
    pub r_header: RawBlockHeader,
    /// Bytes used in the block, these 16 included.
    pub r_count: U32,
}

const HEADER: usize = size_of::<RawRevoke>();
const _: () = assert!(HEADER == 16);

/// A revoke block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoke {
    /// The transaction that revokes the blocks.
    pub tid: Tid,
    /// The blocks of the file system whose copies up to and including this transaction are void.
    pub blocks: Vec<u64>,
}

impl Revoke {
    /// Decodes one whole block of the journal. [`Format::verify_tail`] verifies the checksum.
    ///
    /// A count that leaves no room for a whole number gives an empty list. The decoder ignores a
    /// part of a number at the end, as the kernel does. A count that exceeds the block is an error.
    ///
    /// # Errors
    /// If the block is no such block, or one of its numbers is impossible.
    pub fn decode(block: &[u8], format: &Format, at: Place) -> Result<Self, Corrupt> {
        let usable = block
            .get(..format.usable())
            .ok_or_else(|| truncated(format.usable(), block.len(), at))?;
        let tid = match BlockHeader::recognise(block) {
            Some(BlockHeader {
                kind: BlockKind::Revoke,
                tid,
            }) => tid,
            _ => {
                return Err(at.corrupt(CorruptKind::Mismatch {
                    what: "not a revoke block",
                }));
            }
        };
        let (raw, _) =
            RawRevoke::ref_from_prefix(usable).map_err(|_| truncated(HEADER, usable.len(), at))?;
        let count = raw.r_count.get();
        let used = usize::try_from(count)
            .ok()
            .filter(|&used| used <= usable.len())
            .ok_or_else(|| {
                at.corrupt(CorruptKind::Field {
                    field: "r_count",
                    value: count.into(),
                })
            })?;
        let records = usable.get(HEADER..used).unwrap_or(&[]);
        let number = |record: &[u8]| {
            record
                .iter()
                .fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        Ok(Self {
            tid,
            blocks: records
                .chunks_exact(format.revoke_size())
                .map(number)
                .collect(),
        })
    }

    /// Returns the list as a whole block of the journal, checksum included. `None` if the numbers
    /// do not fit into a block, or one of them does not fit into this journal's format.
    pub fn encode(&self, format: &Format) -> Option<Vec<u8>> {
        let used = HEADER + self.blocks.len() * format.revoke_size();
        if used > format.usable() {
            return None;
        }
        let raw = RawRevoke {
            r_header: BlockHeader {
                kind: BlockKind::Revoke,
                tid: self.tid,
            }
            .encode(),
            r_count: u32::try_from(used).ok()?.into(),
        };
        let mut block = raw.as_bytes().to_vec();
        for &number in &self.blocks {
            if format.wide {
                block.extend_from_slice(&number.to_be_bytes());
            } else {
                block.extend_from_slice(&u32::try_from(number).ok()?.to_be_bytes());
            }
        }
        block.resize(format.block_size, 0);
        format.seal_tail(&mut block);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corrupt::Structure;
    use crate::journal::ChecksumVersion;

    const AT: Place = Place::new(Structure::JournalBlock);
    const NARROW: Format = Format {
        block_size: 1024,
        checksum: ChecksumVersion::V3,
        wide: false,
        seed: 0x1234_5678,
    };
    const WIDE: Format = Format {
        wide: true,
        ..NARROW
    };

    #[test]
    fn both_widths_round_trip() {
        for format in [NARROW, WIDE] {
            let revoke = Revoke {
                tid: Tid(8),
                blocks: vec![1, 0xFFFF_FFFF, 77],
            };
            let block = revoke.encode(&format).expect("it fits");
            assert_eq!(Revoke::decode(&block, &format, AT), Ok(revoke));
            assert_eq!(format.verify_tail(&block, AT), Ok(()));
        }
        let far = Revoke {
            tid: Tid(8),
            blocks: vec![1 << 32],
        };
        assert_eq!(far.encode(&NARROW), None);
        let block = far.encode(&WIDE).expect("it fits");
        assert_eq!(Revoke::decode(&block, &WIDE, AT), Ok(far));
    }

    #[test]
    fn count_is_held_inside_the_block() {
        let mut block = Revoke {
            tid: Tid(8),
            blocks: vec![5],
        }
        .encode(&NARROW)
        .expect("it fits");
        for (count, blocks) in [(0, 0), (16, 0), (19, 0), (20, 1), (23, 1), (1020, 251)] {
            block[12..16].copy_from_slice(&u32::to_be_bytes(count));
            assert_eq!(
                Revoke::decode(&block, &NARROW, AT)
                    .expect("sound")
                    .blocks
                    .len(),
                blocks,
                "{count}"
            );
        }
        for count in [1021, u32::MAX] {
            block[12..16].copy_from_slice(&count.to_be_bytes());
            let kind = CorruptKind::Field {
                field: "r_count",
                value: count.into(),
            };
            assert_eq!(Revoke::decode(&block, &NARROW, AT), Err(AT.corrupt(kind)));
        }
    }
}
