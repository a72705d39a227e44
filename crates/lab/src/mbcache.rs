//! Shared attributes: files with equal attributes share a block, which is found by the hash of its
//! contents.
//!
//! The baseline and the patch are reimplemented here, after the mbcache of Linux up to 4.5 and the
//! one that replaced it. extern4 is the cache of `extern4-ext4`, with the reference count by which
//! files join and leave blocks. The workload sets an attribute of a file, as far as the cache is
//! concerned: there is no journal, and a block holds one number. A second workload sets attributes
//! through `setxattr`.
//!
//! `lib` calls `chapter` to measure, and `main` calls `count` in the audit's build.

mod baseline;
mod blocks;
mod facts;
mod grid;
mod patch;
mod production;
mod sets;
mod setxattr;
mod slab;

pub use baseline::Baseline;
pub use blocks::{Blocks, MOST};
pub use patch::Patch;
pub use production::Extern4;

use crate::access_counts::AccessCounts;
use crate::chapter::{Chapter, times};
use crate::plan::{Plan, Side};
use crate::row::{self, Row};
use extern4_measure::table::Table;
use extern4_measure::verdict::Verdict;

use grid::{CELLS, Cell};

/// A cache of blocks by the hash of their contents. Files join and leave blocks through it.
pub trait Cache: Send + Sync {
    /// Creates an empty cache.
    fn new() -> Self;

    /// Finds a block that holds `value`, which has this hash, adds one file to its count, and
    /// returns it. Returns `None` if there is no such block that another file may join.
    fn join(&self, blocks: &Blocks, hash: u32, value: u32) -> Option<u32>;

    /// Adds a block that has been written and belongs to one file. From now on it can be found.
    fn add(&self, blocks: &Blocks, hash: u32, block: u32);

    /// Removes one file from the count of a block with this hash. Returns true if it was the last:
    /// then no lookup finds the block any more.
    fn leave(&self, blocks: &Blocks, hash: u32, block: u32) -> bool;

    /// Returns how many files have a block, as this cache counts them.
    fn count(&self, blocks: &Blocks, block: u32) -> u32;

    /// Returns how many blocks can be found.
    fn entries(&self) -> u64;

    /// Returns the bytes of its tables and of the entries in them.
    fn bytes(&self) -> u64;
}

/// Returns the hash of a value.
fn hash(value: u32) -> u32 {
    // A bijection: different values have different hashes.
    value
        .wrapping_mul(0x85eb_ca6b)
        .rotate_left(13)
        .wrapping_mul(0xc2b2_ae35)
}

/// Measures shared attributes.
pub fn chapter(plan: &Plan, counted: &AccessCounts, say: &mut dyn FnMut(&str)) -> Chapter {
    let mut rows = Vec::new();
    for cell in grid::cells(plan) {
        for &threads in plan
            .threads_of(cell.name)
            .iter()
            .filter(|threads| **threads <= MOST_PROCESSES)
        {
            say(&format!("{}, {threads} threads", cell.name));
            rows.push(row::measure(
                plan,
                cell.name,
                threads,
                &Side::ALL,
                |side| match side {
                    Side::Baseline => sets::take::<Baseline>(plan, cell, threads),
                    Side::Patch => sets::take::<Patch>(plan, cell, threads),
                    _ => sets::take::<Extern4>(plan, cell, threads),
                },
            ));
        }
    }
    let through = through(plan, say);
    let verdicts = verdicts(&rows, &through, plan);
    let table = Some(table(&through));
    let counted = counted.of(&[SET]);
    Chapter {
        title: "Shared attributes",
        name: "mbcache",
        idea: IDEA,
        sides: SIDES,
        notes: NOTES,
        published: PUBLISHED,
        theirs: THEIRS,
        table,
        drawn: &[CELLS[0].name, CELLS[14].name],
        rows: rows.into_iter().chain(through).collect(),
        counted,
        facts: facts::all(),
        verdicts,
        ..Chapter::default()
    }
}

