//! Counted values.

use std::sync::Arc as StdArc;

use extern4_sync::model::{explore, race, race_for};
use extern4_sync::primitive::{Mutex, Ordering, thread};
use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::{AtomicRcuArc, RcuArc, ReleasableArc, Release};
use loom::cell::UnsafeCell;

use crate::Poisoned;

/// A counted value that knows whether it has ended, and notices if it is used afterwards.
struct Ending {
    value: Poisoned,
    /// What a holder does to the value: plain, so that an end that does not come after it is seen.
    work: UnsafeCell<u64>,
    ends: StdArc<std::sync::atomic::AtomicU64>,
}

// SAFETY: as for `Poisoned`; `work` has one writer in each model.
unsafe impl Sync for Ending {}
// SAFETY: the cells hold plain numbers.
unsafe impl Send for Ending {}

impl Ending {
    fn new(value: u64) -> (RcuArc<Self>, Ends) {
        let ends = StdArc::default();
        let (value, work) = (Poisoned::new(value), UnsafeCell::new(0));
        let watch = Ends { ends: StdArc::clone(&ends), alive: value.alive.clone() };
        (RcuArc::new(Self { value, work, ends }), watch)
    }

    /// What only a holder may do. One thread of a model does.
    fn work(&self) {
        assert_eq!(self.ends.load(Ordering::Relaxed), 0, "held after its end");
        // SAFETY: loom's cell gives a valid pointer, and panics where the write would be a race.
        self.work.with_mut(|work| unsafe { *work += 1 });
    }
}

impl Release for Ending {
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

/// What became of a counted value.
#[derive(Clone)]
struct Ends {
    ends: StdArc<std::sync::atomic::AtomicU64>,
    alive: StdArc<std::sync::atomic::AtomicBool>,
}

impl Ends {
    fn times(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// After the last guard has gone.
    fn check_freed(&self) {
        drop(pin());
        assert_eq!((self.times(), self.alive.load(Ordering::Relaxed)), (1, false), "ended, and freed");
    }
}

/// A link to a value, and what becomes of that.
type Linked = (AtomicRcuArc<Ending>, Ends);

fn link_of_one() -> Linked {
    let (value, ends) = Ending::new(1);
    (AtomicRcuArc::new(Some(value)), ends)
}

/// A link, and a reference beside that, for one of two threads to drop.
struct LinkAndOther {
    link: AtomicRcuArc<Ending>,
    ends: Ends,
    other: Mutex<Option<RcuArc<Ending>>>,
}

impl LinkAndOther {
    fn new() -> Self {
        let (link, ends) = link_of_one();
        let other = Mutex::new(link.load(&pin()).unwrap().try_upgrade());
        Self { link, ends, other }
    }

    fn take_other(&self) -> RcuArc<Ending> {
        self.other.lock().unwrap().take().unwrap()
    }

