//! The geometry of a volume: the division of blocks, clusters, inodes and descriptors into groups.
//!
//! `ext4`, `mkfs`, the builder and the checker find every structure of a volume through it.
//!
//! ```text
//! | boot | super | descriptors | reserved | bitmaps, inode table | data |
//! |<----------------------------- group 0 ----------------------------->|
//! | bitmaps, inode table | data |
//! |<- a group without backups ->|
//! ```
//! All numbers come from the superblock, whose fields are checked here in pairs. A [`Geometry`]
//! holds only numbers for which its arithmetic cannot overflow. Methods return `None` for a block,
//! inode or group that the volume does not have.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/`: `super.rst`, `blockgroup.rst`,
//! `bigalloc.rst`.

use crate::corrupt::{Corrupt, CorruptKind, Place};
use crate::feature::{Compat, Incompat, RoCompat};
use crate::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, check, inode_size_of, join};

/// The largest sizes that the format and its other implementations know, as powers of two.
const MAX_BLOCK_BITS: u32 = 16;
const MAX_CLUSTER_BITS: u32 = 30;
const MAX_DESC_SIZE: u16 = 1024;

/// The smallest groups that `mke2fs -g` makes. Without this minimum, a superblock could claim a
/// group for each block. The state of each group would then take far more memory than the volume
/// has metadata. A volume of a single group, as tools for small devices make it, may be smaller.
const MIN_BLOCKS_PER_GROUP: u32 = 256;

/// The position of a byte of the volume: a block, and an offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The block of the volume.
    pub block: u64,
    /// Bytes into it.
    pub offset: u32,
}

/// The place of an inode's record: the group, and the index in the group's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InodeSlot {
    /// The block group, from 0.
    pub group: u32,
    /// Records before it in the group's table.
    pub index: u32,
}

/// The groups that start with a copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backups {
    /// All of them.
    All,
    /// 0, 1 and the powers of 3, 5 and 7 (`sparse_super`).
    Sparse,
    /// 0 and these two, where 0 stands for none (`sparse_super2`).
    Two([u32; 2]),
}

/// The geometry of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    blocks_count: u64,
    block_bits: u32,
    cluster_bits: u32,
    first_data_block: u32,
    group_count: u32,
    blocks_per_group: u32,
    clusters_per_group: u32,
    inodes_count: u32,
    inodes_per_group: u32,
    desc_blocks: u32,
    /// The first block of descriptors that is in its meta group; `desc_blocks` if all are in the
    /// one table.
    first_meta_bg: u32,
    groups_per_flex: u32,
    inode_size: u16,
    desc_size: u16,
    reserved_gdt_blocks: u16,
    backups: Backups,
    flex_bg: bool,
    bigalloc: bool,
}

impl Geometry {
    /// Returns the geometry that a superblock describes.
    pub(crate) fn of_superblock(raw: &RawSuperblock, at: Place) -> Result<Self, Corrupt> {
        let features = raw.features();
        let bit64 = features.incompat.contains(Incompat::BIT64);
        check(
            raw.s_log_block_size.get() <= MAX_BLOCK_BITS - 10,
            "s_log_block_size",
            raw.s_log_block_size,
            at,
        )?;
        let block_bits = 10 + raw.s_log_block_size.get();
        let blocks_count = join(
            raw.s_blocks_count_lo.get(),
            if bit64 {
                raw.s_blocks_count_hi.get()
            } else {
                0
            },
        );
        let first = raw.s_first_data_block.get();
        check(
            first <= 1 || features.incompat.contains(Incompat::JOURNAL_DEV),
            "s_first_data_block",
            first,
            at,
        )?;
        check(
            blocks_count > first.into() && blocks_count <= i64::MAX.unsigned_abs() >> block_bits,
            "s_blocks_count",
            blocks_count,
            at,
        )?;
        let geometry = Self {
            blocks_count,
            block_bits,
            cluster_bits: block_bits,
            first_data_block: raw.s_first_data_block.get(),
            group_count: 0,
            blocks_per_group: raw.s_blocks_per_group.get().max(1),
            clusters_per_group: raw.s_blocks_per_group.get().max(1),
            inodes_count: 0,
            inodes_per_group: 1,
            desc_blocks: 0,
            first_meta_bg: 0,
            groups_per_flex: 1,
            inode_size: 128,
            desc_size: 32,
            reserved_gdt_blocks: 0,
            backups: Backups::All,
            flex_bg: features.incompat.contains(Incompat::FLEX_BG),
            bigalloc: features.ro_compat.contains(RoCompat::BIGALLOC),
        };
        if features.incompat.contains(Incompat::JOURNAL_DEV) {
            return Ok(geometry);
        }
        geometry
            .with_clusters(raw, at)?
            .with_inodes(raw, at)?
            .with_descriptors(raw, at)
    }

