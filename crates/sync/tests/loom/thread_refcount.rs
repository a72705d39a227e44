//! Users that enter and exit against a thread that counts them.

use extern4_sync::model::{race, race_for};
use extern4_sync::primitive::{AtomicBool, Ordering};
use extern4_sync::thread_refcount::ThreadRefcount;

/// A user sees the flag, or the thread that set the flag counts the user. Mutation that this
/// catches: either barrier left out.
#[test]
fn refcount_enter_vs_flag() {
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

/// One user is always inside: the second enters before the first exits. Mutation that this catches:
/// entries are added up before exits, which gives too low a count.
#[test]
fn refcount_zero_is_true() {
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
