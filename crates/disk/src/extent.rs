//! Extent trees: how an inode maps its blocks to blocks of the volume.
//!
//! `ext4`, the builder and the checker read nodes with it and write the new ones.
//!
//! A node is a header and an array of 12-byte entries, sorted by logical block. In a leaf (depth 0)
//! an entry is an extent, a run of blocks. Above the leaves it is an index entry, which names the
//! block of a child node. The root is the inode's 60-byte `i_block`. Every other node fills a
//! block; on a volume with `metadata_csum` it ends in a checksum.
//!
//! ```text
//! | header 12 | entry 12 | entry 12 | ... up to eh_max | checksum 4 |
//! ```
//!
//! [`ExtentNode`] borrows the bytes and checks all of them once; afterwards a lookup is a binary
//! search without checks and without allocation. The rules for a node depend on its place in the
//! tree, which the caller gives as [`Expect`]. Format: the kernel's ext4 documentation, "Extent
//! Tree".

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::blocks::Blocks;
use crate::checksum::{self, ChecksumSeed};
use crate::inode::MAP_SIZE;
use crate::{Corrupt, CorruptKind, Place};

/// The magic number of a node's header.
pub const MAGIC: u16 = 0xF30A;

/// The `i_block` of a file without blocks: a root that is a leaf without entries, with room for
/// four.
pub const EMPTY_ROOT: [u8; MAP_SIZE] = {
    let mut root = [0; MAP_SIZE];
    [root[0], root[1]] = MAGIC.to_le_bytes();
    root[4] = ((MAP_SIZE - HEADER_SIZE) / ENTRY_SIZE) as u8;
    root
};
/// The depth limit of reading a tree: the root has at most this depth.
pub const MAX_DEPTH: u16 = 5;
/// The depth limit of a walk over a tree, or of its removal. Linux frees files whose trees are
/// deeper than the trees that it reads.
pub const DEEPEST: u16 = 32;
/// The longest written extent, in blocks. A larger stored length marks an unwritten extent, whose
/// length is the excess over this number.
pub const MAX_WRITTEN_LEN: u16 = 32768;
/// The largest block number: it has 48 bits.
const MAX_PHYSICAL: u64 = (1 << 48) - 1;
/// One past the last logical block a file can have.
pub const LOGICAL_END: u64 = 1 << 32;

/// `struct ext4_extent_header`, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawExtentHeader {
    pub eh_magic: U16,
    pub eh_entries: U16,
    pub eh_max: U16,
    pub eh_depth: U16,
    pub eh_generation: U32,
}

/// `struct ext4_extent_idx`, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawExtentIndex {
    pub ei_block: U32,
    pub ei_leaf_lo: U32,
    pub ei_leaf_hi: U16,
    pub ei_unused: U16,
}

/// `struct ext4_extent`, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawExtent {
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}

/// `struct ext4_extent_tail`, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawExtentTail {
    pub et_checksum: U32,
}

const HEADER_SIZE: usize = size_of::<RawExtentHeader>();
const ENTRY_SIZE: usize = size_of::<RawExtent>();
const TAIL_SIZE: usize = size_of::<RawExtentTail>();
const _: () = assert!(HEADER_SIZE == 12);
const _: () = assert!(ENTRY_SIZE == 12 && size_of::<RawExtentIndex>() == ENTRY_SIZE);
const _: () = assert!(TAIL_SIZE == 4);

/// A run of a file's blocks that are consecutive on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block of the file that the extent maps.
    pub logical: u32,
    /// How many blocks: 1 to 32768, or to 32767 when unwritten.
    pub len_blocks: u16,
    /// The block of the volume that holds the first of them.
    pub physical: u64,
    /// Whether the blocks are allocated but never written: they read as zeroes.
    pub unwritten: bool,
}

impl Extent {
    /// Checks one entry of a leaf.
    ///
    /// # Errors
    /// A length of zero, a run past the last logical block, or blocks outside `volume`.
    #[inline]
    pub fn decode(raw: &RawExtent, volume: Blocks, place: Place) -> Result<Self, Corrupt> {
        let extent = Self::from_raw(raw);
        if extent.len_blocks == 0 {
            let value = u64::from(raw.ee_len.get());
            return Err(place.corrupt(CorruptKind::Field {
                field: "ee_len",
                value,
            }));
        }
        if extent.end() > LOGICAL_END {
            return Err(place.corrupt(CorruptKind::Field {
                field: "ee_block",
                value: u64::from(extent.logical),
            }));
        }
        volume.check(
            "ee_start",
            extent.physical,
            u64::from(extent.len_blocks),
            place,
        )?;
        Ok(extent)
    }