/// Measures the workload through `setxattr`. Returns no rows if no volume can be made.
fn through(plan: &Plan, say: &mut dyn FnMut(&str)) -> Vec<Row> {
    let mut rows = Vec::new();
    let most = plan
        .threads
        .iter()
        .copied()
        .filter(|threads| *threads <= MOST_PROCESSES)
        .max()
        .unwrap_or_default();
    if !grid::cells(plan).any(|cell| plan.wants(cell.through)) {
        return rows;
    }
    let Some(volumes) = setxattr::Volumes::new(most, grid::MOST_FILES) else {
        say("no volume can be made here for setxattr");
        return rows;
    };
    for cell in grid::cells(plan) {
        for &threads in plan
            .threads_of(cell.through)
            .iter()
            .filter(|threads| **threads <= MOST_PROCESSES)
        {
            say(&format!("{}, {threads} threads", cell.through));
            let five = &Plan {
                repetitions: plan.repetitions.min(5),
                ..plan.clone()
            };
            rows.push(row::measure(
                five,
                cell.through,
                threads,
                &Side::ALL,
                |side| volumes.take(plan, side, cell, threads),
            ));
        }
    }
    rows
}

fn verdicts(rows: &[Row], through: &[Row], plan: &Plan) -> Vec<Verdict> {
    let most = plan
        .threads
        .iter()
        .copied()
        .filter(|threads| *threads <= MOST_PROCESSES)
        .max()
        .unwrap_or_default();
    let with_most = || rows.iter().filter(|row| row.threads == most);
    let many = |row: &&Row| {
        CELLS
            .iter()
            .any(|cell| cell.name == row.workload && cell.values >= 10_000)
    };
    let hottest = with_most().find(|row| row.workload == CELLS[0].name);
    let patch = |row: &Row| row.ratio(Side::Extern4, Side::Patch);
    let worst = with_most()
        .filter(many)
        .min_by(|a, b| patch(a).total_cmp(&patch(b)));
    let hot = format!("the cache alone, {}, {most} threads", CELLS[0].name);
    let many = format!("the cache alone, V of 10,000 and more, {most} threads, the least");
    let mut verdicts = vec![
        Verdict::faster(Side::Extern4, Side::Baseline, &hot, 20.0, hottest),
        Verdict::faster(Side::Extern4, Side::Patch, &many, 5.0, worst),
    ];
    verdicts.extend(row::nowhere_slower("the cache alone", rows, |_| true));
    verdicts.extend(row::nowhere_slower("through setxattr", through, |_| true));
    verdicts
}

const SET: &str = "set an attribute to what another file has";

const IDEA: &str = "Files with the same attributes share the block that holds them, which is found by a hash. Most of what a cache for that \
    used to do was to protect its own entries; but an entry only has to be a hint, for whoever comes to a block compares what it holds, \
    and one word beside the block decides who joins it and who was the last to leave it: to come is to add one, to leave to take one \
    away. So an entry is eight bytes in a bucket of one cache line, put in and taken out by one instruction, and there is no list, no count of \
    an entry's users, and nothing to wait for, but by who removes an entry while the cache changes its size.";

const SIDES: &[&str] = &[
    "entries in two tables, by hash and by block, each with a lock that many read or one has for himself, which is waited for on one \
     queue; those that nobody uses are on one list under one lock, which finding an entry and letting go of it both take. At most \
     16,384, of which the least lately used go first.",
    "entries in 1,024 chains by hash, a lock each, and on one list under one lock, which who adds or removes an entry takes; they count \
     their users, and a mark says that they were of use. At most 16,384 before who adds one gives a sixteenth up, which a thread of the \
     kernel does there. It has what was mended later: marks are changed whole, and what may not be joined is passed over.",
    "`MbCache` of `extern4-ext4` and `Shares` of `extern4-sync`, called in the order of production.",
];

