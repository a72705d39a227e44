//! Which blocks of a group can be taken, and the search for a run of them.
//!
//! A block can be taken if the group's bitmap says that it is free and nobody holds it. The transaction that has freed a block holds
//! it until it is durable. What is held is a bitmap, too, and a search goes through both word by word: so it makes no difference in
//! how many pieces that is.
//!
//! # Locks
//! All of this is a part of the group, and so under the group's lock, as the bitmap is.

use std::ops::Range;

use extern4_disk::bitmap::{Bitmap, Union};

use crate::balloc::flip;
use crate::group::to_usize;

/// What is known of a group's blocks besides its bitmap.
pub(crate) struct FreeMap {
    held: Held,
    /// No run that can be taken is longer.
    longest: u32,
    /// Where the search goes on if nobody says where.
    hand: u32,
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
        Self { held: Held::default(), longest: u32::MAX, hand: 0 }
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
        self.held.remove(bits);
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
            && let Some(run) = run_at(&taken, goal, want)
            && run.start == goal
        {
            return Some(run);
        }
        let first = goal.unwrap_or(self.hand);
        let mut longest: Option<Range<u32>> = None;
        for (from, to) in [(first, bitmap.len()), (0, first)] {
            let mut at = from;
            while let Some(run) = run_at(&taken, at, want).filter(|run| run.start < to) {
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
