//! Who is inside.

use extern4_sync::model::{race, race_for};
use extern4_sync::primitive::{AtomicBool, Ordering};
use extern4_sync::thread_refcount::ThreadRefcount;

/// Who comes in sees that the door is shut, or is counted by who shuts it. Mutations that this catches: without either
/// barrier, neither need see the other.
#[test]
fn holders_enter_vs_shut() {
    race_for(
        || (ThreadRefcount::new(), AtomicBool::new(false)),
        |(holders, shut)| {
            holders.enter();
            shut.load(Ordering::Relaxed)
        },
        |(holders, shut)| {
            shut.store(true, Ordering::Relaxed);
            holders.count().unwrap()
        },
        |_, saw, counted| assert!(saw || counted == 1, "neither saw the other"),
    );
}

/// One is always inside: who enters comes before who leaves. Mutation that this catches: entries added up before exits count
/// fewer than there are.
#[test]
fn holders_count_zero_is_true() {
    race(
        || {
            let holders = ThreadRefcount::new();
            holders.enter();
            holders
        },
        |holders| {
            holders.enter();
            holders.exit();
        },
        |holders| assert!(matches!(holders.count(), Some(1 | 2))),
        |holders| assert_eq!(holders.count(), Some(1)),
    );
}
