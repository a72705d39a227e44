//! The workload of listings: threads open and close files, while another lists all open files now
//! and then.
//!
//! `open_files` measures it on each side: a listing may delay the threads that open and close.

use std::hint::black_box;
use std::time::Instant;

use extern4_vfs::lab::Opened;

use super::{Locks, Moves, close, open, pairs, sample};
use crate::plan::{Plan, load};
use crate::row::Sample;
use extern4_measure::figures::Figures;

/// Files that are open all the time.
const OPEN: u64 = 1000;
/// Listings while a figure is taken.
const LISTS: usize = 3;

pub(super) fn take<R: Locks>(plan: &Plan, threads: usize) -> Sample {
    let registry = R::default();
    let moves = Moves::new();
    let stay: Vec<_> = (0..OPEN).map(|ino| open(&registry, ino)).collect();
    let mut micros = Vec::new();
    let meanwhile = || {
        for _ in 0..LISTS {
            std::thread::sleep(plan.period);
            let start = Instant::now();
            black_box(registry.list(Opened::info));
            micros.push(start.elapsed().as_secs_f64() * 1e6);
        }
    };
    let done = load(threads).repeat(meanwhile, |_| (), |()| pairs::batch(&registry, &moves));
    stay.iter().for_each(|ticket| close(&registry, ticket));
    let mut sample = sample(&done, &moves, registry.locks());
    sample
        .counters
        .push(("a list, us", Figures(micros).median().unwrap_or(f64::NAN)));
    sample
}
