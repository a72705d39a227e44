//! Which blocks of a group can be allocated, and the search for a run of them.
//!
//! A block can be allocated if the group's bitmap says that it is free and nothing holds it. The
//! transaction that has freed a block holds it until the transaction is durable. A growing file
//! holds the blocks of its [window](crate::inode::preallocation) until it takes them or other files
//! need them. Held blocks are a bitmap, too, and a search reads both bitmaps word by word, so the
//! number of fragments makes no difference.
//!
//! `block_allocator` has one [`FreeMap`] a group; `balloc` and `trim` search it.
//!
//! # Locks
//! The group's lock guards the map and the bitmap.

use std::collections::BTreeMap;
use std::ops::Range;

use extern4_disk::bitmap::{Bitmap, Union};

use crate::volume::group::to_usize;

/// The state of a group's free blocks that its bitmap does not have.
pub(crate) struct FreeMap {
    held: HeldBlocks,
    /// The windows of files by inode number: runs of held blocks, none empty.
    windows: BTreeMap<u32, Range<u32>>,
    /// No run that can be allocated is longer.
    longest: u32,
    /// Where a search without a goal starts.
    cursor: u32,
    /// No block before this one can be allocated.
    lowest_free: u32,
}

/// Free blocks that must not be allocated. Uses memory only while there are any.
#[derive(Default)]
struct HeldBlocks {
    bytes: Vec<u8>,
    count: u32,
}

impl HeldBlocks {
    fn add(&mut self, bits: Range<u32>) {
        let need = to_usize(bits.end.div_ceil(8));
        if self.bytes.len() < need {
            self.bytes.resize(need, 0);
        }
        self.count += bits.end - bits.start;
        let were_free = flip(&mut self.bytes, bits, true);
        debug_assert!(were_free, "blocks are held twice");
    }

    fn remove(&mut self, bits: Range<u32>) {
        self.count = self.count.saturating_sub(bits.end - bits.start);
        let were_held = flip(&mut self.bytes, bits, false);
        debug_assert!(were_held, "blocks are released that were not held");
        if self.count == 0 {
            self.bytes = Vec::new();
        }
    }

    /// Returns all blocks that cannot be allocated.
    fn and<'a>(&'a self, bitmap: &Bitmap<'a>) -> Union<'a> {
        // OK: far fewer than 2^32 bits, which a group has at most.
        let held = Bitmap::new(&self.bytes, (self.bytes.len() * 8) as u32).unwrap_or(*bitmap);
        Union(*bitmap, held)
    }
}

impl Default for FreeMap {
    fn default() -> Self {
        Self {
            held: HeldBlocks::default(),
            windows: BTreeMap::new(),
            longest: u32::MAX,
            cursor: 0,
            lowest_free: 0,
        }
    }
}

impl FreeMap {
    /// Holds blocks that have just been freed.
    pub(crate) fn hold(&mut self, bits: Range<u32>) {
        self.held.add(bits);
    }

    /// Releases held blocks: they can be allocated now.
    pub(crate) fn release(&mut self, bits: Range<u32>) {
        self.longest = u32::MAX;
        self.cursor = self.cursor.min(bits.start);
        self.lowest_free = self.lowest_free.min(bits.start);
        self.held.remove(bits);
    }

    /// Makes `bits`, which could be allocated until now, the window of a file.
    pub(crate) fn open_window(&mut self, ino: u32, bits: Range<u32>) {
        self.end_window(ino);
        self.held.add(bits.clone());
        self.windows.insert(ino, bits);
    }

    /// Returns the first `want` blocks of a file's window, if it begins at `goal` and has that
    /// many.
    pub(crate) fn in_window(&self, ino: u32, goal: u32, want: u32) -> Option<Range<u32>> {
        let window = self.windows.get(&ino)?;
        let fits = window.start == goal && window.end - window.start >= want;
        fits.then(|| goal..goal + want)
    }

    /// Removes the first blocks of a file's window, up to `end`, because the file has allocated
    /// them.
    pub(crate) fn cut_window(&mut self, ino: u32, end: u32) {
        let Some(window) = self.windows.get_mut(&ino) else {
            return;
        };
        self.held.remove(window.start..end);
        window.start = end;
        if window.start == window.end {
            self.windows.remove(&ino);
        }
    }

    /// Ends the window of a file: other files can allocate its blocks.
    pub(crate) fn end_window(&mut self, ino: u32) {
        if let Some(bits) = self.windows.remove(&ino) {
            self.release(bits);
        }
    }

    /// Ends all windows.
    pub(crate) fn break_windows(&mut self) {
        while let Some((_, bits)) = self.windows.pop_first() {
            self.release(bits);
        }
    }

    /// Returns how many free blocks must not be allocated.
    pub(crate) fn held_blocks(&self) -> u32 {
        self.held.count
    }

    /// Whether there may be a run of `blocks` blocks.
    pub(crate) fn may_have(&self, blocks: u32) -> bool {
        self.longest >= blocks
    }

    /// Makes the next search without a goal start at `bit`.
    pub(crate) fn start_at(&mut self, bit: u32) {
        self.cursor = bit;
    }