    fn with_clusters(mut self, raw: &RawSuperblock, at: Place) -> Result<Self, Corrupt> {
        let log = raw.s_log_cluster_size.get();
        let log_ok = self.bigalloc && (self.block_bits - 10..=MAX_CLUSTER_BITS - 10).contains(&log);
        if !self.bigalloc && log <= MAX_CLUSTER_BITS - 10 {
            agree(
                log == raw.s_log_block_size.get(),
                "s_log_cluster_size is not s_log_block_size",
                at,
            )?;
        }
        check(
            log_ok || log == raw.s_log_block_size.get(),
            "s_log_cluster_size",
            log,
            at,
        )?;
        self.cluster_bits = 10 + log;

        let max_clusters = 8 << self.block_bits;
        if self.bigalloc {
            self.clusters_per_group = raw.s_clusters_per_group.get();
            let clusters = self.clusters_per_group;
            check(
                (1..=max_clusters).contains(&clusters),
                "s_clusters_per_group",
                clusters,
                at,
            )?;
        }
        let blocks = raw.s_blocks_per_group.get();
        check(blocks > 0, "s_blocks_per_group", blocks, at)?;
        let of_clusters = u64::from(self.clusters_per_group) << self.cluster_shift();
        let what = "s_blocks_per_group is not s_clusters_per_group in blocks of s_log_cluster_size";
        agree(u64::from(blocks) == of_clusters, what, at)?;
        let most = u64::from(max_clusters) << self.cluster_shift();
        check(u64::from(blocks) <= most, "s_blocks_per_group", blocks, at)?;

        // With blocks of 1 KiB, block 0 is for the boot loader, unless clusters have to start at 0
        // to be aligned.
        let first = self.first_data_block;
        let first_ok = match self.block_bits {
            10 => first == 1 || first == 0 && self.cluster_bits > 10,
            _ => first == 0,
        };
        check(first_ok, "s_first_data_block", first, at)?;
        Ok(self)
    }

    fn with_inodes(mut self, raw: &RawSuperblock, at: Place) -> Result<Self, Corrupt> {
        self.inode_size = inode_size_of(raw);
        let size = self.inode_size;
        let size_ok = size.is_power_of_two() && size >= 128 && u32::from(size) <= self.block_size();
        check(size_ok, "s_inode_size", size, at)?;

        self.inodes_per_group = raw.s_inodes_per_group.get();
        let per_group = self.inodes_per_group;
        check(
            (1..=8 << self.block_bits).contains(&per_group),
            "s_inodes_per_group",
            per_group,
            at,
        )?;

        self.inodes_count = raw.s_inodes_count.get();
        let data_blocks = self.blocks_count - u64::from(self.first_data_block);
        let groups = data_blocks.div_ceil(self.blocks_per_group.into());
        let inodes_ok = groups.checked_mul(per_group.into()) == Some(self.inodes_count.into());
        agree(
            inodes_ok,
            "s_inodes_count is not s_inodes_per_group for each s_blocks_per_group of s_blocks_count",
            at,
        )?;
        // The check above makes this division exact: each group has `per_group` inodes, at least
        // one, and the volume fewer than 2^32.
        self.group_count = self.inodes_count / per_group;
        let small = self.blocks_per_group < MIN_BLOCKS_PER_GROUP && self.group_count > 1;
        check(!small, "s_blocks_per_group", self.blocks_per_group, at)?;
        Ok(self)
    }

