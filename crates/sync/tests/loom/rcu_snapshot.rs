//! What is changed under a lock and shown without it.

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
        Self { number: Mutex::new(0), snapshot: RcuSnapshot::empty() }
    }

    /// The copy is shown.
    fn looked_at() -> Self {
        let new = Self::new();
        (0..2).for_each(|_| assert_eq!(new.look(), 0));
        assert!(new.snapshot.get(&pin()).is_some());
        new
    }

    fn look(&self) -> u64 {
        if let Some(copy) = self.snapshot.get(&pin()) {
            return copy.value();
        }
        let number = self.number.lock().expect("nobody panics");
        self.snapshot.count_read(|| Poisoned::new(*number));
        *number
    }

    fn change(&self) {
        let mut number = self.number.lock().expect("nobody panics");
        self.snapshot.invalidate();
        *number += 1;
    }
}

/// Who has changed it sees that, and nobody goes back. Mutations that this catches: a change that hides nothing, or that does so
/// before it has the lock.
#[test]
fn shown_copy_vs_change() {
    race(
        Guarded::looked_at,
        |guarded| {
            let [first, second, third] = [(); 3].map(|()| guarded.look());
            assert!(first <= second && second <= third);
        },
        |guarded| {
            guarded.change();
            assert_eq!(guarded.look(), 1);
        },
        |guarded| assert_eq!(guarded.look(), 1),
    );
}

/// A copy that is shown while it is changed is of before or of after, and only the latter stays. Mutation that this catches, too: a copy
/// shown after the lock was given up.
#[test]
fn shown_first_copy_vs_change() {
    race_for(
        Guarded::new,
        |guarded| (0..3).map(|_| guarded.look()).max(),
        Guarded::change,
        |guarded, seen, ()| {
            assert!(seen <= Some(1));
            assert_eq!(guarded.look(), 1);
        },
    );
}
