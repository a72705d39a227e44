//! Block and inode bitmaps: a bit for each cluster and each inode of a group, set if in use.
//!
//! `ext4` allocates by these bitmaps, `mkfs` makes them, and the checker compares them with the
//! files. Decoding fails if the checksum is wrong or the bytes are no whole bitmap. It does not
//! look at the bits after the last cluster or inode; [`Bitmap::is_padded`] does.
//!
//! Bits stand in the order of their bytes, the lowest bit of a byte first. A bitmap fills a block
//! to itself. The group may have fewer clusters or inodes than the block has bits; the bits after
//! the last one are set. With `metadata_csum` its checksum is in the group descriptor.
//!
//! A group with [`GroupFlags::BLOCK_UNINIT`] or [`GroupFlags::INODE_UNINIT`] has no bitmap on the
//! volume: the bytes in its place have no meaning. [`initial_block_bitmap`] computes the missing
//! block bitmap; a missing inode bitmap counts as empty.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/bitmaps.rst` and `checksums.rst`.
//!
//! [`GroupFlags::BLOCK_UNINIT`]: crate::group::GroupFlags::BLOCK_UNINIT
//! [`GroupFlags::INODE_UNINIT`]: crate::group::GroupFlags::INODE_UNINIT

use core::ops::Range;

use crate::checksum::{ChecksumSeed, verify};
use crate::corrupt::{Corrupt, CorruptKind, Place};
use crate::group::GroupDescriptor;
use crate::superblock::Superblock;
use crate::superblock::geometry::Geometry;

const WORD_BYTES: usize = size_of::<u64>();
const WORD_BITS: u32 = u64::BITS;

/// A validated view of a bitmap.
#[derive(Clone, Copy, Debug)]
pub struct Bitmap<'a> {
    bytes: &'a [u8],
    len: u32,
}

impl<'a> Bitmap<'a> {
    /// Returns the first `len` bits of `bytes`; `None` if `bytes` holds fewer.
    pub fn new(bytes: &'a [u8], len: u32) -> Option<Self> {
        let need = usize::try_from(len.div_ceil(8)).ok()?;
        (bytes.len() >= need).then_some(Self { bytes, len })
    }

    /// Validates the block bitmap of `group`: a bit for each of its clusters.
    ///
    /// # Errors
    /// [`CorruptKind::Checksum`] if the volume has `metadata_csum` and the one in `descriptor` does
    /// not match, [`CorruptKind::Truncated`] if `bytes` is no whole bitmap.
    pub fn decode_blocks(
        bytes: &'a [u8],
        group: u32,
        descriptor: &GroupDescriptor,
        sb: &Superblock,
        at: Place,
    ) -> Result<Self, Corrupt> {
        let at = at.group(group);
        let geometry = sb.geometry();
        verify_bitmap(
            bytes,
            geometry.clusters_per_group(),
            descriptor.block_bitmap_checksum(),
            descriptor,
            sb,
            at,
        )?;
        sized(bytes, geometry.group_clusters(group).unwrap_or(0), at)
    }

    /// Validates the inode bitmap of `group`: a bit for each of its inodes.
    ///
    /// # Errors
    /// As [`decode_blocks`](Self::decode_blocks).
    pub fn decode_inodes(
        bytes: &'a [u8],
        group: u32,
        descriptor: &GroupDescriptor,
        sb: &Superblock,
        at: Place,
    ) -> Result<Self, Corrupt> {
        let at = at.group(group);
        let len = sb.geometry().inodes_per_group();
        verify_bitmap(
            bytes,
            len,
            descriptor.inode_bitmap_checksum(),
            descriptor,
            sb,
            at,
        )?;
        sized(bytes, len, at)
    }

    /// Returns the first `len` bits of the bitmap, or all if it has fewer.
    pub const fn cut(self, len: u32) -> Self {
        Self {
            len: if len < self.len { len } else { self.len },
            ..self
        }
    }

    /// Returns the number of bits of the bitmap.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether it has no bits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether bit `index` is set; `None` beyond the end.
    pub fn get(&self, index: u32) -> Option<bool> {
        (index < self.len).then(|| self.word(index / WORD_BITS) & 1 << (index % WORD_BITS) != 0)
    }

    /// Returns the number of bits that are set.
    pub fn count_set(&self) -> u32 {
        (0..self.words())
            .map(|index| self.word(index).count_ones())
            .sum()
    }

    /// Returns the number of bits that are clear.
    pub fn count_clear(&self) -> u32 {
        self.len - self.count_set()
    }

