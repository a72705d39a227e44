//! The inode table: the position of an inode's record, and read-ahead of records.
//!
//! A position is checked against the geometry and the group's descriptor; a number beyond the
//! volume's inodes is a stale number (`ESTALE`), not damage. Read-ahead fetches a run of blocks
//! once, when an inode in it is first read, and leaves out the part of a table that was never used.
//! `fs::inode` calls both.

use std::ops::Range;

use extern4_disk::geometry::Position;
use extern4_disk::group::GroupFlags;
use extern4_sync::primitive::AtomicU64;
use extern4_sync::primitive::Ordering::Relaxed;

use crate::error::{Error, Result};
use crate::volume::Volume;
use crate::volume::group::to_usize;

/// How many blocks of an inode table one device read fetches: with 4 KiB blocks as many as the
/// kernel does.
const READ_AHEAD: u64 = 32;

impl Volume {
    /// Returns where the record of inode `ino` is on the volume.
    ///
    /// # Errors
    /// A number beyond the volume's inodes, or a corrupt group descriptor.
    pub fn inode_position(&self, ino: u32) -> Result<Position> {
        let geometry = self.superblock().geometry();
        let beyond = Error::Stale {
            ino: u64::from(ino),
            why: "is not one of the volume's",
        };
        let slot = geometry.inode_slot(ino).ok_or(beyond.clone())?;
        geometry
            .inode_position(self.readable_group(slot.group)?.inode_table(), slot.index)
            .ok_or(beyond)
    }

    /// Returns the bytes of the record of inode `ino` in the inode table, unchecked.
    pub(crate) fn record_bytes(&self, ino: u32) -> Result<Box<[u8]>> {
        let at = self.inode_position(ino)?;
        let buffer = self.cache.read(at.block)?;
        Ok(buffer[self.record_range(at)].into())
    }

    /// Returns the range of the record at `at` within its block.
    pub(crate) fn record_range(&self, at: Position) -> Range<usize> {
        let start = to_usize(at.offset);
        // OK: sizes of records are powers of two up to a block's, so a record that starts in a
        // block ends in it.
        start..start + usize::from(self.superblock().inode_size())
    }

    /// Reads ahead the neighbours of `block` in the inode table, except the part of the table that
    /// has never been used.
    pub(crate) fn read_ahead_inodes(&self, ino: u32, block: u64) -> Result<()> {
        if !self.inode_read_ahead.first_visit(block / READ_AHEAD) {
            return Ok(());
        }
        let geometry = self.superblock().geometry();
        let group = (ino - 1) / geometry.inodes_per_group();
        let descriptor = self.readable_group(group)?;
        let unused = if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            geometry.inodes_per_group()
        } else {
            descriptor.unused_inodes().min(geometry.inodes_per_group())
        };
        let used_bytes =
            u64::from(geometry.inodes_per_group() - unused) * u64::from(geometry.inode_size());
        let table = descriptor.inode_table();
        let end = table + used_bytes.div_ceil(u64::from(geometry.block_size()));
        let start = block - block % READ_AHEAD;
        let range = start.max(table)..(start + READ_AHEAD).min(end);
        if range.contains(&block) && range.end - range.start > 1 {
            self.cache.read_ahead(range);
        }
        Ok(())
    }
}

/// Which parts of the inode tables have been read ahead: a bit for each run of blocks, set once.
pub(crate) struct ReadAheadWindows(Box<[AtomicU64]>);

impl ReadAheadWindows {
    /// The most bits. In larger volumes windows share bits, and some are not read ahead.
    const MAX: u64 = 1 << 20;

    pub(super) fn new(windows: u64) -> Self {
        let words = windows.min(Self::MAX).div_ceil(64);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether this is the first visit to `window`.
    pub(crate) fn first_visit(&self, window: u64) -> bool {
        let bit = window % (self.0.len() as u64 * 64);
        // OK: less than the number of bits there are, which is below 2^20.
        let word = &self.0[to_usize((bit / 64) as u32)];
        let mask = 1 << (bit % 64);
        // Relaxed: the bit only saves work, it guards nothing.
        word.load(Relaxed) & mask == 0 && word.fetch_or(mask, Relaxed) & mask == 0
    }
}
