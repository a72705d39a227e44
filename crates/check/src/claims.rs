//! The map of blocks in use: a bit for each cluster, which a claim sets.
//!
//! Bits are kept by group, as the volume's own bitmaps are, and a group takes memory only once
//! something in it is claimed. Threads claim in parallel. A bit that was set before means that a
//! cluster has two owners. The claiming thread then sets it in a second map, from which a later
//! pass finds the owners.
//!
//! The passes over fixed metadata and inodes claim blocks here, and `bitmaps` and `owners` read the
//! map.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use extern4_disk::geometry::Geometry;

use crate::to_usize;

/// A bit for each cluster of the volume.
pub(crate) struct ClusterMap {
    groups: Box<[OnceLock<Box<[AtomicU64]>>]>,
    first_block: u64,
    blocks_per_group: u64,
    words_per_group: usize,
    shift: u32,
}

/// The bits of one word that a range covers.
struct Span {
    group: usize,
    word: usize,
    mask: u64,
}

impl ClusterMap {
    /// Returns a map of no cluster.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            groups: (0..geometry.group_count())
                .map(|_| OnceLock::new())
                .collect(),
            first_block: u64::from(geometry.first_data_block()),
            blocks_per_group: u64::from(geometry.blocks_per_group()),
            words_per_group: to_usize(geometry.clusters_per_group().div_ceil(64)),
            shift: geometry.cluster_shift(),
        }
    }

    /// Sets the clusters of `len` blocks from `start` on, which must be blocks of the volume. Sets
    /// the bits that were set before in `twice` as well, and returns their number.
    pub(crate) fn claim(&self, start: u64, len: u64, twice: &Self) -> u64 {
        let mut clashes = 0;
        self.each_span(start, len, |span| {
            // Relaxed: the words are read only after the threads that set them have ended.
            let before = self.words(span.group)[span.word].fetch_or(span.mask, Relaxed) & span.mask;
            if before != 0 {
                twice.words(span.group)[span.word].fetch_or(before, Relaxed);
                clashes += u64::from(before.count_ones());
            }
        });
        clashes
    }

    /// Sets the cluster of `block`, and returns whether it was clear before.
    pub(crate) fn first_visit(&self, block: u64) -> bool {
        let mut first = false;
        self.each_span(block, 1, |span| {
            let before = self.words(span.group)[span.word].fetch_or(span.mask, Relaxed);
            first = before & span.mask == 0;
        });
        first
    }

    /// Returns whether any cluster of the range is set.
    pub(crate) fn touches(&self, start: u64, len: u64) -> bool {
        let mut found = false;
        self.each_span(start, len, |span| {
            let word = self.groups[span.group]
                .get()
                .map_or(0, |words| words[span.word].load(Relaxed));
            found |= word & span.mask != 0;
        });
        found
    }

    /// Returns whether no cluster is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.get().is_none())
    }

    /// Returns word `index` of the bits of `group`.
    pub(crate) fn word(&self, group: u32, index: usize) -> u64 {
        let words = self.groups.get(to_usize(group)).and_then(OnceLock::get);
        words
            .and_then(|words| words.get(index))
            .map_or(0, |word| word.load(Relaxed))
    }

    fn words(&self, group: usize) -> &[AtomicU64] {
        self.groups[group].get_or_init(|| {
            (0..self.words_per_group)
                .map(|_| AtomicU64::new(0))
                .collect()
        })
    }

    fn each_span(&self, start: u64, len: u64, mut each: impl FnMut(Span)) {
        let mut block = start - self.first_block;
        let end = block + len;
        while block < end {
            let group = block / self.blocks_per_group;
            let base = group * self.blocks_per_group;
            let stop = end.min(base + self.blocks_per_group);
            let mut bit = (block - base) >> self.shift;
            let last = (stop - 1 - base) >> self.shift;
            while bit <= last {
                let word = bit / 64;
                let upper = last.min(word * 64 + 63);
                let mask = (u64::MAX >> (63 - (upper - bit))) << (bit % 64);
                // OK: a group's number has 32 bits, and a word's index fewer.
                each(Span {
                    group: group as usize,
                    word: word as usize,
                    mask,
                });
                bit = upper + 1;
            }
            block = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(shift: u32) -> ClusterMap {
        ClusterMap {
            groups: (0..4).map(|_| OnceLock::new()).collect(),
            first_block: 1,
            blocks_per_group: 200 << shift,
            words_per_group: 4,
            shift,
        }
    }

    #[test]
    fn clashes_are_counted_and_kept() {
        let claims = map(0);
        let twice = map(0);
        assert_eq!(claims.claim(1, 10, &twice), 0);
        assert_eq!(claims.claim(190, 300, &twice), 0);
        assert!(twice.is_empty());
        assert_eq!(claims.claim(5, 200, &twice), 6 + 15);
        assert!(twice.touches(5, 1) && twice.touches(10, 1) && !twice.touches(11, 179));
        assert!(twice.touches(200, 300) && !twice.touches(205, 100));
        assert_eq!(claims.word(0, 0), 0x3ff | u64::MAX << 4);
    }

    #[test]
    fn clusters_hold_several_blocks() {
        let claims = map(4);
        let twice = map(4);
        assert_eq!(claims.claim(1, 17, &twice), 0);
        assert_eq!(claims.word(0, 0), 0b11);
        assert_eq!(claims.claim(32, 1, &twice), 1);
        assert!(claims.first_visit(33) && !claims.first_visit(34));
    }
}
