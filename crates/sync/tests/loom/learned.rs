//! What is learned by who asks, set by others, and read by yet others.

use std::sync::Arc;

use extern4_sync::learned::Learned;
use extern4_sync::model::{race, race_for};
use extern4_sync::primitive::thread;
use extern4_sync::rcu::pin;

use crate::Poisoned;

fn value(number: u64) -> Option<Arc<Poisoned>> {
    Some(Arc::new(Poisoned::new(number)))
}

fn filled() -> Learned<Poisoned> {
    let learned = Learned::default();
    assert!(learned.fill(value(1)));
    learned
}

fn number(learned: &Learned<Poisoned>) -> Option<Option<u64>> {
    learned.get(&pin()).map(|known| known.map(Poisoned::value))
}

#[test]
fn learned_get_vs_set() {
    race(
        filled,
        |learned| {
            let guard = pin();
            let seen = learned.get(&guard).flatten().expect("it is there");
            thread::yield_now();
            assert!(matches!(seen.value(), 1 | 2));
        },
        |learned| learned.set(value(2)),
        |learned| assert_eq!(number(learned), Some(Some(2))),
    );
}

/// A count of one's own outlives the read section, and the answer.
#[test]
fn learned_get_counted_vs_set() {
    race(
        filled,
        |learned| {
            let counted = learned.get_counted(&pin()).flatten();
            thread::yield_now();
            assert!(counted.is_none_or(|counted| counted.value() == 1));
        },
        |learned| learned.set(None),
        |learned| assert_eq!(number(learned), Some(None)),
    );
}

#[test]
fn learned_fill_vs_get() {
    race(
        Learned::default,
        |learned| assert!(learned.fill(value(1))),
        |learned| assert!(matches!(number(learned), None | Some(Some(1)))),
        |learned| assert_eq!(number(learned), Some(Some(1))),
    );
}

/// Who is slow to fill never takes back what has been set.
#[test]
fn learned_fill_vs_set() {
    race_for(
        Learned::default,
        |learned| learned.fill(value(1)),
        |learned| {
            learned.set(value(2));
            assert_eq!(number(learned), Some(Some(2)));
        },
        |learned, _, ()| assert_eq!(number(learned), Some(Some(2))),
    );
}

#[test]
fn learned_two_fill_one_wins() {
    race_for(
        Learned::default,
        |learned| learned.fill(value(1)),
        |learned| learned.fill(None),
        |learned, first, second| {
            assert!(first != second);
            assert_eq!(number(learned), Some(first.then_some(1)));
        },
    );
}
