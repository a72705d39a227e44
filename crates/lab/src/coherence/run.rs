//! The simulation: CPUs that repeat a recording.
//!
//! `curve` calls it for each number of CPUs. The result depends on the recording and the latencies
//! only, so two runs agree. The time with one CPU is the measured one by construction.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::caches::Caches;
use super::latencies::{Latencies, Picos};
use super::locks::Locks;
use super::replay::{Line, Replay, Step, Use};
use crate::random::Random;

/// Operations of each CPU, on average, that warm up the caches and do not count.
const WARM_UP: usize = 8;
/// Operations of each CPU that count.
const MEASURED: usize = 24;

/// Returns the nanoseconds for each operation of `cpus` CPUs together, if one CPU alone takes
/// `alone` nanoseconds.
pub fn nanos(replay: &Replay, alone: f64, cpus: usize, latencies: Latencies) -> f64 {
    let mut run = Run::new(replay, (alone * 1000.0).round() as Picos, cpus, latencies);
    let begun = run.until(WARM_UP * cpus);
    let done = run.until((WARM_UP + MEASURED) * cpus);
    (done - begun) as f64 / 1000.0 / (MEASURED * cpus) as f64
}

struct Run<'r> {
    threads: &'r [Vec<Step>; 2],
    alone: Picos,
    caches: Caches,
    locks: Locks,
    /// The next step of each CPU. At the end of the operation it is the number of steps.
    at: Vec<usize>,
    /// When each CPU continues: the earliest first, and of equal times the lowest CPU number.
    events: BinaryHeap<Reverse<(Picos, usize)>>,
    done: usize,
}

impl<'r> Run<'r> {
    fn new(replay: &'r Replay, alone: Picos, cpus: usize, latencies: Latencies) -> Self {
        let mut run = Self {
            threads: &replay.threads,
            alone,
            caches: Caches::new(latencies),
            locks: Locks::default(),
            at: vec![0; cpus],
            events: BinaryHeap::new(),
            done: 0,
        };
        for cpu in 0..cpus {
            // CPUs start at random times: not all at once, nor one socket before the other. A CPU
            // that asks first keeps its place in the queue.
            let begin = Random::new(cpu).below(alone.max(1));
            run.events.push(Reverse((begin + run.gap(cpu, 0), cpu)));
        }
        run
    }

    /// Runs until `operations` operations are done, and returns the time.
    fn until(&mut self, operations: usize) -> Picos {
        loop {
            let Reverse((now, cpu)) = self.events.pop().expect("a CPU always goes on");
            self.go_on(cpu, now);
            if self.done >= operations {
                return now;
            }
        }
    }

