//! The workload of pairs: threads open a file and close it again.
//!
//! `open_files` measures it on each side; it is the common case, in which a file is closed by the
//! thread that opened it.

use extern4_sync::percpu;
use extern4_vfs::lab::{Opened, Registry};

use super::{Locks, Moves, close, open, sample};
use crate::plan::Plan;
use crate::row::Sample;

/// Pairs between two checks of whether the time is up.
const BATCH: u64 = 256;

pub(super) fn take<R: Locks>(plan: &Plan, threads: usize) -> Sample {
    let registry = R::default();
    let moves = Moves::new();
    let done = plan.work(1, threads, |_| (), |()| batch(&registry, &moves));
    sample(&done, &moves, registry.locks())
}

/// Runs a batch of pairs. For the last, it counts the CPU of the close.
pub(super) fn batch<R: Registry<Opened>>(registry: &R, moves: &Moves) -> u64 {
    for ino in 1..BATCH {
        close(registry, &open(registry, ino));
    }
    let cpu = percpu::cpu();
    close(registry, &open(registry, BATCH));
    moves.note(cpu);
    BATCH
}
