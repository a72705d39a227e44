//! The memory that short-lived threads leave behind, each of which creates, closes and unlinks
//! files.
//!
//! `open_files` puts it next to its rows, for each side. It shows whether a registry with state for
//! each thread grows with the threads that have ended.

use std::sync::Arc;
use std::thread;

use extern4_sync::allocations::{count_live, live_bytes};
use extern4_vfs::OpenFlags;

use super::traces::VolumeRegistry;
use super::{Baseline, Extern4, Patch};
use crate::chapter::Fact;
use crate::plan::Plan;
use crate::volume::Production;

/// The numbers of threads that run at one time.
const AT_ONCE: [usize; 3] = [1, 8, 64];
/// The number of names that the threads of one place use in turn.
const NAMES: usize = 50;

/// Returns the KiB that are live after the last thread and were not before the first, for each side
/// and number of threads.
pub(super) fn facts(plan: &Plan) -> Vec<Fact> {
    let (threads, files) = if plan.every_cell {
        (1024, 200)
    } else {
        (64, 20)
    };
    let fact = |at_once| Fact {
        name: format!(
            "KiB live after {threads} threads, {at_once} at a time, each with {files} files"
        ),
        figures: [left::<Baseline>, left::<Patch>, left::<Extern4>]
            .map(|left| left(threads / at_once, at_once, files) as f64 / 1024.0),
    };
    AT_ONCE.into_iter().map(fact).collect()
}

/// Returns the bytes that are live after all turns and were not after the first.
fn left<R: VolumeRegistry>(turns: usize, at_once: usize, files: usize) -> usize {
    let registry = Arc::new(R::default());
    let volume = Production::with_registry(R::in_place(&registry), &[]);
    turn(&volume, at_once, files);
    count_live(true);
    let before = live_bytes();
    (1..turns).for_each(|_| turn(&volume, at_once, files));
    let after = live_bytes();
    count_live(false);
    // Bytes from before may be freed in between. A negative difference counts as 0.
    usize::try_from(after.wrapping_sub(before) as isize).unwrap_or(0)
}

/// Starts threads that create and unlink files, and waits for their end.
fn turn(volume: &Production, at_once: usize, files: usize) {
    thread::scope(|scope| {
        for place in 0..at_once {
            scope.spawn(move || {
                (0..files).for_each(|file| create(volume, place * NAMES + file % NAMES))
            });
        }
    });
}

fn create(volume: &Production, name: usize) {
    let path = format!("/{name}");
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
    drop(volume.root.open(&path, flags).expect("a new name"));
    volume.root.unlink(&path).expect("it is there");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests of this process allocate at the same time, but far less than this.
    const MUCH: usize = 1 << 30;

    /// One test: a second one would switch the count off meanwhile.
    #[test]
    fn memory_of_ended_threads_is_counted() {
        count_live(true);
        let before = live_bytes();
        // Most of it comes from `realloc`. It is never written, so it takes no memory.
        let mut kept = vec![0_u8; 1];
        kept.reserve_exact(2 * MUCH);
        std::hint::black_box(&mut kept);
        let grown = live_bytes().wrapping_sub(before) as isize;
        drop(kept);
        let shrunk = live_bytes().wrapping_sub(before) as isize;
        count_live(false);
        assert!(
            grown > MUCH as isize && shrunk < MUCH as isize,
            "{grown} {shrunk}"
        );
        let facts = facts(&Plan::quick());
        assert_eq!(facts.len(), AT_ONCE.len());
        let all_kib = facts.iter().flat_map(|fact| fact.figures);
        assert!(
            all_kib.into_iter().all(|kib| kib < (MUCH >> 10) as f64),
            "{facts:?}"
        );
    }
}
