//! Indirect block maps: how inodes without extents map their blocks.
//!
//! `ext4` and the command's `block` and `inode` follow the paths. A number in an indirect block is
//! checked before it is returned; the arithmetic cannot overflow.
//!
//! The inode's `i_block` holds 15 block numbers. The first 12 name data blocks. The next three name
//! the roots of trees with one, two and three levels of blocks full of numbers. A number of zero is
//! a hole, at any level.
//!
//! ```text
//! i_block:  0 .. 11 | 12       | 13              | 14
//!           data    | ind->data| dind->ind->data | tind->dind->ind->data
//! ```
//!
//! [`Map`] does the arithmetic for one block size and returns a [`Path`]; [`Pointers`] reads the
//! numbers. Format: the kernel's ext4 documentation, "Direct/Indirect Block Addressing".

use std::num::NonZeroU32;

use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::U32;

use crate::blocks::Blocks;
use crate::{Corrupt, CorruptKind, Place};

/// Numbers of `i_block` that name data blocks.
pub const DIRECT: u32 = 12;
/// Numbers that `i_block` holds.
pub const ROOTS: usize = 15;
/// The most levels of indirect blocks.
pub const MAX_LEVELS: usize = 3;

/// The arithmetic of indirect maps for one block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// Base 2 logarithm of how many numbers fit in a block: 8 for 1 KiB blocks to 14 for 64 KiB.
    bits: u32,
}

/// The path from `i_block` down to a data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Index into `i_block`.
    root: u8,
    /// Index into each indirect block below; only the first `levels` are valid.
    offsets: [u16; MAX_LEVELS],
    levels: u8,
}

impl Path {
    /// Returns the index into `i_block` where the path starts.
    pub fn root(&self) -> usize {
        usize::from(self.root)
    }

    /// Returns the index into each indirect block on the path, topmost first; empty for a direct
    /// block.
    pub fn offsets(&self) -> &[u16] {
        &self.offsets[..usize::from(self.levels)]
    }

    /// Returns how many indirect blocks are on the path: 0 to 3.
    pub fn levels(&self) -> u32 {
        u32::from(self.levels)
    }
}

impl Map {
    /// Returns the arithmetic for blocks of `block_size` bytes. `None` unless that is a power of
    /// two from 1 KiB to 64 KiB.
    pub fn new(block_size: u32) -> Option<Self> {
        let valid = block_size.is_power_of_two() && (1024..=65536).contains(&block_size);
        valid.then(|| Self {
            bits: block_size.trailing_zeros() - 2,
        })
    }

    /// Returns how many block numbers an indirect block holds.
    pub fn per_block(self) -> u32 {
        1 << self.bits
    }

    /// Returns how many data blocks one entry covers that has `levels` of indirect blocks below it.
    pub fn span_blocks(self, levels: u32) -> u64 {
        1 << (self.bits * levels)
    }

    /// Returns how many indirect blocks map the first `blocks` blocks of a file that has no holes.
    pub fn indirect_blocks(self, blocks: u64) -> u64 {
        let mut left = blocks.saturating_sub(12);
        let mut count = 0;
        for levels in 1..=3 {
            let here = left.min(self.span_blocks(levels));
            count += (1..=levels)
                .map(|below| here.div_ceil(self.span_blocks(below)))
                .sum::<u64>();
            left -= here;
        }
        count
    }

    /// Returns one past the last logical block that the map reaches.
    ///
    /// Logical block numbers have 32 bits. With blocks of 8 KiB or more, three levels reach further
    /// than that.
    pub fn end(self) -> u64 {
        let reach: u64 = (0..=3)
            .map(|levels| self.span_blocks(levels) * if levels == 0 { 12 } else { 1 })
            .sum();
        reach.min(u64::from(u32::MAX))
    }

    /// Returns the largest size in bytes of a file that the map can describe.
    ///
    /// The count of 512-byte sectors, `i_blocks`, may limit a file further.
    pub fn max_file_bytes(self) -> u64 {
        self.end() << (self.bits + 2)
    }

    /// Returns the path to logical block `logical`; `None` if the map does not reach it.
    pub fn path(self, logical: u32) -> Option<Path> {
        if logical < DIRECT {
            // OK: less than 12.
            return Some(Path {
                root: logical as u8,
                offsets: [0; MAX_LEVELS],
                levels: 0,
            });
        }
        let mut rest = u64::from(logical - DIRECT);
        for levels in 1..=3u8 {
            let span = self.span_blocks(u32::from(levels));
            if rest < span {
                let mut offsets = [0; MAX_LEVELS];
                for (below, offset) in (0..u32::from(levels)).rev().zip(&mut offsets) {
                    // OK: masked to at most 14 bits.
                    *offset =
                        ((rest >> (self.bits * below)) & (u64::from(self.per_block()) - 1)) as u16;
                }
                return Some(Path {
                    root: 11 + levels,
                    offsets,
                    levels,
                });
            }
            rest -= span;
        }
        None
    }

    /// Returns how many consecutive logical blocks from `logical` on a hole covers, where `path` is
    /// the path to `logical`. The path meets a zero after `depth` steps; with 0 steps, the number
    /// in `i_block` is zero.
    pub fn hole_blocks(self, path: &Path, depth: u32) -> u64 {
        let below = path.levels().saturating_sub(depth);
        let span = self.span_blocks(below);
        // The position of the block in the missing subtree: the remaining offsets of its path, as
        // one number.
        let skip = path
            .offsets()
            .len()
            .min(usize::try_from(depth).unwrap_or(usize::MAX));
        let inside = path.offsets()[skip..]
            .iter()
            .fold(0, |sum, &at| sum << self.bits | u64::from(at));
        span - inside
    }
}

