//! The orphan file: inodes without a name that are still open, or that are being truncated.
//!
//! After a crash, recovery has to delete these inodes, or truncate them again. Older volumes chain
//! them into a list, from [`Superblock::last_orphan`] through [`Inode::next_orphan`]. Volumes with
//! `orphan_file` keep them in the blocks of a hidden file, so that threads do not contend for the
//! head of a list. Each block is an array of inode numbers, where 0 is a free slot, with a magic
//! number and a checksum at its end.
//!
//! [`OrphanBlock::decode`] verifies the magic number, and the checksum where the volume has
//! `metadata_csum`. [`OrphanBlock::check_inodes`] checks the inode numbers. `ext4` reads and clears
//! the file, `mkfs` makes it, and `check` checks it.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/orphan.rst`; for the coverage of the
//! checksum, volumes.
//!
//! [`Inode::next_orphan`]: crate::inode::Inode::next_orphan

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{ChecksumSeed, verify};
use crate::corrupt::{Corrupt, CorruptKind, Place};
use crate::superblock::Superblock;

/// `ob_magic`, at the end of every block.
pub const ORPHAN_MAGIC: u32 = 0x0b10_ca04;

/// The end of a block of the orphan file.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields are the kernel documentation's, by its names"
)]
pub struct RawOrphanTail {
    pub ob_magic: U32,
    pub ob_checksum: U32,
}

const TAIL: usize = size_of::<RawOrphanTail>();
const _: () = assert!(TAIL == 8);

/// A validated block of the orphan file: its slots, where 0 is a free one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanBlock {
    slots: Vec<U32>,
    tail: RawOrphanTail,
}

impl OrphanBlock {
    /// Returns a block without orphans.
    pub fn empty(sb: &Superblock) -> Self {
        let slots = usize::try_from(sb.block_size())
            .unwrap_or(0)
            .saturating_sub(TAIL)
            / size_of::<U32>();
        let tail = RawOrphanTail {
            ob_magic: ORPHAN_MAGIC.into(),
            ob_checksum: U32::ZERO,
        };
        Self {
            slots: vec![U32::ZERO; slots],
            tail,
        }
    }

    /// Validates a block of the orphan file, which is block `number` of the volume. `inode` is the
    /// seed of the orphan file's inode; see
    /// [`Inode::checksum_seed`](crate::inode::Inode::checksum_seed).
    ///
    /// # Errors
    /// [`CorruptKind::Magic`], and [`CorruptKind::Checksum`] if the volume has `metadata_csum`.
    pub fn decode(
        block: &[u8],
        number: u64,
        inode: ChecksumSeed,
        sb: &Superblock,
        at: Place,
    ) -> Result<Self, Corrupt> {
        let at = at.block(number);
        let truncated = CorruptKind::Truncated {
            need: sb.block_size().into(),
            have: block.len() as u64,
        };
        let size = usize::try_from(sb.block_size()).map_err(|_| at.corrupt(truncated))?;
        let block = block.get(..size).ok_or(at.corrupt(truncated))?;
        let (body, tail) =
            RawOrphanTail::read_from_suffix(block).map_err(|_| at.corrupt(truncated))?;
        if tail.ob_magic.get() != ORPHAN_MAGIC {
            let found = tail.ob_magic.get();
            return Err(at.corrupt(CorruptKind::Magic {
                found,
                expected: ORPHAN_MAGIC,
            }));
        }
        if sb.metadata_seed().is_some() {
            verify(
                tail.ob_checksum.get(),
                compute_checksum(body, number, inode),
                at,
            )?;
        }
        let slots = <[U32]>::ref_from_bytes(body).map_err(|_| at.corrupt(truncated))?;
        Ok(Self {
            slots: slots.to_vec(),
            tail,
        })
    }

    /// Returns the bytes of the block, with a computed checksum if the volume has checksums.
    pub fn encode(&self, number: u64, inode: ChecksumSeed, sb: &Superblock) -> Vec<u8> {
        let mut block = self.slots.as_bytes().to_vec();
        let mut tail = self.tail;
        if sb.metadata_seed().is_some() {
            tail.ob_checksum
                .set(compute_checksum(&block, number, inode));
        }
        block.extend_from_slice(tail.as_bytes());
        block
    }

    /// Checks the numbers of the orphans of this block.
    ///
    /// # Errors
    /// [`CorruptKind::InodeOutOfRange`] for an inode that is reserved or not in the volume.
    pub fn check_inodes(&self, sb: &Superblock, at: Place) -> Result<(), Corrupt> {
        let impossible = |ino: &u32| !(sb.first_ino()..=sb.inodes_count()).contains(ino);
        match self.inodes().find(impossible) {
            None => Ok(()),
            Some(ino) => {
                let kind = CorruptKind::InodeOutOfRange {
                    field: "orphan entry",
                    ino: ino.into(),
                };
                Err(at.corrupt(kind))
            }
        }
    }

    /// Iterates over the orphans of this block.
    pub fn inodes(&self) -> impl Iterator<Item = u32> {
        self.slots
            .iter()
            .map(|slot| slot.get())
            .filter(|ino| *ino != 0)
    }

    /// Removes all orphans.
    pub fn clear(&mut self) {
        self.slots.fill(U32::ZERO);
    }

    /// Returns how many orphans the block has room for.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
}

/// Returns the checksum of the slots. It covers the file's seed and the block's number, because
/// only its place identifies a block.
fn compute_checksum(slots: &[u8], number: u64, inode: ChecksumSeed) -> u32 {
    inode
        .start()
        .update(&number.to_le_bytes())
        .update(slots)
        .finish()
}