    fn drop_other(&self) {
        self.take_other().work();
    }
}

/// Comes to the value as a reader, makes a reference if there is one, and uses both.
fn see_and_hold((link, _): &Linked) -> bool {
    let guard = pin();
    let Some(seen) = link.load(&guard) else { return false };
    assert_eq!(seen.value.value(), 1);
    let held = seen.try_upgrade();
    assert_eq!(seen.value.value(), 1);
    drop(guard);
    held.inspect(|held| held.work()).is_some()
}

#[test]
fn rcu_arc_hold_vs_last_drop() {
    race(
        link_of_one,
        |shared| _ = see_and_hold(shared),
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

#[test]
fn take_if_last_vs_upgrade() {
    race_for(
        link_of_one,
        see_and_hold,
        |(link, _)| {
            let last = link.take_if_last();
            last.inspect(|_| assert!(link.load(&pin()).is_none())).is_some()
        },
        |(link, ends), held, taken| {
            assert!(held || taken || link.load(&pin()).is_some(), "lost");
            assert_eq!((link.load(&pin()).is_none(), ends.times()), (taken, u64::from(taken)));
            drop(link.take());
            ends.check_freed();
        },
    );
}

#[test]
fn take_if_last_vs_drop() {
    race(
        LinkAndOther::new,
        LinkAndOther::drop_other,
        |shared| drop(shared.link.take_if_last()),
        |shared| {
            assert_eq!(u64::from(shared.link.load(&pin()).is_none()), shared.ends.times());
            drop(shared.link.take());
            shared.ends.check_freed();
        },
    );
}

#[test]
fn take_if_last_vs_set() {
    race_for(
        link_of_one,
        |(link, _)| {
            let (value, ends) = Ending::new(2);
            drop(link.set(Some(value)));
            ends
        },
        |(link, _)| drop(link.take_if_last()),
        |(link, first), second, ()| {
            first.check_freed();
            let there = link.load(&pin()).map(|there| there.value.value());
            assert_eq!(u64::from(there.is_none()), second.times(), "ended, or there");
            drop(link.take());
            second.check_freed();
        },
    );
}

#[test]
fn take_if_last_vs_upgrade_and_set() {
    race_for(
        link_of_one,
        |(link, _)| {
            let guard = pin();
            // Unless it has been taken, who takes may find it held, and would put it back.
            let held = link.load(&guard).and_then(|seen| seen.try_upgrade());
            let (value, ends) = Ending::new(2);
            drop(link.set(Some(value)));
            drop(guard);
            held.inspect(|held| held.work());
            ends
        },
        |(link, _)| drop(link.take_if_last()),
        |(link, first), second, ()| {
            first.check_freed();
            let there = link.load(&pin()).map(|there| there.value.value());
            assert_eq!(there.unwrap_or(2), 2, "put back in place of the new one");
            assert_eq!(u64::from(there.is_none()), second.times(), "ended, or there");
            drop(link.take());
            second.check_freed();
        },
    );
}

/// A value that keeps another in use.
struct Owner {
    value: Poisoned,
    lease: ReleasableArc<Ending>,
}

impl Release for Owner {
    fn release(&self) {
        // SAFETY: the link that led to this has been emptied, and no reference is left.
        unsafe { self.lease.release() };
    }
}

// SAFETY: as for `Poisoned`.
unsafe impl Send for Owner {}

/// A link that leads to an owner, which keeps a value: what becomes of that.
fn linked_owner() -> (AtomicRcuArc<Owner>, Ends) {
    let (value, ends) = Ending::new(1);
    let owner = RcuArc::new(Owner { value: Poisoned::new(2), lease: ReleasableArc::new(value) });
    (AtomicRcuArc::new(Some(owner)), ends)
}

#[test]
fn rcu_arc_lease_vs_end_of_its_owner() {
    race(
        linked_owner,
        |(link, _)| {
            let guard = pin();
            let Some(owner) = link.load(&guard) else { return };
            assert_eq!(owner.get().lease.get().value.value(), 1);
            let owner_held = owner.try_upgrade();
            let held = owner.get().lease.get().try_upgrade();
            // Who holds the owner can hold what it keeps.
            assert!(owner_held.is_none() || held.is_some());
            assert_eq!(owner.get().value.value(), 2);
            drop(guard);
            if let Some(owner) = owner_held {
                assert_eq!((owner.lease.get().value.value(), owner.value.value()), (1, 2));
            }
            held.inspect(|held| held.work());
        },
        |(link, _)| drop(link.take()),
        |(_, ends)| ends.check_freed(),
    );
}

/// What the last of an owner keeps goes to another owner, which ends soon after: who has found the first still sees it.
#[test]
fn rcu_arc_lease_passed_on_vs_reader() {
    race(
        linked_owner,
        |(link, _)| {
            let guard = pin();
            let Some(owner) = link.load(&guard) else { return };
            let held = owner.get().lease.get().try_upgrade();
            assert_eq!((owner.get().lease.get().value.value(), owner.get().value.value()), (1, 2));
            drop(guard);
            held.inspect(|held| held.work());
        },
        |(link, _)| {
            let last = link.take_if_last().expect("nobody holds the owner");
            // SAFETY: there is no reference to the owner, and one thread has the last of it.
            let lease = unsafe { last.get().lease.transfer() }.expect("it has not been given up");
            let next = RcuArc::new(Owner { value: Poisoned::new(3), lease });
            drop(last);
            assert_eq!(next.lease.get().value.value(), 1);
            drop(next);
        },
        |(_, ends)| ends.check_freed(),
    );
}

/// A thread gives a name up while another opens the file that it stands for.
#[test]
fn take_if_last_but_vs_upgrade() {
    race_for(
        link_of_one,
        see_and_hold,
        |(link, _)| {
            let Some(mine) = link.load(&pin()).and_then(|seen| seen.try_upgrade()) else { return false };
            link.take_if_last_but(mine).is_ok()
        },
        |(link, ends), _, given| {
            assert_eq!((link.load(&pin()).is_none(), ends.times()), (given, u64::from(given)));
            drop(link.take());
            ends.check_freed();
        },
    );
}

#[test]
fn take_if_last_but_vs_drop() {
    race(
        || {
            let shared = LinkAndOther::new();
            let mine = shared.link.load(&pin()).unwrap().try_upgrade();
            (shared, Mutex::new(mine))
        },
        |(shared, _)| shared.drop_other(),
        |(shared, mine)| drop(shared.link.take_if_last_but(mine.lock().unwrap().take().unwrap())),
        |(shared, _)| {
            assert_eq!(u64::from(shared.link.load(&pin()).is_none()), shared.ends.times());
            drop(shared.link.take());
            shared.ends.check_freed();
        },
    );
}
