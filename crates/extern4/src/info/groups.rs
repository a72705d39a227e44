//! The block groups of a volume.
//!
//! Programs list them. The numbers are the numbers that the descriptors store, which may be wrong
//! after a crash.

use extern4_disk::group::{GroupDescriptor, GroupFlags};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// A block group: its place, and what its descriptor says.
#[derive(Debug)]
#[non_exhaustive]
pub struct GroupSummary {
    /// The number of the group.
    pub number: u32,
    /// The first block.
    pub first_block: u64,
    /// Blocks of the group.
    pub blocks: u32,
    /// Its descriptor.
    ///
    /// # Errors
    /// A descriptor that is damaged, or a device that fails.
    pub descriptor: Result<Descriptor>,
}

/// The fields of a group's descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Descriptor {
    /// The block of the block bitmap.
    pub block_bitmap: u64,
    /// The block of the inode bitmap.
    pub inode_bitmap: u64,
    /// The first block of the inode table.
    pub inode_table: u64,
    /// Free clusters.
    pub free_clusters: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub directories: u32,
    /// Inodes at the end of the table that were never used.
    pub unused_inodes: u32,
    /// The flags, by the names of dumpe2fs.
    pub flags: Vec<&'static str>,
}

/// Returns the block groups of a volume.
pub fn groups(volume: &Volume) -> impl Iterator<Item = GroupSummary> + '_ {
    let ext4 = volume.ext4();
    let geometry = ext4.superblock().geometry();
    (0..geometry.group_count()).map(move |number| GroupSummary {
        number,
        first_block: geometry.group_start(number).unwrap_or(0),
        blocks: geometry.group_blocks(number).unwrap_or(0),
        descriptor: ext4
            .group(number)
            .map(Descriptor::of)
            .map_err(|error| Error::ext4("read a group of", error)),
    })
}

impl Descriptor {
    fn of(descriptor: &GroupDescriptor) -> Self {
        let flags = [
            (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
            (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
            (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
        ];
        let is_set = |flag| descriptor.flags().contains(flag);
        Self {
            block_bitmap: descriptor.block_bitmap(),
            inode_bitmap: descriptor.inode_bitmap(),
            inode_table: descriptor.inode_table(),
            free_clusters: descriptor.free_clusters(),
            free_inodes: descriptor.free_inodes(),
            directories: descriptor.used_dirs(),
            unused_inodes: descriptor.unused_inodes(),
            flags: flags
                .into_iter()
                .filter(|(flag, _)| is_set(*flag))
                .map(|(_, name)| name)
                .collect(),
        }
    }
}
