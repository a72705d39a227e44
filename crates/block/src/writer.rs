//! Writing many blocks to a device in few requests, past any cache.
//!
//! `jbd2` writes the log, checkpoints and recovered blocks with it. Blocks that follow one another
//! go out in one request. All blocks are written when [`BlockWriter::finish`] returns, and durable
//! after the device's next flush. If the writer is dropped before, the blocks that it still has are
//! lost.

use std::fmt;

use crate::{BlockDevice, Result};

/// The most bytes that one request carries.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Writes blocks to a device, past any cache. One request carries blocks that follow one another.
///
/// The blocks are certain to be written only when [`BlockWriter::finish`] returns. If the writer is
/// dropped, the blocks not yet written are lost.
#[must_use = "blocks are written by `finish`"]
pub struct BlockWriter<'d> {
    device: &'d dyn BlockDevice,
    block_size: u32,
    /// The block that the staged bytes begin with.
    first: u64,
    staged: Vec<u8>,
}

impl<'d> BlockWriter<'d> {
    /// Creates a writer of blocks of `block_size` bytes to `device`.
    pub fn new(device: &'d dyn BlockDevice, block_size: u32) -> Self {
        Self {
            device,
            block_size,
            first: 0,
            staged: Vec::new(),
        }
    }

    /// Writes `contents`, which is one block, as block `block`, now or later.
    ///
    /// # Errors
    /// Errors of the device, for this block or an earlier one.
    pub fn push(&mut self, block: u64, contents: &[u8]) -> Result<()> {
        // OK: a length in memory fits into 64 bits.
        let staged_blocks = self.staged.len() as u64 / u64::from(self.block_size);
        let follows = self.first.checked_add(staged_blocks) == Some(block);
        if !self.staged.is_empty()
            && (!follows || self.staged.len() + contents.len() > MAX_REQUEST_BYTES)
        {
            self.write_staged()?;
        }
        if self.staged.is_empty() {
            self.first = block;
        }
        self.staged.extend_from_slice(contents);
        Ok(())
    }

    /// Writes the blocks not yet written. They are durable after the device's next flush.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn finish(mut self) -> Result<()> {
        if self.staged.is_empty() {
            Ok(())
        } else {
            self.write_staged()
        }
    }

    /// Writes `bytes`, a part of a block, at byte `offset` of `device`, at once.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn write_bytes(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) -> Result<()> {
        device.write_at(bytes, offset)
    }

    fn write_staged(&mut self) -> Result<()> {
        let offset = self.first.saturating_mul(self.block_size.into());
        self.device.write_at(&self.staged, offset)?;
        self.staged.clear();
        Ok(())
    }
}

impl fmt::Debug for BlockWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockWriter")
            .field("first", &self.first)
            .field("staged", &self.staged.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{MemoryDevice, RecordDevice};

    #[test]
    fn blocks_that_follow_one_another_are_one_request() {
        let device = RecordDevice::new(Arc::new(MemoryDevice::zeroed(16 << 10)));
        let mut writer = BlockWriter::new(&device, 1024);
        for block in [3, 4, 5, 9, 8, 0] {
            writer
                .push(block, &[u8::try_from(block).unwrap() + 1; 1024])
                .unwrap();
        }
        writer.finish().unwrap();
        let written: Vec<_> = device
            .log()
            .iter()
            .map(|r| (r.offset / 1024, r.len / 1024))
            .collect();
        assert_eq!(written, [(3, 3), (9, 1), (8, 1), (0, 1)]);
        let mut byte = [0];
        device.read_at(&mut byte, 5 * 1024).unwrap();
        assert_eq!(byte, [6]);
    }

    #[test]
    fn requests_are_bounded_and_errors_are_told() {
        let device = RecordDevice::new(Arc::new(MemoryDevice::zeroed(2 << 20)));
        let mut writer = BlockWriter::new(&device, 4096);
        (0..300).for_each(|block| writer.push(block, &[1; 4096]).unwrap());
        writer.finish().unwrap();
        assert_eq!(device.counts().writes, 2);
        let mut outside = BlockWriter::new(&device, 4096);
        outside.push(u64::MAX, &[1; 4096]).unwrap();
        assert!(outside.finish().is_err());
    }
}
