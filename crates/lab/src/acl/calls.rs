//! The workload of calls, for the chapter on ACLs: threads ask for the attributes of one file.
//!
//! `acl` measures it on each side, and counts its accesses. The calls differ in the search check
//! only, so a difference in time is that of the checks.

use std::hint::black_box;

use extern4_vfs::Inode;

use super::{CHECKS, CHECKS_ACLS, OPEN};
use crate::plan::Plan;
use crate::row::Sample;
use crate::volume::{DIRECTORIES, PATH, Production};

/// Calls between two checks of whether the time is up.
const BATCH: u64 = 256;

/// Asks for the attributes of the file.
#[inline]
pub(super) fn stat(volume: &Production) {
    black_box(volume.stat(black_box(PATH))).expect("the user may search");
}

/// Makes the search checks of a walk to the file. It is never inlined, on any side: whether it is
/// inlined matters more than the difference between the sides.
#[inline(never)]
pub(super) fn check<const N: usize>(volume: &Production, directories: &[&Inode; N]) {
    assert!(
        volume.may_search(black_box(directories)),
        "the user may search"
    );
}

pub(super) fn take(volume: &Production, plan: &Plan, workload: &str, threads: usize) -> Sample {
    let directories = DIRECTORIES.map(|path| volume.directory(path));
    let batch = |_: &mut ()| {
        match workload {
            OPEN => (0..BATCH).for_each(|_| {
                volume
                    .open_and_close(black_box(PATH))
                    .expect("the user may read")
            }),
            CHECKS | CHECKS_ACLS => (0..BATCH).for_each(|_| check(volume, &directories)),
            _ => (0..BATCH).for_each(|_| stat(volume)),
        }
        BATCH
    };
    let done = plan.work(1, threads, |_| (), batch);
    Sample::of(&done)
}
