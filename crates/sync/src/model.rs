//! Models: protocols explored by loom, every interleaving of two threads within a bound on preemptions, and every value
//! that the memory model lets a load return; or run by shuttle, many threads in schedules chosen by chance.
//!
//! `LOOM_MAX_PREEMPTIONS` sets the bound, `SHUTTLE_ITERATIONS` the number of schedules.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;

use crate::primitive::thread;

/// Preemptions where nothing else is asked for.
#[cfg(not(feature = "shuttle"))]
const PREEMPTIONS: usize = 2;
/// Steps of one run. Loom's own bound is for models of a few words.
#[cfg(not(feature = "shuttle"))]
const STEPS: usize = 50_000;

/// Runs `body` in every way it can go.
#[cfg(not(feature = "shuttle"))]
pub fn explore(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.max_branches = builder.max_branches.max(STEPS);
    builder.check(body);
}

/// Runs `body` as often as `SHUTTLE_ITERATIONS` says, half of the times with threads chosen at random at each step, half
/// with few switches at random places.
#[cfg(feature = "shuttle")]
pub fn explore(body: impl Fn() + Sync + Send + 'static) {
    let iterations =
        std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let body = Arc::new(body);
    let again = Arc::clone(&body);
    // Shuttle's own stacks hold 32 KiB, and its atomics are larger than the machine's.
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    let random = shuttle::scheduler::RandomScheduler::new(iterations / 2);
    shuttle::Runner::new(random, config.clone()).run(move || body());
    let switches = shuttle::scheduler::PctScheduler::new(4, iterations / 2);
    shuttle::Runner::new(switches, config).run(move || again());
}

/// Runs `each` in so many threads at once on what `setup` made, told which of them it is, and `end` when all are done.
pub fn crowd<S: Send + Sync + 'static>(
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
            other.join().expect("each thread ends well");
        }
        end(&shared);
    });
}

/// Runs `a` and `b` at once on what `setup` made, and `end` when both are done. In one model `a` is the first thread, in
/// another `b`: loom tries the first thread first, and forgets that a thread has read a word once another has read it
/// before writing it, so one order is not enough.
pub fn race<S: Send + Sync + 'static>(
    setup: impl Fn() -> S + Sync + Send + Copy + 'static,
    a: impl Fn(&S) + Sync + Send + Copy + 'static,
    b: impl Fn(&S) + Sync + Send + Copy + 'static,
    end: impl Fn(&S) + Sync + Send + Copy + 'static,
) {
    race_for(setup, a, b, move |shared, (), ()| end(shared));
}

/// The same, where `end` is told what `a` and `b` returned.
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
        let theirs = other.join().expect("the other thread ends well");
        end(&shared, mine, theirs);
    });
    explore(move || {
        let shared = Arc::new(setup());
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || a(&shared)
        });
        let mine = b(&shared);
        let theirs = other.join().expect("the other thread ends well");
        end(&shared, theirs, mine);
    });
}

/// The system's allocator, which spoils memory before it takes it back, so that a use after the free does not find what
/// it looks for. For tests: `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spoiling;

/// No pointer, no number that anybody uses, and not true or false.
const SPOILT: u8 = 0xdd;

// SAFETY: every call goes to `System` with what the caller gave, so what `System` promises holds; a block that is given
// back is the allocator's to write to.
unsafe impl GlobalAlloc for Spoiling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this method, which is that of `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` is as long as `layout` says, and nobody uses it any more.
        unsafe { block.write_bytes(SPOILT, layout.size()) };
        // SAFETY: as in `alloc`; `block` came from `System`, for all of ours do.
        unsafe { System.dealloc(block, layout) }
    }
}
