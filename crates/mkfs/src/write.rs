//! Writing a planned volume.

use std::ops::Range;

use extern4_block::BlockDevice;
use extern4_disk::superblock::Superblock;

use crate::error::Result;
use crate::plan::Plan;

/// Bytes before the superblock, which boot loaders use.
const BOOT_BYTES: u64 = 1024;
/// The place of the UUID in the journal's superblock, which has no checksum on a new volume.
const JOURNAL_UUID: Range<usize> = 48..64;
/// Blocks that are written by one call, so that memory stays small.
const BLOCKS_AT_ONCE: usize = 256;

impl Plan {
    /// Makes the volume on `device`, which may hold anything. The primary superblock is written
    /// last, after all else is durable: a device that lost power before is no volume.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    pub fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        self.clear(device)?;
        self.write_on_zeroes(device)
    }

    /// Takes away what `device` holds. Afterwards it is no volume, and the blocks that have to be
    /// zeroes are.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    pub fn clear(&self, device: &dyn BlockDevice) -> Result<()> {
        device.write_zeroes(0..2 * BOOT_BYTES)?;
        device.discard(2 * BOOT_BYTES..self.size_bytes())?;
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

    /// As [`write_on_zeroes`](Self::write_on_zeroes), with another UUID, of which
    /// [`is_uuid_free`](Self::is_uuid_free) has to be true.
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
        device.flush()?;
        device.write_at(&sb.encode(), BOOT_BYTES)?;
        device.flush()?;
        Ok(())
    }

    fn write_descriptors(&self, device: &dyn BlockDevice) -> Result<()> {
        let geometry = self.sb.geometry();
        let per_block = geometry.descriptors_per_block();
        for group in 0..geometry.group_count() {
            // A group without a superblock can have the descriptors of its meta group, and no
            // others.
            let indexes = match geometry.has_superblock(group) {
                true => 0..geometry.descriptor_blocks(),
                false => group / per_block..group / per_block + 1,
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

    /// Copies of the superblock say which group they are in, and not that the volume is clean.
    fn write_backups(&self, device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
        let geometry = *sb.geometry();
        for group in 1..geometry.group_count() {
            let Some(number) = geometry.superblock_in(group) else { continue };
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