    /// Returns the entry as it is on the disk.
    pub fn encode(&self) -> RawExtent {
        debug_assert!(
            self.len_blocks > 0 && self.len_blocks <= MAX_WRITTEN_LEN,
            "{self:?}"
        );
        debug_assert!(
            !self.unwritten || self.len_blocks < MAX_WRITTEN_LEN,
            "{self:?}"
        );
        let (hi, lo) = split48(self.physical);
        let mark = if self.unwritten { MAX_WRITTEN_LEN } else { 0 };
        RawExtent {
            ee_block: self.logical.into(),
            ee_len: (self.len_blocks | mark).into(),
            ee_start_hi: hi.into(),
            ee_start_lo: lo.into(),
        }
    }

    /// Returns one past the last logical block of the extent.
    #[inline]
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.len_blocks)
    }

    /// Returns whether the extent maps block `logical`.
    #[inline]
    pub fn contains(&self, logical: u32) -> bool {
        logical >= self.logical && u64::from(logical) < self.end()
    }

    #[inline]
    fn from_raw(raw: &RawExtent) -> Self {
        let stored = raw.ee_len.get();
        let unwritten = stored > MAX_WRITTEN_LEN;
        Self {
            logical: raw.ee_block.get(),
            len_blocks: if unwritten {
                stored - MAX_WRITTEN_LEN
            } else {
                stored
            },
            physical: join48(raw.ee_start_hi.get(), raw.ee_start_lo.get()),
            unwritten,
        }
    }
}

/// An entry above the leaves: the child node that maps the blocks from `logical` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// The first block of the file that the child may map.
    pub logical: u32,
    /// The block of the volume that holds the child.
    pub child: u64,
}

impl Index {
    /// Checks one entry of an index node.
    ///
    /// # Errors
    /// A child outside `volume`.
    #[inline]
    pub fn decode(raw: &RawExtentIndex, volume: Blocks, place: Place) -> Result<Self, Corrupt> {
        let index = Self::from_raw(raw);
        volume.check("ei_leaf", index.child, 1, place)?;
        Ok(index)
    }

    /// Returns the entry as it is on the disk, with `ei_unused` zero.
    pub fn encode(&self) -> RawExtentIndex {
        let (hi, lo) = split48(self.child);
        RawExtentIndex {
            ei_block: self.logical.into(),
            ei_leaf_lo: lo.into(),
            ei_leaf_hi: hi.into(),
            ei_unused: 0.into(),
        }
    }

    #[inline]
    fn from_raw(raw: &RawExtentIndex) -> Self {
        Self {
            logical: raw.ei_block.get(),
            child: join48(raw.ei_leaf_hi.get(), raw.ei_leaf_lo.get()),
        }
    }
}

fn join48(hi: u16, lo: u32) -> u64 {
    u64::from(hi) << 32 | u64::from(lo)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "splitting a number into its parts"
)]
fn split48(block: u64) -> (u16, u32) {
    debug_assert!(
        block <= MAX_PHYSICAL,
        "block {block} needs more than 48 bits"
    );
    ((block >> 32) as u16, block as u32)
}

/// The constraints on a node from its volume and its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The blocks that its entries may name.
    pub volume: Blocks,
    /// The depth that the parent gives the node. `None` for a root, whose depth may be anything up
    /// to [`MAX_DEPTH`].
    pub depth: Option<u16>,
    /// The first logical block that the node may map.
    pub start: u32,
    /// One past the last logical block that the node may map.
    pub end: u64,
}

impl Expect {
    /// Returns the constraints on a root: only the volume gives any.
    pub const fn root(volume: Blocks) -> Self {
        Self {
            volume,
            depth: None,
            start: 0,
            end: LOGICAL_END,
        }
    }

