//! `statfs`: the totals and the free space of a volume, computed as the kernel does.
//!
//! [`Ext4::stat`] returns them for the volume; `quota` narrows them for a directory with a project
//! quota. On a volume open for writing they come from the allocator's counters, otherwise from the
//! group descriptors, because the superblock's counts may be out of date. The VFS and the command's
//! `df` call it.

use extern4_disk::superblock::JournalLocation;
use extern4_vfs::StatFs;

use crate::error::Result;
use crate::fs::Ext4;

/// The magic number of ext2, ext3 and ext4 in `statfs`.
const STATFS_MAGIC: u32 = 0xef53;

impl Ext4 {
    /// Returns totals and free space. Blocks of the volume's own structures do not count as total,
    /// except with `minixdf`.
    ///
    /// # Errors
    /// A corrupt group descriptor, or a device that fails.
    pub fn stat(&self) -> Result<StatFs> {
        let sb = self.superblock();
        let geometry = sb.geometry();
        let mut clusters = 0u64;
        let mut inodes = 0u64;
        if let Some(writer) = self.writer.get() {
            clusters = writer.allocator.free_blocks();
            inodes = writer.allocator.free_inodes();
        }
        for group in 0..if self.writer.get().is_some() {
            0
        } else {
            geometry.group_count()
        } {
            let descriptor = self.readable_group(group)?;
            clusters += u64::from(descriptor.free_clusters());
            inodes += u64::from(descriptor.free_inodes());
        }
        let shift = geometry.cluster_shift();
        let overhead = if self.minix_df {
            0
        } else {
            self.overhead_clusters()?
        };
        let blocks = geometry.blocks_count().saturating_sub(overhead << shift);
        let blocks_free = (clusters << shift).min(geometry.blocks_count());
        let uuid = sb.uuid();
        let (low, high) = uuid.split_at(8);
        Ok(StatFs {
            block_size: geometry.block_size(),
            blocks,
            blocks_free,
            blocks_available: blocks_free.saturating_sub(self.block_reserve.in_all),
            files: u64::from(geometry.inodes_count()),
            files_free: inodes.min(u64::from(geometry.inodes_count())),
            name_max: extern4_disk::dirent::NAME_MAX as u32,
            magic: STATFS_MAGIC,
            fsid: word(low) ^ word(high),
        })
    }

    /// Returns how many clusters the volume's own structures use: the superblock's number if it is
    /// plausible, else a count.
    fn overhead_clusters(&self) -> Result<u64> {
        let sb = self.superblock();
        let geometry = sb.geometry();
        let counted = u64::from(sb.overhead_clusters());
        if counted != 0 && counted << geometry.cluster_shift() < geometry.blocks_count() {
            return Ok(counted);
        }
        let round_up = |blocks: u64| blocks.div_ceil(1 << geometry.cluster_shift());
        let tables = 2 + u64::from(geometry.inode_table_blocks());
        let groups = (0..geometry.group_count())
            .map(|group| round_up(u64::from(geometry.fixed_blocks(group).unwrap_or(0)) + tables))
            .sum::<u64>();
        let journal = match sb.journal() {
            Some(JournalLocation::Inode(ino)) => round_up(
                self.raw_inode(ino)?
                    .size()
                    .div_ceil(u64::from(geometry.block_size())),
            ),
            _ => 0,
        };
        Ok(round_up(u64::from(geometry.first_data_block())) + groups + journal)
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}
