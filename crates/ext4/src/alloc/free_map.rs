//! Which blocks of a group can be taken, and the search for a run of them.
//!
//! A block can be taken if the group's bitmap says that it is free and nobody holds it. The transaction that has freed a block holds
//! it until it is durable, and a file that grows holds those of its [window](crate::alloc::preallocation) until it takes them or others need them.
//! What is held is a bitmap, too, and a search goes through both word by word: so it makes no difference in how many pieces that is.
//!
//! # Locks
//! All of this is a part of the group, and so under the group's lock, as the bitmap is.

use std::collections::BTreeMap;
use std::ops::Range;

use extern4_disk::bitmap::{Bitmap, Union};

use crate::volume::group::to_usize;

/// What is known of a group's blocks besides its bitmap.
pub(crate) struct FreeMap {
    held: Held,
    /// Runs of what is held: the windows of files, by the numbers of their inodes. None is empty.
    windows: BTreeMap<u32, Range<u32>>,
    /// No run that can be taken is longer.
    longest: u32,
    /// Where the search goes on if nobody says where.
    hand: u32,
    /// No block before this one can be taken.
    full: u32,
}

/// Bits that are clear in the bitmap and must not be taken. Takes memory only while there are any.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    count: u32,
}

impl Held {
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
        debug_assert!(were_held, "blocks are let go that nobody held");
        if self.count == 0 {
            self.bytes = Vec::new();
        }
    }

    /// All blocks that cannot be taken.
    fn and<'a>(&'a self, bitmap: &Bitmap<'a>) -> Union<'a> {
        // OK: far fewer than 2^32 bits, which a group has at most.
        let held = Bitmap::new(&self.bytes, (self.bytes.len() * 8) as u32).unwrap_or(*bitmap);
        Union(*bitmap, held)
    }
}

impl Default for FreeMap {
    fn default() -> Self {
        Self { held: Held::default(), windows: BTreeMap::new(), longest: u32::MAX, hand: 0, full: 0 }
    }
}

impl FreeMap {
    /// Holds blocks that have just been freed.
    pub(crate) fn hold(&mut self, bits: Range<u32>) {
        self.held.add(bits);
    }

    /// Lets blocks go that were held: they can be taken now.
    pub(crate) fn settle(&mut self, bits: Range<u32>) {
        self.longest = u32::MAX;
        self.hand = self.hand.min(bits.start);
        self.full = self.full.min(bits.start);
        self.held.remove(bits);
    }

    /// Opens the window of a file: blocks that could be taken until now.
    pub(crate) fn open_window(&mut self, ino: u32, bits: Range<u32>) {
        self.end_window(ino);
        self.held.add(bits.clone());
        self.windows.insert(ino, bits);
    }

    /// The first `want` blocks of a file's window, if that begins at `goal` and has so many.
    pub(crate) fn in_window(&self, ino: u32, goal: u32, want: u32) -> Option<Range<u32>> {
        let window = self.windows.get(&ino)?;
        let fits = window.start == goal && window.end - window.start >= want;
        fits.then(|| goal..goal + want)
    }

    /// Lets the first blocks of a file's window go, up to `end`, for it has taken them.
    pub(crate) fn cut_window(&mut self, ino: u32, end: u32) {
        let Some(window) = self.windows.get_mut(&ino) else { return };
        self.held.remove(window.start..end);
        window.start = end;
        if window.start == window.end {
            self.windows.remove(&ino);
        }
    }

    /// Ends the window of a file: others may take its blocks.
    pub(crate) fn end_window(&mut self, ino: u32) {
        if let Some(bits) = self.windows.remove(&ino) {
            self.settle(bits);
        }
    }

    /// Ends all windows.
    pub(crate) fn break_windows(&mut self) {
        while let Some((_, bits)) = self.windows.pop_first() {
            self.settle(bits);
        }
    }

    /// Whether there may be a run of so many blocks.
    pub(crate) fn may_have(&self, blocks: u32) -> bool {
        self.longest >= blocks
    }

