//! [`Sharing`]: the caches and locks by which inodes share attribute blocks and values.
//!
//! `fs::writer` has one for a volume; `xattr::block` and `xattr::ea_inode` use it. A block, or
//! an EA inode, is found by the hash of its contents through a cache of hints
//! ([`crate::mbcache`]). A thread that inserts an entry holds the block: its inode has the
//! block, and the inode's attributes cannot change meanwhile ([`crate::inode::cached`]). An entry
//! is removed before its block is freed. One word in the block's buffer
//! ([`extern4_sync::closable_refcount`]) decides which inodes can join and which is the last to
//! leave; see `block`. EA inodes are few and large: their counts change under a lock; see
//! `ea_inode`.

use std::sync::PoisonError;

use extern4_disk::feature::Incompat;
use extern4_disk::journal::Tid;
use extern4_disk::superblock::Superblock;
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_sync::primitive::{AtomicU64, Mutex, MutexGuard};
use extern4_sync::thread_counter::ThreadCounter;

use crate::mbcache::blocks::Blocks;
use crate::mbcache::{MbCache, MbCacheStats};

/// The number of locks for counts of EA inodes.
const VALUE_LOCKS: u32 = 16;
/// The number of cursors for searches of free blocks.
const CURSORS: u32 = 16;
/// Bits of a cursor for the block number. The others have the low bits of the transaction's number.
const BLOCK_BITS: u32 = 48;

/// The caches and locks for sharing attribute blocks and values.
pub(crate) struct Sharing {
    /// Attribute blocks, by the hash in their headers.
    pub(crate) blocks: Blocks,
    /// EA inodes, by the hash of their values.
    pub(crate) values: MbCache,
    /// Locks: one is held, within a handle, while the count of an EA inode changes, and before the
    /// lock of any group.
    counting: [Mutex<()>; VALUE_LOCKS as usize],
    /// By group: where the search for the next attribute block starts, and the transaction for
    /// which that holds.
    cursors: [AtomicU64; CURSORS as usize],
    counts: ThreadCounter<4>,
}

/// The counters of [`SharingStats`].
#[derive(Clone, Copy)]
pub(crate) enum Count {
    BlocksShared,
    BlocksMade,
    ValuesShared,
    Differing,
}

/// Statistics of sharing since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingStats {
    /// The cache of attribute blocks.
    pub blocks: MbCacheStats,
    /// The cache of values in EA inodes.
    pub values: MbCacheStats,
    /// How often an inode joined an existing attribute block.
    pub blocks_shared: u64,
    /// How often an attribute block was made, because none was found.
    pub blocks_made: u64,
    /// How often an attribute shared the value of another in an EA inode.
    pub values_shared: u64,
    /// How often a block or value was found whose hash was equal and whose contents were not.
    pub differing: u64,
}

impl Sharing {
    pub(crate) fn new(sb: &Superblock, blocks: Blocks) -> Self {
        let has_values = sb.features().incompat.contains(Incompat::EA_INODE);
        Self {
            blocks,
            values: if has_values {
                MbCache::sized(MbCache::BITS_NEAR, MbCache::BITS_FAR)
            } else {
                MbCache::new(0)
            },
            counting: Default::default(),
            cursors: Default::default(),
            counts: ThreadCounter::new(),
        }
    }

    /// Locks the reference count of EA inode `ino`.
    pub(crate) fn count_of(&self, ino: u32) -> MutexGuard<'_, ()> {
        let lock = &self.counting[crate::volume::group::to_usize(ino % VALUE_LOCKS)];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where the search for an attribute block in `group` starts, if there was one in
    /// transaction `tid`.
    pub(crate) fn search_start(&self, group: Option<u32>, tid: Tid) -> Option<u64> {
        // Relaxed: any block is a correct start.
        let cursor = self.cursor(group).load(Relaxed);
        (cursor >> BLOCK_BITS == low_bits(tid)).then_some(cursor & ((1 << BLOCK_BITS) - 1))
    }

    pub(crate) fn set_search_start(&self, group: Option<u32>, tid: Tid, block: u64) {
        self.cursor(group)
            .store(low_bits(tid) << BLOCK_BITS | block, Relaxed);
    }

    fn cursor(&self, group: Option<u32>) -> &AtomicU64 {
        &self.cursors[crate::volume::group::to_usize(group.unwrap_or(0) % CURSORS)]
    }

    /// Increments a counter.
    pub(crate) fn note(&self, what: Count) {
        let mut counts = [0; 4];
        counts[what as usize] = 1;
        self.counts.add(counts);
    }

    pub(crate) fn stats(&self) -> SharingStats {
        let [blocks_shared, blocks_made, values_shared, differing] = self.counts.sum();
        let blocks = self.blocks.stats();
        let values = self.values.stats();
        SharingStats {
            blocks,
            values,
            blocks_shared,
            blocks_made,
            values_shared,
            differing,
        }
    }
}

fn low_bits(tid: Tid) -> u64 {
    u64::from(tid.0 & 0xffff)
}
