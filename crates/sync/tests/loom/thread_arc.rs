//! References that each thread counts for itself.

use std::sync::Arc as StdArc;

use extern4_sync::model::race;
use extern4_sync::primitive::{Mutex, Ordering};
use extern4_sync::thread_arc::{ThreadArc, ThreadArcOwner};

use crate::Poisoned;

/// The owner is dropped at the same time as the last `ThreadArc`: the value is dropped once, after
/// both.
#[test]
fn owner_drop_vs_thread_arc_drop() {
    type Shared = (
        Mutex<Option<ThreadArcOwner<Poisoned>>>,
        Mutex<Option<ThreadArc<Poisoned>>>,
        StdArc<std::sync::atomic::AtomicBool>,
    );
    race(
        || {
            let owner = ThreadArcOwner::new(Poisoned::new(7));
            let alive = StdArc::clone(&owner.alive);
            let local = owner.thread_ref();
            (Mutex::new(Some(owner)), Mutex::new(Some(local)), alive)
        },
        |(owner, _, _): &Shared| drop(owner.lock().unwrap().take()),
        |(_, local, _)| {
            let local = local.lock().unwrap().take().unwrap();
            let other = local.clone();
            drop(local);
            assert_eq!(other.value(), 7);
        },
        |(_, _, alive)| {
            assert!(
                !alive.load(Ordering::Relaxed),
                "the value was never dropped"
            )
        },
    );
}
