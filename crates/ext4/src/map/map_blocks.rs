//! Helpers of both kinds of map: allocating a block for the map itself, an empty map, and the
//! budget of blocks that one transaction may free.
//!
//! `extents::change` and `indirect::change` call them. With [`UnmapBudget`] an unmap of any size
//! stays within the credits of its handle, however many groups and revoked blocks it involves.

use std::ops::Range;

use extern4_disk::extent::EMPTY_ROOT;
use extern4_disk::feature::Incompat;
use extern4_disk::inode::{InodeFlags, MAP_SIZE};

use crate::error::Result;
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;

/// The most runs that one handle maps: they fit into a leaf that has just been split.
pub(crate) const MAX_RUNS: u32 = 12;
/// How many leaves one [`shift_blocks`] moves.
pub(crate) const SHIFT_LEAVES: u32 = 24;

/// Gives a file an empty map: an extent tree if the volume has the feature.
pub(crate) fn empty_map(handle: &Handle<'_>, info: &mut InodeInfo) {
    let mut map = [0; MAP_SIZE];
    let mut flags = info.fields().flags();
    if handle
        .fs
        .superblock()
        .features()
        .incompat
        .contains(Incompat::EXTENTS)
    {
        map = EMPTY_ROOT;
        flags |= InodeFlags::EXTENTS;
    }
    info.fields_mut().set_map(&map);
    info.fields_mut().set_flags(flags);
}

/// Allocates a block for the map of a file, near block `near`.
pub(crate) fn allocate_map_block(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    near: u64,
) -> Result<u64> {
    let block = handle.writer.allocator.allocate(handle, near, 1)?.start;
    info.add_blocks(1, handle.fs.superblock().block_size())?;
    Ok(block)
}

/// Returns the goal for the first block of a file: the start of its inode's group.
pub(crate) fn home_block(handle: &Handle<'_>, info: &InodeInfo) -> u64 {
    let geometry = handle.fs.superblock().geometry();
    let group = geometry.inode_slot(info.ino()).map_or(0, |slot| slot.group);
    geometry.group_start(group).unwrap_or(0)
}

/// How much one handle may still free. Each group costs credits for a bitmap and a descriptor, and
/// each block of metadata an entry in the list of revoked blocks.
pub(crate) struct UnmapBudget {
    pub(super) groups: u32,
    pub(super) last: Option<u32>,
    /// Unlimited for blocks that are not metadata.
    pub(super) revokes: u64,
}

impl UnmapBudget {
    /// Charges `blocks` and their groups. The first group of the last call is not charged again.
    pub(crate) fn spend(&mut self, fs: &Ext4, blocks: &Range<u64>) {
        self.revokes = self.revokes.saturating_sub(blocks.end - blocks.start);
        let geometry = fs.superblock().geometry();
        let group_of = |block| geometry.group_of_block(block);
        let (Some(first), Some(last)) = (group_of(blocks.start), group_of(blocks.end - 1)) else {
            return;
        };
        let known = u32::from(
            self.last
                .is_some_and(|known| (first..=last).contains(&known)),
        );
        self.groups = self.groups.saturating_sub(last - first + 1 - known);
        self.last = Some(first);
    }

    /// Returns how many consecutive blocks may still be freed. In small groups a long extent may
    /// exceed that.
    pub(crate) fn room(&self, fs: &Ext4) -> u64 {
        let in_groups = u64::from(self.groups.max(1))
            * u64::from(fs.superblock().geometry().blocks_per_group());
        in_groups.min(self.revokes.max(1))
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.groups == 0 || self.revokes == 0
    }
}
