//! References to counted values against their last drop.

use std::sync::Arc as StdArc;

use extern4_sync::model::{explore, race};
use extern4_sync::primitive::{Ordering, thread};
use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::{AtomicRcuArc, Last, RcuArc, Release};
use loom::cell::UnsafeCell;

use crate::Poisoned;

/// A counted value that records its end and panics if it is used afterwards.
pub(crate) struct Ending {
    value: Poisoned,
    /// Data that a holder writes plainly, so that loom finds an end that is not ordered after it.
    work: UnsafeCell<u64>,
    ends: StdArc<std::sync::atomic::AtomicU64>,
}

// SAFETY: as for `Poisoned`; `work` has one writer in each model.
unsafe impl Sync for Ending {}
// SAFETY: the cells hold plain numbers.
unsafe impl Send for Ending {}

impl Ending {
    fn new(value: u64) -> (RcuArc<Self>, Ends) {
        let (this, ends) = Self::watched(value);
        (RcuArc::new(this), ends)
    }

    pub(crate) fn watched(value: u64) -> (Self, Ends) {
        let ends = StdArc::default();
        let value = Poisoned::new(value);
        let work = UnsafeCell::new(0);
        let watch = Ends {
            ends: StdArc::clone(&ends),
            alive: value.alive.clone(),
        };
        (Self { value, work, ends }, watch)
    }

    /// Writes as a holder. One thread of a model does this.
    pub(crate) fn work(&self) {
        assert_eq!(
            self.ends.load(Ordering::Relaxed),
            0,
            "used by a holder after its end"
        );
        // SAFETY: loom's cell gives a valid pointer, and panics if the write is a race.
        self.work.with_mut(|work| unsafe { *work += 1 });
    }
}

impl Release for Ending {
    type Link = Last;

    fn release(&self) {
        self.value.value();
        // SAFETY: as in `work`.
        self.work.with(|work| unsafe { *work });
        assert_eq!(self.ends.fetch_add(1, Ordering::Relaxed), 0, "ended twice");
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        assert_eq!(self.ends.load(Ordering::Relaxed), 1, "freed before its end");
    }
}

/// Observes the end of a counted value.
#[derive(Clone)]
pub(crate) struct Ends {
    ends: StdArc<std::sync::atomic::AtomicU64>,
    alive: StdArc<std::sync::atomic::AtomicBool>,
}

impl Ends {
    pub(crate) fn times(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// Checks the state after the last guard has been dropped.
    pub(crate) fn check_freed(&self) {
        drop(pin());
        assert_eq!(
            (self.times(), self.alive.load(Ordering::Relaxed)),
            (1, false),
            "ended once, and freed"
        );
    }
}

/// A field with a value, and the observer of the value.
type Linked = (AtomicRcuArc<Ending>, Ends);

fn link_of_one() -> Linked {
    let (value, ends) = Ending::new(1);
    (AtomicRcuArc::new(Some(value)), ends)
}

/// Loads the value as a reader, upgrades if it can, and uses both.
fn load_and_upgrade((link, _): &Linked) {
    let guard = pin();
    let Some(seen) = link.load(&guard) else {
        return;
    };
    assert_eq!(seen.value.value(), 1);
    let held = seen.try_upgrade();
    assert_eq!(seen.value.value(), 1);
    drop(guard);
    held.inspect(|held| held.work());
}

#[test]
fn rcu_arc_upgrade_vs_last_drop() {
    race(
        link_of_one,
        load_and_upgrade,
        |(link, _)| drop(link.take()),
        |(link, ends)| {
            assert!(link.load(&pin()).is_none());
            ends.check_freed();
        },
    );
}

#[test]
fn rcu_arc_drop_vs_drop() {
    explore(|| {
        let (value, ends) = Ending::new(1);
        let second = value.clone();
        let other = thread::spawn(move || {
            second.work();
            drop(second);
        });
        drop(value);
        other.join().unwrap();
        ends.check_freed();
    });
}

/// A value that keeps another one in use.
struct Owner {
    value: Poisoned,
    inner: AtomicRcuArc<Ending>,
}

impl Release for Owner {
    type Link = Last;

    fn release(&self) {
        drop(self.inner.take());
    }
}

// SAFETY: as for `Poisoned`.
unsafe impl Send for Owner {}

/// A field with an owner of a value, and the observer of the value.
fn linked_owner() -> (AtomicRcuArc<Owner>, Ends) {
    let (value, ends) = Ending::new(1);
    let owner = RcuArc::new(Owner {
        value: Poisoned::new(2),
        inner: AtomicRcuArc::new(Some(value)),
    });
    (AtomicRcuArc::new(Some(owner)), ends)
}

#[test]
fn rcu_arc_field_vs_end_of_its_owner() {
    race(
        linked_owner,
        |(link, _)| {
            let guard = pin();
            let Some(owner) = link.load(&guard) else {
                return;
            };
            let inner = owner.get().inner.load(&guard);
            assert!(inner.is_none_or(|inner| inner.get().value.value() == 1));
            let owner_held = owner.try_upgrade();
            let held = inner.and_then(|inner| inner.try_upgrade());
            // A holder of the owner can upgrade the owner's reference.
            assert!(owner_held.is_none() || held.is_some());
            assert_eq!(owner.get().value.value(), 2);
            drop(guard);
            if let Some(owner) = owner_held {
                // SAFETY: this thread keeps the owner, which keeps the value.
                let inner = unsafe { owner.inner.load_kept() }.expect("the owner is in use");
                assert_eq!((inner.get().value.value(), owner.value.value()), (1, 2));
            }
            held.inspect(|held| held.work());
        },
        |(link, _)| drop(link.take()),
        |(_, ends)| ends.check_freed(),
    );
}