const NOTES: &[(&str, &str)] = &[
    (
        CELLS[0].name,
        "Each of P threads sets an attribute of one of its F files in turn to one of V values by chance: it joins a block that has that \
         value, or writes one, and leaves the block that the file had. How many have a block and what it holds are on \
         different cache lines, as in a buffer. P are the threads, in this table and in those below. At most 1,024 \
         files share a block. Each turn takes half as long as in other chapters.",
    ),
    (
        CELLS[0].through,
        "From here on the same through `setxattr`, with 512 bytes for a value, on an ext4 volume in memory, with its journal and blocks of \
         1 KiB. The baseline and the patch stand in the place of the cache of production; all else is production's on all three sides, also \
         the word by which blocks are joined and left, so that what the sides differ in is how blocks are found. As in the patch's table, \
         each thread sets 4,000 attributes (64 in a quick run), five times, and a counter has the seconds of a run. `make bench` has extern4 \
         next to the kernel.",
    ),
];

const PUBLISHED: &str = "xattr-bench: P processes set an attribute on F files each, its value one of V. Its grid stands next to ours in the page's table. An \
    entry went from 13 words to 7, the code from 913 lines to 414. Of the whole, much is what else a process does to set an attribute.";

const THEIRS: &str = "The patch: xattr-bench, seconds, the mean of five: P processes set one attribute on F files each, its value one of V. \
    Upper lines: before / after of the patch, and its gain. Lower lines: baseline / patch / extern4 here, and the gains of the patch and extern4, through `setxattr` \
    on ext4 in memory; a process of theirs is a thread of ours, since the library lives in one process, and the full report says how many attributes it sets. \
    Where there is `-`, the kernel was locked up, or nothing was measured.";

/// The most processes in the patch's table. A volume has no room for the files of more threads.
const MOST_PROCESSES: usize = 64;

/// The values of P in the patch's table.
const PROCESSES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The seconds that the patch reports, before and after, for P of 1, 2, 4, 8, 16, 32 and 64, for
/// each of [`CELLS`]. NaN where the kernel locked up.
const SECONDS: [[(f64, f64); 7]; CELLS.len()] = [
    [
        (0.158, 0.157),
        (0.208, 0.196),
        (0.500, 0.277),
        (0.798, 0.400),
        (3.258, 0.584),
        (13.807, 1.047),
        (61.339, 2.803),
    ],
    [
        (0.172, 0.167),
        (0.279, 0.222),
        (0.520, 0.275),
        (0.825, 0.341),
        (2.981, 0.505),
        (12.022, 1.202),
        (44.641, 2.943),
    ],
    [
        (0.185, 0.174),
        (0.297, 0.239),
        (0.445, 0.283),
        (0.767, 0.340),
        (2.329, 0.480),
        (6.342, 1.198),
        (16.440, 3.888),
    ],
    [
        (0.162, 0.153),
        (0.200, 0.186),
        (0.362, 0.257),
        (0.671, 0.496),
        (1.433, 0.943),
        (3.801, 1.345),
        (7.938, 2.501),
    ],
    [
        (0.153, 0.160),
        (0.221, 0.199),
        (0.404, 0.264),
        (0.945, 0.379),
        (1.556, 0.485),
        (3.761, 1.156),
        (7.901, 2.484),
    ],
    [
        (0.215, 0.191),
        (0.303, 0.246),
        (0.471, 0.288),
        (0.960, 0.347),
        (1.647, 0.479),
        (3.916, 1.176),
        (8.058, 3.160),
    ],
    [
        (0.151, 0.129),
        (0.210, 0.163),
        (0.326, 0.245),
        (0.685, 0.521),
        (1.284, 0.859),
        (3.087, 2.251),
        (6.451, 4.801),
    ],
    [
        (0.154, 0.153),
        (0.211, 0.191),
        (0.276, 0.282),
        (0.687, 0.506),
        (1.202, 0.877),
        (3.259, 1.954),
        (8.738, 2.887),
    ],
    [
        (0.145, 0.179),
        (0.202, 0.222),
        (0.449, 0.319),
        (0.899, 0.333),
        (1.577, 0.524),
        (4.221, 1.240),
        (9.782, 3.579),
    ],
    [
        (0.161, 0.154),
        (0.198, 0.190),
        (0.296, 0.256),
        (0.662, 0.480),
        (1.192, 0.818),
        (2.989, 2.200),
        (6.362, 4.746),
    ],
    [
        (0.176, 0.174),
        (0.236, 0.203),
        (0.326, 0.255),
        (0.696, 0.511),
        (1.183, 0.855),
        (4.205, 3.444),
        (19.510, 17.760),
    ],
    [
        (0.199, 0.183),
        (0.240, 0.227),
        (1.159, 1.014),
        (2.286, 2.154),
        (6.023, 6.039),
        (f64::NAN, 10.933),
        (f64::NAN, 36.620),
    ],
    [
        (0.171, 0.162),
        (0.204, 0.198),
        (0.285, 0.230),
        (0.692, 0.500),
        (1.225, 0.881),
        (2.990, 2.243),
        (6.379, 4.771),
    ],
    [
        (0.151, 0.171),
        (0.220, 0.210),
        (0.295, 0.255),
        (0.720, 0.518),
        (1.226, 0.844),
        (3.423, 2.831),
        (19.234, 17.544),
    ],
    [
        (0.192, 0.189),
        (0.249, 0.225),
        (1.162, 1.043),
        (2.257, 2.093),
        (5.853, 4.997),
        (f64::NAN, 10.399),
        (f64::NAN, 32.198),
    ],
];

