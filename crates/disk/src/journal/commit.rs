//! Commit blocks: the end of a transaction, without which it does not count.
//!
//! `jbd2` writes one after all other blocks of a transaction, and recovery looks for it. Decoding
//! checks the layout; the caller verifies the checksum separately, because a wrong one may be a
//! crash or damage.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{BlockHeader, BlockKind, RawBlockHeader, Tid};
use super::format::{ChecksumVersion, Format, TransactionChecksum, truncated};
use crate::checksum::{Crc32c, verify};
use crate::corrupt::{Corrupt, CorruptKind, Place};

/// `struct commit_header` as it is on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawCommit {
    pub h_header: RawBlockHeader,
    pub h_chksum_type: u8,
    pub h_chksum_size: u8,
    pub h_padding: [u8; 2],
    pub h_chksum: [U32; 8],
    pub h_commit_sec: U64,
    pub h_commit_nsec: U32,
}

const HEADER: usize = size_of::<RawCommit>();
const _: () = assert!(HEADER == 60);

/// A commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The transaction that this block commits.
    pub tid: Tid,
    /// The type of the version 1 checksum; zero with other versions, and in commits without.
    pub checksum_type: u8,
    /// Bytes of the version 1 checksum; zero with other versions, and in commits without.
    pub checksum_size: u8,
    /// The checksums; only the first is ever used.
    pub checksums: [u32; 8],
    /// When the transaction was committed, in seconds since 1970.
    pub seconds: u64,
    /// Nanoseconds of that time.
    pub nanoseconds: u32,
}

impl Commit {
    /// Decodes one whole block of the journal. [`Commit::verify`] verifies its checksum.
    ///
    /// # Errors
    /// If the block is no such block, or one of its numbers is impossible.
    pub fn decode(block: &[u8], at: Place) -> Result<Self, Corrupt> {
        let (raw, _) =
            RawCommit::ref_from_prefix(block).map_err(|_| truncated(HEADER, block.len(), at))?;
        let tid = match BlockHeader::recognise(block) {
            Some(BlockHeader {
                kind: BlockKind::Commit,
                tid,
            }) => tid,
            _ => {
                return Err(at.corrupt(CorruptKind::Mismatch {
                    what: "not a commit block",
                }));
            }
        };
        Ok(Self {
            tid,
            checksum_type: raw.h_chksum_type,
            checksum_size: raw.h_chksum_size,
            checksums: raw.h_chksum.map(U32::get),
            seconds: raw.h_commit_sec.get(),
            nanoseconds: raw.h_commit_nsec.get(),
        })
    }

    /// Verifies the checksum of the block (versions 2 and 3) or of the transaction (version 1).
    ///
    /// `block` is the whole block that this commit was decoded from. `transaction` is the checksum
    /// over the transaction's descriptors and copies; only version 1 uses it.
    ///
    /// With version 1 a commit may have no checksum at all: the feature can be turned on while the
    /// log still holds older transactions. With versions 2 and 3, a block may have reached the disk
    /// only in part. If the missing part would have been zeroes, the block counts as whole, as in
    /// the kernel.
    ///
    /// # Errors
    /// If the checksum is wrong.
    pub fn verify(
        &self,
        block: &[u8],
        transaction: &TransactionChecksum,
        format: &Format,
        at: Place,
    ) -> Result<(), Corrupt> {
        let stored = self.checksums[0];
        match format.checksum {
            ChecksumVersion::None => Ok(()),
            ChecksumVersion::V1 => {
                let form = (self.checksum_type, self.checksum_size);
                if form == (0, 0) && stored == 0 {
                    return Ok(());
                }
                if form != (TransactionChecksum::TYPE, TransactionChecksum::SIZE) {
                    let value = u64::from(self.checksum_type);
                    return Err(at.corrupt(CorruptKind::Field {
                        field: "h_chksum_type",
                        value,
                    }));
                }
                verify(stored, transaction.value(), at)
            }
            ChecksumVersion::V2 | ChecksumVersion::V3 => {
                let Some((header, rest)) = block.split_at_checked(HEADER) else {
                    return Err(truncated(HEADER, block.len(), at));
                };
                let mut raw =
                    RawCommit::read_from_bytes(header).expect("the size of a commit header");
                raw.h_chksum[0].zero();
                let header = Crc32c::new(format.seed).update(raw.as_bytes());
                verify(stored, header.update(rest).finish(), at).or_else(|corrupt| {
                    verify(stored, header.zeros(rest.len()).finish(), at).map_err(|_| corrupt)
                })
            }
        }
    }

