//! References that a thread counts for itself.

use std::sync::Arc as StdArc;

use extern4_sync::anchor::{Anchor, Local};
use extern4_sync::model::race;
use extern4_sync::primitive::{Mutex, Ordering};

use crate::Poisoned;

/// An anchor goes while the last references that a thread counts for itself go, too: the value ends once, when all have gone.
#[test]
fn anchor_drop_vs_local_drop() {
    type Shared = (
        Mutex<Option<Anchor<Poisoned>>>,
        Mutex<Option<Local<Poisoned>>>,
        StdArc<std::sync::atomic::AtomicBool>,
    );
    race(
        || {
            let anchor = Anchor::new(Poisoned::new(7));
            let alive = StdArc::clone(&anchor.alive);
            let local = anchor.local();
            (Mutex::new(Some(anchor)), Mutex::new(Some(local)), alive)
        },
        |(anchor, _, _): &Shared| drop(anchor.lock().unwrap().take()),
        |(_, local, _)| {
            let local = local.lock().unwrap().take().unwrap();
            let other = local.clone();
            drop(local);
            assert_eq!(other.value(), 7);
        },
        |(_, _, alive)| assert!(!alive.load(Ordering::Relaxed), "it never ended"),
    );
}
