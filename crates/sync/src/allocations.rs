//! Allocators that count, for benchmarks and tests of allocations and of memory.
//!
//! Each is the system's allocator with a counter in front of it. [`Counting`] adds to a counter of
//! the thread. That is a load and a store in memory that no other thread uses, cheap next to the
//! allocation itself. A program selects it by
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: extern4_sync::allocations::Counting = extern4_sync::allocations::Counting;
//!
//! let before = extern4_sync::allocations::of_this_thread();
//! let boxed = std::hint::black_box(Box::new(1_u8));
//! assert_eq!(extern4_sync::allocations::of_this_thread() - before, 1);
//! ```
//!
//! The command, the lab and the benchmarks select [`Counting`]; tests that check that an operation
//! allocates nothing compare two readings. Both allocators return what the system's returns.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::rcu_arc::arena::mapped_bytes;

/// The system's allocator with a count of the allocations of each thread, and of live bytes while
/// [`count_live`] is on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// The system's allocator with a count of the bytes that are allocated. All threads add to one
/// counter, so it is for tests of memory, not for measurements of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingLive;

/// A standard atomic, also in models: an allocator may be called at any time.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Whether [`Counting`] counts live bytes as well.
static COUNTS_LIVE: AtomicBool = AtomicBool::new(false);

/// Has [`Counting`] count live bytes, or stop. Only the difference of two [`live_bytes`] in between
/// tells something.
pub fn count_live(on: bool) {
    COUNTS_LIVE.store(on, Relaxed);
}

/// Returns the bytes that are allocated, if an allocator counts them, and the bytes of the pages of
/// hash maps, which no allocator sees.
pub fn live_bytes() -> usize {
    LIVE.load(Relaxed).wrapping_add(mapped_bytes())
}

// SAFETY: every call goes to `System` with the arguments of the caller, so its guarantees hold.
// Counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingLive {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of this method, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `block` came from `System`, like all blocks of this allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

thread_local! {
    // It has no destructor and a constant start value, so the allocator can use it at any time.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Adds to the live bytes, if they are counted. Subtracting wraps around, as the counter does.
fn note_live(bytes: usize) {
    if COUNTS_LIVE.load(Relaxed) {
        LIVE.fetch_add(bytes, Relaxed);
    }
}

fn count() {
    COUNT.with(|count| count.set(count.get().wrapping_add(1)));
}

/// Returns the allocations that this thread has made; always 0 if [`Counting`] is not the
/// allocator.
pub fn of_this_thread() -> u64 {
    COUNT.with(Cell::get)
}

// SAFETY: every call goes to `System` with the arguments of the caller, so its guarantees hold.
// Counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        note_live(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        note_live(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        note_live(size.wrapping_sub(layout.size()));
        // SAFETY: as in `alloc`; `block` came from `System`, like all blocks of this allocator.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note_live(0_usize.wrapping_sub(layout.size()));
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(block, layout) }
    }
}
