//! What readers see of a pointer that is replaced.

use extern4_sync::model::{explore, race};
use extern4_sync::primitive::thread;
use extern4_sync::rcu::{Rcu, RcuOption, pin};
use loom::sync::Arc;

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

#[test]
fn rcu_two_fill_one_wins() {
    explore(|| {
        let cell = Arc::new(RcuOption::new(None));
        let fill = |cell: &RcuOption<Poisoned>, value| {
            let guard = pin();
            match cell.compare_exchange(None, Some(Poisoned::new(value)), &guard) {
                Ok(stored) => stored.unwrap().value(),
                Err(lost) => lost.current.unwrap().value(),
            }
        };
        let other = thread::spawn({
            let cell = cell.clone();
            move || fill(&cell, 1)
        });
        let mine = fill(&cell, 2);
        assert_eq!(mine, other.join().unwrap(), "two fillers saw two values");
    });
}