    /// Returns the constraints on a root whose tree the caller walks or removes: it may be as deep
    /// as [`DEEPEST`].
    pub fn deep_root(volume: Blocks, root: &[u8; MAP_SIZE]) -> Self {
        let depth = RawExtentHeader::ref_from_prefix(root)
            .ok()
            .map(|(header, _)| header.eh_depth.get());
        Self {
            depth,
            ..Self::root(volume)
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Slots<'a> {
    Leaf(&'a [RawExtent]),
    Index(&'a [RawExtentIndex]),
}

/// A checked node of an extent tree, borrowed from the bytes that hold it.
///
/// Invariants: entries ascend and do not overlap. They lie inside the range that the parent gives,
/// and name blocks of the volume. A node above the leaves is not empty.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    slots: Slots<'a>,
    depth: u16,
    max: u16,
    generation: u32,
    expect: Expect,
}

/// The result of looking up a logical block in one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The extent of a leaf that maps the block.
    Extent(Extent),
    /// The child to search next, and the constraints on that child.
    Child(Index, Expect),
    /// A hole: no entry maps the block, nor any block before `end` (exclusive, within this node's
    /// range).
    Hole {
        /// The next logical block that this node, or a neighbour of it, may map.
        end: u64,
    },
}

impl<'a> ExtentNode<'a> {
    /// Checks the node in `bytes`: an inode's 60-byte `i_block` or a whole block.
    /// [`verify_checksum`] checks the checksum.
    ///
    /// # Errors
    /// Any broken rule of the format, with the byte offset of the header or of the entry that
    /// breaks it.
    pub fn decode(bytes: &'a [u8], expect: Expect, place: Place) -> Result<Self, Corrupt> {
        Self::decode_with(bytes, expect, place, |_| 1)
    }

    /// Returns a node that [`decode`](Self::decode) has accepted before, perhaps at another place
    /// of a tree. It checks the header, and the first and the last entry: all others lie between
    /// them.
    ///
    /// # Errors
    /// A node that does not belong at this place, as `decode` has them.
    pub fn peek(bytes: &'a [u8], expect: Expect, place: Place) -> Result<Self, Corrupt> {
        Self::decode_with(bytes, expect, place, |entries| {
            entries.saturating_sub(1).max(1)
        })
    }

    /// Checks the header, the first entry, and then one of as many as `step` says for the number of
    /// entries.
    #[inline]
    fn decode_with(
        bytes: &'a [u8],
        expect: Expect,
        place: Place,
        step: impl FnOnce(usize) -> usize,
    ) -> Result<Self, Corrupt> {
        let (header, rest) = header(bytes, place)?;
        let depth = header.eh_depth.get();
        if depth > DEEPEST
            || expect
                .depth
                .map_or(depth > MAX_DEPTH, |wanted| wanted != depth)
        {
            return Err(place.corrupt(CorruptKind::Field {
                field: "eh_depth",
                value: u64::from(depth),
            }));
        }
        let max = header.eh_max.get();
        if max == 0 || usize::from(max) > rest.len() / ENTRY_SIZE {
            return Err(place.corrupt(CorruptKind::Field {
                field: "eh_max",
                value: u64::from(max),
            }));
        }
        let count = header.eh_entries.get();
        if count > max || (count == 0 && depth > 0) {
            return Err(place.corrupt(CorruptKind::Field {
                field: "eh_entries",
                value: u64::from(count),
            }));
        }
        let used = &rest[..usize::from(count) * ENTRY_SIZE];
        let step = step(usize::from(count));
        let slots = if depth == 0 {
            Slots::Leaf(check_leaf(used, step, &expect, place)?)
        } else {
            Slots::Index(check_index(used, step, &expect, place)?)
        };
        Ok(Self {
            slots,
            depth,
            max,
            generation: header.eh_generation.get(),
            expect,
        })
    }

    /// Returns how far above the leaves the node is; 0 is a leaf.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self.slots {
            Slots::Leaf(slots) => slots.len(),
            Slots::Index(slots) => slots.len(),
        }
    }

    /// Returns whether the node has no entry, like the root of an empty file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many entries fit.
    pub fn capacity(&self) -> u16 {
        self.max
    }