    /// Returns the first run from `from` on, at most `want` blocks long; `want` is not 0.
    pub(crate) fn run_at(&self, bitmap: &Bitmap<'_>, from: u32, want: u32) -> Option<Range<u32>> {
        run_at(&self.held.and(bitmap), from, want)
    }

    /// Returns the best run for `want` blocks, cut to `want`. A run at `goal` is best. Then comes
    /// the first run that is long enough, searched after the goal and then before it; then the
    /// longest.
    pub(crate) fn best_run(
        &mut self,
        bitmap: &Bitmap<'_>,
        goal: Option<u32>,
        want: u32,
    ) -> Option<Range<u32>> {
        let taken = self.held.and(bitmap);
        if let Some(goal) = goal
            && taken.cut(goal.saturating_add(1)).next_clear(goal).is_some()
        {
            return run_at(&taken, goal, want);
        }
        let first = goal.unwrap_or(self.cursor).max(self.lowest_free);
        let mut longest: Option<Range<u32>> = None;
        for (from, to) in [(first, bitmap.len()), (self.lowest_free, first)] {
            let mut at = from;
            while let Some(run) = run_at(&taken, at, want).filter(|run| run.start < to) {
                if at == self.lowest_free {
                    self.lowest_free = run.start;
                }
                at = run.end;
                if longest
                    .as_ref()
                    .is_none_or(|longest| run.len() > longest.len())
                {
                    longest = Some(run);
                }
                if longest
                    .as_ref()
                    .is_some_and(|longest| longest.len() >= to_usize(want))
                {
                    return longest;
                }
            }
        }
        self.longest = longest
            .as_ref()
            .map_or(0, |longest| longest.end - longest.start);
        longest
    }
}

/// Finds the first run from `from` on, for [`FreeMap::run_at`].
fn run_at(taken: &Union<'_>, from: u32, want: u32) -> Option<Range<u32>> {
    let start = taken.next_clear(from)?;
    // Only `want` blocks are examined: a free run may be very long.
    let wanted = taken.cut(start.saturating_add(want));
    Some(start..wanted.next_set(start).unwrap_or(wanted.len()))
}

/// Sets `bits` to `value`. Returns false if one of them had that value already.
pub(crate) fn flip(bytes: &mut [u8], bits: Range<u32>, value: bool) -> bool {
    let mut good = true;
    let mut at = bits.start;
    while at < bits.end {
        let index = to_usize(at / 8);
        let bit = at % 8;
        let Some(byte) = bytes.get_mut(index) else {
            return false;
        };
        let len = (8 - bit).min(bits.end - at);
        // OK: at most eight bits from `bit` on, within the byte.
        let mask = (((1u16 << len) - 1) << bit) as u8;
        good &= if value {
            *byte & mask == 0
        } else {
            *byte & mask == mask
        };
        *byte = if value { *byte | mask } else { *byte & !mask };
        at += len;
    }
    good
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BITS: u32 = 192;

    impl FreeMap {
        /// Returns a copy without the record of blocks that are known to be taken, so that its
        /// searches use the bitmaps only.
        fn without_hints(&self) -> Self {
            let held = HeldBlocks {
                bytes: self.held.bytes.clone(),
                count: self.held.count,
            };
            Self {
                held,
                windows: self.windows.clone(),
                longest: self.longest,
                cursor: self.cursor,
                lowest_free: 0,
            }
        }
    }

    proptest! {
        /// The blocks that a search passes over, because they are known to be taken, hold no better
        /// run.
        #[test]
        fn searches_behind_taken_blocks_agree_with_full_searches(
            steps in prop::collection::vec((0..5_u8, 0..BITS, 1..12_u32), 1..120),
        ) {
            let mut map = FreeMap::default();
            let mut bytes = vec![0; BITS as usize / 8];
            let (mut taken, mut freed): (Vec<Range<u32>>, Vec<Range<u32>>) = (Vec::new(), Vec::new());
            for (step, at, want) in steps {
                match step {
                    0..=2 => {
                        let bitmap = Bitmap::new(&bytes, BITS).unwrap();
                        let goal = Some(at / 8).filter(|_| step != 0);
                        let expected = map.without_hints().best_run(&bitmap, goal, want);
                        let run = map.best_run(&bitmap, goal, want);
                        prop_assert_eq!(&run, &expected);
                        let Some(run) = run else { continue };
                        let end = run.end.min(run.start + want.div_ceil(2));
                        flip(&mut bytes, run.start..end, true);
                        map.start_at(end);
                        if end < run.end {
                            map.open_window(at, end..run.end);
                        }
                        taken.push(run.start..end);
                    }
                    3 if !taken.is_empty() => {
                        let bits = taken.swap_remove(at as usize % taken.len());
                        flip(&mut bytes, bits.clone(), false);
                        map.hold(bits.clone());
                        freed.push(bits);
                    }
                    4 if at % 2 == 0 => map.end_window(at / 2),
                    _ => freed.drain(..).for_each(|bits| map.release(bits)),
                }
            }
        }
    }
}
