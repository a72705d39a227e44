//! The workload of lookups: threads look at blocks, most of which are in memory.
//!
//! `buffer_cache` measures it on each side, with several rates of misses.

use std::hint::black_box;
use std::sync::Arc;

use extern4_block::MemoryDevice;

use super::{Cache, Counts, Shape};
use crate::plan::Plan;
use crate::random::Random;
use crate::row::Sample;
use extern4_measure::load::Done;

const BLOCK_SIZE: u32 = 4096;
/// Blocks that are in memory.
const HOT: u64 = 512;
/// Blocks of which hardly one is in memory.
const COLD: u64 = 16_384;
const CAPACITY: usize = 1024;
/// Lookups between two checks of whether the time is up.
const BATCH: u64 = 256;

/// The state of a thread.
struct Place {
    lookups: u64,
    random: Random,
}

impl Place {
    fn new(thread: usize) -> Self {
        Self {
            lookups: thread as u64 * 31,
            random: Random::new(thread),
        }
    }

    /// Returns the next block. One of `one_of` is cold.
    fn next(&mut self, one_of: Option<u64>) -> u64 {
        self.lookups += 1;
        if one_of.is_some_and(|one_of| self.lookups.is_multiple_of(one_of)) {
            return HOT + self.random.below(COLD);
        }
        self.lookups * 7 % HOT
    }
}

/// Creates a cache with the hot blocks in memory.
pub(super) fn warm<C: Cache>() -> C {
    let block_count = HOT + COLD;
    let bytes = usize::try_from(block_count).expect("few") * BLOCK_SIZE as usize;
    let device = Arc::new(MemoryDevice::zeroed(bytes));
    let shape = Shape {
        device,
        block_size: BLOCK_SIZE,
        block_count,
        capacity: CAPACITY,
    };
    let cache = C::new(&shape).expect("the block size is one");
    (0..HOT).for_each(|block| look(&cache, block));
    cache
}

fn look<C: Cache>(cache: &C, block: u64) {
    black_box(
        cache
            .with(black_box(block), |bytes| bytes[9])
            .expect("memory can be read"),
    );
}

fn run<C: Cache>(cache: &C, plan: &Plan, threads: usize, one_of: Option<u64>) -> (Done, Counts) {
    let batch = |place: &mut Place| {
        (0..BATCH).for_each(|_| look(cache, place.next(one_of)));
        BATCH
    };
    let before = cache.counts();
    let done = plan.work(1, threads, Place::new, batch);
    let after = cache.counts();
    let since = Counts {
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
        allocations: after.allocations - before.allocations,
    };
    (done, since)
}

/// Measures lookups of which one in `one_of` misses, or none.
pub(super) fn take<C: Cache>(
    cache: &C,
    plan: &Plan,
    threads: usize,
    one_of: Option<u64>,
) -> Sample {
    let (done, counts) = run(cache, plan, threads, one_of);
    // The batch that each thread begins with is counted by the cache, but not by the load.
    let lookups = (done.ops + threads as u64 * BATCH) as f64;
    let counters = vec![
        ("CPU ns/op", done.cpu_nanos()),
        ("allocator calls/op", done.per_op(done.allocations as f64)),
        ("hits/lookup", counts.hits as f64 / lookups),
        ("misses/lookup", counts.misses as f64 / lookups),
        (
            "buffers allocated/lookup",
            counts.allocations as f64 / lookups,
        ),
    ];
    Sample {
        nanos: done.nanos(),
        counters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_cold_blocks_is_as_wanted() {
        let mut place = Place::new(3);
        let cold = (0..10_000).filter(|_| place.next(Some(10)) >= HOT).count();
        assert_eq!(cold, 1000);
        assert!((0..1000).all(|_| place.next(None) < HOT));
        assert!((0..1000).all(|_| place.next(Some(2)) < HOT + COLD));
    }
}
