//! The blocking pool: threads for requests that wait for the device, so that other requests need
//! not wait for these.
//!
//! The threads that read requests, in `channel` and `ring`, give such a request to
//! [`BlockingPool::spawn`]. Every job runs, and jobs start in the order of the calls. At most
//! [`MAX_THREADS`] run at a time; further ones wait. If the system allows the pool no thread, the
//! calling thread runs the job itself. [`BlockingPool::finish`] returns when all jobs are done.

use std::collections::VecDeque;
use std::sync::Arc;

use extern4_sync::primitive::{Condvar, Mutex, thread};

use super::cpus::Cpus;
use crate::lock::lock;

/// The most jobs that run at a time.
const MAX_THREADS: usize = 16;

/// A request to be answered.
type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads that start as they are needed, and stay.
pub(super) struct BlockingPool {
    cpus: Cpus,
    shared: Arc<Shared>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that have nothing to do.
    idle: usize,
    /// No more jobs will come.
    ended: bool,
}

impl BlockingPool {
    /// Creates a pool whose threads run on these CPUs.
    pub(super) fn new(cpus: Cpus) -> Self {
        Self {
            cpus,
            shared: Arc::default(),
            threads: Mutex::default(),
        }
    }

    /// Returns the CPUs that the threads run on.
    pub(super) fn cpus(&self) -> &Cpus {
        &self.cpus
    }

    /// Runs `job` on another thread.
    pub(super) fn spawn(&self, job: Job) {
        let mut queue = lock(&self.shared.queue);
        queue.jobs.push_back(job);
        if queue.jobs.len() > queue.idle {
            drop(queue);
            if !self.one_more() {
                // This thread runs the job, and other requests wait meanwhile.
                let job = lock(&self.shared.queue).jobs.pop_front();
                job.into_iter().for_each(|job| job());
            }
        }
        self.shared.more.notify_one();
    }

    /// Starts a thread unless there are `MAX_THREADS`; returns false if the pool has no thread
    /// then.
    fn one_more(&self) -> bool {
        let mut threads = lock(&self.threads);
        if threads.len() < MAX_THREADS {
            let shared = Arc::clone(&self.shared);
            let cpus = self.cpus.clone();
            let work = move || {
                cpus.run_on_any();
                shared.work();
            };
            threads.extend(thread::Builder::new().spawn(work));
        }
        !threads.is_empty()
    }

    /// Waits until all jobs are done.
    pub(super) fn finish(&self) {
        lock(&self.shared.queue).ended = true;
        self.shared.more.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // Each job has caught its own faults.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = lock(&self.queue);
            } else if queue.ended {
                return;
            } else {
                queue.idle += 1;
                queue = self
                    .more
                    .wait(queue)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpus::run_on;
    use super::*;
    use std::sync::mpsc;

    /// The thread that hands a job over may be bound to one CPU.
    #[test]
    fn a_job_may_run_on_any_cpu() {
        let cpus = Cpus::of_this_thread();
        let pool = BlockingPool::new(cpus.clone());
        let (say, said) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                run_on(cpus.numbers()[0]);
                pool.spawn(Box::new(move || {
                    say.send(Cpus::of_this_thread().numbers()).unwrap()
                }));
            });
        });
        assert_eq!(said.recv().unwrap(), cpus.numbers());
        pool.finish();
    }

    #[test]
    fn many_jobs_wait_at_a_time_and_all_are_done() {
        let pool = BlockingPool::new(Cpus::of_this_thread());
        let (started, starts) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..MAX_THREADS * 2 {
            let started = started.clone();
            let gate = Arc::clone(&gate);
            pool.spawn(Box::new(move || {
                started.send(()).unwrap();
                lock(&gate).recv().unwrap();
            }));
        }
        for _ in 0..MAX_THREADS {
            starts.recv().unwrap();
        }
        assert!(starts.try_recv().is_err(), "no more than these at a time");
        for _ in 0..MAX_THREADS * 2 {
            go.send(()).unwrap();
        }
        pool.finish();
        assert_eq!(starts.try_iter().count(), MAX_THREADS);
    }
}