    /// Looks up `logical` by binary search.
    pub fn find(&self, logical: u32) -> Found {
        match self.slots {
            Slots::Leaf(slots) => {
                let next = slots.partition_point(|raw| raw.ee_block.get() <= logical);
                if let Some(extent) = next.checked_sub(1).map(|at| Extent::from_raw(&slots[at]))
                    && u64::from(logical) < extent.end()
                {
                    return Found::Extent(extent);
                }
                let end = slots
                    .get(next)
                    .map_or(self.expect.end, |raw| u64::from(raw.ee_block.get()));
                Found::Hole { end }
            }
            Slots::Index(slots) => {
                let next = slots.partition_point(|raw| raw.ei_block.get() <= logical);
                match next.checked_sub(1) {
                    Some(at) => self.child(slots, at),
                    None => Found::Hole {
                        end: u64::from(slots[0].ei_block.get()),
                    },
                }
            }
        }
    }

    /// Iterates over the extents of a leaf in order; empty for an index node.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + DoubleEndedIterator + use<'a> {
        let slots = match self.slots {
            Slots::Leaf(slots) => slots,
            Slots::Index(_) => &[],
        };
        slots.iter().map(Extent::from_raw)
    }

    /// Iterates over the children of an index node in order, each with its constraints; empty for a
    /// leaf.
    pub fn children(&self) -> impl ExactSizeIterator<Item = (Index, Expect)> + use<'a> {
        let slots = match self.slots {
            Slots::Leaf(_) => &[],
            Slots::Index(slots) => slots,
        };
        let node = *self;
        (0..slots.len()).map(move |at| node.child_at(slots, at))
    }

    /// Returns a copy of the node's contents that does not borrow its bytes.
    pub fn to_owned(&self) -> OwnedExtentNode {
        let entries = match self.slots {
            Slots::Leaf(_) => Entries::Leaf(self.extents().collect()),
            Slots::Index(slots) => Entries::Index(slots.iter().map(Index::from_raw).collect()),
        };
        OwnedExtentNode {
            entries,
            depth: self.depth,
            max: self.max,
            generation: self.generation,
        }
    }

    fn child(&self, slots: &[RawExtentIndex], at: usize) -> Found {
        let (index, expect) = self.child_at(slots, at);
        Found::Child(index, expect)
    }

    fn child_at(&self, slots: &[RawExtentIndex], at: usize) -> (Index, Expect) {
        let index = Index::from_raw(&slots[at]);
        let end = slots
            .get(at + 1)
            .map_or(self.expect.end, |next| u64::from(next.ei_block.get()));
        // OK: only nodes with a depth of 1 or more have index entries.
        let depth = Some(self.depth - 1);
        (
            index,
            Expect {
                volume: self.expect.volume,
                depth,
                start: index.logical,
                end,
            },
        )
    }
}

/// Returns the only extent of a root that is a leaf with one entry, as most files have. `None` for
/// any other root and for a corrupt one: [`ExtentNode::decode`] tells them apart.
#[inline]
pub fn sole_extent(root: &[u8; MAP_SIZE], volume: Blocks, place: Place) -> Option<Extent> {
    let (header, entries) = RawExtentHeader::ref_from_prefix(root).ok()?;
    let (raw, _) = RawExtent::ref_from_prefix(entries).ok()?;
    let max = usize::from(header.eh_max.get());
    let is_sole = header.eh_magic.get() == MAGIC
        && header.eh_depth.get() == 0
        && header.eh_entries.get() == 1
        && (1..=(MAP_SIZE - HEADER_SIZE) / ENTRY_SIZE).contains(&max);
    if is_sole {
        Extent::decode(raw, volume, place).ok()
    } else {
        None
    }
}

fn header(bytes: &[u8], place: Place) -> Result<(&RawExtentHeader, &[u8]), Corrupt> {
    let (header, rest) = RawExtentHeader::ref_from_prefix(bytes)
        .map_err(|_| place.corrupt(truncated(HEADER_SIZE, bytes.len())))?;
    let magic = header.eh_magic.get();
    if magic != MAGIC {
        let kind = CorruptKind::Magic {
            found: u32::from(magic),
            expected: u32::from(MAGIC),
        };
        return Err(place.corrupt(kind));
    }
    Ok((header, rest))
}

