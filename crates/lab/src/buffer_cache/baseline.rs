//! Baseline: a buffer is allocated for every lookup.

use extern4_block::Result;

use super::tree::Tree;
use super::{Cache, Counts, Shape};

/// Allocates and initialises a buffer, then looks under the lock. So no buffer has to be allocated
/// while the lock is held.
pub struct Baseline<const TIMED: bool = false>(Tree<TIMED>);

impl<const TIMED: bool> Cache for Baseline<TIMED> {
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
