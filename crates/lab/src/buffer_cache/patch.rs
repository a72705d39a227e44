//! Patch of the buffer cache: it allocates a buffer only on a miss, as XFS does since 2011.
//!
//! It is a `Cache` of the chapter, over the tree that the baseline also uses.

use extern4_block::Result;

use super::tree::Tree;
use super::{Cache, Counts, Shape};

/// Looks under the lock. On a miss, allocates without it, and takes it again to insert the buffer,
/// or to find the one that another thread has inserted meanwhile.
pub struct Patch(Tree);

impl Cache for Patch {
    fn new(shape: &Shape) -> Result<Self> {
        Ok(Self(Tree::new(shape)))
    }

    fn with<R>(&self, block: u64, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.0.check(block)?;
        let found = self.0.find(block);
        let buffer = found.unwrap_or_else(|| self.0.find_or_insert(self.0.allocate(block)));
        self.0.look(&buffer, look)
    }

    fn counts(&self) -> Counts {
        self.0.counts()
    }
}