/// Checks every `step`th entry of a leaf, from the first on.
fn check_leaf<'a>(
    used: &'a [u8],
    step: usize,
    expect: &Expect,
    place: Place,
) -> Result<&'a [RawExtent], Corrupt> {
    let slots = <[RawExtent]>::ref_from_bytes(used)
        .map_err(|_| place.corrupt(truncated(ENTRY_SIZE, used.len())))?;
    let mut from = u64::from(expect.start);
    for (at, raw) in slots.iter().enumerate().step_by(step) {
        let place = place.byte(HEADER_SIZE + at * ENTRY_SIZE);
        let extent = Extent::decode(raw, expect.volume, place)?;
        if u64::from(extent.logical) < from || extent.end() > expect.end {
            return Err(place.corrupt(CorruptKind::Order { what: "extents" }));
        }
        from = extent.end();
    }
    Ok(slots)
}

/// Checks every `step`th entry of a node above the leaves, from the first on.
fn check_index<'a>(
    used: &'a [u8],
    step: usize,
    expect: &Expect,
    place: Place,
) -> Result<&'a [RawExtentIndex], Corrupt> {
    let slots = <[RawExtentIndex]>::ref_from_bytes(used)
        .map_err(|_| place.corrupt(truncated(ENTRY_SIZE, used.len())))?;
    let mut from = u64::from(expect.start);
    for (at, raw) in slots.iter().enumerate().step_by(step) {
        let place = place.byte(HEADER_SIZE + at * ENTRY_SIZE);
        let logical = u64::from(Index::decode(raw, expect.volume, place)?.logical);
        if logical < from || logical >= expect.end {
            return Err(place.corrupt(CorruptKind::Order {
                what: "extent index entries",
            }));
        }
        from = logical + 1;
    }
    Ok(slots)
}

fn truncated(need: usize, have: usize) -> CorruptKind {
    CorruptKind::Truncated {
        need: need as u64,
        have: have as u64,
    }
}

/// The entries of an [`OwnedExtentNode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// The entries of a leaf.
    Leaf(Vec<Extent>),
    /// The entries of a node above the leaves.
    Index(Vec<Index>),
}

/// A node's contents, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedExtentNode {
    /// Extents of a leaf, or the nodes below an index, ascending.
    pub entries: Entries,
    /// How far above the leaves it is.
    pub depth: u16,
    /// How many entries fit.
    pub max: u16,
    /// `eh_generation`, which Lustre uses and ext4 does not.
    pub generation: u32,
}

impl OwnedExtentNode {
    /// Writes header and entries to the start of `bytes`, and leaves the rest of `bytes` unchanged.
    ///
    /// # Panics
    /// If there are more entries than `max`, or `bytes` cannot hold `max` of them: the caller must
    /// rule out both.
    pub fn encode(&self, bytes: &mut [u8]) {
        let mut raw = Vec::with_capacity(HEADER_SIZE + self.len() * ENTRY_SIZE);
        let entries = u16::try_from(self.len())
            .ok()
            .filter(|&count| count <= self.max);
        let header = RawExtentHeader {
            eh_magic: MAGIC.into(),
            eh_entries: entries.expect("no more entries than eh_max").into(),
            eh_max: self.max.into(),
            eh_depth: self.depth.into(),
            eh_generation: self.generation.into(),
        };
        assert!(
            HEADER_SIZE + usize::from(self.max) * ENTRY_SIZE <= bytes.len(),
            "eh_max fits"
        );
        raw.extend_from_slice(header.as_bytes());
        match &self.entries {
            Entries::Leaf(extents) => extents
                .iter()
                .for_each(|e| raw.extend_from_slice(e.encode().as_bytes())),
            Entries::Index(indexes) => indexes
                .iter()
                .for_each(|i| raw.extend_from_slice(i.encode().as_bytes())),
        }
        bytes[..raw.len()].copy_from_slice(&raw);
    }

    fn len(&self) -> usize {
        match &self.entries {
            Entries::Leaf(extents) => extents.len(),
            Entries::Index(indexes) => indexes.len(),
        }
    }
}

/// Checks the checksum at the end of a node that fills a block. A root has no checksum; the
/// inode's covers it.
///
/// `inode_seed` is the seed of the inode.
///
/// # Errors
/// A header that does not say where the checksum is, or a checksum that does not match.
pub fn verify_checksum(
    block: &[u8],
    inode_seed: ChecksumSeed,
    place: Place,
) -> Result<(), Corrupt> {
    let (covered, tail) = split_tail(block, place)?;
    let stored = tail.et_checksum.get();
    let computed = inode_seed.checksum(covered);
    checksum::verify(stored, computed, place.byte(covered.len()))
}

