//! [`Plan`]: a new volume about which everything is decided, and of which nothing is written.
//!
//! `Draft::finish` makes it: the superblock, the descriptors, bitmaps, and contents of internal
//! files are in memory. The command shows its numbers (`-n`), then `write` writes it. Everything is
//! in the checked ranges of the format, so writing can only fail with the device.

use std::ops::Range;

use extern4_disk::bitmap::{compute_checksum, initial_block_bitmap};
use extern4_disk::feature::{Incompat, RoCompat};
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::superblock::Superblock;

use crate::error::Result;
use crate::layout::Group;
use crate::numbers;
use crate::space::Space;

/// The inodes in use on a new volume.
#[derive(Clone, Copy, Debug)]
pub struct UsedInodes<'a> {
    /// Their runs in ascending order, each as its first inode and one past its last.
    pub runs: &'a [(u64, u64)],
    /// The directories among them, in ascending order.
    pub directories: &'a [u32],
}

impl UsedInodes<'_> {
    /// Returns the runs in use in `range`, cut to it.
    fn runs_in(&self, range: &Range<u32>) -> impl Iterator<Item = (u64, u64)> + Clone {
        let start = u64::from(range.start);
        let end = u64::from(range.end);
        let first = self.runs.partition_point(|(_, behind)| *behind <= start);
        let runs = self.runs[first..]
            .iter()
            .take_while(move |(from, _)| *from < end);
        runs.map(move |(from, behind)| ((*from).max(start), (*behind).min(end)))
    }

    fn directories_in(&self, range: &Range<u32>) -> usize {
        let before = |end: u32| self.directories.partition_point(|ino| *ino < end);
        before(range.end) - before(range.start)
    }
}

/// The plan of a volume.
#[derive(Debug)]
pub struct Plan {
    pub(crate) sb: Superblock,
    pub(crate) groups: Vec<Group>,
    /// Contents of blocks, up to the last byte that is not zero, or further.
    pub(crate) blocks: Vec<(u64, Vec<u8>)>,
    /// Runs of blocks that must read as zeroes where `blocks` has no contents.
    pub(crate) zeroes: Vec<(u64, u64)>,
    pub(crate) descriptors: Vec<u8>,
    pub(crate) journal_blocks: u64,
    /// The block of the journal's superblock, which has the volume's UUID.
    pub(crate) journal_superblock: Option<u64>,
    pub(crate) space: Space,
    /// Whether blocks of the device that the volume does not use stay allocated.
    pub(crate) keep_allocated: bool,
    /// Whether the bitmaps and inode tables of an earlier volume are kept.
    pub(crate) superblocks_only: bool,
    /// The types of the configuration.
    pub(crate) types: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Plan {
    /// Returns the size of the volume in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.sb.blocks_count() * u64::from(self.sb.block_size())
    }

    /// Returns the superblock of the volume.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// Whether the UUID can still change: only the superblock's checksum depends on it.
    pub fn is_uuid_free(&self) -> bool {
        let features = self.sb.features();
        match features.ro_compat {
            ro_compat if ro_compat.contains(RoCompat::METADATA_CSUM) => {
                features.incompat.contains(Incompat::CSUM_SEED)
            }
            // The hashes of large values depend on it, too.
            ro_compat => {
                !ro_compat.contains(RoCompat::GDT_CSUM)
                    && !features.incompat.contains(Incompat::EA_INODE)
            }
        }
    }

    /// Returns the blocks that hold backups of the superblock.
    pub fn backup_blocks(&self) -> impl Iterator<Item = u64> {
        let geometry = *self.sb.geometry();
        (1..geometry.group_count()).filter_map(move |group| geometry.superblock_in(group))
    }

    /// Returns the size of the journal in blocks; 0 without one.
    pub fn journal_blocks(&self) -> u64 {
        self.journal_blocks
    }

    /// Returns the types of the configuration that the defaults come from: the type of file system,
    /// then its usage types.
    pub fn types(&self) -> &[String] {
        &self.types
    }

