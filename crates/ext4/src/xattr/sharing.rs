//! The attribute blocks and values that inodes share, or could share.
//!
//! A block, or an EA inode, is found by the hash of its contents through a cache of hints
//! ([`crate::xattr::mbcache`]). A caller that inserts an entry holds on to the block: its inode has
//! the block, and the inode's attributes cannot change meanwhile ([`crate::inode::cached`]). An
//! entry is removed before its block is given up. One word in the block's buffer
//! ([`extern4_sync::closable_refcount`]) decides which inodes may join and which is the last to
//! leave, as `block` describes. EA inodes are few and large: their counts change under a lock, as
//! `ea_inode` describes.

use std::sync::PoisonError;

use extern4_disk::feature::Incompat;
use extern4_disk::journal::Tid;
use extern4_disk::superblock::Superblock;
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_sync::primitive::{AtomicU64, Mutex, MutexGuard};
use extern4_sync::thread_counter::ThreadCounter;

use crate::xattr::mbcache::blocks::Blocks;
use crate::xattr::mbcache::{MbCache, MbCacheStats};

/// Locks for counts of EA inodes.
const VALUE_LOCKS: u32 = 16;
/// Places where searches for blocks go on.
const HANDS: u32 = 16;
/// Bits of a block's number; those above them are of a transaction's.
const BLOCK_BITS: u32 = 48;

/// The caches and locks for what may be shared.
pub(crate) struct Sharing {
    /// Attribute blocks, by the hash in their headers.
    pub(crate) blocks: Blocks,
    /// EA inodes, by the hash of their values.
    pub(crate) values: MbCache,
    /// Locks: one is held, within a handle, while the count of an EA inode changes, and before the
    /// lock of any group.
    counting: [Mutex<()>; VALUE_LOCKS as usize],
    /// Of groups, by their numbers: where the search for the next attribute block goes on, in which
    /// transaction.
    behind: [AtomicU64; HANDS as usize],
    counts: ThreadCounter<4>,
}

/// Things that are counted.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    BlocksShared,
    BlocksMade,
    ValuesShared,
    Differing,
}

/// Counts of what was shared, since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingStats {
    /// Where attribute blocks are, by their hash.
    pub blocks: MbCacheStats,
    /// Where values in inodes of their own are, by their hash.
    pub values: MbCacheStats,
    /// Times that an inode was given an attribute block that others had.
    pub blocks_shared: u64,
    /// Attribute blocks made, because there was none like it.
    pub blocks_made: u64,
    /// Times that an attribute was given a value that another had in an inode of its own.
    pub values_shared: u64,
    /// Blocks and values that were looked at in vain, because only their hashes were equal.
    pub differing: u64,
}

impl Sharing {
    pub(crate) fn new(sb: &Superblock, blocks: Blocks) -> Self {
        let has_values = sb.features().incompat.contains(Incompat::EA_INODE);
        Self {
            blocks,
            values: match has_values {
                true => MbCache::sized(MbCache::BITS_NEAR, MbCache::BITS_FAR),
                false => MbCache::new(0),
            },
            counting: Default::default(),
            behind: Default::default(),
            counts: ThreadCounter::new(),
        }
    }

    /// Returns the right to change the count of EA inode `ino`.
    pub(crate) fn count_of(&self, ino: u32) -> MutexGuard<'_, ()> {
        let lock = &self.counting[crate::volume::group::to_usize(ino % VALUE_LOCKS)];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where the search for an attribute block in `group` goes on, if there was one in
    /// transaction `tid`.
    pub(crate) fn behind(&self, group: Option<u32>, tid: Tid) -> Option<u64> {
        // Relaxed: any block will do.
        let behind = self.hand(group).load(Relaxed);
        (behind >> BLOCK_BITS == low_bits(tid)).then_some(behind & ((1 << BLOCK_BITS) - 1))
    }

    pub(crate) fn set_behind(&self, group: Option<u32>, tid: Tid, block: u64) {
        self.hand(group).store(low_bits(tid) << BLOCK_BITS | block, Relaxed);
    }

    fn hand(&self, group: Option<u32>) -> &AtomicU64 {
        &self.behind[crate::volume::group::to_usize(group.unwrap_or(0) % HANDS)]
    }

    /// Counts one more.
    pub(crate) fn note(&self, what: Count) {
        let mut counts = [0; 4];
        counts[what as usize] = 1;
        self.counts.add(counts);
    }

    pub(crate) fn stats(&self) -> SharingStats {
        let [blocks_shared, blocks_made, values_shared, differing] = self.counts.sum();
        let (blocks, values) = (self.blocks.stats(), self.values.stats());
        SharingStats { blocks, values, blocks_shared, blocks_made, values_shared, differing }
    }
}

fn low_bits(tid: Tid) -> u64 {
    u64::from(tid.0 & 0xffff)
}
