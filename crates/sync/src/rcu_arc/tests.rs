//! Tests of reference counts on one thread: when a value is released, and when its memory is freed.
//! Tests of several threads are in `tests/loom`.

use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

struct Watched {
    released: Arc<AtomicU64>,
}

impl Release for Watched {
    type Link = First;

    fn release(&self) {
        self.released
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn watched() -> (Arc<AtomicU64>, RcuArc<Watched>) {
    let released = Arc::new(AtomicU64::new(0));
    (released.clone(), RcuArc::new(Watched { released }))
}

fn is(released: &AtomicU64, times: u64) -> bool {
    released.load(std::sync::atomic::Ordering::Relaxed) == times
}

#[test]
fn the_last_drop_releases_at_once_and_readers_still_see_the_value() {
    let (released, value) = watched();
    let link = AtomicRcuArc::new(Some(value.clone()));
    let guard = pin();
    let seen = link.load(&guard).unwrap();
    drop(value);
    assert!(is(&released, 0));
    drop(link.take());
    assert!(is(&released, 1));
    assert!(seen.try_upgrade().is_none() && is(&seen.released, 1));
}

struct Chained(AtomicRcuArc<Chained>);

impl Release for Chained {
    type Link = Last;

    fn release(&self) {
        drop(self.0.take());
    }
}

#[test]
fn a_long_chain_ends_on_a_short_stack() {
    let mut chain = None;
    for _ in 0..if cfg!(miri) { 1000 } else { 1_000_000 } {
        chain = Some(RcuArc::new(Chained(AtomicRcuArc::new(chain))));
    }
    std::thread::Builder::new()
        .stack_size(64 << 10)
        .spawn(move || drop(chain))
        .unwrap()
        .join()
        .unwrap();
}