    /// Returns the bits that are set, ascending.
    pub fn set_bits(&self) -> impl Iterator<Item = u32> + use<'a> {
        let bitmap = *self;
        let mut next = 0;
        core::iter::from_fn(move || {
            let found = bitmap.next_set(next)?;
            next = found + 1;
            Some(found)
        })
    }

    /// Returns the runs of clear bits, ascending, each as long as possible.
    pub fn clear_runs(&self) -> impl Iterator<Item = Range<u32>> + use<'a> {
        let bitmap = *self;
        let mut next = 0;
        core::iter::from_fn(move || {
            let start = bitmap.next_clear(next)?;
            next = bitmap.next_set(start).unwrap_or(bitmap.len);
            Some(start..next)
        })
    }

    /// Returns the first set bit from `from` on.
    pub fn next_set(&self, from: u32) -> Option<u32> {
        self.find(from, |word| word)
    }

    /// Returns the first clear bit from `from` on.
    pub fn next_clear(&self, from: u32) -> Option<u32> {
        self.find(from, |word| !word)
            .filter(|index| *index < self.len)
    }

    /// Returns whether all bits of the block after the last one of the group are set, as the format
    /// asks.
    pub fn is_padded(&self) -> bool {
        let bits = u32::try_from(self.bytes.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(8);
        Self {
            bytes: self.bytes,
            len: bits,
        }
        .next_clear(self.len)
        .is_none()
    }

    /// Returns the first bit from `from` on that is set in the words after `view` has mapped them.
    fn find(&self, from: u32, view: impl Fn(u64) -> u64) -> Option<u32> {
        find(from, self.words(), |index| view(self.word(index)))
    }

    const fn words(&self) -> u32 {
        self.len.div_ceil(WORD_BITS)
    }

    /// Returns the 64 bits from bit `64 * index` on; those beyond the end are clear.
    fn word(&self, index: u32) -> u64 {
        let start = usize::try_from(index)
            .unwrap_or(usize::MAX)
            .saturating_mul(WORD_BYTES);
        let rest = self.bytes.get(start..).unwrap_or_default();
        let word = match rest.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => rest
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        match self.len - index * WORD_BITS {
            left @ 0..WORD_BITS => word & ((1 << left) - 1),
            _ => word,
        }
    }
}

/// Two bitmaps of the same group seen as one, in which a bit is set if it is set in either. A
/// search goes word by word, so its cost does not depend on the number of runs.
#[derive(Clone, Copy, Debug)]
pub struct Union<'a>(pub Bitmap<'a>, pub Bitmap<'a>);

impl Union<'_> {
    /// Returns the number of bits of the first bitmap; the view ignores bits of the second beyond
    /// them.
    pub const fn len(&self) -> u32 {
        self.0.len
    }

    /// Returns whether there are no bits.
    pub const fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns the first `len` bits, or all if there are fewer.
    pub const fn cut(self, len: u32) -> Self {
        Self(self.0.cut(len), self.1)
    }

    /// Returns the first set bit from `from` on.
    pub fn next_set(&self, from: u32) -> Option<u32> {
        self.find(from, |word| word)
    }

    /// Returns the first bit from `from` on that is clear in both bitmaps.
    pub fn next_clear(&self, from: u32) -> Option<u32> {
        self.find(from, |word| !word)
    }

    fn find(&self, from: u32, view: impl Fn(u64) -> u64) -> Option<u32> {
        let of_second = |index| {
            if index < self.1.words() {
                self.1.word(index)
            } else {
                0
            }
        };
        let word = |index| view(self.0.word(index) | of_second(index));
        find(from, self.0.words(), word).filter(|index| *index < self.0.len)
    }
}

/// Returns the first bit from `from` on that is set in the first `words` words that `word` returns.
fn find(from: u32, words: u32, word: impl Fn(u32) -> u64) -> Option<u32> {
    let first = from / WORD_BITS;
    let mut mask = u64::MAX << (from % WORD_BITS);
    for index in first..words {
        let word = word(index) & mask;
        if word != 0 {
            return Some(index * WORD_BITS + word.trailing_zeros());
        }
        mask = u64::MAX;
    }
    None
}

/// Returns the checksum of a bitmap under the seed `volume`. `len` is the number of clusters or
/// inodes of every group but the last.
///
/// The checksum covers `len` bits of the block, rounded up to whole bytes. `None` if `bytes` is
/// shorter.
pub fn compute_checksum(bytes: &[u8], len: u32, volume: ChecksumSeed) -> Option<u32> {
    let covered = usize::try_from(len.div_ceil(8)).ok()?;
    bytes.get(..covered).map(|covered| volume.checksum(covered))
}

fn verify_bitmap(
    bytes: &[u8],
    len: u32,
    stored: u32,
    descriptor: &GroupDescriptor,
    sb: &Superblock,
    at: Place,
) -> Result<(), Corrupt> {
    let Some(seed) = sb.metadata_seed() else {
        return Ok(());
    };
    let Some(computed) = compute_checksum(bytes, len, seed) else {
        return Err(truncated(bytes, len, at));
    };
    let computed = if descriptor.is_wide() {
        computed
    } else {
        computed & 0xffff
    };
    verify(stored, computed, at)
}

fn sized(bytes: &[u8], len: u32, at: Place) -> Result<Bitmap<'_>, Corrupt> {
    Bitmap::new(bytes, len).ok_or_else(|| truncated(bytes, len, at))
}

fn truncated(bytes: &[u8], len: u32, at: Place) -> Corrupt {
    at.corrupt(CorruptKind::Truncated {
        need: len.div_ceil(8).into(),
        have: bytes.len() as u64,
    })
}

