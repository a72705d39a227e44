//! The blocks of a volume: their purpose and their contents.
//!
//! The format has no map from blocks to owners. So all inodes are read and their blocks compared:
//! once for all the blocks that the caller asks for.
//!
//! Programs call it. An inode that cannot be read is an error in the answer; its blocks then may
//! seem to have no owner.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use extern4_disk::group::GroupFlags;
use extern4_disk::inode::{Inode, is_blank};
use extern4_ext4::Ext4;
use extern4_ext4::inode_blocks::{Use, pieces};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// The purpose of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockOwner {
    /// No known purpose.
    None,
    /// A copy of the superblock or of the group descriptors, or reserved space for descriptors.
    Descriptors,
    /// A group's block bitmap.
    BlockBitmap(u32),
    /// A group's inode bitmap.
    InodeBitmap(u32),
    /// The records of these inodes.
    InodeTable(RangeInclusive<u32>),
    /// A part of an inode.
    Inode {
        /// The number of the inode.
        ino: u32,
        /// The use that the inode makes of the block.
        used: Use,
        /// A path of the inode, if it has one.
        path: Option<PathBuf>,
    },
}

impl BlockOwner {
    fn ino(&self) -> Option<u32> {
        match self {
            Self::Inode { ino, .. } => Some(*ino),
            _ => None,
        }
    }
}

/// The owners of some blocks.
#[derive(Debug)]
pub struct BlockOwners {
    found: HashMap<u64, BlockOwner>,
    errors: Vec<Error>,
}

impl BlockOwners {
    /// Finds the owners of `blocks`. This reads all inodes, unless the blocks hold structures of
    /// their groups.
    pub fn of(volume: &Volume, blocks: &[u64]) -> Self {
        let ext4 = volume.ext4();
        let mut sorted = blocks.to_vec();
        sorted.sort_unstable();
        let mut owners = Self {
            found: HashMap::new(),
            errors: Vec::new(),
        };
        let geometry = ext4.superblock().geometry();
        for group in 0..geometry.group_count() {
            owners.fixed(ext4, group, &sorted);
        }
        if sorted.iter().any(|block| !owners.found.contains_key(block)) {
            for group in 0..geometry.group_count() {
                owners.inodes(ext4, group, &sorted);
            }
            owners.name(volume);
        }
        owners
    }

    /// Returns the owner of one of the blocks.
    pub fn owner(&self, block: u64) -> &BlockOwner {
        self.found.get(&block).unwrap_or(&BlockOwner::None)
    }

    /// Returns the errors of parts that could not be read.
    pub fn errors(&self) -> &[Error] {
        &self.errors
    }

    /// Finds the blocks of a group that hold metadata of the volume.
    fn fixed(&mut self, ext4: &Ext4, group: u32, blocks: &[u64]) {
        let geometry = ext4.superblock().geometry();
        if let (Some(start), Some(fixed)) =
            (geometry.group_start(group), geometry.fixed_blocks(group))
        {
            for block in within(blocks, start, fixed.into()) {
                self.found.insert(block, BlockOwner::Descriptors);
            }
        }
        let descriptor = match ext4.group(group) {
            Ok(descriptor) => descriptor,
            Err(error) => return self.errors.push(unread(error)),
        };
        for block in within(blocks, descriptor.block_bitmap(), 1) {
            self.found.insert(block, BlockOwner::BlockBitmap(group));
        }
        for block in within(blocks, descriptor.inode_bitmap(), 1) {
            self.found.insert(block, BlockOwner::InodeBitmap(group));
        }
        let per_block = geometry.block_size() / u32::from(geometry.inode_size());
        for block in within(
            blocks,
            descriptor.inode_table(),
            geometry.inode_table_blocks().into(),
        ) {
            // OK: fewer than the blocks of the table, which has 32-bit inode numbers.
            let before = u32::try_from(block - descriptor.inode_table()).unwrap_or(0) * per_block;
            let first = group * geometry.inodes_per_group() + before + 1;
            self.found
                .insert(block, BlockOwner::InodeTable(first..=first + per_block - 1));
        }
    }