/// An indirect block, or `i_block`, as the little-endian numbers in it.
#[derive(Clone, Copy, Debug)]
pub struct Pointers<'a> {
    numbers: &'a [U32],
    volume: Blocks,
    place: Place,
}

impl<'a> Pointers<'a> {
    /// Borrows the numbers in `bytes`: a whole block, or the 60 bytes of `i_block`.
    ///
    /// # Errors
    /// A length that is no multiple of 4.
    pub fn decode(bytes: &'a [u8], volume: Blocks, place: Place) -> Result<Self, Corrupt> {
        let numbers = <[U32]>::ref_from_bytes(bytes).map_err(|_| {
            let have = bytes.len() as u64;
            place.corrupt(CorruptKind::Truncated {
                need: have.next_multiple_of(4),
                have,
            })
        })?;
        Ok(Self {
            numbers,
            volume,
            place,
        })
    }

    /// Returns how many numbers there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns the block that number `at` names; `None` is a hole.
    ///
    /// # Errors
    /// A block outside the volume.
    ///
    /// # Panics
    /// If `at` is not less than [`len`](Self::len).
    pub fn get(&self, at: usize) -> Result<Option<NonZeroU32>, Corrupt> {
        let Some(block) = NonZeroU32::new(self.numbers[at].get()) else {
            return Ok(None);
        };
        self.volume.check(
            "block pointer",
            u64::from(block.get()),
            1,
            self.place.byte(at * 4),
        )?;
        Ok(Some(block))
    }

    /// Returns number `at` and the length of the run that it starts, at most `most`. A run is
    /// zeroes after a zero, or each block's successor.
    ///
    /// The run ends at the first number that does not continue it. That number is checked too;
    /// those after it are not.
    ///
    /// # Errors
    /// As [`get`](Self::get), for the numbers of the run and the one that ends it.
    pub fn run(&self, at: usize, most: usize) -> Result<(Option<NonZeroU32>, usize), Corrupt> {
        let first = self.get(at)?;
        let end = self.numbers.len().min(at.saturating_add(most.max(1)));
        let mut len = 1;
        while at + len < end {
            let continues = match (first, self.get(at + len)?) {
                (None, None) => true,
                (Some(first), Some(next)) => {
                    u64::from(next.get()) == u64::from(first.get()) + len as u64
                }
                _ => false,
            };
            if !continues {
                break;
            }
            len += 1;
        }
        Ok((first, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structure;
    use proptest::prelude::*;

    const PLACE: Place = Place::new(Structure::IndirectBlock);

    #[test]
    fn paths_of_the_documentation() {
        let map = Map::new(1024).unwrap();
        let cases: [(u32, usize, &[u16]); 9] = [
            (0, 0, &[]),
            (11, 11, &[]),
            (12, 12, &[0]),
            (267, 12, &[255]),
            (268, 13, &[0, 0]),
            (65803, 13, &[255, 255]),
            (65804, 14, &[0, 0, 0]),
            (65805, 14, &[0, 0, 1]),
            (16843019, 14, &[255, 255, 255]),
        ];
        for (logical, root, offsets) in cases {
            let path = map.path(logical).unwrap();
            assert_eq!(
                (path.root(), path.offsets()),
                (root, offsets),
                "block {logical}"
            );
        }
        assert_eq!(map.path(16843020), None);
        assert_eq!(map.end(), 16843020);
        assert_eq!(Map::new(512), None);
        assert_eq!(Map::new(3072), None);
        assert_eq!(Map::new(65536).unwrap().end(), u64::from(u32::MAX));
    }

    proptest! {
        #[test]
        fn a_path_names_its_block(bits in 10u32..=16, logical: u32) {
            let map = Map::new(1 << bits).unwrap();
            let Some(path) = map.path(logical) else {
                prop_assert!(u64::from(logical) >= map.end());
                return Ok(());
            };
            let before: u64 = (1..path.levels()).map(|l| map.span_blocks(l)).sum();
            let inside = path.offsets().iter().fold(0, |sum, &at| sum * u64::from(map.per_block()) + u64::from(at));
            let named = match path.levels() {
                0 => path.root() as u64,
                _ => 12 + before + inside,
            };
            prop_assert_eq!(named, u64::from(logical));
            // A hole that starts here ends where another subtree of that height starts.
            for depth in 0..=path.levels() {
                let end = u64::from(logical) + map.hole_blocks(&path, depth);
                if path.levels() > 0 {
                    prop_assert_eq!((end - 12 - before) % map.span_blocks(path.levels() - depth), 0);
                } else {
                    prop_assert_eq!(end, u64::from(logical) + 1);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let volume = Blocks { first: 1, end: 1 << 31 };
            if let Ok(pointers) = Pointers::decode(&bytes, volume, PLACE) {
                for at in 0..pointers.len() {
                    if let Ok(Some(block)) = pointers.get(at) {
                        prop_assert!(u64::from(block.get()) < volume.end);
                    }
                    let _ = pointers.run(at, 7);
                }
            }
        }
    }

    #[test]
    fn runs_stop_where_blocks_stop_following() {
        let numbers: Vec<u8> = [0u32, 0, 7, 8, 9, 0, 100]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let pointers = Pointers::decode(&numbers, Blocks { first: 1, end: 100 }, PLACE).unwrap();
        assert_eq!(pointers.run(0, 9), Ok((None, 2)));
        assert_eq!(pointers.run(2, 9), Ok((NonZeroU32::new(7), 3)));
        assert_eq!(pointers.run(2, 2), Ok((NonZeroU32::new(7), 2)));
        let kind = CorruptKind::BlockOutOfRange {
            field: "block pointer",
            block: 100,
        };
        assert_eq!(pointers.get(6), Err(PLACE.offset(24).corrupt(kind)));
    }
}
