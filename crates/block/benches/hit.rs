//! The cost of a hit in the buffer cache, in nanoseconds and allocations, on one thread and on two.
//!
//! `cargo bench -p extern4-block`. Each figure is the median of the rounds, followed by the fastest
//! and the slowest. The threads of a round all look at the same blocks. Time is the threads' CPU
//! time, so that other programs on the machine disturb it less. A row that waits for locks
//! therefore looks better than it is. The last row is the structure that the cache replaces: one
//! lock, and one reference count taken for each lookup.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use extern4_block::{BufferCache, CacheBudget, CacheOptions, MemoryDevice};
use extern4_sync::percpu::cpu;
use extern4_sync::rcu;

const BLOCK: u32 = 4096;
const BLOCKS: u64 = 1024;
const LOOKUPS: u64 = 2_000_000;
const ROUNDS: usize = 9;

/// The system's allocator, counting.
struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

/// CPU time that this thread has used, in nanoseconds.
fn cpu_time() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

// SAFETY: each call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of `System`'s method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `System`'s method.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `lookup` over blocks on `threads` threads at once, and prints the time of one call.
fn measure(name: &str, threads: usize, lookup: impl Fn(u64) -> u8 + Sync) {
    let mut rounds = Vec::new();
    let mut allocations = 0u64;
    for _ in 0..ROUNDS {
        let barrier = Barrier::new(threads);
        let times: Vec<_> = thread::scope(|scope| {
            let run = || {
                // A thread's first pin creates its epoch record.
                drop(rcu::pin());
                barrier.wait();
                let before = ALLOCATIONS.get();
                let start = cpu_time();
                let mut sum = 0u64;
                for i in 0..LOOKUPS {
                    sum += u64::from(lookup(black_box(i * 7 % BLOCKS)));
                }
                black_box(sum);
                let time = cpu_time() - start;
                (time, ALLOCATIONS.get() - before)
            };
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            handles
                .into_iter()
                .map(|handle| handle.join().unwrap())
                .collect()
        });
        let total: f64 = times.iter().map(|&(time, _)| time as f64).sum();
        rounds.push(total / (threads as u64 * LOOKUPS) as f64);
        allocations += times.iter().map(|(_, count)| count).sum::<u64>();
    }
    rounds.sort_by(f64::total_cmp);
    let fast = rounds[0];
    let median = rounds[ROUNDS / 2];
    let slow = rounds[ROUNDS - 1];
    println!("{name:<44} {threads} {median:>8.1} {fast:>8.1} {slow:>8.1} {allocations:>8}");
}

fn main() {
    let device = Arc::new(MemoryDevice::zeroed(BLOCK as usize * BLOCKS as usize));
    let options = CacheOptions {
        block_size: BLOCK,
        block_count: BLOCKS,
        budget: CacheBudget::new(64 << 20),
    };
    let cache = BufferCache::new(device, options).unwrap();
    cache.read_ahead(0..BLOCKS);
    (0..BLOCKS).for_each(|block| drop(cache.read(block).unwrap()));
    let locked: Mutex<HashMap<u64, Arc<[u8]>>> = Mutex::new(
        (0..BLOCKS)
            .map(|block| (block, vec![0; BLOCK as usize].into()))
            .collect(),
    );

    println!(
        "{:<44} n   median     fast     slow   allocs   (ns per lookup and thread)",
        ""
    );
    for threads in [1, 2] {
        measure("cpu()", threads, |_| cpu() as u8);
        measure("rcu::pin", threads, |_| {
            drop(rcu::pin());
            0
        });
        measure("BufferCache::with", threads, |block| {
            cache.with(block, |bytes| bytes[9]).unwrap()
        });
        measure("BufferCache::with, one block for all", threads, |_| {
            cache.with(5, |bytes| bytes[9]).unwrap()
        });
        measure("BufferCache::with, under a guard", threads, |block| {
            thread_local!(static GUARD: rcu::Guard = rcu::pin());
            GUARD.with(|_| cache.with(block, |bytes| bytes[9]).unwrap())
        });
        measure("BufferCache::peek, under a guard", threads, |block| {
            thread_local!(static GUARD: rcu::Guard = rcu::pin());
            GUARD.with(|guard| cache.peek(block, guard).unwrap()[9])
        });
        measure("BufferCache::read", threads, |block| {
            cache.read(block).unwrap()[9]
        });
        measure("BufferCache::read, one block for all", threads, |_| {
            cache.read(5).unwrap()[9]
        });
        measure("Mutex<HashMap<_, Arc<_>>>", threads, |block| {
            locked.lock().unwrap()[&block].clone()[9]
        });
    }
}
