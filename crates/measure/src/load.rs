//! Loads: threads that do the same work at the same time, and the time and allocations that it
//! took.
//!
//! The lab, `xtask bench` and the command's `bench` measure with it. The threads begin together,
//! after each has done a batch that does not count. The first error of a thread is the result.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A number of threads, and a way to count their allocations.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    threads: usize,
    allocations: fn() -> u64,
}

/// The work of all threads of a load, and its cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Operations of all threads.
    pub ops: u64,
    /// Time on the clock, from the first thread that begins to the last that ends.
    pub wall: Duration,
    /// CPU time of all threads.
    pub cpu: Duration,
    /// Allocations of all threads; 0 where the load does not count them.
    pub allocations: u64,
}

impl Done {
    /// Returns the nanoseconds of the clock for an operation of any thread.
    pub fn nanos(&self) -> f64 {
        self.per_op(self.wall.as_nanos() as f64)
    }

    /// Returns the nanoseconds of CPU time for an operation.
    pub fn cpu_nanos(&self) -> f64 {
        self.per_op(self.cpu.as_nanos() as f64)
    }

    /// Returns the number of allocations for an operation.
    pub fn allocations_per_op(&self) -> f64 {
        self.per_op(self.allocations as f64)
    }

    /// Returns the number of operations a second.
    pub fn per_second(&self) -> f64 {
        self.ops as f64 / self.wall.as_secs_f64()
    }

    /// Returns the share of `of` that falls to one operation.
    pub fn per_op(&self, of: f64) -> f64 {
        of / self.ops as f64
    }

    /// Adds the work of another thread, but not its time on the clock.
    fn with(self, other: &Self) -> Self {
        Self {
            ops: self.ops + other.ops,
            cpu: self.cpu + other.cpu,
            allocations: self.allocations + other.allocations,
            ..self
        }
    }
}

impl Load {
    /// Returns a load of `threads` threads, whose allocations are not counted.
    pub fn of(threads: usize) -> Self {
        Self {
            threads,
            allocations: || 0,
        }
    }

    /// Returns a load of `threads` threads. `allocations` returns the number of allocations that
    /// the calling thread has made so far.
    pub fn counting(threads: usize, allocations: fn() -> u64) -> Self {
        Self {
            threads,
            allocations,
        }
    }

    /// Runs the load. Each thread makes its own state with `begin`, which gets the thread's
    /// number. When all are ready, each calls `work` with its state; `work` returns the number of
    /// its operations. `meanwhile` runs on this thread as soon as they work.
    ///
    /// Each thread reads its own clocks, because this thread may start late.
    ///
    /// # Errors
    ///
    /// The first error of any thread.
    ///
    /// # Panics
    ///
    /// If a thread panics.
    pub fn run<S, E: Send>(
        self,
        begin: impl Fn(usize) -> S + Sync,
        work: impl Fn(&mut S) -> Result<u64, E> + Sync,
        meanwhile: impl FnOnce(),
    ) -> Result<Done, E> {
        let ready = &Barrier::new(self.threads + 1);
        let one = |thread| {
            let mut state = begin(thread);
            ready.wait();
            let begun = Instant::now();
            let cpu = cpu_time();
            let allocated = (self.allocations)();
            let ops = counted_work(&work, &mut state)?;
            let allocations = (self.allocations)() - allocated;
            let done = Done {
                ops,
                cpu: cpu_time() - cpu,
                allocations,
                wall: Duration::ZERO,
            };
            Ok((done, begun, Instant::now()))
        };
        let one = &one;
        let done = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|thread| scope.spawn(move || one(thread)))
                .collect();
            ready.wait();
            meanwhile();
            let joined = workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker does not panic"));
            joined.collect::<Vec<_>>()
        });
        let done = done.into_iter().collect::<Result<Vec<_>, E>>()?;
        let begun = done.iter().map(|(_, begun, _)| *begun).min();
        let ended = done.iter().map(|(.., ended)| *ended).max();
        let wall = begun
            .zip(ended)
            .map_or(Duration::ZERO, |(begun, ended)| ended - begun);
        Ok(done.iter().fold(
            Done {
                wall,
                ..Done::default()
            },
            |total, (done, ..)| total.with(done),
        ))
    }

    /// Has the threads call `batch` over and over while `meanwhile` runs on this one. `batch`
    /// returns the number of operations that it did. Each thread does a batch that does not count,
    /// and at least one that does.
    pub fn repeat<S>(
        self,
        meanwhile: impl FnOnce(),
        begin: impl Fn(usize) -> S + Sync,
        batch: impl Fn(&mut S) -> u64 + Sync,
    ) -> Done {
        let stop = &AtomicBool::new(false);
        let meanwhile = || {
            meanwhile();
            stop.store(true, Ordering::Relaxed);
        };
        // Relaxed: the flag says when to stop, and orders nothing.
        self.repeat_until(|_| stop.load(Ordering::Relaxed), meanwhile, begin, batch)
    }

    /// Has each thread do exactly `batches` batches, after one that does not count.
    pub fn repeat_times<S>(
        self,
        batches: u64,
        begin: impl Fn(usize) -> S + Sync,
        batch: impl Fn(&mut S) -> u64 + Sync,
    ) -> Done {
        self.repeat_until(|done| done >= batches, || {}, begin, batch)
    }

    /// Has each thread do batches until `is_over` returns true. `is_over` gets the number of
    /// batches that the thread has done.
    fn repeat_until<S>(
        self,
        is_over: impl Fn(u64) -> bool + Sync,
        meanwhile: impl FnOnce(),
        begin: impl Fn(usize) -> S + Sync,
        batch: impl Fn(&mut S) -> u64 + Sync,
    ) -> Done {
        let warm = |thread| {
            let mut state = begin(thread);
            batch(&mut state);
            state
        };
        let work = |state: &mut S| {
            let mut ops = batch(state);
            let mut batches = 1;
            while !is_over(batches) {
                ops += batch(state);
                batches += 1;
            }
            Ok::<_, std::convert::Infallible>(ops)
        };
        let Ok(done) = self.run(warm, work, meanwhile);
        done
    }
}

