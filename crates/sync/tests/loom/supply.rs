//! What is shared out, and pools of it.

use extern4_sync::model::race;
use extern4_sync::primitive::{AtomicBool, Ordering};
use extern4_sync::supply::Supply;

/// All that nobody holds can be taken, also while somebody takes from a pool and gives back. Mutations that this catches: a pool
/// that is emptied but not closed, so that what is given back lies there unseen; a pool read and then emptied, not swapped.
#[test]
fn supply_take_all_vs_take_and_give() {
    race(
        || Supply::new(6, 0),
        |supply| {
            assert!(supply.take(1, || 0));
            supply.give(1);
            assert!(supply.take(1, || 0));
        },
        |supply| {
            assert!(supply.take(5, || 0), "no more than one is out");
        },
        |supply| {
            assert_eq!(supply.left(), 0);
            assert!(!supply.take(1, || 0));
        },
    );
}

/// Once somebody has taken of what is kept, nobody else takes more, though he had a pool. Mutation that this catches: pools that
/// stay open while less is shared than is kept.
#[test]
fn supply_take_vs_take_what_is_kept() {
    race(
        || (Supply::new(6, 2), AtomicBool::new(false)),
        |(supply, taken)| {
            let before = taken.load(Ordering::Acquire);
            let took = supply.take(1, || 2);
            assert!(!took || !before, "that was kept");
            if took {
                supply.give(1);
            }
            assert!(!taken.load(Ordering::Acquire) || !supply.take(1, || 2), "that was kept");
        },
        |(supply, taken)| {
            assert!(supply.take(4, || 0));
            taken.store(true, Ordering::Release);
        },
        |(supply, _)| assert!(matches!(supply.left(), 1 | 2)),
    );
}

/// Two who give and take while the pools open and close lose nothing.
#[test]
fn supply_loses_nothing() {
    race(
        || Supply::new(4, 0),
        |supply| {
            supply.give(3);
            assert!(supply.take(5, || 0));
        },
        |supply| {
            assert!(supply.take(2, || 0));
            supply.give(1);
        },
        |supply| assert_eq!(supply.left(), 1),
    );
}