    /// Returns warnings for the user, such as about a volume that is too small for a journal.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(crate) fn block_size(&self) -> usize {
        self.sb.block_size() as usize
    }

    /// Makes the bitmaps and descriptors of all groups, and sets the superblock's counts.
    pub(crate) fn make_descriptors(&mut self, inodes: &UsedInodes<'_>) -> Result<()> {
        let geometry = *self.sb.geometry();
        let desc_size = usize::from(geometry.desc_size());
        let blocks = geometry.descriptor_blocks() as usize;
        let mut table = vec![0; blocks * self.block_size()];
        let per_block = geometry.descriptors_per_block() as usize;
        let mut free_blocks = 0_u64;
        let mut free_inodes = 0_u32;
        for group in 0..geometry.group_count() {
            let descriptor = self.make_group(group, inodes)?;
            free_blocks += u64::from(descriptor.free_clusters());
            free_inodes += descriptor.free_inodes();
            let at = group as usize / per_block * self.block_size()
                + group as usize % per_block * desc_size;
            descriptor.encode(&mut table[at..at + desc_size], group, &self.sb);
        }
        self.descriptors = table;
        let raw = self.sb.raw_mut();
        raw.s_free_blocks_count_lo
            .set((free_blocks & 0xffff_ffff) as u32);
        raw.s_free_blocks_count_hi.set((free_blocks >> 32) as u32);
        raw.s_free_inodes_count.set(free_inodes);
        Ok(())
    }

    fn make_group(&mut self, group: u32, inodes: &UsedInodes<'_>) -> Result<GroupDescriptor> {
        let Group {
            block_bitmap,
            inode_bitmap,
            inode_table,
        } = self.groups[group as usize];
        self.zeroes
            .push((inode_table, self.sb.geometry().inode_table_blocks().into()));
        let mut descriptor =
            GroupDescriptor::new(block_bitmap, inode_bitmap, inode_table, &self.sb);
        let features = self.sb.features().ro_compat;
        let lazy = features.intersects(RoCompat::GDT_CSUM | RoCompat::METADATA_CSUM);
        let lazy = lazy && !self.superblocks_only;
        let mut flags = if lazy {
            GroupFlags::INODE_ZEROED
        } else {
            GroupFlags::empty()
        };
        if !self.make_block_bitmap(group, &mut descriptor, lazy)? {
            flags |= GroupFlags::BLOCK_UNINIT;
        }
        if !self.make_inode_bitmap(group, inodes, &mut descriptor, lazy) {
            flags |= GroupFlags::INODE_UNINIT;
        }
        descriptor.set_flags(flags);
        Ok(descriptor)
    }

    /// Counts the group's free blocks, and makes its block bitmap. Returns false if readers can
    /// compute the bitmap.
    fn make_block_bitmap(
        &mut self,
        group: u32,
        descriptor: &mut GroupDescriptor,
        lazy: bool,
    ) -> Result<bool> {
        let geometry = *self.sb.geometry();
        let start = geometry.group_start(group).unwrap_or(0);
        let len = geometry.group_blocks(group).unwrap_or(0);
        let end = start + u64::from(len);
        let used = numbers::narrow(self.space.used_in(start, end))?;
        descriptor.set_free_clusters(len - used);
        let bitmap = bitmap(
            self.block_size(),
            len,
            self.space.runs_in(start, end),
            start,
        );
        let is_initial =
            initial_block_bitmap(group, descriptor, &geometry).as_ref() == Some(&bitmap);
        if lazy && is_initial && group > 0 && group + 1 < geometry.group_count() {
            return Ok(false);
        }
        if let Some(seed) = self.sb.metadata_seed() {
            let sum = compute_checksum(&bitmap, geometry.clusters_per_group(), seed);
            descriptor.set_block_bitmap_checksum(sum.unwrap_or(0));
        }
        self.blocks.push((descriptor.block_bitmap(), bitmap));
        Ok(true)
    }

    /// Counts the group's free inodes, and makes its inode bitmap. Returns false if readers can
    /// compute the bitmap.
    fn make_inode_bitmap(
        &mut self,
        group: u32,
        inodes: &UsedInodes<'_>,
        descriptor: &mut GroupDescriptor,
        lazy: bool,
    ) -> bool {
        let per_group = self.sb.geometry().inodes_per_group();
        let first = group * per_group + 1;
        let members = first..first.saturating_add(per_group);
        let runs = inodes.runs_in(&members);
        // Both count inodes of one group.
        let used = runs
            .clone()
            .map(|(from, behind)| (behind - from) as u32)
            .sum::<u32>();
        let touched = runs
            .clone()
            .last()
            .map_or(0, |(_, behind)| (behind - u64::from(first)) as u32);
        descriptor.set_free_inodes(per_group - used);
        descriptor.set_unused_inodes(if lazy { per_group - touched } else { 0 });
        descriptor.set_used_dirs(inodes.directories_in(&members) as u32);
        if lazy && used == 0 {
            return false;
        }
        let bitmap = bitmap(self.block_size(), per_group, runs, first.into());
        if let Some(seed) = self.sb.metadata_seed() {
            let sum = compute_checksum(&bitmap, per_group, seed);
            descriptor.set_inode_bitmap_checksum(sum.unwrap_or(0));
        }
        self.blocks.push((descriptor.inode_bitmap(), bitmap));
        true
    }
}

/// Returns a bitmap of `len` bits, in which the bits of `runs`, counted from `start`, are set, and
/// all bits after `len`.
fn bitmap(bytes: usize, len: u32, runs: impl Iterator<Item = (u64, u64)>, start: u64) -> Vec<u8> {
    let mut bitmap = vec![0_u8; bytes];
    let mut set = |from: usize, to: usize| {
        let mut at = from;
        while at < to {
            if at.is_multiple_of(8) && to - at >= 8 {
                let end = to / 8 * 8;
                bitmap[at / 8..end / 8].fill(0xff);
                at = end;
            } else {
                bitmap[at / 8] |= 1 << (at % 8);
                at += 1;
            }
        }
    };
    for (from, to) in runs {
        set((from - start) as usize, (to - start) as usize);
    }
    set(len as usize, bytes * 8);
    bitmap
}