    /// The search goes on here if nobody says where.
    pub(crate) fn go_on_at(&mut self, bit: u32) {
        self.hand = bit;
    }

    /// The first run from `from` on, and how long it is, at most `want`, which is not 0.
    pub(crate) fn run_at(&self, bitmap: &Bitmap<'_>, from: u32, want: u32) -> Option<Range<u32>> {
        run_at(&self.held.and(bitmap), from, want)
    }

    /// The best run for `want` blocks, and no longer: the one at `goal` if that can be taken, else the first that is long enough
    /// behind it, or before it, else the longest.
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
        let first = goal.unwrap_or(self.hand).max(self.full);
        let mut longest: Option<Range<u32>> = None;
        for (from, to) in [(first, bitmap.len()), (self.full, first)] {
            let mut at = from;
            while let Some(run) = run_at(&taken, at, want).filter(|run| run.start < to) {
                if at == self.full {
                    self.full = run.start;
                }
                at = run.end;
                if longest.as_ref().is_none_or(|longest| run.len() > longest.len()) {
                    longest = Some(run);
                }
                if longest.as_ref().is_some_and(|longest| longest.len() >= to_usize(want)) {
                    return longest;
                }
            }
        }
        self.longest = longest.as_ref().map_or(0, |longest| longest.end - longest.start);
        longest
    }
}

/// See [`FreeMap::run_at`].
fn run_at(taken: &Union<'_>, from: u32, want: u32) -> Option<Range<u32>> {
    let start = taken.next_clear(from)?;
    // Looked at no further than is wanted: what is free may go on for long.
    let wanted = taken.cut(start.saturating_add(want));
    Some(start..wanted.next_set(start).unwrap_or(wanted.len()))
}

/// Sets or clears bits; false, if one of them was so already.
pub(crate) fn flip(bytes: &mut [u8], bits: Range<u32>, value: bool) -> bool {
    let mut good = true;
    let mut at = bits.start;
    while at < bits.end {
        let (index, bit) = (to_usize(at / 8), at % 8);
        let Some(byte) = bytes.get_mut(index) else { return false };
        let len = (8 - bit).min(bits.end - at);
        // OK: at most eight bits from `bit` on, within the byte.
        let mask = (((1u16 << len) - 1) << bit) as u8;
        good &= if value { *byte & mask == 0 } else { *byte & mask == mask };
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
        /// The same, knowing of no block that it cannot be taken but from the bitmaps.
        fn forgetful(&self) -> Self {
            let held = Held { bytes: self.held.bytes.clone(), count: self.held.count };
            Self { held, windows: self.windows.clone(), longest: self.longest, hand: self.hand, full: 0 }
        }
    }

    proptest! {
        /// What is passed over, because it is known to be taken, holds no better run.
        #[test]
        fn searches_that_begin_behind_what_is_taken_find_the_same(
            steps in prop::collection::vec((0..5_u8, 0..BITS, 1..12_u32), 1..120),
        ) {
            let (mut map, mut bytes) = (FreeMap::default(), vec![0; BITS as usize / 8]);
            let (mut taken, mut freed): (Vec<Range<u32>>, Vec<Range<u32>>) = (Vec::new(), Vec::new());
            for (step, at, want) in steps {
                match step {
                    0..=2 => {
                        let bitmap = Bitmap::new(&bytes, BITS).unwrap();
                        let goal = Some(at / 8).filter(|_| step != 0);
                        let expected = map.forgetful().best_run(&bitmap, goal, want);
                        let run = map.best_run(&bitmap, goal, want);
                        prop_assert_eq!(&run, &expected);
                        let Some(run) = run else { continue };
                        let end = run.end.min(run.start + want.div_ceil(2));
                        flip(&mut bytes, run.start..end, true);
                        map.go_on_at(end);
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
                    _ => freed.drain(..).for_each(|bits| map.settle(bits)),
                }
            }
        }
    }
}
