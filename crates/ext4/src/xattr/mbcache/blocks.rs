//! Attribute blocks by the hash of their contents: [`MbCache`] as the module `block` uses it.
//!
//! With the feature `lab` a volume can have another cache in its place, so that both are measured
//! as parts of setting an attribute.

use extern4_disk::xattr::REFCOUNT_MAX;
use extern4_sync::closable_refcount::Put;

use super::{MbCache, MbCacheStats};
use crate::error::Result;
use crate::mount::options::OpenOptions;

/// Attribute blocks that can be found.
pub(crate) struct Blocks {
    cache: MbCache,
    #[cfg(feature = "lab")]
    instead: Option<std::sync::Arc<dyn BlockCache>>,
}

/// A cache that can stand in the place of the one in production.
///
/// The rules of `MbCache` hold for its numbers: a caller that inserts one holds on to the block,
/// and a caller that gives a block up removes its number first.
#[allow(unreachable_pub, reason = "public in the lab")]
pub trait BlockCache: Send + Sync + std::fmt::Debug {
    /// Calls `join` for blocks with this hash, one after the other, until it joins one, and returns
    /// that one. `join` gets a function that tells whether the block's number is still in the
    /// cache.
    fn find(&self, hash: u32, join: &mut dyn FnMut(u64, &dyn Fn() -> bool) -> bool) -> Option<u64>;

    /// A block has been written, and can be found from now on.
    fn insert(&self, hash: u32, block: u64);

    /// A block is about to be changed.
    fn remove(&self, hash: u32, block: u64);

    /// Has an inode leave a block by calling `leave`. If that returns true, the inode was the last,
    /// and no lookup finds the block any more.
    fn leave(&self, hash: u32, block: u64, leave: &mut dyn FnMut() -> bool);

    /// Notes whether a block is full: as many inodes have it as may.
    fn set_full(&self, hash: u32, block: u64, full: bool);
}

impl Blocks {
    /// Returns a cache that no block can be found by yet.
    #[cfg_attr(not(feature = "lab"), expect(unused_variables))]
    pub(crate) fn new(options: &OpenOptions) -> Self {
        Self {
            cache: MbCache::sized(MbCache::BITS_NEAR, MbCache::BITS_FAR),
            #[cfg(feature = "lab")]
            instead: options.block_cache.clone(),
        }
    }

    /// Returns the lab's cache in the place of production's.
    #[inline]
    fn instead(&self) -> Option<&dyn BlockCache> {
        #[cfg(feature = "lab")]
        return self.instead.as_deref();
        #[cfg(not(feature = "lab"))]
        None
    }

    /// Calls `join` for blocks with this hash until it joins one. The search ends, even if the
    /// blocks change meanwhile. `join` gets a function that tells whether the block can still be
    /// found.
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

    /// Makes it possible to find a block that the caller holds on to.
    pub(crate) fn insert(&self, hash: u32, block: u64) {
        if let Some(instead) = self.instead() {
            return instead.insert(hash, block);
        }
        self.cache.insert(hash, block);
    }

    /// Makes it impossible to find a block, before it is changed.
    pub(crate) fn remove(&self, hash: u32, block: u64) {
        if let Some(instead) = self.instead() {
            return instead.remove(hash, block);
        }
        self.cache.remove(hash, block);
    }

    /// Leaves a block by calling `leave`. If no inode has the block then, no lookup finds it any
    /// more.
    pub(crate) fn leave(&self, hash: u32, block: u64, leave: impl FnOnce() -> Result<Put>) -> Result<Put> {
        let left = self.leave_by(hash, block, leave)?;
        self.note_left(hash, block, left);
        Ok(left)
    }

    /// Notes that an inode has left a block; if the block was full, another may join again.
    pub(crate) fn note_left(&self, hash: u32, block: u64, left: Put) {
        if matches!(left, Put::Others(others) if others + 1 == REFCOUNT_MAX) {
            self.set_full(hash, block, false);
        }
    }

    /// Leaves a block by calling `leave`, without `note_left` for a block that was full.
    fn leave_by(&self, hash: u32, block: u64, leave: impl FnOnce() -> Result<Put>) -> Result<Put> {
        if let Some(instead) = self.instead() {
            let (mut leave, mut left) = (Some(leave), None);
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

    /// Notes whether a block is full, so that no lookup tries it in vain.
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
