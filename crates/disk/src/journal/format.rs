//! The layout and the checksums of a journal's log, as its features define them.
//!
//! `JournalSuperblock` derives it once, and the other blocks of this module take it as an argument.
//! So no other code looks at the features of a journal to find a size or a checksum. Features that
//! contradict each other are refused when the superblock is decoded.

use zerocopy::IntoBytes;

use super::block::{BlockHeader, Tid};
use super::descriptor::{RawTag, RawTag3};
use crate::checksum::{Crc32c, crc32c, verify};
use crate::corrupt::{Corrupt, CorruptKind, Place};

/// Which checksums the log carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumVersion {
    /// None.
    None,
    /// One CRC-32 in the commit block, over the descriptors and copies of the transaction.
    V1,
    /// CRC-32C in every block, and the lower half of one for each copy in its tag.
    V2,
    /// CRC-32C as in version 2, with whole checksums in tags of one size.
    V3,
}

/// How the blocks of one journal's log are laid out and protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Size of the journal's blocks, in bytes.
    pub block_size: usize,
    /// Which checksums the log carries.
    pub checksum: ChecksumVersion,
    /// Whether block numbers have 64 bits.
    pub wide: bool,
    /// The seed of the CRC-32C checksums, made of the journal's UUID.
    pub seed: u32,
}

impl Format {
    /// Size of the checksum at the end of descriptor and revoke blocks, in bytes.
    const TAIL: usize = 4;

    /// Returns whether each block carries its own checksum.
    pub const fn checksums_blocks(&self) -> bool {
        matches!(self.checksum, ChecksumVersion::V2 | ChecksumVersion::V3)
    }

    /// Returns how many bytes of a descriptor or revoke block may be used: all but the checksum at
    /// the end.
    pub const fn usable(&self) -> usize {
        if self.checksums_blocks() {
            self.block_size - Self::TAIL
        } else {
            self.block_size
        }
    }

    /// Returns the size of a descriptor's tag without the UUID that may follow it, in bytes.
    ///
    /// The documentation says 8 and 12 bytes for everything but version 3. With version 2 checksums
    /// the size is 10 and 14, and the last two bytes are unused. That is the layout of the journals
    /// that debugfs writes and the kernel replays.
    pub const fn tag_size(&self) -> usize {
        let wide = if self.wide { 4 } else { 0 };
        match self.checksum {
            ChecksumVersion::None | ChecksumVersion::V1 => size_of::<RawTag>() + wide,
            ChecksumVersion::V2 => size_of::<RawTag>() + wide + 2,
            ChecksumVersion::V3 => size_of::<RawTag3>(),
        }
    }

    /// Returns the size of a block number in a revoke block, in bytes.
    pub const fn revoke_size(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Verifies the checksum at the end of a descriptor or revoke block, if the journal has these.
    ///
    /// `block` is one whole block of the journal.
    ///
    /// # Errors
    /// If the checksum is wrong.
    pub fn verify_tail(&self, block: &[u8], at: Place) -> Result<(), Corrupt> {
        if !self.checksums_blocks() {
            return Ok(());
        }
        let Some((body, tail)) = block.split_last_chunk::<{ Self::TAIL }>() else {
            return Err(truncated(Self::TAIL, block.len(), at));
        };
        verify(u32::from_be_bytes(*tail), self.tail_checksum(body), at)
    }

    /// Writes the checksum at the end of a descriptor or revoke block, if the journal has these.
    pub fn seal_tail(&self, block: &mut [u8]) {
        if !self.checksums_blocks() {
            return;
        }
        if let Some((body, tail)) = block.split_last_chunk_mut::<{ Self::TAIL }>() {
            *tail = self.tail_checksum(body).to_be_bytes();
        }
    }

    /// Returns the checksum of a block whose last field counts as zeroes.
    fn tail_checksum(&self, body: &[u8]) -> u32 {
        Crc32c::new(self.seed)
            .update(body)
            .zeros(Self::TAIL)
            .finish()
    }

    /// Returns the checksum that a tag of transaction `tid` stores for `copy`; zero if tags store
    /// none. `copy` holds the bytes as the journal has them (escaped).
    pub fn copy_checksum(&self, tid: Tid, copy: &[u8]) -> u32 {
        let whole = || crc32c(crc32c(self.seed, &tid.0.to_be_bytes()), copy);
        match self.checksum {
            ChecksumVersion::None | ChecksumVersion::V1 => 0,
            ChecksumVersion::V2 => whole() & 0xFFFF,
            ChecksumVersion::V3 => whole(),
        }
    }
}

/// The checksum of version 1, which covers the descriptors and copies of one transaction, in the
/// order of the log.
///
/// It does not cover revoke blocks. It is the CRC-32 with the polynomial 0x04C11DB7, most
/// significant bit first. It starts with all ones and is not inverted at the end.
#[derive(Clone, Debug)]
pub struct TransactionChecksum(crc_fast::Digest);

impl TransactionChecksum {
    /// The value of `h_chksum_type` that names this checksum.
    pub const TYPE: u8 = 1;
    /// The value of `h_chksum_size` that goes with it.
    pub const SIZE: u8 = 4;

    /// Starts a transaction.
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Mpeg2))
    }

    /// Adds the next block.
    pub fn update(&mut self, block: &[u8]) {
        self.0.update(block);
    }

    /// Returns the checksum of the blocks added so far.
    pub fn value(&self) -> u32 {
        let bytes = self.0.finalize().to_le_bytes();
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl Default for TransactionChecksum {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes `header` at the start of `block`.
pub(super) fn put_header(header: BlockHeader, block: &mut [u8]) {
    block[..BlockHeader::SIZE].copy_from_slice(header.encode().as_bytes());
}

/// Returns the error for a structure `at` that needs `need` bytes and has `have`.
pub(super) fn truncated(need: usize, have: usize, at: Place) -> Corrupt {
    let wide = |n| u64::try_from(n).unwrap_or(u64::MAX);
    at.corrupt(CorruptKind::Truncated {
        need: wide(need),
        have: wide(have),
    })
}
