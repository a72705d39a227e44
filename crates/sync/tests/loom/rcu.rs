//! Readers of an RCU pointer against writers that replace it.

use extern4_sync::model::{race, race_for};
use extern4_sync::primitive::thread;
use extern4_sync::rcu::{Rcu, RcuOption, pin};

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

fn number(cell: &RcuOption<Poisoned>) -> Option<u64> {
    cell.load(&pin()).map(Poisoned::value)
}

/// A reader sees a filled value whole.
#[test]
fn rcu_fill_vs_load() {
    race(
        RcuOption::default,
        |cell| assert!(cell.fill(Poisoned::new(1))),
        |cell| assert!(matches!(number(cell), None | Some(1))),
        |cell| assert_eq!(number(cell), Some(1)),
    );
}

/// A slow fill never replaces a stored value.
#[test]
fn rcu_fill_vs_store() {
    race_for(
        RcuOption::default,
        |cell| cell.fill(Poisoned::new(1)),
        |cell| {
            cell.store(Some(Poisoned::new(2)));
            assert_eq!(number(cell), Some(2));
        },
        |cell, _, ()| assert_eq!(number(cell), Some(2)),
    );
}

/// One of two fills wins, and its value is freed once.
#[test]
fn rcu_two_fill_one_wins() {
    race_for(
        RcuOption::default,
        |cell| cell.fill(Poisoned::new(1)),
        |cell| cell.fill(Poisoned::new(2)),
        |cell, first, second| {
            assert!(first != second);
            assert_eq!(number(cell), Some(if first { 1 } else { 2 }));
        },
    );
}
