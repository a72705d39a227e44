//! Rows of the buffer cache: hits on one buffer, as in its own bench.
//!
//! Time is the threads' CPU time, so that other programs on the machine disturb it less.

use std::sync::{Arc, Barrier};
use std::thread;

use extern4::block::{BufferCache, CacheOptions, MemoryDevice};
use extern4_sync::{allocations, rcu};
use rustix::time::{ClockId, clock_gettime};

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

    /// What a hit takes of the machine with two threads, beside one.
    pub(super) fn buffer_threads(&self) -> Result<Row> {
        let cache = cache()?;
        let mut row = Row::faster("buffer-hit-2-threads-vs-1", Unit::Nanoseconds, 1.9);
        for run in 0..=RUNS {
            let (two, one) = (hit(&cache, 2).0, hit(&cache, 1).0);
            if run > 0 {
                row.add(two, one);
            }
        }
        Ok(row)
    }
}

fn cache() -> Result<BufferCache> {
    let len = usize::try_from(u64::from(BLOCK) * BLOCKS).map_err(|e| e.to_string())?;
    let options = CacheOptions { block_size: BLOCK, block_count: BLOCKS, memory_bytes: 1 << 20 };
    BufferCache::new(Arc::new(MemoryDevice::zeroed(len)), options).map_err(|e| e.to_string())
}

/// A million hits a thread on one block: nanoseconds for each hit of any thread, and allocations.
fn hit(cache: &BufferCache, threads: u32) -> (f64, u64) {
    let barrier = Barrier::new(threads as usize);
    let run = || {
        // The first makes the thread's record of the epoch, and reads the block.
        drop(rcu::pin());
        cache.with(5, |bytes| bytes[9]).expect("memory can be read");
        barrier.wait();
        let (before, start) = (allocations::of_this_thread(), cpu_time());
        for _ in 0..HITS {
            std::hint::black_box(
                cache.with(std::hint::black_box(5), |bytes| bytes[9]).expect("memory can be read"),
            );
        }
        (cpu_time() - start, allocations::of_this_thread() - before)
    };
    let figures: Vec<(i64, u64)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let time: f64 = figures.iter().map(|(time, _)| *time as f64).sum();
    let each = time / (f64::from(threads) * HITS as f64);
    (each / f64::from(threads), figures.iter().map(|(_, count)| count).sum())
}

/// CPU time that this thread has used, in nanoseconds.
fn cpu_time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
