//! The cost of a read section in nanoseconds, next to that of crossbeam-epoch.
//!
//! `cargo bench -p extern4-sync`. The two run in alternation, so that other load disturbs both
//! alike. Each figure is the median of the rounds, with the fastest next to it. The ratio is the
//! median of the ratios of the rounds. Time is CPU time of the threads.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use extern4_sync::rcu;

const SECTIONS: u64 = 4_000_000;
const ROUNDS: usize = 21;

/// Returns the CPU time of this thread in nanoseconds.
fn cpu_time() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Returns the nanoseconds of one call of `section`, on each of `threads` threads.
fn round(threads: usize, section: &(impl Fn() + Sync)) -> f64 {
    let barrier = &Barrier::new(threads);
    let total: i64 = thread::scope(|scope| {
        let run = || {
            section();
            barrier.wait();
            let start = cpu_time();
            for _ in 0..SECTIONS {
                section();
            }
            cpu_time() - start
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .sum()
    });
    total as f64 / (threads as u64 * SECTIONS) as f64
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn compare(name: &str, threads: usize, ours: impl Fn() + Sync, theirs: impl Fn() + Sync) {
    let mut our_times = Vec::new();
    let mut their_times = Vec::new();
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let our_time = round(threads, &ours);
        let their_time = round(threads, &theirs);
        our_times.push(our_time);
        their_times.push(their_time);
        ratios.push(our_time / their_time);
    }
    let ours = median(&mut our_times);
    let theirs = median(&mut their_times);
    let ratio = median(&mut ratios);
    let our_best = our_times[0];
    let their_best = their_times[0];
    println!(
        "{name:<28} {threads} {ours:>7.2} ({our_best:>5.2}) {theirs:>11.2} ({their_best:>5.2}) {ratio:>7.2}"
    );
}

fn main() {
    println!(
        "{:<28} n    ours (best)   crossbeam (best)   ratio   (ns per section and thread)",
        ""
    );
    for threads in [1, 2] {
        compare(
            "pin and unpin",
            threads,
            || drop(black_box(rcu::pin())),
            || drop(black_box(crossbeam_epoch::pin())),
        );
        thread_local! {
            static OURS: rcu::Guard = rcu::pin();
            static THEIRS: crossbeam_epoch::Guard = crossbeam_epoch::pin();
        }
        compare(
            "pin and unpin, nested",
            threads,
            || OURS.with(|_| drop(black_box(rcu::pin()))),
            || THEIRS.with(|_| drop(black_box(crossbeam_epoch::pin()))),
        );
        let cell = rcu::RcuOption::new(Some(0u64));
        // crossbeam-epoch without the pointer, which is safe code.
        compare(
            "replace a value",
            threads,
            || cell.store(Some(black_box(1))),
            || {
                let value = Box::new(black_box(1u64));
                crossbeam_epoch::pin().defer(move || drop(value));
            },
        );
    }
}
