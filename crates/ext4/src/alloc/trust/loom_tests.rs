//! Loom tests of [`Offer`]: threads reserve blocks and give them back, while others examine groups
//! or set them aside.
//!
//! A group counts as sound a step before the offer hears of it, as under the group's lock in
//! `set_aside`. So if more blocks are reserved than sound groups have, some of them are in a group
//! that is not examined, or set aside.

use std::sync::Arc;

use extern4_sync::model::{explore, race_for};
use extern4_sync::primitive::{AtomicU64, Ordering, thread};

use super::Offer;

/// The free blocks of each group.
const GROUP: u64 = 2;

/// An offer of some groups, and the blocks of the sound groups.
struct Groups {
    offer: Offer,
    sound: AtomicU64,
}

impl Groups {
    /// Groups that have not been examined.
    fn new(groups: u64) -> Self {
        Self {
            offer: Offer::new(groups * GROUP),
            sound: AtomicU64::new(0),
        }
    }

    /// A group that is sound, and one that has not been examined.
    fn one_sound() -> Self {
        let groups = Self::new(2);
        groups.find_sound();
        groups
    }

    /// A thread examines a group, and it is sound.
    fn find_sound(&self) {
        // Relaxed, here and below: the offer has to order this, too.
        self.sound.fetch_add(GROUP, Ordering::Relaxed);
        self.offer.note_examined(GROUP);
    }

    /// A thread examines a group, and it is damaged.
    fn find_damaged(&self) {
        self.offer.withdraw(GROUP);
        self.offer.note_examined(GROUP);
    }

    /// Reserves single blocks, at most `most`, and returns how many. Checks that sound groups have
    /// them.
    fn reserve(&self, most: u64) -> u64 {
        let taken = (0..most).take_while(|_| self.offer.take(1, 0)).count() as u64;
        assert!(
            taken <= self.sound.load(Ordering::Relaxed),
            "of a group that is not sound"
        );
        taken
    }

    /// Checks that the offer has just the blocks of sound groups, `reserved` of them reserved, and
    /// that all come back.
    fn check(&self, reserved: u64) {
        let sound = self.sound.load(Ordering::Relaxed);
        assert!(reserved <= sound, "{reserved} of {sound} are reserved");
        assert!(
            !self.offer.take(sound - reserved + 1, 0),
            "more than sound groups have"
        );
        self.offer.give(reserved);
        assert!(self.offer.take(sound, 0), "blocks are lost");
        assert!(
            !self.offer.take(1, 0) && !self.offer.could_take(1, 0, 0),
            "blocks appear"
        );
    }
}

/// A thread sets a group aside, and then examines a sound one, while another reserves.
#[test]
fn reserve_vs_set_aside() {
    race_for(
        || Groups::new(2),
        |groups| groups.reserve(2 * GROUP),
        |groups| {
            groups.find_damaged();
            groups.find_sound();
        },
        |groups, taken, ()| groups.check(taken),
    );
}

/// A thread examines two sound groups, while another reserves, gives back and reserves.
#[test]
fn reserve_vs_examine() {
    race_for(
        || Groups::new(2),
        |groups| {
            let taken = groups.reserve(GROUP);
            groups.offer.give(taken);
            groups.reserve(2 * GROUP)
        },
        |groups| {
            groups.find_sound();
            groups.find_sound();
        },
        |groups, taken, ()| groups.check(taken),
    );
}

/// Two threads reserve from the same groups: a block goes to one of them. A third sets another
/// group aside.
#[test]
fn reserve_vs_reserve() {
    explore(|| {
        let groups = Arc::new(Groups::one_sound());
        let spawn = |run: fn(&Groups) -> u64| {
            let groups = groups.clone();
            thread::spawn(move || run(&groups))
        };
        let others = [
            spawn(|groups| u64::from(groups.offer.take(GROUP, 0)) * GROUP),
            spawn(|groups| {
                groups.find_damaged();
                0
            }),
        ];
        let mine = groups.reserve(1);
        let theirs: u64 = others.into_iter().map(|other| other.join().unwrap()).sum();
        groups.check(mine + theirs);
    });
}

/// A sound group turns out to be damaged while a thread has reserved blocks of it: the thread may
/// keep those, and gets no more. When it gives them back, they are not offered again.
#[test]
fn reserve_vs_withdraw() {
    race_for(
        Groups::one_sound,
        |groups| {
            let taken = groups.reserve(1);
            groups.offer.give(taken);
            u64::from(groups.offer.take(GROUP, 0)) * GROUP
        },
        |groups| groups.offer.withdraw(GROUP),
        |groups, taken, ()| {
            assert!(!groups.offer.take(1, 0), "of a group that is set aside");
            groups.offer.give(taken);
            // The other group is the only one left.
            assert!(!groups.offer.take(1, 0) && groups.offer.could_take(GROUP, 0, GROUP));
            groups.sound.store(0, Ordering::Relaxed);
            groups.find_sound();
            groups.check(0);
        },
    );
}
