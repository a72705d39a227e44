//! Readers of a snapshot against a change of the data.

use extern4_sync::model::{race, race_for};
use extern4_sync::primitive::Mutex;
use extern4_sync::rcu::pin;
use extern4_sync::rcu_snapshot::RcuSnapshot;

use crate::Poisoned;

/// A number under a lock, and its copy.
struct Guarded {
    number: Mutex<u64>,
    snapshot: RcuSnapshot<Poisoned>,
}

impl Guarded {
    fn new() -> Self {
        Self {
            number: Mutex::new(0),
            snapshot: RcuSnapshot::empty(),
        }
    }

    /// Creates a snapshot with a published copy.
    fn published() -> Self {
        let new = Self::new();
        (0..2).for_each(|_| assert_eq!(new.read(), 0));
        assert!(new.snapshot.get(&pin()).is_some());
        new
    }

    fn read(&self) -> u64 {
        if let Some(copy) = self.snapshot.get(&pin()) {
            return copy.value();
        }
        let number = self.number.lock().expect("no thread panics");
        self.snapshot.count_read(|| Poisoned::new(*number));
        *number
    }

    fn change(&self) {
        let mut number = self.number.lock().expect("no thread panics");
        self.snapshot.invalidate();
        *number += 1;
    }
}

/// The writer sees its change, and no reader goes back. Mutations that this catches: a change that
/// leaves the copy, or that removes it before it holds the lock.
#[test]
fn snapshot_copy_vs_change() {
    race(
        Guarded::published,
        |guarded| {
            let [first, second, third] = [(); 3].map(|()| guarded.read());
            assert!(first <= second && second <= third);
        },
        |guarded| {
            guarded.change();
            assert_eq!(guarded.read(), 1);
        },
        |guarded| assert_eq!(guarded.read(), 1),
    );
}

/// A copy that is published at the time of a change is of before or after, and only the latter
/// stays. Mutation that this catches: a copy published after the lock was released.
#[test]
fn snapshot_first_copy_vs_change() {
    race_for(
        Guarded::new,
        |guarded| (0..3).map(|_| guarded.read()).max(),
        Guarded::change,
        |guarded, seen, ()| {
            assert!(seen <= Some(1));
            assert_eq!(guarded.read(), 1);
        },
    );
}
