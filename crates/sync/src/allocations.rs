//! An allocator that counts: how many allocations an operation costs is part of what is measured.
//!
//! It is the system's allocator with one counter a thread in front of it. A counter of its own thread costs a load and
//! a store in memory that nobody shares, which does not show beside the allocation itself. A program asks for it with
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: extern4_sync::allocations::Counting = extern4_sync::allocations::Counting;
//!
//! let before = extern4_sync::allocations::of_this_thread();
//! let boxed = std::hint::black_box(Box::new(1_u8));
//! assert_eq!(extern4_sync::allocations::of_this_thread() - before, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// The system's allocator, with a count of the bytes that are allocated now. All threads add to one counter, so it serves
/// tests of memory, and no measurement of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingLive;

/// Not of a model: an allocator may be called at any time.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are allocated now; always 0 where [`CountingLive`] is not the allocator.
pub fn live_bytes() -> usize {
    LIVE.load(Relaxed)
}

// SAFETY: every call goes to `System` with the arguments of the caller, so the promises of `System` hold; counting neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for CountingLive {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of this method, which is that of `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `block` came from `System`, as all blocks of this allocator do.
        unsafe { System.dealloc(block, layout) }
    }
}

thread_local! {
    // Without a destructor and with a constant start, so that it can be used inside the allocator at any time.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    COUNT.with(|count| count.set(count.get().wrapping_add(1)));
}

/// Allocations that this thread has made; always 0 where [`Counting`] is not the allocator.
pub fn of_this_thread() -> u64 {
    COUNT.with(Cell::get)
}

// SAFETY: every call goes to `System` with what the caller gave, so what `System` promises holds; counting neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of this method, which is that of `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`; `block` came from `System`, for all of ours do.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(block, layout) }
    }
}
