//! The cache of attribute blocks by the hash of their contents: an [`MbCache`] for the module
//! `block`.
//!
//! Its answers are hints, under the two rules of `mbcache`: a caller inserts a block that it holds,
//! and removes a block before it frees or changes it. With the feature `lab` a volume can use
//! another cache, so that both can be measured as parts of setting an attribute.

use extern4_disk::xattr::REFCOUNT_MAX;
use extern4_sync::closable_refcount::Put;

use super::{MbCache, MbCacheStats};
use crate::error::Result;

/// The attribute blocks that inodes can share.
pub(crate) struct Blocks {
    cache: MbCache,
    #[cfg(feature = "lab")]
    instead: Option<std::sync::Arc<dyn BlockCache>>,
}

/// A cache that can replace the one in production.
///
/// The rules of `MbCache` hold for its numbers: a caller that inserts one holds the block, and a
/// caller that frees a block removes its number first.
#[allow(unreachable_pub, reason = "public in the lab")]
pub trait BlockCache: Send + Sync + std::fmt::Debug {
    /// Calls `join` for blocks with this hash, one after the other, until it joins one, and returns
    /// that one. `join` gets a function that returns whether the block is still in the cache.
    fn find(&self, hash: u32, join: &mut dyn FnMut(u64, &dyn Fn() -> bool) -> bool) -> Option<u64>;

    /// A block has been written, and can be found from now on.
    fn insert(&self, hash: u32, block: u64);

    /// A block is about to be changed.
    fn remove(&self, hash: u32, block: u64);

    /// Calls `leave`, by which an inode leaves the block. If it returns true, the inode was the
    /// last, and no lookup may find the block any more.
    fn leave(&self, hash: u32, block: u64, leave: &mut dyn FnMut() -> bool);

    /// Notes whether a block is full, so that no more inodes can share it.
    fn set_full(&self, hash: u32, block: u64, full: bool);
}

impl Blocks {
    /// Returns an empty cache.
    pub(crate) fn new() -> Self {
        Self {
            cache: MbCache::sized(MbCache::BITS_NEAR, MbCache::BITS_FAR),
            #[cfg(feature = "lab")]
            instead: None,
        }
    }

    /// Returns the cache with `instead` in place of production's, if there is one.
    #[cfg(feature = "lab")]
    pub(crate) fn replaced_by(self, instead: Option<std::sync::Arc<dyn BlockCache>>) -> Self {
        Self { instead, ..self }
    }

    /// Returns the lab's cache, if it replaces production's.
    #[inline]
    fn instead(&self) -> Option<&dyn BlockCache> {
        #[cfg(feature = "lab")]
        return self.instead.as_deref();
        #[cfg(not(feature = "lab"))]
        None
    }

    /// Calls `join` for blocks with this hash until it joins one. The search ends, even if blocks
    /// are inserted meanwhile. `join` gets a function that returns whether the block is still in
    /// the cache.
    pub(crate) fn find(
        &self,
        hash: u32,
        mut join: impl FnMut(u64, &dyn Fn() -> bool) -> bool,
    ) -> Option<u64> {
        if let Some(instead) = self.instead() {
            return instead.find(hash, &mut join);
        }
        let mut found = self.cache.candidates(hash);
        let joined = found.find(|found| join(found.number(), &|| found.is_in()))?;
        joined.touch();
        Some(joined.number())
    }

    /// Inserts a block that the caller holds.
    pub(crate) fn insert(&self, hash: u32, block: u64) {
        if let Some(instead) = self.instead() {
            return instead.insert(hash, block);
        }
        self.cache.insert(hash, block);
    }

    /// Removes a block, before it is changed or freed.
    pub(crate) fn remove(&self, hash: u32, block: u64) {
        if let Some(instead) = self.instead() {
            return instead.remove(hash, block);
        }
        self.cache.remove(hash, block);
    }

    /// Calls `leave`, by which an inode leaves the block. If it was the last, removes the block.
    pub(crate) fn leave(
        &self,
        hash: u32,
        block: u64,
        leave: impl FnOnce() -> Result<Put>,
    ) -> Result<Put> {
        let left = self.leave_by(hash, block, leave)?;
        self.note_left(hash, block, left);
        Ok(left)
    }

    /// Notes that an inode has left a block. A block that was full can be joined again.
    pub(crate) fn note_left(&self, hash: u32, block: u64, left: Put) {
        if matches!(left, Put::Others(others) if others + 1 == REFCOUNT_MAX) {
            self.set_full(hash, block, false);
        }
    }

    /// Calls `leave`, and removes the block if the inode was the last.
    fn leave_by(&self, hash: u32, block: u64, leave: impl FnOnce() -> Result<Put>) -> Result<Put> {
        if let Some(instead) = self.instead() {
            let mut leave = Some(leave);
            let mut left = None;
            instead.leave(hash, block, &mut || {
                let leave = leave.take().expect("a block is left once");
                matches!(left.insert(leave()), Ok(Put::Last))
            });
            return left.expect("a block is left");
        }
        let left = leave()?;
        if left == Put::Last {
            self.cache.remove(hash, block);
        }
        Ok(left)
    }

    /// Notes whether a block is full, so that lookups skip it.
    pub(crate) fn set_full(&self, hash: u32, block: u64, full: bool) {
        if let Some(instead) = self.instead() {
            return instead.set_full(hash, block, full);
        }
        self.cache.set_full(hash, block, full);
    }

    /// Returns the counts of production's cache.
    pub(crate) fn stats(&self) -> MbCacheStats {
        self.cache.stats()
    }
}
