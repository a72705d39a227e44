//! The local locks against the global one.

use extern4_sync::lglock::LgLock;
use extern4_sync::model::race;

/// Under the global lock, what stands under the locks of two CPUs is of one moment. Mutation that this catches: taking one
/// after the other instead of all at once.
#[test]
fn lglock_local_vs_global() {
    race(
        LgLock::<u64>::new,
        |lock| {
            *lock.named(0) += 1;
            *lock.named(1) += 1;
        },
        |lock| {
            let all = lock.global();
            assert!(*all[0] >= *all[1], "the second was seen without the first");
        },
        |lock| assert!(lock.global().iter().all(|value| **value == 1)),
    );
    // Several who add at once, where each finds itself.
    race(
        LgLock::<u64>::new,
        |lock| *lock.local().1 += 1,
        |lock| *lock.local().1 += 1,
        |lock| assert_eq!(lock.global().iter().map(|value| **value).sum::<u64>(), 2),
    );
}