/// Calls `step` until the time is up: `batch` times between two looks at the clock, and once at
/// least. `step` gets the number of earlier calls and returns the amount that it did. Returns the
/// sum of the amounts.
///
/// # Errors
///
/// The first error of `step`.
pub fn for_span<E>(
    span: Duration,
    batch: u64,
    mut step: impl FnMut(u64) -> Result<u64, E>,
) -> Result<u64, E> {
    let start = Instant::now();
    let mut turn = 0;
    let mut done = 0;
    loop {
        for _ in 0..batch {
            done += step(turn)?;
            turn += 1;
        }
        if start.elapsed() >= span {
            return Ok(done);
        }
    }
}

/// The name of the function that runs the work of a thread, for a tool such as callgrind that
/// counts only in it.
pub const COUNTED: &str = "load::counted_work";

#[inline(never)]
fn counted_work<S, E>(work: impl Fn(&mut S) -> Result<u64, E>, state: &mut S) -> Result<u64, E> {
    work(state)
}

/// Returns the CPU time that this thread has used.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // OK: neither is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_all_threads_is_added_up() {
        let start = Instant::now();
        let meanwhile = || thread::sleep(Duration::from_millis(5));
        let done = Load::counting(3, || 7).repeat(meanwhile, |thread| thread, |_| 2);
        assert!(
            done.ops > 0 && done.ops.is_multiple_of(2) && done.allocations == 0,
            "{done:?}"
        );
        assert!(
            done.cpu > Duration::ZERO && done.wall > Duration::ZERO && done.wall <= start.elapsed()
        );
        assert_eq!(Load::of(3).repeat_times(5, |_| (), |()| 2).ops, 30);
    }

    #[test]
    fn an_error_of_one_thread_is_the_result() {
        let run = |bad| {
            Load::of(4).run(
                |thread| thread,
                |thread| if *thread == bad { Err(bad) } else { Ok(1) },
                || {},
            )
        };
        assert_eq!(run(2).map(|done| done.ops), Err(2));
        assert_eq!(run(9).map(|done| done.ops), Ok(4));
    }

    #[test]
    fn a_span_has_one_batch_at_least() {
        assert_eq!(for_span(Duration::ZERO, 3, Ok::<_, ()>), Ok(1 + 2));
        assert_eq!(
            for_span(Duration::MAX, 3, |turn| if turn == 5 {
                Err(turn)
            } else {
                Ok(1)
            }),
            Err(5)
        );
    }
}