    fn steps(&self, cpu: usize) -> &'r [Step] {
        &self.threads[cpu % 2]
    }

    /// Returns the time from the previous step to this one, without transfers of lines. The gaps of
    /// an operation add up to `alone`.
    fn gap(&self, cpu: usize, step: usize) -> Picos {
        let parts = self.steps(cpu).len() as Picos + 1;
        let until = |step: usize| self.alone * step as Picos / parts;
        until(step + 1) - until(step)
    }

    /// Executes the next step of a CPU, or ends its operation.
    fn go_on(&mut self, cpu: usize, now: Picos) {
        let steps = self.steps(cpu);
        let Some(step) = steps.get(self.at[cpu]) else {
            // Locks that the operation keeps are free for the next operation.
            for lock in self.locks.of(cpu) {
                self.release(cpu, lock, now);
            }
            self.done += 1;
            self.at[cpu] = 0;
            return self.next(cpu, now);
        };
        let line = match step.line {
            Line::Shared(number) => u64::from(number),
            Line::Own(number) => (cpu as u64 + 1) << 32 | u64::from(number),
        };
        if step.how == Use::Read {
            let had = self.caches.read(cpu, line, now);
            return self.step_done(cpu, had);
        }
        let had = self.caches.write(cpu, line, now);
        let locks = matches!(step.how, Use::Lock | Use::LockShared);
        if had > now && (locks || step.how == Use::Unlock) {
            // The CPU sees whether the lock is free, or releases it, only when it has the line.
            return self.events.push(Reverse((had, cpu)));
        }
        if locks && !self.locks.take(cpu, line, step.how == Use::Lock) {
            // The CPU that releases the lock schedules the next attempt.
            return;
        }
        if step.how == Use::Unlock {
            self.release(cpu, line, had);
        }
        self.step_done(cpu, had);
    }

    fn step_done(&mut self, cpu: usize, had: Picos) {
        self.at[cpu] += 1;
        self.next(cpu, had);
    }

    /// Schedules the next step of a CPU.
    fn next(&mut self, cpu: usize, now: Picos) {
        let at = now + self.gap(cpu, self.at[cpu]);
        self.events.push(Reverse((at, cpu)));
    }

    fn release(&mut self, cpu: usize, lock: u64, now: Picos) {
        for next in self.locks.release(cpu, lock) {
            self.events.push(Reverse((now, next)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Side;

    /// A machine of sockets with four CPUs.
    const MACHINE: Latencies = Latencies { same_socket: 50_000, other_socket: 100_000, cpus_of_socket: 4 };

    fn replay(one: &str, other: &str) -> Replay {
        Replay::of_text(&format!("x\t{}\t{one}\t{other}", Side::Extern4.name())).expect("steps")
    }

    /// Returns the nanoseconds of an operation that takes one CPU alone 100 ns.
    fn run(steps: &str, cpus: usize) -> f64 {
        nanos(&replay(steps, steps), 100.0, cpus, MACHINE)
    }

    #[track_caller]
    fn check(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.02 * expected, "{found} and not {expected}");
    }

    #[test]
    fn one_cpu_takes_what_one_thread_took() {
        for steps in ["", "r0 w1 r-2", "l0 w1 u0", "s0 u0 w-3 w-3"] {
            check(run(steps, 1), 100.0);
        }
    }

    #[test]
    fn cpus_with_lines_of_their_own_are_not_in_each_others_way() {
        check(run("w-0 l-1 u-1", 2), 50.0);
        check(run("w-0 l-1 u-1", 256), 100.0 / 256.0);
        // Lines that are only read may be in all caches.
        check(run("r0 r1 r0", 8), 100.0 / 8.0);
    }

    #[test]
    fn a_shared_counter_is_as_fast_as_its_line_travels() {
        // Two CPUs: each takes 100 ns of work and 50 ns for the line.
        check(run("w0", 2), 75.0);
        // Many CPUs: the line is always under way.
        check(run("w0", 4), 50.0);
        // Two sockets: the line also travels between them. CPUs that ask in the order of their
        // numbers keep 3 transfers of 4 within a socket.
        let two_sockets = run("w0", 8);
        assert!((50.0..100.0).contains(&two_sockets), "{two_sockets}");
    }

    #[test]
    fn readers_fetch_what_a_writer_has_changed() {
        // The writer takes the line back from the reader, and the reader fetches it again. Both
        // take 150 ns.
        check(nanos(&replay("w0", "r0"), 100.0, 2, MACHINE), 75.0);
    }

    #[test]
    fn a_held_lock_keeps_other_cpus_out() {
        // Each CPU holds the lock for 80 of 100 ns. Without a lock, all CPUs work in parallel.
        let (held, free) = ("l0 r-1 r-1 r-1 r-1 r-1 r-1 r-1 u0", "w0 r-1 r-1 r-1 r-1 r-1 r-1 r-1 w0");
        for cpus in [2, 4, 8] {
            let with_lock = run(held, cpus);
            assert!((80.0..250.0).contains(&with_lock), "{cpus}: {with_lock}");
            assert!(with_lock > 1.3 * run(free, cpus), "{cpus}");
        }
        // Readers of a lock wait only for its line.
        let shared = run(&held.replace('l', "s"), 4);
        assert!(shared < run(held, 4), "{shared}");
        // Two CPUs hold one lock for 10 of 100 ns each, never at the same time. Its line travels
        // once for each operation.
        check(run("l0 u0 r-1 r-1 r-1 r-1 r-1 r-1 r-1", 2), 75.0);
    }

    #[test]
    fn a_lock_that_is_kept_is_free_for_the_next_operation() {
        check(run("l-0", 2), 50.0);
        check(run("u0", 1), 100.0);
    }
}
