//! What readers see of a pointer that is replaced.

use extern4_sync::model::race;
use extern4_sync::primitive::thread;
use extern4_sync::rcu::{Rcu, pin};

use crate::Poisoned;

#[test]
fn rcu_load_vs_replace() {
    race(
        || Rcu::new(Poisoned::new(1)),
        |cell| {
            let guard = pin();
            let seen = cell.load(&guard);
            thread::yield_now();
            assert!(seen.value() == 1 || seen.value() == 2);
        },
        |cell| cell.store(Poisoned::new(2)),
        |cell| assert_eq!(cell.load(&pin()).value(), 2),
    );
}