/// Returns the patch's own table with the lab's figures next to it.
fn table(through: &[Row]) -> Table {
    let titles = PROCESSES.map(|p| format!("P={p}"));
    let mut table = Table::new(1, [String::new()].into_iter().chain(titles));
    for (cell, seconds) in CELLS.iter().zip(SECONDS) {
        let theirs = seconds.map(|(before, after)| {
            format!(
                "{} / {} ({})",
                seconds_text(before),
                seconds_text(after),
                times(before / after)
            )
        });
        let ours = PROCESSES.map(|p| {
            let Some(row) = through
                .iter()
                .find(|row| row.workload == cell.through && row.threads == p)
            else {
                return String::new();
            };
            let mean = |side| row.figures(side, RUN).mean().unwrap_or(f64::NAN);
            let [baseline, patch, extern4] = Side::ALL.map(mean);
            let [patch_gain, our_gain] = [baseline / patch, baseline / extern4].map(times);
            let [baseline, patch, extern4] = [baseline, patch, extern4].map(seconds_text);
            format!("<br>{baseline} / {patch} / {extern4} ({patch_gain}, {our_gain})")
        });
        let cells = theirs
            .into_iter()
            .zip(ours)
            .map(|(theirs, ours)| theirs + &ours);
        table.line([cell.name.to_owned()].into_iter().chain(cells));
    }
    table
}

fn seconds_text(seconds: f64) -> String {
    if seconds.is_finite() {
        format!("{seconds:.3}")
    } else {
        "-".to_owned()
    }
}

/// A counter: the seconds of a run in which each thread sets the planned number of attributes.
const RUN: &str = "seconds of a run";

/// Counts the accesses of the sides to shared memory.
#[cfg(feature = "audit")]
pub fn count(counted: &mut AccessCounts) {
    count_side::<Baseline>(counted, Side::Baseline);
    count_side::<Patch>(counted, Side::Patch);
    count_side::<Extern4>(counted, Side::Extern4);
}

/// Each thread has two values that no other thread has, and a file for each. A third file gets the
/// two values in turn.
#[cfg(feature = "audit")]
fn count_side<C: Cache>(counted: &mut AccessCounts, side: Side) {
    use std::cell::{Cell, RefCell};
    let cache = &C::new();
    let blocks = &Blocks::new(1000);
    let setter = |thread: u32| {
        let files = RefCell::new(sets::Files::new(0, 3));
        let turn = Cell::new(0);
        let set = move |file, which| {
            files
                .borrow_mut()
                .set(cache, blocks, file, 2 * thread + which)
        };
        (0..3).for_each(|file| set(file, file as u32 % 2));
        move || {
            turn.set(1 - turn.get());
            set(2, turn.get());
        }
    };
    let ours = setter(0);
    let theirs = setter(1);
    // Warm up: an entry is marked as referenced only on its first use.
    (0..4).for_each(|_| [&ours as &dyn Fn(), &theirs].iter().for_each(|set| set()));
    counted.count(SET, side, ours, theirs);
}

#[cfg(test)]
mod tests;
