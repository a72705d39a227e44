//! A watchdog for tests with threads: it records what each thread is doing, and fails with that
//! list when one of them hangs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread that has ended no operation for so long hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// A thread's current operation.
#[derive(Default)]
pub(crate) struct Progress {
    ended: AtomicU64,
    all: AtomicBool,
    now: Mutex<String>,
}

impl Progress {
    /// An operation begins.
    pub(crate) fn begin(&self, what: String) {
        *self.now.lock().expect("no thread panics with it") = what;
    }

    /// It has ended.
    pub(crate) fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// There is nothing more to do.
    pub(crate) fn end_all(&self) {
        self.all.store(true, Ordering::Relaxed);
    }
}

/// Waits for all, and fails with what each is doing if one hangs.
pub(crate) fn watch(what: &str, crowd: Vec<(Arc<Progress>, JoinHandle<()>)>) {
    let mut seen: Vec<_> = crowd.iter().map(|_| (0, Instant::now())).collect();
    while crowd.iter().any(|(_, thread)| !thread.is_finished()) {
        std::thread::sleep(Duration::from_millis(5));
        for ((progress, thread), (ended, since)) in crowd.iter().zip(&mut seen) {
            let now = progress.ended.load(Ordering::Relaxed);
            if now != *ended || progress.all.load(Ordering::Relaxed) || thread.is_finished() {
                (*ended, *since) = (now, Instant::now());
            }
            assert!(
                since.elapsed() < HANG_TIMEOUT,
                "{what}: a thread hangs\n{}",
                doing(&crowd)
            );
        }
    }
    for (_, thread) in crowd {
        thread.join().unwrap_or_else(|panic| {
            eprintln!("the crowd that failed: {what}");
            std::panic::resume_unwind(panic)
        });
    }
}

fn doing(crowd: &[(Arc<Progress>, JoinHandle<()>)]) -> String {
    let of = |(at, (progress, thread)): (usize, &(Arc<Progress>, JoinHandle<()>))| {
        let state = if thread.is_finished() {
            "ended"
        } else {
            "runs"
        };
        format!(
            "thread {at} {state}: {}",
            progress.now.lock().expect("no thread panics with it")
        )
    };
    crowd
        .iter()
        .enumerate()
        .map(of)
        .collect::<Vec<_>>()
        .join("\n")
}
