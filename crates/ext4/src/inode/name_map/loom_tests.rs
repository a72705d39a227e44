//! Readers of a map against the thread that changes it.

use extern4_block::CacheBudget;
use extern4_sync::model::race;
use extern4_sync::primitive::{AtomicBool, Ordering};

use super::{DirNames, NameMaps};

/// Hashes with places at the start, in the middle and at the end of a map.
const A: u32 = 1;
const B: u32 = 2;
const MIDDLE: u32 = 1 << 31;
const LAST: u32 = u32::MAX;

/// A mapped directory, and whether the cache of names hides the name that is changed.
struct Directory {
    names: DirNames,
    hides: AtomicBool,
}

fn directory(hashes: &[u32]) -> Directory {
    let names = DirNames::default();
    let mapped: Vec<_> = hashes.iter().map(|&hash| (hash, 0)).collect();
    names.publish(
        NameMaps::new(&CacheBudget::new(1 << 20))
            .map(&mapped)
            .unwrap(),
    );
    Directory {
        names,
        hides: AtomicBool::new(false),
    }
}

impl Directory {
    fn lacks(&self, hash: u32) -> bool {
        self.names.lacks(|| hash)
    }

    fn add(&self, hash: u32) {
        self.names.add(|| hash, 0);
    }

    fn remove(&self, hash: u32) {
        self.names.remove(|| hash, 0);
    }
}

#[test]
fn a_name_that_stays_is_never_absent() {
    race(
        || directory(&[LAST, MIDDLE]),
        |dir| {
            // The name of `MIDDLE` leaves a mark, and others outgrow the map.
            dir.remove(MIDDLE);
            [A, B, MIDDLE].into_iter().for_each(|hash| dir.add(hash));
        },
        |dir| (0..2).for_each(|_| assert!(!dir.lacks(LAST))),
        |dir| {
            assert!([A, B, MIDDLE, LAST].iter().all(|&hash| !dir.lacks(hash)) && dir.lacks(A + B))
        },
    );
}

#[test]
fn a_name_in_a_slot_of_another_is_found() {
    race(
        // `B` comes after `A` on the same way.
        || directory(&[A, B]),
        |dir| {
            dir.remove(A);
            dir.add(A);
        },
        |dir| assert!(!dir.lacks(B)),
        |dir| assert!(!dir.lacks(A) && !dir.lacks(B)),
    );
}

#[test]
fn a_renamed_name_is_never_absent_under_both_names() {
    race(
        || directory(&[A]),
        |dir| {
            dir.add(LAST);
            dir.remove(A);
        },
        |dir| assert!(!dir.lacks(A) || !dir.lacks(LAST)),
        |dir| assert!(dir.lacks(A) && !dir.lacks(LAST)),
    );
}

#[test]
fn a_reader_that_sees_a_removal_sees_the_name_hidden() {
    race(
        || directory(&[A]),
        |dir| {
            dir.hides.store(true, Ordering::Relaxed);
            dir.remove(A);
        },
        |dir| assert!(!dir.lacks(A) || dir.hides.load(Ordering::Relaxed)),
        |dir| assert!(dir.lacks(A)),
    );
}

#[test]
fn a_map_is_dropped_under_a_reader() {
    race(
        || directory(&[A]),
        |dir| {
            dir.names.clear();
            dir.add(B);
        },
        |dir| assert!(!dir.lacks(A)),
        |dir| assert!(!dir.lacks(A) && !dir.lacks(B)),
    );
}
