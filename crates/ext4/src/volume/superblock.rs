//! Finds and reads the superblock, primary or backup.
//!
//! `mount` calls [`read`] and [`cut_off`] when it opens a volume. They return the raw superblock
//! if its magic number, and for a backup its own block size, fits the place. The caller decodes and
//! checks the fields. A missing superblock is [`Error::NotExt`], and a device shorter than the
//! volume is damage that keeps writers away.

use extern4_block::BlockDevice;
use extern4_disk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

use crate::error::{Error, Result};

/// The sizes of blocks that the format knows, as powers of two.
const BLOCK_BITS: std::ops::RangeInclusive<u32> = 10..=16;

/// The place of a backup superblock, as a user gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backup {
    /// The block of the volume, as `mke2fs -n` and `dumpe2fs` print it and `e2fsck -b` takes it.
    Block(u64),
    /// The offset in the volume in KiB, as `mount -o sb=` takes it.
    Kib(u64),
}

impl From<u64> for Backup {
    fn from(block: u64) -> Self {
        Self::Block(block)
    }
}

impl Backup {
    /// Returns the first byte of its block, in a volume with blocks of `1 << bits` bytes.
    fn start(self, bits: u32) -> Option<u64> {
        match self {
            Self::Block(block) => block.checked_mul(1 << bits),
            Self::Kib(kib) => kib.checked_mul(1024),
        }
    }

    /// Returns the group whose copy of the descriptors goes with it.
    pub(crate) fn group(self, superblock: &Superblock) -> u32 {
        let bits = superblock.geometry().block_bits();
        self.start(bits)
            .and_then(|start| superblock.geometry().group_of_block(start >> bits))
            .unwrap_or(0)
    }
}

/// Reads the primary superblock, or a backup.
pub(crate) fn read(device: &dyn BlockDevice, backup: Option<Backup>) -> Result<RawSuperblock> {
    match backup {
        None => read_at(device, SUPERBLOCK_OFFSET).and_then(|raw| raw.ok_or(NO_MAGIC)),
        Some(backup) => read_backup(device, backup),
    }
}

const NO_MAGIC: Error = Error::NotExt("there is no ext superblock (bad magic number)");

/// Reads a backup while the block size is not known yet. It tries each block size, and accepts a
/// superblock that has the block size that led to it.
fn read_backup(device: &dyn BlockDevice, backup: Backup) -> Result<RawSuperblock> {
    for bits in BLOCK_BITS {
        let Some(start) = backup.start(bits) else {
            continue;
        };
        // Block 0 or 1 can mean the primary superblock, which in blocks of more than 1 KiB is not
        // at the start of its block.
        let start = start.max(SUPERBLOCK_OFFSET);
        if start > SUPERBLOCK_OFFSET && !start.is_multiple_of(1 << bits) {
            continue;
        }
        match read_at(device, start)? {
            Some(raw) if raw.s_log_block_size.get() == bits - 10 => return Ok(raw),
            _ => {}
        }
    }
    Err(Error::NotExt("there is no backup superblock there"))
}

/// Reads the superblock at byte `start`; `None` if there is none.
fn read_at(device: &dyn BlockDevice, start: u64) -> Result<Option<RawSuperblock>> {
    if start
        .checked_add(SUPERBLOCK_SIZE as u64)
        .is_none_or(|end| end > device.size_bytes())
    {
        return Ok(None);
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(&mut bytes, start)?;
    match RawSuperblock::read(&bytes, Place::new(Structure::Superblock)) {
        Ok(raw) => Ok(Some(raw)),
        Err(_) => Ok(None),
    }
}

/// Returns the fault that the device does not have all the blocks of the volume.
pub(crate) fn cut_off(device: &dyn BlockDevice, superblock: &Superblock) -> Option<Corrupt> {
    // OK: the geometry keeps sizes in bytes below 2^63.
    let need = superblock.blocks_count() << superblock.geometry().block_bits();
    let have = device.size_bytes();
    (need > have)
        .then(|| Place::new(Structure::Superblock).corrupt(CorruptKind::CutOff { need, have }))
}