/// Returns the block bitmap of a group whose own is not initialized: only its fixed metadata is in
/// use.
///
/// The fixed metadata is the superblock and the descriptors at the group's start. The group's
/// bitmaps and inode table count as far as they are in the group itself. `None` if the volume has
/// no such group.
pub fn initial_block_bitmap(
    group: u32,
    descriptor: &GroupDescriptor,
    geometry: &Geometry,
) -> Option<Vec<u8>> {
    let start = geometry.group_start(group)?;
    let clusters = geometry.group_clusters(group)?;
    let mut bytes = vec![0xff; usize::try_from(geometry.block_size()).ok()?];
    clear_bits(&mut bytes, clusters);
    let own = [
        (start, u64::from(geometry.fixed_blocks(group)?)),
        (descriptor.block_bitmap(), 1),
        (descriptor.inode_bitmap(), 1),
        (
            descriptor.inode_table(),
            geometry.inode_table_blocks().into(),
        ),
    ];
    let end = start + u64::from(geometry.group_blocks(group)?);
    for (first, len) in own {
        let from = first.max(start);
        let to = first.saturating_add(len).min(end);
        if from < to {
            let first_cluster = (from - start) >> geometry.cluster_shift();
            let last_cluster = (to - 1 - start) >> geometry.cluster_shift();
            for cluster in first_cluster..=last_cluster {
                let byte = bytes.get_mut(usize::try_from(cluster / 8).ok()?)?;
                *byte |= 1 << (cluster % 8);
            }
        }
    }
    Some(bytes)
}

/// Clears the first `len` bits of `bytes`.
fn clear_bits(bytes: &mut [u8], len: u32) {
    let whole = usize::try_from(len / 8)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    bytes[..whole].fill(0);
    if let Some(byte) = bytes.get_mut(whole) {
        *byte &= 0xff << (len % 8);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_bits_one_by_one(bytes in prop::collection::vec(any::<u8>(), 0..40), cut in 0u32..16) {
            let len = (u32::try_from(bytes.len()).unwrap() * 8).saturating_sub(cut);
            let bitmap = Bitmap::new(&bytes, len).unwrap();
            let bit = |index: u32| bytes[(index / 8) as usize] >> (index % 8) & 1 == 1;
            let set: Vec<u32> = (0..len).filter(|index| bit(*index)).collect();
            let clear: Vec<u32> = (0..len).filter(|index| !bit(*index)).collect();
            prop_assert_eq!(bitmap.count_set() as usize, set.len());
            prop_assert_eq!(bitmap.count_clear() as usize, clear.len());
            prop_assert_eq!(bitmap.set_bits().collect::<Vec<_>>(), set);
            prop_assert_eq!(bitmap.clear_runs().flatten().collect::<Vec<_>>(), clear);
            for index in 0..len {
                prop_assert_eq!(bitmap.get(index), Some(bit(index)));
            }
            prop_assert_eq!(bitmap.get(len), None);
            for shorter in [0, len / 3, len, len + 9] {
                let cut = bitmap.cut(shorter);
                let expected: Vec<u32> = (0..len.min(shorter)).filter(|index| bit(*index)).collect();
                prop_assert_eq!(cut.set_bits().collect::<Vec<_>>(), expected);
                prop_assert_eq!(cut.next_set(len / 4), (len / 4..len.min(shorter)).find(|index| bit(*index)));
            }
            let all = u32::try_from(bytes.len()).unwrap() * 8;
            prop_assert_eq!(bitmap.is_padded(), (len..all).all(bit));
        }

        #[test]
        fn a_union_has_the_bits_of_both(
            one in prop::collection::vec(any::<u8>(), 0..40),
            other in prop::collection::vec(any::<u8>(), 0..40),
            cut in 0u32..16,
        ) {
            let bits = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap() * 8;
            let len = bits(&one).saturating_sub(cut);
            let second = Bitmap::new(&other, bits(&other)).unwrap();
            let union = Union(Bitmap::new(&one, len).unwrap(), second);
            let set = |at: u32| [&one, &other].iter().any(|it| {
                it.get((at / 8) as usize).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
            });
            for from in 0..len + 2 {
                prop_assert_eq!(union.next_set(from), (from..len).find(|at| set(*at)));
                prop_assert_eq!(union.next_clear(from), (from..len).find(|at| !set(*at)));
                let cut = (len / 2).max(from);
                prop_assert_eq!(union.cut(cut).next_set(from), (from..len.min(cut)).find(|at| set(*at)));
            }
        }

        #[test]
        fn clears_bits(len in 0u32..100) {
            let mut bytes = [0xff; 12];
            clear_bits(&mut bytes, len);
            prop_assert_eq!(Bitmap::new(&bytes, 96).unwrap().next_set(0), Some(len).filter(|len| *len < 96));
        }
    }

    #[test]
    fn too_short_is_refused() {
        assert!(Bitmap::new(&[0], 8).is_some());
        assert!(Bitmap::new(&[0], 9).is_none());
    }
}
