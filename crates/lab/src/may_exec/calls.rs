//! The workload of calls, for the chapter on search permission: threads ask for files by their
//! paths.
//!
//! `may_exec` measures it on each side, and counts its accesses. The sides differ in the search
//! check only.

use std::hint::black_box;

use extern4_vfs::Inode;

use super::{BUILD, CHECKS, MANY, SHORT_WAY, SOME};
use crate::plan::Plan;
use crate::random::Random;
use crate::row::Sample;
use crate::volume::{DIRECTORIES, PATH, Production};

/// Calls between two checks of whether the time is up.
pub(super) const BATCH: u64 = 256;

/// Asks for the attributes of an existing file.
#[inline]
pub(super) fn stat(volume: &Production, path: &str) {
    black_box(volume.stat(black_box(path))).expect("the user may search");
}

/// Makes search checks of directories. It is never inlined, on any side: whether it is inlined
/// matters more than the difference between the sides.
#[inline(never)]
pub(super) fn check<const N: usize>(volume: &Production, directories: &[&Inode; N]) {
    assert!(
        volume.may_search(black_box(directories)),
        "the user may search"
    );
}

pub(super) fn take(
    volume: &Production,
    paths: &[String],
    plan: &Plan,
    workload: &str,
    threads: usize,
) -> Sample {
    let directories = (workload == CHECKS).then(|| DIRECTORIES.map(|path| volume.directory(path)));
    // Each thread starts at another place of the build.
    let begin = |thread: usize| (thread * 997 % paths.len(), Random::new(thread));
    let batch = |(at, random): &mut (usize, Random)| {
        match (&directories, workload) {
            (Some(directories), _) => (0..BATCH).for_each(|_| check(volume, directories)),
            (None, BUILD) => (0..BATCH).for_each(|_| {
                // Some names do not exist.
                let _ = black_box(volume.stat(black_box(&paths[*at])));
                *at = (*at + 1) % paths.len();
            }),
            (None, SOME | MANY) => (0..BATCH).for_each(|_| {
                stat(volume, &paths[random.below(paths.len() as u64) as usize]);
            }),
            _ => (0..BATCH).for_each(|_| stat(volume, PATH)),
        }
        BATCH
    };
    let done = plan.work(1, threads, begin, batch);
    let mut sample = Sample::of(&done);
    if workload != CHECKS {
        let checks: u64 = volume.searches(paths).iter().sum();
        sample
            .counters
            .push(("search checks/path", checks as f64 / paths.len() as f64));
        sample.counters.push((SHORT_WAY, volume.share(paths)));
    }
    sample
}
