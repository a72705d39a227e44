//! The time in which a cache line travels from one CPU to another and back.
//!
//! On some machines, virtual ones above all, it changes from one minute to the next. All figures
//! that depend on such lines change with it. So the report prints it, before and after the
//! measurements.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use extern4_measure::figures::Figures;

/// Rounds that are timed together.
const ROUNDS: u64 = 2000;
/// Timings, of which the median counts, since the threads do not run all the time.
const TIMES: u64 = 51;

/// Loads of the line after which a thread yields. They take longer than any transfer.
const LOOKS: u32 = 1000;

/// A cache line with nothing else on it.
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    /// Waits until the other thread has stored `number`, and stores the next.
    fn turn(&self, number: u64) {
        // Acquire and Release pair with each other, as for a message between threads.
        let mut looks = 0_u32;
        while self.0.load(Ordering::Acquire) != number {
            hint::spin_loop();
            looks += 1;
            // The other thread may be waiting for a CPU, perhaps for this one.
            if looks.is_multiple_of(LOOKS) {
                thread::yield_now();
            }
        }
        // Release: pairs with the Acquire above.
        self.0.store(number + 1, Ordering::Release);
    }
}

/// Returns the nanoseconds of a round between two threads. Returns NaN on one CPU, where the
/// scheduler would be timed.
pub(crate) fn nanos_of_round() -> f64 {
    if thread::available_parallelism().map_or(1, |cpus| cpus.get()) < 2 {
        return f64::NAN;
    }
    let line = Line(AtomicU64::new(0));
    let all = ROUNDS * TIMES;
    thread::scope(|scope| {
        scope.spawn(|| (0..all).for_each(|round| line.turn(2 * round + 1)));
        let timed = (0..TIMES).map(|time| {
            let begin = Instant::now();
            (ROUNDS * time..ROUNDS * (time + 1)).for_each(|round| line.turn(2 * round));
            begin.elapsed().as_nanos() as f64 / ROUNDS as f64
        });
        timed.collect::<Figures>().median().unwrap_or(f64::NAN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_takes_some_time() {
        let nanos = nanos_of_round();
        assert!(nanos.is_nan() || nanos > 1.0, "{nanos}");
    }
}
