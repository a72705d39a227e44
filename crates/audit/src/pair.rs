//! Runs two operations on two threads, to find their [`conflicts`](super::conflicts); also while
//! many other threads sleep.
//!
//! Tests called `footprint` and the lab call it. Both operations have run a few times before they
//! are recorded, so first uses do not count.

use std::sync::Barrier;
use std::sync::mpsc::channel;

use super::{Footprint, record};

/// The number of calls before the recorded one. They do the work that a thread does only once, and
/// fill the caches.
const WARM_UP: usize = 3;

/// Returns the footprints of two operations, each on its own thread, with both threads alive
/// and both operations warm. They run one after the other: operations that wait for no other thread
/// use the same lines in any order.
pub fn side_by_side(one: impl Fn(), other: impl Fn() + Send) -> [Footprint; 2] {
    let warm_up = |act: &dyn Fn()| (0..WARM_UP).for_each(|_| act());
    let (warm, is_warm) = channel::<()>();
    let (go, may_go) = channel::<()>();
    std::thread::scope(|scope| {
        let theirs = scope.spawn(move || {
            warm_up(&other);
            // If the other end of a channel is gone, the other side has panicked, and the test
            // fails for that.
            let _ = warm.send(());
            let _ = may_go.recv();
            record(other).1
        });
        let _ = is_warm.recv();
        warm_up(&one);
        let ours = record(one).1;
        drop(go);
        [
            ours,
            theirs.join().expect("the other operation has panicked"),
        ]
    })
}

/// Calls `act` on a new thread while `count` other threads sleep that have each called `start`.
///
/// If `start` takes a thread's number, `act` and the threads that it starts have higher numbers,
/// unless threads of other tests gave back theirs.
pub fn among_sleepers<R: Send>(
    count: usize,
    start: impl Fn() + Sync,
    act: impl FnOnce() -> R + Send,
) -> R {
    let ready = Barrier::new(count + 1);
    let end = Barrier::new(count + 1);
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                start();
                ready.wait();
                end.wait();
            });
        }
        ready.wait();
        let result = scope.spawn(act).join();
        end.wait();
        result.expect("the operation has panicked")
    })
}
