//! The effect of a hit in the buffer cache on shared memory. A hit makes no allocation, takes no
//! lock, and executes no locked instruction. It stores to no line that another thread's hit uses.
//!
//! `cargo test -p extern4-block --features audit --test footprint -- --nocapture` prints the
//! figures.

use std::hint::black_box;
use std::sync::Arc;

use extern4_block::{BufferCache, CacheBudget, CacheOptions, MemoryDevice};
use extern4_sync::allocations;
use extern4_sync::audit::{conflicts, locked_instructions, record, side_by_side};
use extern4_sync::rcu;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const BLOCKS: u64 = 64;
const CALLS: u64 = 100;

fn cache() -> BufferCache {
    let device = Arc::new(MemoryDevice::zeroed(BLOCKS as usize * 4096));
    let options = CacheOptions {
        block_size: 4096,
        block_count: BLOCKS,
        budget: CacheBudget::new(1 << 20),
    };
    let cache = BufferCache::new(device, options).unwrap();
    (0..BLOCKS / 2).for_each(|block| drop(cache.read(block).unwrap()));
    cache
}

type Act<'a> = (&'static str, Box<dyn Fn() + Sync + 'a>);

/// Returns the ways to look at a block in memory.
fn hits(cache: &BufferCache) -> Vec<Act<'_>> {
    let with = |block| {
        black_box(cache.with(block, |bytes| bytes[9]).unwrap());
    };
    vec![
        ("with", Box::new(move || with(5))),
        ("with, another block", Box::new(move || with(6))),
        (
            "with, under a guard",
            Box::new(move || {
                let _guard = rcu::pin();
                with(5);
            }),
        ),
        (
            "peek",
            Box::new(|| {
                black_box(cache.peek(5, &rcu::pin()).unwrap()[9]);
            }),
        ),
    ]
}

#[test]
fn a_hit_allocates_nothing_and_executes_no_locked_instruction() {
    let cache = cache();
    for (name, hit) in hits(&cache) {
        hit();
        let before = allocations::of_this_thread();
        (0..CALLS).for_each(|_| hit());
        assert_eq!(allocations::of_this_thread() - before, 0, "{name}");
        let (_, footprint) = record(&hit);
        println!("{name:<28} {footprint}");
        assert_eq!(
            (footprint.total().rmws, footprint.full_fences()),
            (0, 0),
            "{name}: {footprint:?}"
        );
        // The lines of the thread's epoch record and of its slot of the count of hits.
        assert!(footprint.written().count() <= 2, "{name}: {footprint:?}");
        if let Some((_, locked)) = locked_instructions(&hit) {
            assert_eq!(locked, 0, "{name}");
        }
    }
}

#[test]
fn hits_on_two_threads_share_no_line_that_one_writes() {
    let cache = cache();
    let hits = hits(&cache);
    for (one_name, one) in &hits {
        for (other_name, other) in &hits {
            let [one, other] = side_by_side(one, other);
            let found = conflicts(&one, &other);
            assert!(found.is_empty(), "{one_name} and {other_name}: {found:?}");
        }
    }
}

/// Checks that the tools see what other calls do, so that the zeroes above mean something.
#[test]
fn a_buffer_that_is_held_and_a_miss_are_seen() {
    let cache = cache();
    let hold = || drop(cache.read(5).unwrap());
    hold();
    let (_, held) = record(hold);
    println!("{:<28} {held}", "read");
    assert!(held.total().rmws >= 2, "{held:?}");
    let [one, other] = side_by_side(hold, hold);
    assert!(!conflicts(&one, &other).is_empty());
    if let Some((_, locked)) = locked_instructions(hold) {
        assert_eq!(locked, held.total().rmws);
    }

    let before = allocations::of_this_thread();
    cache.with(BLOCKS - 1, |_| ()).unwrap();
    assert!(allocations::of_this_thread() > before);
    let (_, miss) = record(|| cache.with(BLOCKS - 2, |_| ()).unwrap());
    println!("{:<28} {miss}", "with, of a block not there");
    assert!(miss.total().rmws > 4, "{miss:?}");
}
