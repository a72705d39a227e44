//! The inodes in which two copies of one volume differ.
//!
//! An inode is the same in both volumes if its record and every block that it uses have the same
//! bytes. Its blocks hold contents, the nodes of its map, and extended attributes. Then the file
//! and its attributes are the same, and so are the names in a directory.
//!
//! `compare` calls it after `blocks`. An inode that it does not contain is equal in both volumes.

use std::collections::HashSet;

use extern4_disk::feature::Incompat;
use extern4_disk::group::GroupFlags;
use extern4_disk::inode::is_blank;
use extern4_ext4::{Error, Ext4};

use super::Both;
use super::blocks::ChangedBlocks;
use crate::blockmap::pieces;

/// The numbers of the inodes that may differ.
#[derive(Debug)]
pub(super) struct ChangedInodes(HashSet<u64>);

impl ChangedInodes {
    /// Finds the changed inodes of two volumes, by the blocks in which they differ. `None` if the
    /// volumes do not have all their inodes in the same places, or one cannot be read.
    pub(super) fn find(volumes: Both<&Ext4>, blocks: &ChangedBlocks) -> Option<Self> {
        let superblocks = volumes.map(|ext4| ext4.superblock());
        let features = superblocks.map(|superblock| superblock.features());
        if features.old != features.new
            || superblocks.old.geometry() != superblocks.new.geometry()
            || superblocks.old.encoding() != superblocks.new.encoding()
            // A record does not tell whether an inode that holds one of its attribute values has
            // changed.
            || features.old.incompat.contains(Incompat::EA_INODE)
        {
            return None;
        }
        let mut changed = Self(HashSet::new());
        for group in 0..superblocks.old.geometry().group_count() {
            changed.add_group(volumes, group, blocks).ok().flatten()?;
        }
        Some(changed)
    }

    /// Adds the changed inodes of a group. `None` if its inodes are not in one place.
    fn add_group(
        &mut self,
        volumes: Both<&Ext4>,
        group: u32,
        blocks: &ChangedBlocks,
    ) -> Result<Option<()>, Error> {
        let descriptors = Both { old: volumes.old.group(group)?, new: volumes.new.group(group)? };
        if descriptors.old.inode_table() != descriptors.new.inode_table() {
            return Ok(None);
        }
        let geometry = volumes.old.superblock().geometry();
        let used = descriptors.map(|descriptor| match descriptor.flags() {
            flags if flags.contains(GroupFlags::INODE_UNINIT) => 0,
            _ => geometry.inodes_per_group().saturating_sub(descriptor.unused_inodes()),
        });
        let first = group * geometry.inodes_per_group() + 1;
        for ino in first..first + used.old.max(used.new) {
            if is_changed(volumes, ino, blocks)? {
                self.0.insert(ino.into());
            }
        }
        Ok(Some(()))
    }

    /// Returns whether an inode may differ.
    pub(super) fn contains(&self, ino: u64) -> bool {
        self.0.contains(&ino)
    }
}

/// Returns whether the record of an inode or one of its blocks has changed.
fn is_changed(volumes: Both<&Ext4>, ino: u32, blocks: &ChangedBlocks) -> Result<bool, Error> {
    let volume = volumes.old;
    let block_size = u64::from(volume.superblock().geometry().block_size());
    let at = volume.inode_position(ino)?;
    let size = usize::from(volume.superblock().inode_size());
    let record = at.offset as usize..at.offset as usize + size;
    let read = |volume: &Ext4| volume.cache().read(at.block);
    let buffer = read(volume)?;
    let old = buffer.get(record.clone()).unwrap_or_default();
    if blocks.touch(at.block * block_size + u64::from(at.offset), size as u64)
        && read(volumes.new)?.get(record) != Some(old)
    {
        return Ok(true);
    }
    if is_blank(old) {
        return Ok(false);
    }
    let mut is_changed = false;
    pieces(volume, &volume.raw_inode(ino)?, &mut |piece| {
        let (start, len) =
            (piece.physical.saturating_mul(block_size), piece.len_blocks.saturating_mul(block_size));
        is_changed |= blocks.touch(start, len);
    })?;
    Ok(is_changed)
}
