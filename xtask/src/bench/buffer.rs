//! Rows of the buffer cache: hits on one buffer, as in its own bench.

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;

use extern4::block::{BufferCache, CacheBudget, CacheOptions, MemoryDevice};
use extern4_measure::load::Load;
use extern4_sync::{allocations, rcu};

use super::row::{Row, Unit};
use super::{Bench, RUNS, Result};

const BLOCK: u32 = 4096;
const BLOCKS: u64 = 64;
const HITS: u64 = 1_000_000;

impl Bench {
    /// Allocations in a million hits.
    pub(super) fn buffer_allocations(&self) -> Result<Row> {
        let cache = cache()?;
        let mut row = Row::below("buffer-hit-allocations", Unit::Count, 0.0);
        for _ in 0..RUNS {
            row.add(hit(&cache, 1).1 as f64, 0.0);
        }
        Ok(row)
    }

    /// CPU time of a hit with two threads, compared with one.
    pub(super) fn buffer_threads(&self) -> Result<Row> {
        let cache = cache()?;
        let mut row = Row::faster("buffer-hit-2-threads-vs-1", Unit::Nanoseconds, 1.9);
        row.rounds(RUNS, || {
            let two = hit(&cache, 2).0;
            let one = hit(&cache, 1).0;
            Ok((two, one))
        })?;
        Ok(row)
    }
}

fn cache() -> Result<BufferCache> {
    let len = usize::try_from(u64::from(BLOCK) * BLOCKS).map_err(|e| e.to_string())?;
    let options = CacheOptions {
        block_size: BLOCK,
        block_count: BLOCKS,
        budget: CacheBudget::new(1 << 20),
    };
    BufferCache::new(Arc::new(MemoryDevice::zeroed(len)), options).map_err(|e| e.to_string())
}

/// A million hits a thread on one block: CPU time, which other programs disturb less, for each hit
/// of any thread, and allocations.
fn hit(cache: &BufferCache, threads: u32) -> (f64, u64) {
    let look = || {
        black_box(
            cache
                .with(black_box(5), |bytes| bytes[9])
                .expect("memory can be read"),
        )
    };
    let begin = |_| {
        // The first makes the thread's record of the epoch, and reads the block.
        drop(rcu::pin());
        look();
    };
    let work = |_: &mut ()| {
        for _ in 0..HITS {
            look();
        }
        Ok::<_, Infallible>(HITS)
    };
    let load = Load::counting(threads as usize, allocations::of_this_thread);
    let Ok(done) = load.run(begin, work, || {});
    (done.cpu_nanos() / f64::from(threads), done.allocations)
}