/// Computes the checksum of a node that fills a block and stores it at the node's end.
///
/// # Errors
/// A header that does not say where the checksum goes.
pub fn store_checksum(
    block: &mut [u8],
    inode_seed: ChecksumSeed,
    place: Place,
) -> Result<(), Corrupt> {
    let at = split_tail(block, place)?.0.len();
    let tail = RawExtentTail {
        et_checksum: inode_seed.checksum(&block[..at]).into(),
    };
    block[at..at + TAIL_SIZE].copy_from_slice(tail.as_bytes());
    Ok(())
}

/// Splits a block into the bytes that the checksum covers and the checksum, which follows the last
/// entry that fits.
fn split_tail(block: &[u8], place: Place) -> Result<(&[u8], &RawExtentTail), Corrupt> {
    let max = header(block, place)?.0.eh_max.get();
    let at = HEADER_SIZE + usize::from(max) * ENTRY_SIZE;
    let (covered, rest) = block.split_at_checked(at).ok_or_else(|| {
        place.corrupt(CorruptKind::Field {
            field: "eh_max",
            value: u64::from(max),
        })
    })?;
    let (tail, _) = RawExtentTail::ref_from_prefix(rest).map_err(|_| {
        place.corrupt(CorruptKind::Field {
            field: "eh_max",
            value: u64::from(max),
        })
    })?;
    Ok((covered, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structure;
    use proptest::prelude::*;

    const PLACE: Place = Place::new(Structure::ExtentNode).ino(12);
    const VOLUME: Blocks = Blocks {
        first: 10,
        end: 1 << 40,
    };

    fn leaf(extents: &[Extent], max: u16) -> Vec<u8> {
        let node = OwnedExtentNode {
            entries: Entries::Leaf(extents.to_vec()),
            depth: 0,
            max,
            generation: 0,
        };
        encode(&node)
    }

    fn index(indexes: &[Index], depth: u16, max: u16) -> Vec<u8> {
        encode(&OwnedExtentNode {
            entries: Entries::Index(indexes.to_vec()),
            depth,
            max,
            generation: 0,
        })
    }

    fn encode(node: &OwnedExtentNode) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_SIZE + usize::from(node.max) * ENTRY_SIZE];
        node.encode(&mut bytes);
        bytes
    }

    fn extent(logical: u32, len_blocks: u16, physical: u64) -> Extent {
        Extent {
            logical,
            len_blocks,
            physical,
            unwritten: false,
        }
    }

    fn kind_of(bytes: &[u8], expect: Expect) -> (CorruptKind, Option<u32>) {
        let corrupt = ExtentNode::decode(bytes, expect, PLACE).expect_err("broken bytes");
        (corrupt.kind, corrupt.place.offset)
    }

    #[test]
    fn a_leaf_maps_extents_and_holes() {
        let unwritten = Extent {
            unwritten: true,
            ..extent(20, 5, 300)
        };
        let bytes = leaf(&[extent(4, 6, 100), extent(10, 2, 200), unwritten], 4);
        assert_eq!(bytes.len(), 60);
        let node = ExtentNode::decode(&bytes, Expect::root(VOLUME), PLACE).unwrap();
        let cases = [
            (0, Found::Hole { end: 4 }),
            (3, Found::Hole { end: 4 }),
            (4, Found::Extent(extent(4, 6, 100))),
            (9, Found::Extent(extent(4, 6, 100))),
            (10, Found::Extent(extent(10, 2, 200))),
            (12, Found::Hole { end: 20 }),
            (24, Found::Extent(unwritten)),
            (25, Found::Hole { end: LOGICAL_END }),
            (u32::MAX, Found::Hole { end: LOGICAL_END }),
        ];
        for (logical, want) in cases {
            assert_eq!(node.find(logical), want, "block {logical}");
        }
        assert_eq!(node.extents().len(), 3);
        assert_eq!(node.children().len(), 0);
    }

    #[test]
    fn an_index_narrows_what_its_children_may_map() {
        let a = Index {
            logical: 5,
            child: 50,
        };
        let b = Index {
            logical: 100,
            child: 60,
        };
        let bytes = index(&[a, b], 2, 4);
        let node = ExtentNode::decode(&bytes, Expect::root(VOLUME), PLACE).unwrap();
        let below_a = Expect {
            volume: VOLUME,
            depth: Some(1),
            start: 5,
            end: 100,
        };
        let below_b = Expect {
            volume: VOLUME,
            depth: Some(1),
            start: 100,
            end: LOGICAL_END,
        };
        assert_eq!(node.find(4), Found::Hole { end: 5 });
        assert_eq!(node.find(99), Found::Child(a, below_a));
        assert_eq!(node.find(100), Found::Child(b, below_b));
        assert_eq!(
            node.children().collect::<Vec<_>>(),
            [(a, below_a), (b, below_b)]
        );
        // A child as deep as its parent would let a tree loop.
        let field = |field, value| CorruptKind::Field { field, value };
        assert_eq!(kind_of(&bytes, below_a), (field("eh_depth", 2), None));
        let beyond = leaf(&[extent(99, 2, 1000)], 84);
        let below_a = Expect {
            depth: Some(0),
            ..below_a
        };
        assert_eq!(
            kind_of(&beyond, below_a),
            (CorruptKind::Order { what: "extents" }, Some(12))
        );
        let before = leaf(&[extent(4, 1, 1000)], 84);
        assert_eq!(
            kind_of(&before, below_a),
            (CorruptKind::Order { what: "extents" }, Some(12))
        );
    }

    #[test]
    fn every_broken_rule_has_its_kind() {
        let good = leaf(&[extent(0, 2, 100), extent(2, 2, 200)], 4);
        let root = Expect::root(VOLUME);
        let broken = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            kind_of(&bytes, root)
        };
        let field = |field, value| CorruptKind::Field { field, value };
        assert_eq!(
            broken(0, 0),
            (
                CorruptKind::Magic {
                    found: 0xF300,
                    expected: 0xF30A
                },
                None
            )
        );
        assert_eq!(broken(2, 5), (field("eh_entries", 5), None));
        assert_eq!(broken(4, 5), (field("eh_max", 5), None));
        assert_eq!(broken(4, 0), (field("eh_max", 0), None));
        assert_eq!(broken(6, 6), (field("eh_depth", 6), None));
        assert_eq!(broken(16, 0), (field("ee_len", 0), Some(12)));
        assert_eq!(
            broken(16, 3),
            (CorruptKind::Order { what: "extents" }, Some(24))
        );
        let block = CorruptKind::BlockOutOfRange {
            field: "ee_start",
            block: 9,
        };
        assert_eq!(broken(20, 9), (block, Some(12)));
        let block = CorruptKind::BlockOutOfRange {
            field: "ee_start",
            block: 200 | 1 << 40,
        };
        assert_eq!(broken(31, 1), (block, Some(24)));
        assert_eq!(
            kind_of(&good[..11], root).0,
            CorruptKind::Truncated { need: 12, have: 11 }
        );
        assert_eq!(kind_of(&good[..59], root).0, field("eh_max", 4));
        let empty = index(&[], 1, 4);
        assert_eq!(kind_of(&empty, root).0, field("eh_entries", 0));
        let last = leaf(&[extent(u32::MAX, 2, 100)], 4);
        assert_eq!(
            kind_of(&last, root),
            (field("ee_block", u64::from(u32::MAX)), Some(12))
        );
        let twice = index(
            &[
                Index {
                    logical: 7,
                    child: 50,
                },
                Index {
                    logical: 7,
                    child: 51,
                },
            ],
            1,
            4,
        );
        assert_eq!(
            kind_of(&twice, root),
            (
                CorruptKind::Order {
                    what: "extent index entries"
                },
                Some(24)
            )
        );
    }

    #[test]
    fn a_checksum_covers_all_entries_that_fit() {
        let mut block = leaf(&[extent(0, 2, 100)], 84);
        block.resize(1024, 0);
        let seed = ChecksumSeed::new(7);
        store_checksum(&mut block, seed, PLACE).unwrap();
        verify_checksum(&block, seed, PLACE).unwrap();
        for bit in 0..1024 * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(verify_checksum(&flipped, seed, PLACE).is_err(), "bit {bit}");
        }
        assert!(verify_checksum(&block, ChecksumSeed::new(8), PLACE).is_err());
        block.truncate(1023);
        let kind = CorruptKind::Field {
            field: "eh_max",
            value: 84,
        };
        assert_eq!(verify_checksum(&block, seed, PLACE).unwrap_err().kind, kind);
    }

    prop_compose! {
        fn extents()(steps in proptest::collection::vec(
            (0u32..3000, 1u16..=32768, 10u64..1 << 39, any::<bool>()), 0..40,
        )) -> Vec<Extent> {
            let mut from = 0;
            steps.into_iter().map(|(gap, len, physical, unwritten)| {
                let len_blocks = if unwritten { len.min(32767) } else { len };
                let logical = from + gap;
                from = logical + u32::from(len_blocks);
                Extent { logical, len_blocks, physical, unwritten }
            }).collect()
        }
    }

    #[test]
    fn a_node_that_was_accepted_is_refused_at_another_place() {
        let extent = |logical| Extent {
            logical,
            len_blocks: 10,
            physical: 100,
            unwritten: false,
        };
        let bytes = leaf(&[10, 30, 50].map(extent), 84);
        let at = |depth, start, end| Expect {
            depth: Some(depth),
            start,
            end,
            ..Expect::root(VOLUME)
        };
        for read in [ExtentNode::decode, ExtentNode::peek] {
            assert!(read(&bytes, at(0, 10, 60), PLACE).is_ok());
            for elsewhere in [at(1, 10, 60), at(0, 11, 60), at(0, 10, 59)] {
                assert!(read(&bytes, elsewhere, PLACE).is_err(), "{elsewhere:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn leaves_come_back(extents in extents(), probe: u32) {
            let bytes = leaf(&extents, 84);
            let node = ExtentNode::decode(&bytes, Expect::root(VOLUME), PLACE).unwrap();
            prop_assert!(node.extents().eq(extents.iter().copied()));
            let mut again = bytes.clone();
            node.to_owned().encode(&mut again);
            prop_assert_eq!(&again, &bytes);
            let probe = probe % (40 * 40_000);
            let covers = |e: &&Extent| (u64::from(e.logical)..e.end()).contains(&u64::from(probe));
            let after = extents.iter().map(|e| u64::from(e.logical)).find(|&start| start > u64::from(probe));
            let want = match extents.iter().find(covers) {
                Some(extent) => Found::Extent(*extent),
                None => Found::Hole { end: after.unwrap_or(LOGICAL_END) },
            };
            prop_assert_eq!(node.find(probe), want);
            prop_assert_eq!(ExtentNode::peek(&bytes, Expect::root(VOLUME), PLACE).unwrap().find(probe), want);
        }

        #[test]
        fn damaged_nodes_are_refused_or_come_back(
            extents in extents(), depth in 0u16..3, damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut bytes = match depth {
                0 => leaf(&extents, 84),
                _ if extents.is_empty() => return Ok(()),
                _ => index(&extents.iter().map(|e| Index { logical: e.logical, child: e.physical }).collect::<Vec<_>>(), depth, 84),
            };
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(node) = ExtentNode::decode(&bytes, Expect::root(VOLUME), PLACE) {
                let mut again = bytes.clone();
                node.to_owned().encode(&mut again);
                // Only the unused half word of index entries may differ.
                let same = |at: usize| depth > 0 && at >= HEADER_SIZE && at % ENTRY_SIZE >= 10;
                prop_assert!((0..bytes.len()).all(|at| again[at] == bytes[at] || same(at)));
                for (child, expect) in node.children() {
                    prop_assert!(u64::from(child.logical) < expect.end && expect.depth < Some(node.depth()));
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(tail in proptest::collection::vec(any::<u8>(), 0..200), depth in 0u8..7) {
            let mut bytes = vec![0x0A, 0xF3, 4, 0, 10, 0, depth, 0, 0, 0, 0, 0];
            bytes.extend(tail);
            let _ = verify_checksum(&bytes, ChecksumSeed::new(0), PLACE);
            for read in [ExtentNode::decode, ExtentNode::peek] {
                if let Ok(node) = read(&bytes, Expect::root(VOLUME), PLACE) {
                    let _ = (node.find(0), node.find(u32::MAX));
                }
            }
        }
    }
}
