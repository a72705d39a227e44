//! [`Volume`]: the device, the superblock and the caches that readers and writers use.
//!
//! Its methods read: superblock, group descriptors, verified metadata blocks, positions of inodes.
//! They check all numbers from the volume against its geometry. [`Ext4`](crate::Ext4) dereferences
//! to it, so every module of this crate calls them. `handle` changes a volume, through the `Writer`
//! of `fs`.

pub(crate) mod buffer;
pub(crate) mod deferred_checksum;
pub(crate) mod group;
pub(crate) mod inode_table;
pub(crate) mod loss;
pub(crate) mod superblock;
pub(crate) mod system_zone;

use std::sync::Arc;

use extern4_block::{BlockDevice, BufferCache, CacheBudget, CacheOptions, Registration};
use extern4_disk::blocks::Blocks;
use extern4_disk::indirect;
use extern4_disk::superblock::Superblock;

use crate::error::Result;
use crate::volume::group::Groups;
use crate::volume::inode_table::ReadAheadWindows;
use crate::volume::loss::Warnings;

/// The device, geometry, group descriptors and buffers of a volume.
pub struct Volume {
    /// Ends first, so that the cache ends with the volume.
    _registration: Registration,
    /// The source of file contents: the device, or the device with its journal replayed over it.
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) cache: Arc<BufferCache>,
    superblock: Superblock,
    groups: Groups,
    blocks: Blocks,
    indirect: indirect::Map,
    inode_read_ahead: ReadAheadWindows,
    pub(crate) warnings: Arc<Warnings>,
}

impl Volume {
    /// Makes the volume on `device`, whose superblock is `superblock`. Descriptors are read from
    /// the copy in group `copy_in`, and metadata blocks stay in memory within `budget`.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        superblock: Superblock,
        copy_in: u32,
        budget: Arc<CacheBudget>,
        warnings: Warnings,
    ) -> Result<Self> {
        let geometry = superblock.geometry();
        let options = CacheOptions {
            block_size: geometry.block_size(),
            block_count: geometry.blocks_count(),
            budget: Arc::clone(&budget),
        };
        let cache = Arc::new(BufferCache::new(Arc::clone(&device), options)?);
        budget.make_room();
        Ok(Self {
            _registration: budget.register(Arc::clone(&cache) as _),
            cache,
            device,
            groups: Groups::new(&superblock, copy_in),
            blocks: Blocks::from(geometry),
            // OK: the geometry has checked the block size.
            indirect: indirect::Map::new(geometry.block_size())
                .expect("a block size of the format"),
            inode_read_ahead: ReadAheadWindows::new(geometry.blocks_count()),
            superblock,
            warnings: Arc::new(warnings),
        })
    }

    /// Returns the superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns the blocks that files may own.
    pub(crate) fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// Returns the layout of indirect blocks for the volume's block size.
    pub fn indirect_map(&self) -> indirect::Map {
        self.indirect
    }

    /// Fills `buffer` with the bytes of the volume from `block` on, as they are on the device with
    /// the journal replayed. It bypasses the buffer cache, for callers that read all of a volume
    /// once. So it does not see a writer's changes that are not on the device yet.
    ///
    /// # Errors
    /// A device that fails, or a range that it does not have.
    pub fn read_from_device(&self, block: u64, buffer: &mut [u8]) -> Result<()> {
        // OK: the size of the volume in bytes fits 63 bits, and the device refuses a range beyond
        // its end.
        let start = block.saturating_mul(self.superblock.block_size().into());
        Ok(self.device.read_at(buffer, start)?)
    }

    /// Returns the buffer cache, for expert tools that show its counters or raw blocks.
    pub fn cache(&self) -> &BufferCache {
        &self.cache
    }
}
