//! Threads that ask for files by their paths.

use std::hint::black_box;

use super::{BUILD, CHECKS, Mechanism, OFF, build};
use crate::crowd;
use crate::plan::Plan;
use crate::row::Sample;
use crate::volume::{DIRECTORIES, PATH, Volume};

/// Calls between two looks at whether the time is up.
const BATCH: u64 = 256;

/// Asks for the attributes of what is there.
#[inline]
pub(super) fn stat<V: Volume>(volume: &V, path: &str) {
    black_box(volume.stat(black_box(path))).expect("the user may search");
}

/// Checks directories. Out of line for all sides: whether it is in line is worth more than what they differ in.
#[inline(never)]
pub(super) fn check<V: Volume, const N: usize>(volume: &V, directories: &[V::Directory<'_>; N]) {
    assert!(volume.may_search(black_box(directories)), "the user may search");
}

pub(super) fn take<M: Mechanism>(volume: &M, plan: &Plan, workload: &str, threads: usize) -> Sample {
    let directories = (workload == CHECKS).then(|| DIRECTORIES.map(|path| volume.directory(path)));
    let paths = if workload == BUILD { build::paths() } else { vec![PATH.to_owned()] };
    // Each thread is at another place of the build.
    let begin = |thread: usize| thread * 997 % paths.len();
    let batch = |at: &mut usize| {
        match (&directories, workload) {
            (Some(directories), _) => (0..BATCH).for_each(|_| check(volume, directories)),
            (None, BUILD) => (0..BATCH).for_each(|_| {
                // Some are not there.
                let _ = black_box(volume.stat(black_box(&paths[*at])));
                *at = (*at + 1) % paths.len();
            }),
            _ => (0..BATCH).for_each(|_| stat(volume, PATH)),
        }
        BATCH
    };
    volume.set_fast(workload != OFF);
    let done = crowd::work(plan, 1, threads, begin, batch);
    let mut sample = Sample::of(&done);
    if workload != CHECKS {
        let [fast, full] = volume.searches(&paths).map(|searches| searches as f64);
        sample.counters.push(("search checks/path", (fast + full) / paths.len() as f64));
        sample.counters.push(("answered the short way, %", 100.0 * fast / (fast + full)));
    }
    sample
}
