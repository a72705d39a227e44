//! Writes a planned volume to a device.
//!
//! [`Plan::write`] clears the device and writes the volume. A caller that knows the device to be
//! empty, or fills the volume itself, calls the steps. The command `mkfs`, `build` and the library
//! call them. The primary superblock is written last, after everything else is durable, so a device
//! that loses power earlier holds no volume.

use std::ops::Range;

use extern4_block::BlockDevice;
use extern4_disk::superblock::Superblock;

use crate::error::Result;
use crate::plan::Plan;

/// Bytes before the superblock, which boot loaders use.
const BOOT_BYTES: u64 = 1024;
/// The place of the UUID in the journal's superblock, which has no checksum on a new volume.
const JOURNAL_UUID: Range<usize> = 48..64;
/// How many blocks one call writes, so that memory use stays small.
const BLOCKS_AT_ONCE: usize = 256;

impl Plan {
    /// Makes the volume on `device`, which may hold anything. The primary superblock is written
    /// last, after everything else is durable.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    pub fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        self.clear(device)?;
        self.write_on_zeroes(device)
    }

    /// Clears `device`: it holds no volume afterwards, and the blocks that must be zeroes read as
    /// zeroes.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    pub fn clear(&self, device: &dyn BlockDevice) -> Result<()> {
        device.write_zeroes(0..2 * BOOT_BYTES)?;
        if !self.keep_allocated {
            device.discard(2 * BOOT_BYTES..self.size_bytes())?;
        }
        for &(start, len) in &self.zeroes {
            device.write_zeroes(self.bytes(start, len))?;
        }
        Ok(())
    }

    /// Makes the volume on `device`, which reads as zeroes everywhere, as a new file does.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    pub fn write_on_zeroes(&self, device: &dyn BlockDevice) -> Result<()> {
        self.write_with(device, &self.sb)
    }

    /// Makes the volume as [`write_on_zeroes`](Self::write_on_zeroes) does, with another UUID.
    /// [`is_uuid_free`](Self::is_uuid_free) must be true.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    pub fn write_on_zeroes_as(&self, device: &dyn BlockDevice, uuid: [u8; 16]) -> Result<()> {
        let mut sb = self.sb.clone();
        sb.raw_mut().s_uuid = uuid;
        self.write_with(device, &sb)
    }

    fn write_with(&self, device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
        let mut blocks: Vec<_> = self.blocks.iter().collect();
        blocks.sort_by_key(|(number, _)| *number);
        let mut bytes = Vec::new();
        for run in blocks.chunk_by(|(before, _), (after, _)| before + 1 == *after) {
            for part in run.chunks(BLOCKS_AT_ONCE) {
                bytes.clear();
                for (number, block) in part {
                    let start = bytes.len();
                    bytes.extend_from_slice(block);
                    bytes.resize(start + self.block_size(), 0);
                    if self.journal_superblock == Some(*number) {
                        bytes[start..][JOURNAL_UUID].copy_from_slice(&sb.uuid());
                    }
                }
                device.write_at(&bytes, self.bytes(part[0].0, 0).start)?;
            }
        }
        self.write_descriptors(device)?;
        self.write_backups(device, sb)?;
        // In a new file, the superblock's block has its place after this flush already, so that the
        // last one has nothing but the superblock to store.
        device.write_at(&[0; 2 * BOOT_BYTES as usize], 0)?;
        device.flush()?;
        device.write_at(&sb.encode(), BOOT_BYTES)?;
        device.flush()?;
        Ok(())
    }

    /// Writes superblocks and group descriptors, and nothing else: over a volume of the same
    /// options that has lost them. The plan is one of
    /// [`Options::superblocks_only`](crate::Options::superblocks_only).
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    pub fn write_superblocks(&self, device: &dyn BlockDevice) -> Result<()> {
        self.write_descriptors(device)?;
        self.write_backups(device, &self.sb)?;
        device.write_at(&self.sb.encode(), BOOT_BYTES)?;
        device.flush()?;
        Ok(())
    }

    fn write_descriptors(&self, device: &dyn BlockDevice) -> Result<()> {
        let geometry = self.sb.geometry();
        let per_block = geometry.descriptors_per_block();
        for group in 0..geometry.group_count() {
            // A group without a superblock can only have the descriptors of its meta group.
            let indexes = if geometry.has_superblock(group) {
                0..geometry.descriptor_blocks()
            } else {
                group / per_block..group / per_block + 1
            };
            for index in indexes {
                if let Some(number) = geometry.descriptor_block_in(group, index) {
                    let start = index as usize * self.block_size();
                    let block = &self.descriptors[start..start + self.block_size()];
                    device.write_at(block, self.bytes(number, 1).start)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the backups of the superblock. They have the number of their group, and do not say
    /// that the volume is clean.
    fn write_backups(&self, device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
        let geometry = *sb.geometry();
        for group in 1..geometry.group_count() {
            let Some(number) = geometry.superblock_in(group) else {
                continue;
            };
            let mut copy = sb.clone();
            let raw = copy.raw_mut();
            raw.s_block_group_nr.set((group & 0xffff) as u16);
            raw.s_state.set(0);
            device.write_at(&copy.encode(), self.bytes(number, 1).start)?;
        }
        Ok(())
    }

    fn bytes(&self, block: u64, len: u64) -> Range<u64> {
        let size = u64::from(self.sb.block_size());
        block * size..(block + len) * size
    }
}
