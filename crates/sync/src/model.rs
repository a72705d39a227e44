//! The runner of loom and shuttle tests.
//!
//! Loom explores every interleaving of two threads within a bound on preemptions, and every value
//! that the memory model lets a load return. Shuttle runs many threads in random schedules.
//!
//! `LOOM_MAX_PREEMPTIONS` sets the bound, `SHUTTLE_ITERATIONS` the number of schedules.
//!
//! The tests of this crate, `vfs`, `block`, `jbd2` and `ext4` call it. A model that finds a wrong
//! result, a data race, a deadlock or a leak fails the test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;

use crate::primitive::thread;

/// The default bound on preemptions.
#[cfg(not(feature = "shuttle"))]
const PREEMPTIONS: usize = 2;
/// Steps of one run, at most. Loom's own bound is for models of a few words.
#[cfg(not(feature = "shuttle"))]
const STEPS: usize = 50_000;

/// Runs `body` in every interleaving.
#[cfg(not(feature = "shuttle"))]
pub fn explore(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.max_branches = builder.max_branches.max(STEPS);
    builder.check(body);
}

/// Runs `body` in `SHUTTLE_ITERATIONS` schedules: half of them choose a random thread at each step,
/// half have few switches at random places.
#[cfg(feature = "shuttle")]
pub fn explore(body: impl Fn() + Sync + Send + 'static) {
    let iterations = std::env::var("SHUTTLE_ITERATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1000);
    let body = Arc::new(body);
    let again = Arc::clone(&body);
    // Shuttle's default stack is 32 KiB, and its atomics are larger than the real ones.
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    let random = shuttle::scheduler::RandomScheduler::new(iterations / 2);
    shuttle::Runner::new(random, config.clone()).run(move || body());
    let switches = shuttle::scheduler::PctScheduler::new(4, iterations / 2);
    shuttle::Runner::new(switches, config).run(move || again());
}

/// Runs `each` in `threads` threads at once on the result of `setup`, with the index of the thread,
/// then `end`.
pub fn race_many<S: Send + Sync + 'static>(
    threads: usize,
    setup: impl Fn() -> S + Sync + Send + 'static,
    each: impl Fn(&S, usize) + Sync + Send + Copy + 'static,
    end: impl Fn(&S) + Sync + Send + 'static,
) {
    explore(move || {
        let shared = Arc::new(setup());
        let spawn = |index| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || each(&shared, index))
        };
        let others: Vec<_> = (0..threads).map(spawn).collect();
        for other in others {
            other.join().expect("no thread panics");
        }
        end(&shared);
    });
}

/// Runs `a` and `b` at once on the result of `setup`, then `end`. In one model `a` is the first
/// thread, in another `b`. One order is not enough. Loom runs the first thread first, and forgets
/// that a thread has read a word once another one has read it before a write.
pub fn race<S: Send + Sync + 'static>(
    setup: impl Fn() -> S + Sync + Send + Copy + 'static,
    a: impl Fn(&S) + Sync + Send + Copy + 'static,
    b: impl Fn(&S) + Sync + Send + Copy + 'static,
    end: impl Fn(&S) + Sync + Send + Copy + 'static,
) {
    race_for(setup, a, b, move |shared, (), ()| end(shared));
}

/// Runs `a` and `b` as [`race`] does, and passes their results to `end`.
pub fn race_for<S: Send + Sync + 'static, A: Send + 'static, B: Send + 'static>(
    setup: impl Fn() -> S + Sync + Send + Copy + 'static,
    a: impl Fn(&S) -> A + Sync + Send + Copy + 'static,
    b: impl Fn(&S) -> B + Sync + Send + Copy + 'static,
    end: impl Fn(&S, A, B) + Sync + Send + Copy + 'static,
) {
    explore(move || {
        let shared = Arc::new(setup());
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || b(&shared)
        });
        let mine = a(&shared);
        let theirs = other.join().expect("the other thread does not panic");
        end(&shared, mine, theirs);
    });
    explore(move || {
        let shared = Arc::new(setup());
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || a(&shared)
        });
        let mine = b(&shared);
        let theirs = other.join().expect("the other thread does not panic");
        end(&shared, theirs, mine);
    });
}

/// The system's allocator, which overwrites memory before it frees it, so that a use after the free
/// finds garbage. For tests: `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Poisoning;

/// A byte that makes no valid pointer, no valid `bool` and no number in use.
const POISON: u8 = 0xdd;

// SAFETY: every call goes to `System` with the arguments of the caller, so its guarantees hold. The
// allocator may write to a block that is being freed.
unsafe impl GlobalAlloc for Poisoning {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this method, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` has the length of `layout`, and no user any more.
        unsafe { block.write_bytes(POISON, layout.size()) };
        // SAFETY: as in `alloc`; `block` came from `System`, like all blocks of this allocator.
        unsafe { System.dealloc(block, layout) }
    }
}
