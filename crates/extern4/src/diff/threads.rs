//! Work that several threads share.
//!
//! `blocks`, `inodes`, `directories` and `compare` call it. A thread takes one item after the
//! other, so slow items delay nothing but themselves.

use extern4_sync::primitive::{AtomicUsize, Ordering::Relaxed};

/// Calls `work` with each number below `items`, in `threads` threads, each with its own state
/// that `start` makes. Returns the states.
///
/// # Errors
/// An item that failed. Its thread did no more of them.
pub(super) fn each_item<S: Send, E: Send>(
    threads: usize,
    items: usize,
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<(), E> + Sync,
) -> Result<Vec<S>, E> {
    // Relaxed: each item is taken once, and the threads are joined.
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = start();
        loop {
            let item = next.fetch_add(1, Relaxed);
            if item >= items {
                return Ok(state);
            }
            work(&mut state, item)?;
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(items)).map(|_| scope.spawn(run)).collect();
        let own = run();
        let others = others.into_iter().map(|thread| match thread.join() {
            Ok(state) => state,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        [own].into_iter().chain(others).collect()
    })
}
