//! Threads that ask for one file.

use std::hint::black_box;

use super::{CHECKS, CHECKS_ACLS, OPEN};
use crate::crowd;
use crate::plan::Plan;
use crate::row::Sample;
use crate::volume::{DIRECTORIES, PATH, Volume};

/// Calls between two looks at whether the time is up.
const BATCH: u64 = 256;

/// Asks for its attributes.
#[inline]
pub(super) fn stat<V: Volume>(volume: &V) {
    black_box(volume.stat(black_box(PATH))).expect("the user may search");
}

/// Checks what a walk to it would. Out of line for all sides: whether it is in line is worth more than what they differ in.
#[inline(never)]
pub(super) fn check<V: Volume, const N: usize>(volume: &V, directories: &[V::Directory<'_>; N]) {
    assert!(volume.may_search(black_box(directories)), "the user may search");
}

pub(super) fn take<V: Volume>(volume: &V, plan: &Plan, workload: &str, threads: usize) -> Sample {
    let directories = DIRECTORIES.map(|path| volume.directory(path));
    let batch = |_: &mut ()| {
        match workload {
            OPEN => {
                (0..BATCH).for_each(|_| volume.open_and_close(black_box(PATH)).expect("the user may read"))
            }
            CHECKS | CHECKS_ACLS => (0..BATCH).for_each(|_| check(volume, &directories)),
            _ => (0..BATCH).for_each(|_| stat(volume)),
        }
        BATCH
    };
    let done = crowd::work(plan, 1, threads, |_| (), batch);
    Sample::of(&done)
}
