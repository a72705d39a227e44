//! Shared attributes: a block that holds what a file is to have for attributes is found by its hash.
//!
//! Before and Seed are made here, after the mbcache of Linux up to 4.5 and the one that took its place. New is the cache of
//! `extern4-sync`, with the word by which blocks are joined and left, as `extern4-ext4` uses both. What is measured is an attribute of
//! a file being set, as far as the cache is concerned: there is no journal, and what a block holds is one number.

mod before;
mod blocks;
mod facts;
mod grid;
mod new;
mod seed;
mod sets;
mod slab;

pub use before::Before;
pub use blocks::{Blocks, MOST};
pub use new::New;
pub use seed::Seed;

use crate::chapter::Chapter;
use crate::counted::Counted;
use crate::plan::{Plan, Side};
use crate::row::Row;
use crate::verdict::Verdict;

use grid::{CELLS, Cell};

/// A cache of blocks by the hash of what they hold, and its way to join and leave them.
pub trait Cache: Send + Sync {
    /// An empty one.
    fn new() -> Self;

    /// A block that holds `value`, whose hash that is, and that one file more has now. `None` if there is none, or none that another
    /// file may join.
    fn join(&self, blocks: &Blocks, hash: u32, value: u32) -> Option<u32>;

    /// A block has been written, and one file has it: from now on it can be found.
    fn add(&self, blocks: &Blocks, hash: u32, block: u32);

    /// A file leaves a block with this hash. True if it was the last: then nobody finds the block any more.
    fn leave(&self, blocks: &Blocks, hash: u32, block: u32) -> bool;

    /// Files that have a block, as this cache counts them.
    fn count(&self, blocks: &Blocks, block: u32) -> u32;

    /// Blocks that can be found.
    fn entries(&self) -> u64;
}

/// The hash of a value.
fn hash(value: u32) -> u32 {
    // A bijection: two values never have the same.
    value.wrapping_mul(0x85eb_ca6b).rotate_left(13).wrapping_mul(0xc2b2_ae35)
}

/// Measures shared attributes.
pub fn chapter(plan: &Plan, counted: &Counted, say: &mut dyn FnMut(&str)) -> Chapter {
    let mut rows = Vec::new();
    for cell in grid::cells(plan) {
        for &threads in &plan.threads {
            say(&format!("{}, {threads} threads", cell.name));
            rows.push(Row::measure(plan, cell.name, threads, |side| match side {
                Side::Before => sets::take::<Before>(plan, cell, threads),
                Side::Seed => sets::take::<Seed>(plan, cell, threads),
                Side::New => sets::take::<New>(plan, cell, threads),
            }));
        }
    }
    let verdicts = verdicts(&rows, plan);
    let counted = counted.of(&[SET]);
    Chapter {
        title: "Shared attributes",
        name: "mbcache",
        idea: IDEA,
        sides: SIDES,
        notes: NOTES,
        rows,
        counted,
        facts: facts::all(),
        verdicts,
        ..Chapter::default()
    }
}

fn verdicts(rows: &[Row], plan: &Plan) -> Vec<Verdict> {
    let most = plan.threads.iter().copied().max().unwrap_or_default();
    let with_most = || rows.iter().filter(|row| row.threads == most);
    let many = |row: &&Row| CELLS.iter().any(|cell| cell.name == row.workload && cell.values >= 10_000);
    let hottest = with_most().find(|row| row.workload == CELLS[0].name);
    let worst = with_most().filter(many).min_by(|a, b| a.ratio(Side::Seed).total_cmp(&b.ratio(Side::Seed)));
    vec![
        Verdict::no_row_slower(Side::Seed, rows.iter()),
        Verdict::faster(&format!("{}, {most} threads", CELLS[0].name), 20.0, hottest),
        Verdict::faster_than(Side::Seed, &format!("V of 10,000 and more, {most} threads"), 5.0, worst),
        Verdict::nowhere_slower(rows.iter()),
    ]
}

const SET: &str = "set an attribute to what another file has";

const IDEA: &str = "Files with the same attributes share the block that holds them, which is found by a hash. Most of what a cache for that \
    used to do was to protect its own entries; but an entry only has to be a hint, for whoever comes to a block compares what it holds, \
    and one word of the block itself decides who joins it and who was the last to leave it. So an entry is eight bytes in a bucket of one \
    cache line, put in and taken out by one instruction, and there is no list, no count of an entry's users, and nothing to wait for.";

const SIDES: [&str; 3] = [
    "entries in two tables, by hash and by block, each with a lock that many read or one has for himself, which is waited for on one \
     queue; those that nobody uses are on one list under one lock, which finding an entry and letting go of it both take. At most \
     16,384, of which the least lately used go first.",
    "entries in 1,024 chains by hash, a lock each, and on one list under one lock, which who adds or removes an entry takes; they count \
     their users, and a mark says that they were of use. At most 16,384 before who adds one gives a sixteenth up, which a thread of the \
     kernel does there. It has what was mended later: marks are changed whole, and what may not be joined is passed over.",
    "`MbCache` and `Shares` of `extern4-sync` in production, in the order in which `extern4-ext4` calls them.",
];

const NOTES: &[(&str, &str)] = &[(
    CELLS[0].name,
    "Each of P threads sets an attribute of one of its F files in turn to one of V values by chance: it joins a block that has that value, \
     or writes one, and leaves the block that the file had. P are the threads, in this table and in those below. At most 1,024 files \
     share a block. There is no setting through `setxattr` beside it, for Before and Seed have no file system: `make bench` \
     has New with all that belongs to it, beside the kernel. Each turn takes half as long as in other chapters.",
)];

/// Counts what the sides do to shared memory.
#[cfg(feature = "audit")]
pub fn count(counted: &mut Counted) {
    count_side::<Before>(counted, Side::Before);
    count_side::<Seed>(counted, Side::Seed);
    count_side::<New>(counted, Side::New);
}

/// Each thread has two values that nobody else has, a file for each, and one more, which gets them in turns.
#[cfg(feature = "audit")]
fn count_side<C: Cache>(counted: &mut Counted, side: Side) {
    use std::cell::{Cell, RefCell};
    let (cache, blocks) = (&C::new(), &Blocks::new(1000));
    let setter = |thread: u32| {
        let (files, turn) = (RefCell::new(sets::Files::new(0, 3)), Cell::new(0));
        let set = move |file, which| files.borrow_mut().set(cache, blocks, file, 2 * thread + which);
        (0..3).for_each(|file| set(file, file as u32 % 2));
        move || {
            turn.set(1 - turn.get());
            set(2, turn.get());
        }
    };
    let (ours, theirs) = (setter(0), setter(1));
    // Entries are marked once as having been of use.
    (0..4).for_each(|_| [&ours as &dyn Fn(), &theirs].iter().for_each(|set| set()));
    counted.count(SET, side, ours, theirs);
}

#[cfg(test)]
mod tests;
