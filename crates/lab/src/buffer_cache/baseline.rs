//! Baseline of the buffer cache: it allocates a buffer for every lookup, as XFS did before 2011.
//!
//! It is a `Cache` of the chapter, over the tree that the patch also uses. So the two differ only
//! in when they allocate.

use extern4_block::Result;

use super::tree::Tree;
use super::{Cache, Counts, Shape};

/// Allocates and initialises a buffer, then looks under the lock. So no buffer has to be allocated
/// while the lock is held.
pub struct Baseline(Tree);

impl Cache for Baseline {
    fn new(shape: &Shape) -> Result<Self> {
        Ok(Self(Tree::new(shape)))
    }

    fn with<R>(&self, block: u64, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.0.check(block)?;
        let buffer = self.0.find_or_insert(self.0.allocate(block));
        self.0.look(&buffer, look)
    }

    fn counts(&self) -> Counts {
        self.0.counts()
    }
}