    /// Finds the blocks that a group's inodes use.
    fn inodes(&mut self, ext4: &Ext4, group: u32, blocks: &[u64]) {
        let geometry = ext4.superblock().geometry();
        // A corrupt descriptor is among the errors already.
        let Ok(descriptor) = ext4.group(group) else {
            return;
        };
        if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            return;
        }
        let used = geometry
            .inodes_per_group()
            .saturating_sub(descriptor.unused_inodes());
        for index in 0..used {
            let ino = group * geometry.inodes_per_group() + index + 1;
            match inode(ext4, ino) {
                Ok(Some(inode)) => self.blocks_of(ext4, &inode, blocks),
                Ok(None) => {}
                Err(error) => self.errors.push(unread(error)),
            }
        }
    }

    fn blocks_of(&mut self, ext4: &Ext4, inode: &Inode, blocks: &[u64]) {
        let mapped = pieces(ext4, inode, &mut |piece| {
            for block in within(blocks, piece.physical, piece.len_blocks) {
                let used = match piece.used {
                    Use::Data { logical, unwritten } => Use::Data {
                        logical: logical + (block - piece.physical),
                        unwritten,
                    },
                    used => used,
                };
                let owner = BlockOwner::Inode {
                    ino: inode.ino(),
                    used,
                    path: None,
                };
                self.found.entry(block).or_insert(owner);
            }
        });
        self.errors.extend(mapped.err().map(unread));
    }

    /// Finds a path for each inode among the owners.
    fn name(&mut self, volume: &Volume) {
        let mut wanted: HashMap<u64, Option<PathBuf>> = self
            .found
            .values()
            .filter_map(BlockOwner::ino)
            .map(|ino| (ino.into(), None))
            .collect();
        let mut missing = wanted.len();
        for entry in volume.superuser().walk("/") {
            if missing == 0 {
                break;
            }
            let Ok(entry) = entry else { continue };
            if let Some(path @ None) = wanted.get_mut(&entry.ino()) {
                *path = Some(entry.path().to_owned());
                missing -= 1;
            }
        }
        for owner in self.found.values_mut() {
            if let BlockOwner::Inode { ino, path, .. } = owner {
                *path = wanted.get(&u64::from(*ino)).cloned().flatten();
            }
        }
    }
}

fn unread(error: extern4_ext4::Error) -> Error {
    Error::ext4("find the owners of blocks of", error)
}

/// Returns an inode that is in use; `None` for a free one.
fn inode(ext4: &Ext4, ino: u32) -> extern4_ext4::Result<Option<Inode>> {
    let at = ext4.inode_position(ino)?;
    let buffer = ext4.cache().read(at.block)?;
    let record = buffer.get(at.offset as usize..).unwrap_or_default();
    let size = usize::from(ext4.superblock().inode_size());
    if is_blank(record.get(..size).unwrap_or_default()) {
        return Ok(None);
    }
    let inode = ext4.raw_inode(ino)?;
    let reserved = ino < ext4.superblock().first_ino();
    Ok(Some(inode).filter(|inode| inode.links() > 0 || reserved))
}

/// Returns the sorted `blocks` that are among the `len` from `start` on.
fn within(blocks: &[u64], start: u64, len: u64) -> impl Iterator<Item = u64> + '_ {
    let first = blocks.partition_point(|block| *block < start);
    blocks[first..]
        .iter()
        .copied()
        .take_while(move |block| *block - start < len)
}

/// Returns whether the block bitmap marks a block as in use; `None` if that cannot be read.
pub fn is_block_used(volume: &Volume, block: u64) -> Option<bool> {
    let ext4 = volume.ext4();
    let geometry = ext4.superblock().geometry();
    let group = geometry.group_of_block(block)?;
    let descriptor = ext4.group(group).ok()?;
    let bit = geometry.cluster_in_group(block)?;
    if descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
        return None;
    }
    let bitmap = ext4.cache().read(descriptor.block_bitmap()).ok()?;
    let byte = bitmap.get(bit as usize / 8)?;
    Some(byte & (1 << (bit % 8)) != 0)
}

/// Returns the contents of a block.
///
/// # Errors
/// A block beyond the volume, or a device that fails.
pub fn read_block(volume: &Volume, block: u64) -> Result<Vec<u8>> {
    let buffer = volume.ext4().cache().read(block);
    buffer
        .map(|buffer| buffer.to_vec())
        .map_err(|error| Error::ext4("read a block of", error.into()))
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn blocks_within_a_run_are_found() {
        let blocks = [1, 5, 6, 9, u64::MAX];
        assert_eq!(within(&blocks, 5, 2).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(within(&blocks, 2, 3).count(), 0);
        assert_eq!(within(&blocks, 0, u64::MAX).count(), 4);
    }
}
