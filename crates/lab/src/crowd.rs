//! Threads that do the same thing for a while, and what it took.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use extern4_sync::allocations;
use extern4_sync::primitive::{AtomicBool, Ordering};
use rustix::time::{ClockId, clock_gettime};

use crate::plan::Plan;

/// What a crowd has done, and what it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Operations of all threads.
    pub ops: u64,
    /// Time on the clock.
    pub wall: Duration,
    /// Time of CPUs, of all threads.
    pub cpu: Duration,
    /// Calls of the allocator, by all threads.
    pub allocations: u64,
}

impl Done {
    /// Nanoseconds of the clock for an operation of any thread.
    pub fn nanos(&self) -> f64 {
        self.per_op(self.wall.as_nanos() as f64)
    }

    /// Nanoseconds of a CPU for an operation.
    pub fn cpu_nanos(&self) -> f64 {
        self.per_op(self.cpu.as_nanos() as f64)
    }

    /// So much of something for an operation.
    pub fn per_op(&self, of: f64) -> f64 {
        of / self.ops as f64
    }

    /// With what a thread did beside.
    fn with(self, other: &Self) -> Self {
        Self {
            ops: self.ops + other.ops,
            cpu: self.cpu + other.cpu,
            allocations: self.allocations + other.allocations,
            ..self
        }
    }
}

/// Has `threads` threads call `batch` for as long as is planned, or a part of that, as [`run`] does; so often, where it is counted.
pub fn work<S>(
    plan: &Plan,
    part: u32,
    threads: usize,
    begin: impl Fn(usize) -> S + Sync,
    batch: impl Fn(&mut S) -> u64 + Sync,
) -> Done {
    match &plan.repeated {
        None => run(threads, || thread::sleep(plan.span / part), begin, batch),
        Some(repeated) => {
            let done = run_until(threads, |batches| batches >= repeated.batches, || {}, begin, batch);
            // Relaxed: it is read when all is done.
            repeated.operations.fetch_add(done.ops, Ordering::Relaxed);
            done
        }
    }
}

/// Has `threads` threads call `batch`, which tells how many operations it did, over and over while `meanwhile` runs here.
///
/// Each begins with what `begin` makes of its number and with a batch that does not count, and then does at least one that does. The
/// time begins with the first thread that works and ends when the last has ended, by their own clocks: this thread may be late for
/// both. Everything counts that was done until then.
pub fn run<S>(
    threads: usize,
    meanwhile: impl FnOnce(),
    begin: impl Fn(usize) -> S + Sync,
    batch: impl Fn(&mut S) -> u64 + Sync,
) -> Done {
    let stop = &AtomicBool::new(false);
    let meanwhile = || {
        meanwhile();
        stop.store(true, Ordering::Relaxed);
    };
    // Relaxed: it says when to stop, and orders nothing.
    run_until(threads, |_| stop.load(Ordering::Relaxed), meanwhile, begin, batch)
}

/// The same until `is_over` says so, which is told how many batches the thread has done.
fn run_until<S>(
    threads: usize,
    is_over: impl Fn(u64) -> bool + Sync,
    meanwhile: impl FnOnce(),
    begin: impl Fn(usize) -> S + Sync,
    batch: impl Fn(&mut S) -> u64 + Sync,
) -> Done {
    let ready = &Barrier::new(threads + 1);
    let work = |thread| {
        let mut state = begin(thread);
        batch(&mut state);
        ready.wait();
        let (begun, cpu, allocated) = (Instant::now(), cpu_time(), allocations::of_this_thread());
        let (mut ops, mut batches) = (counted_batch(&batch, &mut state), 1);
        while !is_over(batches) {
            ops += counted_batch(&batch, &mut state);
            batches += 1;
        }
        let allocations = allocations::of_this_thread() - allocated;
        let done = Done { ops, cpu: cpu_time() - cpu, allocations, wall: Duration::ZERO };
        (done, begun, Instant::now())
    };
    let work = &work;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        ready.wait();
        meanwhile();
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("no panic")).collect();
        let begun = done.iter().map(|(_, begun, _)| *begun).min();
        let ended = done.iter().map(|(.., ended)| *ended).max();
        let wall = begun.zip(ended).map_or(Duration::ZERO, |(begun, ended)| ended - begun);
        done.iter().fold(Done { wall, ..Done::default() }, |total, (done, ..)| total.with(done))
    })
}

/// A batch that counts: callgrind knows it by this name ([`callgrind`](crate::callgrind)).
#[inline(never)]
fn counted_batch<S>(batch: impl Fn(&mut S) -> u64, state: &mut S) -> u64 {
    batch(state)
}

/// CPU time of this thread.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // OK: neither is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_threads_do_is_added_up() {
        let (start, meanwhile) = (Instant::now(), || thread::sleep(Duration::from_millis(5)));
        let done = run(3, meanwhile, |thread| thread, |_| u64::from(*std::hint::black_box(Box::new(1_u8))));
        assert!(done.ops > 0 && done.allocations == done.ops, "{done:?}");
        assert!(done.cpu > Duration::ZERO && done.wall > Duration::ZERO && done.wall <= start.elapsed());
    }
}