    /// Returns the commit as a whole block of the journal. With versions 2 and 3 it computes the
    /// first checksum.
    pub fn encode(&self, format: &Format) -> Vec<u8> {
        let mut raw = RawCommit {
            h_header: BlockHeader {
                kind: BlockKind::Commit,
                tid: self.tid,
            }
            .encode(),
            h_chksum_type: self.checksum_type,
            h_chksum_size: self.checksum_size,
            h_padding: [0; 2],
            h_chksum: self.checksums.map(U32::new),
            h_commit_sec: self.seconds.into(),
            h_commit_nsec: self.nanoseconds.into(),
        };
        if format.checksums_blocks() {
            raw.h_chksum[0].zero();
            let header = Crc32c::new(format.seed).update(raw.as_bytes());
            raw.h_chksum[0] = header.zeros(format.block_size - HEADER).finish().into();
        }
        let mut block = raw.as_bytes().to_vec();
        block.resize(format.block_size, 0);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corrupt::Structure;

    const AT: Place = Place::new(Structure::JournalBlock);

    fn format(checksum: ChecksumVersion) -> Format {
        Format {
            block_size: 1024,
            checksum,
            wide: true,
            seed: 0x1234_5678,
        }
    }

    fn commit() -> Commit {
        Commit {
            tid: Tid(9),
            checksum_type: 0,
            checksum_size: 0,
            checksums: [0; 8],
            seconds: 1 << 33,
            nanoseconds: 999_999_999,
        }
    }

    #[test]
    fn round_trips() {
        for version in [
            ChecksumVersion::None,
            ChecksumVersion::V1,
            ChecksumVersion::V2,
            ChecksumVersion::V3,
        ] {
            let block = commit().encode(&format(version));
            let decoded = Commit::decode(&block, AT).expect("sound");
            assert_eq!(decoded.encode(&format(version)), block);
            assert_eq!((decoded.tid, decoded.seconds), (Tid(9), 1 << 33));
            assert_eq!(
                decoded.verify(&block, &TransactionChecksum::new(), &format(version), AT),
                Ok(())
            );
        }
    }

    #[test]
    fn a_flipped_bit_in_the_header_is_found_and_one_behind_it_forgiven() {
        let format = format(ChecksumVersion::V3);
        let nothing = TransactionChecksum::new();
        let good = commit().encode(&format);
        for (offset, sound) in [
            (16, false),
            (20, false),
            (55, false),
            (60, true),
            (1023, true),
        ] {
            let mut block = good.clone();
            block[offset] ^= 1;
            let decoded = Commit::decode(&block, AT).expect("sound");
            assert_eq!(
                decoded.verify(&block, &nothing, &format, AT).is_ok(),
                sound,
                "{offset}"
            );
        }
    }

    #[test]
    fn version_1_covers_the_transaction() {
        let format = format(ChecksumVersion::V1);
        let mut transaction = TransactionChecksum::new();
        transaction.update(b"123456789");
        // The check value of CRC-32/MPEG-2 in the catalogue of parametrised CRC algorithms.
        assert_eq!(transaction.value(), 0x0376_E6E7);
        let mut commit = Commit {
            checksum_type: 1,
            checksum_size: 4,
            ..commit()
        };
        commit.checksums[0] = 0x0376_E6E7;
        let block = commit.encode(&format);
        assert_eq!(commit.verify(&block, &transaction, &format, AT), Ok(()));
        transaction.update(b"0");
        assert!(commit.verify(&block, &transaction, &format, AT).is_err());
        commit.checksum_type = 4;
        let kind = CorruptKind::Field {
            field: "h_chksum_type",
            value: 4,
        };
        assert_eq!(
            commit.verify(&block, &transaction, &format, AT),
            Err(AT.corrupt(kind))
        );
    }
}
