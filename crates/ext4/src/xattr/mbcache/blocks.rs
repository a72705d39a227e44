//! Where attribute blocks are, by the hash of what they hold: [`MbCache`] as `attr_block` uses it.
//!
//! With the feature `lab` a volume can have another cache in its place, so that both are measured with all else that it takes to
//! set an attribute.

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
/// Of the numbers in it the same holds: who inserts one holds on to the block, and who gives a block up takes its number out first.
#[allow(unreachable_pub, reason = "public in the lab")]
pub trait BlockCache: Send + Sync + std::fmt::Debug {
    /// Has blocks with this hash joined, one after the other, until one is: that one. `join` is told how to find out whether the block's
    /// number is in the cache still.
    fn find(&self, hash: u32, join: &mut dyn FnMut(u64, &dyn Fn() -> bool) -> bool) -> Option<u64>;

    /// A block has been written, and can be found from now on.
    fn insert(&self, hash: u32, block: u64);

    /// A block is about to be changed.
    fn remove(&self, hash: u32, block: u64);

    /// An inode leaves a block, by `leave`: true if it was the last, and then nobody finds the block any more.
    fn leave(&self, hash: u32, block: u64, leave: &mut dyn FnMut() -> bool);

    /// So many inodes have a block as may have it, or not any more.
    fn set_full(&self, hash: u32, block: u64, full: bool);
}

impl Blocks {
    /// A cache that no block can be found by yet.
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

    /// Has blocks with this hash joined until one is. None is looked at for ever, whatever becomes of it meanwhile. `join` is told how to
    /// find out whether the block can be found still.
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

    /// Makes it possible to find a block that whoever calls holds on to.
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

    /// Has a block left by `leave`, and sees to it that nobody finds it any more if nobody has it then.
    pub(crate) fn leave(&self, hash: u32, block: u64, leave: impl FnOnce() -> Result<Put>) -> Result<Put> {
        let left = self.leave_by(hash, block, leave)?;
        self.note_left(hash, block, left);
        Ok(left)
    }

    /// A block that so many had as may has been left: one may join them again.
    pub(crate) fn note_left(&self, hash: u32, block: u64, left: Put) {
        if matches!(left, Put::Others(others) if others + 1 == REFCOUNT_MAX) {
            self.set_full(hash, block, false);
        }
    }

    /// The same, but for a block that so many had as may.
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

    /// Notes whether so many inodes have a block as may have it, so that it is not looked at in vain.
    pub(crate) fn set_full(&self, hash: u32, block: u64, full: bool) {
        if let Some(instead) = self.instead() {
            return instead.set_full(hash, block, full);
        }
        self.cache.set_full(hash, block, full);
    }

    /// What the cache of production has done.
    pub(crate) fn stats(&self) -> MbCacheStats {
        self.cache.stats()
    }
}
