//! extern4's side of the buffer cache: `extern4-block`, called as the file system calls it.
//!
//! It implements the `Cache` of the chapter and adds nothing to the cache in production.

use std::sync::Arc;

use extern4_block::{BufferCache, CacheBudget, CacheOptions, Result};

use super::{Cache, Counts, Shape};

/// The cache of `extern4-block`.
pub type Extern4 = BufferCache;

impl Cache for BufferCache {
    fn new(shape: &Shape) -> Result<Self> {
        let &Shape {
            block_size,
            block_count,
            capacity,
            ..
        } = shape;
        let budget = CacheBudget::new(capacity as u64 * Self::bytes_of_buffer(block_size));
        Self::new(
            Arc::clone(&shape.device),
            CacheOptions {
                block_size,
                block_count,
                budget,
            },
        )
    }

    #[inline]
    fn with<R>(&self, block: u64, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.with(block, look)
    }

    fn counts(&self) -> Counts {
        let stats = self.stats();
        Counts {
            hits: stats.hits,
            misses: stats.misses,
            allocations: stats.allocations,
        }
    }
}