    fn with_descriptors(mut self, raw: &RawSuperblock, at: Place) -> Result<Self, Corrupt> {
        let features = raw.features();
        if features.incompat.contains(Incompat::BIT64) {
            self.desc_size = raw.s_desc_size.get();
            let size_ok =
                self.desc_size.is_power_of_two() && (64..=MAX_DESC_SIZE).contains(&self.desc_size);
            check(size_ok, "s_desc_size", self.desc_size, at)?;
        }
        self.desc_blocks = self.group_count.div_ceil(self.descriptors_per_block());
        self.first_meta_bg = self.desc_blocks;
        if features.incompat.contains(Incompat::META_BG) {
            self.first_meta_bg = raw.s_first_meta_bg.get();
            check(
                self.first_meta_bg <= self.desc_blocks,
                "s_first_meta_bg",
                self.first_meta_bg,
                at,
            )?;
        }
        self.reserved_gdt_blocks = raw.s_reserved_gdt_blocks.get();
        let reserved_ok = u32::from(self.reserved_gdt_blocks) <= self.block_size() / 4;
        check(
            reserved_ok,
            "s_reserved_gdt_blocks",
            self.reserved_gdt_blocks,
            at,
        )?;
        check(
            self.table_end() <= self.blocks_count,
            "s_blocks_count",
            self.blocks_count,
            at,
        )?;

        if self.flex_bg && (1..=31).contains(&raw.s_log_groups_per_flex) {
            self.groups_per_flex = 1 << raw.s_log_groups_per_flex;
        }
        self.backups = if features.compat.contains(Compat::SPARSE_SUPER2) {
            Backups::Two(raw.s_backup_bgs.map(|group| group.get()))
        } else if features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            Backups::Sparse
        } else {
            Backups::All
        };
        Ok(self)
    }

    /// Returns the size in bytes of a block: a power of two from 1024 to 65536.
    pub const fn block_size(&self) -> u32 {
        1 << self.block_bits
    }

    /// Returns the block size as a power of two: 10 to 16.
    pub const fn block_bits(&self) -> u32 {
        self.block_bits
    }

    /// Returns the size in bytes of a cluster: the block size, or more with `bigalloc`.
    pub const fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Returns the base 2 logarithm of the number of blocks of a cluster; 0 without `bigalloc`.
    pub const fn cluster_shift(&self) -> u32 {
        self.cluster_bits - self.block_bits
    }

    /// Returns whether blocks are allocated in clusters.
    pub const fn bigalloc(&self) -> bool {
        self.bigalloc
    }

    /// Returns the number of blocks of the volume. The volume's size in bytes fits an `i64`.
    pub const fn blocks_count(&self) -> u64 {
        self.blocks_count
    }

    /// Returns the first block of group 0: 1 if blocks have 1 KiB and there is no `bigalloc`, else
    /// 0.
    pub const fn first_data_block(&self) -> u32 {
        self.first_data_block
    }

    /// Returns the number of blocks of every group but the last.
    pub const fn blocks_per_group(&self) -> u32 {
        self.blocks_per_group
    }

    /// Returns the number of clusters of every group but the last: the bits of its block bitmap.
    pub const fn clusters_per_group(&self) -> u32 {
        self.clusters_per_group
    }

    /// Returns the number of inodes of every group: the bits of its inode bitmap.
    pub const fn inodes_per_group(&self) -> u32 {
        self.inodes_per_group
    }

    /// Returns the number of inodes of the volume.
    pub const fn inodes_count(&self) -> u32 {
        self.inodes_count
    }

    /// Returns the size in bytes of an inode record.
    pub const fn inode_size(&self) -> u16 {
        self.inode_size
    }

    /// Returns the number of blocks of every group's inode table.
    pub fn inode_table_blocks(&self) -> u32 {
        // Both sizes are powers of two, and an inode is no larger than a block.
        self.inodes_per_group
            .div_ceil(self.block_size() / u32::from(self.inode_size))
    }

    /// Returns the number of groups of the volume; 0 for an external journal.
    pub const fn group_count(&self) -> u32 {
        self.group_count
    }

    /// Returns the size in bytes of a group descriptor: 32, or 64 and more with `64bit`.
    pub const fn desc_size(&self) -> u16 {
        self.desc_size
    }

    /// Returns the number of descriptors of a block, which is also the number of groups of a meta
    /// group.
    pub fn descriptors_per_block(&self) -> u32 {
        self.block_size() / u32::from(self.desc_size)
    }

    /// Returns the number of blocks that hold descriptors, without their copies.
    pub const fn descriptor_blocks(&self) -> u32 {
        self.desc_blocks
    }

    /// Takes no blocks after the descriptor table as kept for the volume to grow.
    pub(crate) const fn keep_no_gdt_blocks(&mut self) {
        self.reserved_gdt_blocks = 0;
    }

    /// Returns the number of blocks kept after the descriptor table for the volume to grow.
    pub const fn reserved_gdt_blocks(&self) -> u16 {
        self.reserved_gdt_blocks
    }

    /// Returns whether the bitmaps and the inode table of a group may live in another one.
    pub const fn flex_bg(&self) -> bool {
        self.flex_bg
    }

    /// Returns the number of groups of a flexible group; 1 without `flex_bg`.
    pub const fn groups_per_flex(&self) -> u32 {
        self.groups_per_flex
    }

    /// Returns the block that holds the primary superblock.
    pub const fn superblock_block(&self) -> u64 {
        SUPERBLOCK_OFFSET >> self.block_bits
    }

    /// Returns the first block after the primary superblock and the table of descriptors that
    /// follows it.
    pub fn table_end(&self) -> u64 {
        self.superblock_block() + 1 + u64::from(self.first_meta_bg)
    }

    /// Returns whether the volume has `block`.
    pub fn contains_block(&self, block: u64) -> bool {
        block >= self.first_data_block.into() && block < self.blocks_count
    }

    /// Returns whether the volume has the `len` blocks from `start` on.
    pub fn contains_range(&self, start: u64, len: u64) -> bool {
        self.contains_block(start) && len <= self.blocks_count - start
    }

    /// Checks that the `len` blocks from `start` on may hold data: they are in the volume, after
    /// superblock and descriptors.
    ///
    /// # Errors
    /// [`CorruptKind::BlockOutOfRange`] with `field` at `at`.
    pub fn check_range(
        &self,
        field: &'static str,
        start: u64,
        len: u64,
        at: Place,
    ) -> Result<(), Corrupt> {
        if start >= self.table_end() && self.contains_range(start, len) {
            return Ok(());
        }
        Err(at.corrupt(CorruptKind::BlockOutOfRange {
            field,
            block: start,
        }))
    }

    /// Returns the group that `block` is in.
    pub fn group_of_block(&self, block: u64) -> Option<u32> {
        let in_volume = self.contains_block(block);
        let group =
            block.checked_sub(self.first_data_block.into())? / u64::from(self.blocks_per_group);
        u32::try_from(group)
            .ok()
            .filter(|group| in_volume && *group < self.group_count)
    }

    /// Returns the first block of `group`.
    pub fn group_start(&self, group: u32) -> Option<u64> {
        let start =
            u64::from(group) * u64::from(self.blocks_per_group) + u64::from(self.first_data_block);
        (group < self.group_count).then_some(start)
    }

    /// Returns the number of blocks of `group`; the last group may have fewer than the others.
    pub fn group_blocks(&self, group: u32) -> Option<u32> {
        let left = self.blocks_count - self.group_start(group)?;
        Some(
            u32::try_from(left)
                .unwrap_or(u32::MAX)
                .min(self.blocks_per_group),
        )
    }

    /// Returns the number of clusters of `group`: the meaningful bits of its block bitmap.
    pub fn group_clusters(&self, group: u32) -> Option<u32> {
        self.group_blocks(group)
            .map(|blocks| blocks.div_ceil(1 << self.cluster_shift()))
    }

    /// Returns the index of `block`'s cluster in its group, which is also the index of its bit in
    /// the group's block bitmap.
    pub fn cluster_in_group(&self, block: u64) -> Option<u32> {
        let start = self.group_start(self.group_of_block(block)?)?;
        u32::try_from((block - start) >> self.cluster_shift()).ok()
    }

    /// Returns the place of the record of inode `ino`.
    pub const fn inode_slot(&self, ino: u32) -> Option<InodeSlot> {
        if ino == 0 || ino > self.inodes_count {
            return None;
        }
        Some(InodeSlot {
            group: (ino - 1) / self.inodes_per_group,
            index: (ino - 1) % self.inodes_per_group,
        })
    }

    /// Returns the number of the inode in `slot`.
    pub fn inode_number(&self, slot: InodeSlot) -> Option<u32> {
        let in_volume = slot.group < self.group_count && slot.index < self.inodes_per_group;
        // In range because groups times inodes per group is the count of inodes.
        in_volume.then(|| slot.group * self.inodes_per_group + slot.index + 1)
    }

    /// Returns the position of record `index` in the inode table that starts at block `table`.
    pub fn inode_position(&self, table: u64, index: u32) -> Option<Position> {
        let bytes = u64::from(index) * u64::from(self.inode_size);
        let block = table.checked_add(bytes >> self.block_bits)?;
        let offset = u32::try_from(bytes % u64::from(self.block_size())).ok()?;
        (index < self.inodes_per_group).then_some(Position { block, offset })
    }

    /// Returns whether `group` starts with a superblock.
    pub fn has_superblock(&self, group: u32) -> bool {
        let wanted = match self.backups {
            Backups::All => true,
            Backups::Sparse => group <= 1 || [3, 5, 7].iter().any(|base| is_power_of(group, *base)),
            Backups::Two(groups) => group == 0 || groups.contains(&group),
        };
        wanted && group < self.group_count
    }

    /// Returns the block that holds `group`'s copy of the superblock.
    pub fn superblock_in(&self, group: u32) -> Option<u64> {
        match group {
            _ if !self.has_superblock(group) => None,
            0 => Some(self.superblock_block()),
            _ => self.group_start(group),
        }
    }

    /// Returns the block that holds block `index` of the descriptors.
    pub fn descriptor_block(&self, index: u32) -> Option<u64> {
        let group = if index < self.first_meta_bg {
            0
        } else {
            index.checked_mul(self.descriptors_per_block())?
        };
        self.descriptor_block_in(group, index)
    }

    /// Returns the block in which `group` holds its copy of block `index` of the descriptors.
    ///
    /// The groups with a superblock hold copies of the one table. Descriptors in meta groups have
    /// copies in the first, the second and the last group of their meta group.
    pub fn descriptor_block_in(&self, group: u32, index: u32) -> Option<u64> {
        let meta_group = group / self.descriptors_per_block();
        let member = group % self.descriptors_per_block();
        let after_superblock = match self.superblock_in(group) {
            Some(block) => block + 1,
            None => self.group_start(group)?,
        };
        let block = if self.in_table_part(group) {
            let copied = self.has_superblock(group) && index < self.first_meta_bg;
            copied.then_some(after_superblock + u64::from(index))?
        } else {
            let last = self.descriptors_per_block() - 1;
            (meta_group == index && (member <= 1 || member == last)).then_some(after_superblock)?
        };
        Some(block).filter(|block| index < self.desc_blocks && *block < self.blocks_count)
    }

    /// Returns the position of `group`'s descriptor.
    pub fn descriptor_position(&self, group: u32) -> Option<Position> {
        let block = self.descriptor_block(group / self.descriptors_per_block())?;
        let offset = group % self.descriptors_per_block() * u32::from(self.desc_size);
        (group < self.group_count).then_some(Position { block, offset })
    }

    /// Returns the number of blocks at the start of `group` that the superblock, the descriptors
    /// and the blocks reserved for them take.
    pub fn fixed_blocks(&self, group: u32) -> Option<u32> {
        let start = self.group_start(group)?;
        let superblock = match self.superblock_in(group) {
            // Group 0 of a volume with small blocks may begin with the boot block.
            Some(block) => u32::try_from(block - start).ok()? + 1,
            None => 0,
        };
        let descriptors = if !self.in_table_part(group) {
            let member = group % self.descriptors_per_block();
            u32::from(member <= 1 || member == self.descriptors_per_block() - 1)
        } else if self.has_superblock(group) {
            self.first_meta_bg
                .checked_add(self.reserved_gdt_blocks.into())?
        } else {
            0
        };
        Some(
            superblock
                .checked_add(descriptors)?
                .min(self.group_blocks(group)?),
        )
    }

    /// Returns whether the descriptor of `group` is in the one table, not in its meta group.
    fn in_table_part(&self, group: u32) -> bool {
        // Without `meta_bg` every group's meta group is below: `first_meta_bg` is then the number
        // of blocks of descriptors.
        group / self.descriptors_per_block() < self.first_meta_bg
    }
}

/// Checks that fields agree with each other; `what` is the message if they do not.
fn agree(ok: bool, what: &'static str, at: Place) -> Result<(), Corrupt> {
    if ok {
        Ok(())
    } else {
        Err(at.corrupt(CorruptKind::Mismatch { what }))
    }
}

fn is_power_of(number: u32, base: u32) -> bool {
    let mut power = base;
    while power < number {
        match power.checked_mul(base) {
            Some(next) => power = next,
            None => return false,
        }
    }
    power == number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers() {
        let sparse: Vec<u32> = (0..3000)
            .filter(|n| [3, 5, 7].iter().any(|b| is_power_of(*n, *b)))
            .collect();
        assert_eq!(
            sparse,
            [
                3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343, 625, 729, 2187, 2401
            ]
        );
        assert!(!is_power_of(u32::MAX, 3));
    }
}
