//! A mutex that is released by a plain store.

use extern4_sync::model::{explore, race};
use extern4_sync::primitive::latch::Latch;
use extern4_sync::primitive::thread;
use loom::cell::UnsafeCell;
use loom::sync::Arc;

/// A waiter gets the latch, and sees the stores of the last holder.
#[test]
fn latch_wait_vs_release() {
    race(
        || Latch::new(UnsafeCell::new(0)),
        add_one,
        add_one,
        |latch| assert_eq!(count(latch), 2),
    );
}

/// A release wakes one of two sleepers, and that one wakes the other.
#[test]
fn latch_two_wait() {
    explore(|| {
        let latch = Arc::new(Latch::new(UnsafeCell::new(0)));
        let held = latch.lock().unwrap();
        let threads = [(); 2].map(|()| {
            let latch = Arc::clone(&latch);
            thread::spawn(move || add_one(&latch))
        });
        drop(held);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(count(&latch), 2);
    });
}

fn add_one(latch: &Latch<UnsafeCell<u64>>) {
    // SAFETY: loom's cell gives a valid pointer, and panics if another thread uses it at the same
    // time.
    latch
        .lock()
        .unwrap()
        .with_mut(|value| unsafe { *value += 1 });
}

fn count(latch: &Latch<UnsafeCell<u64>>) -> u64 {
    // SAFETY: as above.
    latch.lock().unwrap().with(|value| unsafe { *value })
}
