//! The workload of the mbcache alone: threads set attributes of separate files.
//!
//! `mbcache` measures it on each side and for each cell. After each repetition every file has a
//! block with its value.

use extern4_sync::thread_counter::ThreadCounter;

use super::{Blocks, Cache, Cell, hash};
use crate::plan::Plan;
use crate::random::Random;
use crate::row::Sample;

/// Attributes set between two checks of whether the time is up.
const BATCH: u64 = 256;
/// Free blocks that a thread takes at once. It keeps fewer than twice as many.
const HANDFUL: usize = 32;

/// The files of a thread.
pub(super) struct Files {
    /// The block of each file, or 0.
    blocks: Vec<u32>,
    next: usize,
    random: Random,
    /// Free blocks that the thread keeps.
    free: Vec<u32>,
    /// Attributes set, and how many of them found a block.
    counts: [u64; 2],
}

impl Files {
    pub(super) fn new(thread: usize, files: usize) -> Self {
        let blocks = vec![0; files];
        let random = Random::new(thread);
        Self {
            blocks,
            next: 0,
            random,
            free: Vec::with_capacity(2 * HANDFUL),
            counts: [0; 2],
        }
    }

    /// Sets the attribute of a file.
    pub(super) fn set<C: Cache>(&mut self, cache: &C, blocks: &Blocks, file: usize, value: u32) {
        let old = self.blocks[file];
        // Read the present attribute of the file first, as file systems do.
        let old_hash = hash(blocks.value(old));
        let joined = cache.join(blocks, hash(value), value);
        self.counts = [
            self.counts[0] + 1,
            self.counts[1] + u64::from(joined.is_some()),
        ];
        let block = joined.unwrap_or_else(|| self.write(cache, blocks, value));
        self.blocks[file] = block;
        if old != 0 {
            self.leave(cache, blocks, old_hash, old);
        }
    }

    /// Sets the attribute of the next file to a random one of `values` values.
    pub(super) fn set_next<C: Cache>(&mut self, cache: &C, blocks: &Blocks, values: u32) {
        let file = self.next;
        let value = self.random.below(values.into()) as u32;
        self.next = if file + 1 == self.blocks.len() {
            0
        } else {
            file + 1
        };
        self.set(cache, blocks, file, value);
    }

    fn write<C: Cache>(&mut self, cache: &C, blocks: &Blocks, value: u32) -> u32 {
        if self.free.is_empty() {
            self.free = blocks.take(HANDFUL);
        }
        let block = self
            .free
            .pop()
            .expect("there is a block for each file, and some more");
        blocks.write(block, value);
        cache.add(blocks, hash(value), block);
        block
    }

    fn leave<C: Cache>(&mut self, cache: &C, blocks: &Blocks, hash: u32, block: u32) {
        if cache.leave(blocks, hash, block) {
            self.free.push(block);
            if self.free.len() == 2 * HANDFUL {
                blocks.give(self.free.drain(HANDFUL..));
            }
        }
    }

    /// Returns the blocks of the files.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Returns the free blocks that the thread keeps.
    #[cfg(test)]
    pub(super) fn free(&self) -> &[u32] {
        &self.free
    }
}

/// Returns the number of blocks for `threads` threads of `files` files each, including the free
/// blocks that they keep.
pub(super) fn room(threads: usize, files: usize) -> usize {
    threads * (files + 1 + 2 * HANDFUL)
}

pub(super) fn take<C: Cache>(plan: &Plan, cell: Cell, threads: usize) -> Sample {
    let cache = C::new();
    let blocks = Blocks::new(room(threads, cell.files));
    let counts = ThreadCounter::<2>::new();
    let begin = |thread| {
        let mut files = Files::new(thread, cell.files);
        // All files have an attribute before the time begins.
        (0..cell.files).for_each(|_| files.set_next(&cache, &blocks, cell.values));
        files
    };
    let batch = |files: &mut Files| {
        (0..BATCH).for_each(|_| files.set_next(&cache, &blocks, cell.values));
        counts.add(std::mem::take(&mut files.counts));
        BATCH
    };
    let done = plan.work(2, threads, begin, batch);
    let [sets, found] = counts.sum();
    let mut sample = Sample::of(&done);
    sample
        .counters
        .push(("block found, %", 100.0 * found as f64 / sets as f64));
    sample
        .counters
        .push(("entries in the end", cache.entries() as f64));
    sample
}
