//! Hash trees: the index of a large directory.
//!
//! `ext4` looks names up and inserts them through these nodes, and the builder writes new trees. A
//! decoded node has its entries in order and inside of the directory.
//!
//! The tree occupies the directory's own blocks. It is disguised as directory entries, so that code
//! without support for it sees free space. Logical block 0 is the root: the records of `.` and
//! `..`, then the tree's parameters, then entries. An interior node starts with one unused record
//! that spans the block and hides the rest.
//!
//! An entry is a pair of hash and logical block. The first entry has no hash: the number of entries
//! and the number that fit take its place. Leaves are ordinary directory blocks. Each holds the
//! names whose hashes lie between its entry's and the next.
//!
//! ```text
//! root: | `.` 12 | `..` 12 | info 8 | limit 2, count 2, block 4 | hash 4, block 4 | ... | sum 8 |
//! node: | unused record 8           | limit 2, count 2, block 4 | hash 4, block 4 | ... | sum 8 |
//! ```
//!
//! Names that share a hash may spill over several leaves. A leaf may continue with the last hash of
//! the leaf before it. Its entry's hash then has the lowest bit set, a bit that hashes of names
//! never have; see [`HtreeNode::continues`]. Format: the kernel's ext4 documentation, "Hash Tree
//! Directories".

pub mod hash;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{self, ChecksumSeed};
use crate::{Corrupt, CorruptKind, Place};

pub use hash::{Hash, HashVersion, Hasher};

/// The mask for the block number of an entry; the other bits are reserved.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;
/// The offset of the tree's parameters in the root: after the records of `.` and `..`.
const INFO_OFFSET: usize = 24;
/// The offset of the entries in an interior node: after one record without a name.
const NODE_ENTRIES_OFFSET: usize = 8;

/// `struct dx_root_info`, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawDxRootInfo {
    pub reserved_zero: U32,
    pub hash_version: u8,
    pub info_length: u8,
    pub indirect_levels: u8,
    pub unused_flags: u8,
}

/// `struct dx_entry`, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawDxEntry {
    pub hash: U32,
    pub block: U32,
}

/// `struct dx_countlimit`, which stands in place of the first entry's hash.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawDxCountLimit {
    pub limit: U16,
    pub count: U16,
}

/// `struct dx_tail`, as it stands on the disk, after the last entry that fits.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawDxTail {
    pub dt_reserved: U32,
    pub dt_checksum: U32,
}

const ENTRY_SIZE: usize = size_of::<RawDxEntry>();
const TAIL_SIZE: usize = size_of::<RawDxTail>();
const INFO_SIZE: usize = size_of::<RawDxRootInfo>();
const _: () = assert!(ENTRY_SIZE == 8 && TAIL_SIZE == 8 && INFO_SIZE == 8);
const _: () = assert!(size_of::<RawDxCountLimit>() == 4);

/// The constraints on the nodes of one directory's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expect {
    /// How many blocks the directory has.
    pub blocks: u32,
    /// The volume's `metadata_csum` feature: nodes end in a checksum.
    pub checksum: bool,
    /// The volume's `large_dir` feature: three levels of nodes instead of two.
    pub large_dir: bool,
}

/// The root of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Root<'a> {
    /// The function that hashes names.
    pub hash_version: HashVersion,
    /// How many levels of interior nodes are between the root and the leaves: 0 to 2.
    pub levels: u8,
    /// The root's entries.
    pub node: HtreeNode<'a>,
}

impl<'a> Root<'a> {
    /// Checks logical block 0 of a hashed directory, except for two parts.
    /// [`dot_and_dotdot`](crate::dirent::dot_and_dotdot) checks its `.` and `..`, and
    /// [`verify_checksum`] its checksum.
    ///
    /// # Errors
    /// Any broken rule of the format.
    pub fn decode(block: &'a [u8], expect: &Expect, place: Place) -> Result<Self, Corrupt> {
        let root = Self::peek(block, expect, place)?;
        root.node.check(INFO_OFFSET + INFO_SIZE, expect, place)?;
        Ok(root)
    }

    /// Decodes a block that has passed [`decode`](Self::decode) before, without checking each
    /// entry.
    ///
    /// # Errors
    /// A broken rule outside the entries.
    pub fn peek(block: &'a [u8], expect: &Expect, place: Place) -> Result<Self, Corrupt> {
        let info = root_info(block, place)?;
        let at = place.byte(INFO_OFFSET);
        let field = |field, value: u8| {
            at.corrupt(CorruptKind::Field {
                field,
                value: u64::from(value),
            })
        };
        if info.reserved_zero.get() != 0 {
            let value = u64::from(info.reserved_zero.get());
            return Err(at.corrupt(CorruptKind::Field {
                field: "reserved_zero",
                value,
            }));
        }
        let hash_version = HashVersion::from_raw(info.hash_version)
            .ok_or_else(|| field("hash_version", info.hash_version))?;
        // The lowest flag would change the meaning of the hash; no version of the format defines
        // it.
        if info.unused_flags & 1 != 0 {
            return Err(field("unused_flags", info.unused_flags));
        }
        let most = if expect.large_dir { 2 } else { 1 };
        if info.indirect_levels > most {
            return Err(field("indirect_levels", info.indirect_levels));
        }
        let node = HtreeNode::peek_at(block, INFO_OFFSET + INFO_SIZE, expect, place)?;
        Ok(Self {
            hash_version,
            levels: info.indirect_levels,
            node,
        })
    }

    /// Writes the tree's parameters and the entries into a block that already has its `.` and `..`.
    pub fn encode(hash_version: HashVersion, levels: u8, entries: &NodeEntries, block: &mut [u8]) {
        let info = RawDxRootInfo {
            reserved_zero: 0.into(),
            hash_version: hash_version.to_raw(),
            info_length: 8,
            indirect_levels: levels,
            unused_flags: 0,
        };
        block[INFO_OFFSET..INFO_OFFSET + INFO_SIZE].copy_from_slice(info.as_bytes());
        entries.encode_at(block, INFO_OFFSET + INFO_SIZE);
    }
}

fn root_info(block: &[u8], place: Place) -> Result<&RawDxRootInfo, Corrupt> {
    let need = (INFO_OFFSET + INFO_SIZE) as u64;
    let truncated = || {
        place.corrupt(CorruptKind::Truncated {
            need,
            have: block.len() as u64,
        })
    };
    let rest = block.get(INFO_OFFSET..).ok_or_else(truncated)?;
    let (info, _) = RawDxRootInfo::ref_from_prefix(rest).map_err(|_| truncated())?;
    if usize::from(info.info_length) != INFO_SIZE {
        let kind = CorruptKind::Field {
            field: "info_length",
            value: u64::from(info.info_length),
        };
        return Err(place.byte(INFO_OFFSET).corrupt(kind));
    }
    Ok(info)
}

/// The entries of a root or of an interior node, borrowed from their block.
///
/// Invariants: there is at least one entry. If the entries have been checked, hashes do not
/// descend. Every block is then one of the directory's, but never block 0, which is the root.
#[derive(Clone, Copy, Debug)]
pub struct HtreeNode<'a> {
    entries: &'a [RawDxEntry],
    limit: u16,
}

impl<'a> HtreeNode<'a> {
    /// Checks an interior node, except for its checksum: [`verify_checksum`] does that.
    ///
    /// # Errors
    /// Any broken rule of the format.
    pub fn decode(block: &'a [u8], expect: &Expect, place: Place) -> Result<Self, Corrupt> {
        let node = Self::peek(block, expect, place)?;
        node.check(NODE_ENTRIES_OFFSET, expect, place)?;
        Ok(node)
    }

    /// Decodes a block that has passed [`decode`](Self::decode) before, without checking each
    /// entry.
    ///
    /// # Errors
    /// A broken rule outside the entries.
    pub fn peek(block: &'a [u8], expect: &Expect, place: Place) -> Result<Self, Corrupt> {
        if !is_interior(block) {
            let what = "an interior node does not start with an unused record of its size";
            return Err(place.corrupt(CorruptKind::Mismatch { what }));
        }
        Self::peek_at(block, NODE_ENTRIES_OFFSET, expect, place)
    }

    fn peek_at(
        block: &'a [u8],
        offset: usize,
        expect: &Expect,
        place: Place,
    ) -> Result<Self, Corrupt> {
        let (limit, count) = count_limit(block, offset, place)?;
        let at = place.byte(offset);
        let field = |field, value: usize| {
            at.corrupt(CorruptKind::Field {
                field,
                value: value as u64,
            })
        };
        let room = block.len() - offset - if expect.checksum { TAIL_SIZE } else { 0 };
        if limit != room / ENTRY_SIZE {
            return Err(field("limit", limit));
        }
        if count == 0 || count > limit {
            return Err(field("count", count));
        }
        let used = &block[offset..offset + count * ENTRY_SIZE];
        let entries = <[RawDxEntry]>::ref_from_bytes(used).map_err(|_| field("count", count))?;
        // OK: limit came from 16 bits.
        Ok(Self {
            entries,
            limit: limit as u16,
        })
    }

    /// Checks each entry; the first is at byte `offset`.
    fn check(&self, offset: usize, expect: &Expect, place: Place) -> Result<(), Corrupt> {
        let mut last = 0;
        for (index, (hash, block)) in self.iter().enumerate() {
            let place = place.byte(offset + index * ENTRY_SIZE);
            if block == 0 || block >= expect.blocks {
                let kind = CorruptKind::Field {
                    field: "dx_entry.block",
                    value: u64::from(block),
                };
                return Err(place.corrupt(kind));
            }
            if hash < last {
                return Err(place.corrupt(CorruptKind::Order {
                    what: "hash tree entries",
                }));
            }
            last = hash;
        }
        Ok(())
    }

    /// Returns the number of entries: at least one.
    #[expect(clippy::len_without_is_empty, reason = "a node is never empty")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns how many entries fit.
    pub fn limit(&self) -> u16 {
        self.limit
    }

    /// Returns the logical block of the directory that entry `index` names.
    ///
    /// # Panics
    /// If `index` is not less than [`len`](Self::len).
    pub fn block(&self, index: usize) -> u32 {
        self.entries[index].block.get() & BLOCK_MASK
    }

    /// Returns the lowest hash below entry `index`, with the bit that marks a continuation; 0 for
    /// the first entry.
    ///
    /// # Panics
    /// If `index` is not less than [`len`](Self::len).
    pub fn hash(&self, index: usize) -> u32 {
        if index == 0 {
            0
        } else {
            self.entries[index].hash.get()
        }
    }

    /// Returns the entry below which the first name with hash `major` must be, if there is one.
    pub fn find(&self, major: u32) -> usize {
        self.entries[1..].partition_point(|entry| entry.hash.get() <= major)
    }

    /// Returns whether names with hash `major` may continue below entry `index`. The caller has
    /// searched the entry before it.
    pub fn continues(&self, index: usize, major: u32) -> bool {
        index < self.len() && self.hash(index) == major | 1
    }

    /// Iterates over the hash and logical block of each entry in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'a> {
        let node = *self;
        (0..node.len()).map(move |index| (node.hash(index), node.block(index)))
    }

    /// Returns a copy of the entries that does not borrow their bytes.
    pub fn to_owned(&self) -> NodeEntries {
        NodeEntries {
            entries: self.iter().collect(),
            limit: self.limit,
        }
    }
}

/// The entries of a node, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntries {
    /// Hash and logical block; the first entry's hash is 0 and not stored.
    pub entries: Vec<(u32, u32)>,
    /// How many entries fit.
    pub limit: u16,
}

impl NodeEntries {
    /// Returns how many entries fit into a root of `block_size` bytes, with or without a checksum.
    pub fn root_limit(block_size: usize, checksum: bool) -> usize {
        (block_size - INFO_OFFSET - INFO_SIZE - if checksum { TAIL_SIZE } else { 0 }) / ENTRY_SIZE
    }

    /// Returns how many entries fit into an interior node of `block_size` bytes, with or without a
    /// checksum.
    pub fn node_limit(block_size: usize, checksum: bool) -> usize {
        (block_size - NODE_ENTRIES_OFFSET - if checksum { TAIL_SIZE } else { 0 }) / ENTRY_SIZE
    }

    /// Writes the entries into an interior node that already has its unused record. The bytes after
    /// the last entry stay unchanged.
    ///
    /// # Panics
    /// If there is no entry, or there are more than fit.
    pub fn encode(&self, block: &mut [u8]) {
        self.encode_at(block, NODE_ENTRIES_OFFSET);
    }

    fn encode_at(&self, block: &mut [u8], offset: usize) {
        let count = u16::try_from(self.entries.len())
            .ok()
            .filter(|&count| count > 0 && count <= self.limit);
        let head = RawDxCountLimit {
            limit: self.limit.into(),
            count: count.expect("one to limit entries").into(),
        };
        let slots = block[offset..].chunks_exact_mut(ENTRY_SIZE);
        assert!(
            slots.len() >= usize::from(self.limit),
            "{} entries fit, not {}",
            slots.len(),
            self.limit
        );
        for (slot, &(hash, block)) in slots.zip(&self.entries) {
            let entry = RawDxEntry {
                hash: hash.into(),
                block: block.into(),
            };
            slot.copy_from_slice(entry.as_bytes());
        }
        block[offset..offset + size_of::<RawDxCountLimit>()].copy_from_slice(head.as_bytes());
    }
}

/// Returns whether a block of a hashed directory is an interior node: one unused record spans it.
///
/// On a volume without checksums, a leaf without any name looks the same. There this only says that
/// a block may be a node, and the path from the root decides. A checksum tail at the block's end
/// does not matter: a node made from a leaf keeps the tail's bytes after its entries.
pub fn is_interior(block: &[u8]) -> bool {
    let Ok((head, _)) = crate::dirent::RawDirEntry::ref_from_prefix(block) else {
        return false;
    };
    let rec_len = match (usize::from(head.rec_len.get()), block.len()) {
        (0 | 0xFFFF, 65536) => 65536,
        (rec_len, _) => rec_len,
    };
    head.inode.get() == 0 && head.name_len == 0 && rec_len == block.len()
}

/// Checks the checksum of a root or of an interior node; `root` says which it is.
///
/// `inode_seed` is the seed of the directory's inode. The checksum covers the block up to the last
/// entry in use, and the reserved word before the checksum itself.
///
/// # Errors
/// Counts that do not say where the checksum is, or a checksum that does not match.
pub fn verify_checksum(
    block: &[u8],
    root: bool,
    inode_seed: ChecksumSeed,
    place: Place,
) -> Result<(), Corrupt> {
    let at = tail_offset(block, root, place)?;
    let computed = compute_checksum(block, root, at, inode_seed, place)?;
    let stored = tail_at(block, at).dt_checksum.get();
    checksum::verify(stored, computed, place.byte(at))
}

/// Computes the checksum of a root or of an interior node and stores it.
///
/// # Errors
/// Counts that do not say where the checksum goes.
pub fn store_checksum(
    block: &mut [u8],
    root: bool,
    inode_seed: ChecksumSeed,
    place: Place,
) -> Result<(), Corrupt> {
    let at = tail_offset(block, root, place)?;
    let computed = compute_checksum(block, root, at, inode_seed, place)?;
    let tail = RawDxTail {
        dt_checksum: computed.into(),
        ..tail_at(block, at)
    };
    block[at..at + TAIL_SIZE].copy_from_slice(tail.as_bytes());
    Ok(())
}

fn compute_checksum(
    block: &[u8],
    root: bool,
    at: usize,
    seed: ChecksumSeed,
    place: Place,
) -> Result<u32, Corrupt> {
    let offset = entries_offset(root);
    let (_, count) = count_limit(block, offset, place)?;
    // The tail comes after `limit` entries, and there are no more than that.
    let used = block
        .get(..offset + count * ENTRY_SIZE)
        .filter(|used| used.len() <= at)
        .ok_or_else(|| {
            place.byte(offset).corrupt(CorruptKind::Field {
                field: "count",
                value: count as u64,
            })
        })?;
    let tail = tail_at(block, at);
    Ok(seed
        .start()
        .update(used)
        .update(tail.dt_reserved.as_bytes())
        .zeros(4)
        .finish())
}

fn tail_offset(block: &[u8], root: bool, place: Place) -> Result<usize, Corrupt> {
    if root {
        root_info(block, place)?;
    }
    let offset = entries_offset(root);
    let (limit, _) = count_limit(block, offset, place)?;
    let at = offset + limit * ENTRY_SIZE;
    if at + TAIL_SIZE > block.len() {
        let kind = CorruptKind::Field {
            field: "limit",
            value: limit as u64,
        };
        return Err(place.byte(offset).corrupt(kind));
    }
    Ok(at)
}

fn tail_at(block: &[u8], at: usize) -> RawDxTail {
    // OK: callers have checked that a tail fits.
    RawDxTail::read_from_bytes(&block[at..at + TAIL_SIZE]).expect("a tail fits")
}

fn entries_offset(root: bool) -> usize {
    if root {
        INFO_OFFSET + INFO_SIZE
    } else {
        NODE_ENTRIES_OFFSET
    }
}

/// Returns limit and count of the entries at `offset`, unchecked.
fn count_limit(block: &[u8], offset: usize, place: Place) -> Result<(usize, usize), Corrupt> {
    // Room for one entry and a checksum keeps later subtractions from the length above zero.
    let need = offset + ENTRY_SIZE + TAIL_SIZE;
    if block.len() < need {
        let kind = CorruptKind::Truncated {
            need: need as u64,
            have: block.len() as u64,
        };
        return Err(place.corrupt(kind));
    }
    let (raw, _) = RawDxCountLimit::read_from_prefix(&block[offset..])
        // OK: just checked.
        .expect("a block longer than its first entry");
    Ok((usize::from(raw.limit.get()), usize::from(raw.count.get())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structure;
    use proptest::prelude::*;

    const PLACE: Place = Place::new(Structure::HtreeNode).ino(2);
    const EXPECT: Expect = Expect {
        blocks: 1000,
        checksum: true,
        large_dir: false,
    };

    fn root(entries: &[(u32, u32)]) -> Vec<u8> {
        let mut block = vec![0; 1024];
        let limit = u16::try_from(NodeEntries::root_limit(1024, true)).unwrap();
        let entries = NodeEntries {
            entries: entries.to_vec(),
            limit,
        };
        Root::encode(HashVersion::HalfMd4, 1, &entries, &mut block);
        block
    }

    fn node(entries: &[(u32, u32)]) -> Vec<u8> {
        let mut block = vec![0; 1024];
        block[4..6].copy_from_slice(&1024u16.to_le_bytes());
        let limit = u16::try_from(NodeEntries::node_limit(1024, true)).unwrap();
        NodeEntries {
            entries: entries.to_vec(),
            limit,
        }
        .encode(&mut block);
        block
    }

    #[test]
    fn a_search_ends_at_the_last_entry_not_above() {
        let block = node(&[(0, 1), (100, 2), (200, 3), (201, 4), (300, 5)]);
        let node = HtreeNode::decode(&block, &EXPECT, PLACE).unwrap();
        for (major, want) in [
            (0, 0),
            (98, 0),
            (100, 1),
            (102, 1),
            (200, 2),
            (202, 3),
            (300, 4),
            (u32::MAX - 1, 4),
        ] {
            assert_eq!(node.find(major), want, "hash {major}");
        }
        // The names of hash 200 continue in block 4, and nowhere else.
        assert!(node.continues(3, 200));
        assert!(!node.continues(4, 200) && !node.continues(3, 198) && !node.continues(5, 300));
        assert_eq!((node.limit(), node.block(2), node.hash(0)), (126, 3, 0));
    }

    #[test]
    fn every_broken_rule_has_its_kind() {
        let good = root(&[(0, 1), (100, 2)]);
        let broken = |at: usize, bytes: &[u8]| {
            let mut block = good.clone();
            block[at..at + bytes.len()].copy_from_slice(bytes);
            let corrupt = Root::decode(&block, &EXPECT, PLACE)
                .map(|_| ())
                .expect_err("a broken block");
            (corrupt.kind, corrupt.place.offset)
        };
        let field = |field, value| CorruptKind::Field { field, value };
        assert_eq!(broken(24, &[1]), (field("reserved_zero", 1), Some(24)));
        assert_eq!(broken(28, &[7]), (field("hash_version", 7), Some(24)));
        assert_eq!(broken(29, &[9]), (field("info_length", 9), Some(24)));
        assert_eq!(broken(30, &[2]), (field("indirect_levels", 2), Some(24)));
        assert_eq!(broken(31, &[1]), (field("unused_flags", 1), Some(24)));
        assert_eq!(broken(32, &[124]), (field("limit", 124), Some(32)));
        assert_eq!(broken(34, &[0]), (field("count", 0), Some(32)));
        assert_eq!(broken(34, &[124]), (field("count", 124), Some(32)));
        assert_eq!(broken(36, &[0]), (field("dx_entry.block", 0), Some(32)));
        assert_eq!(
            broken(44, &[0xE8, 3]),
            (field("dx_entry.block", 1000), Some(40))
        );
        assert_eq!(broken(34, &[3]), (field("dx_entry.block", 0), Some(48)));
        let descending = root(&[(0, 1), (100, 2), (99, 3)]);
        let corrupt = Root::decode(&descending, &EXPECT, PLACE).unwrap_err();
        assert_eq!(
            corrupt.kind,
            CorruptKind::Order {
                what: "hash tree entries"
            }
        );
        let large = Expect {
            large_dir: true,
            ..EXPECT
        };
        let mut deep = good.clone();
        deep[30] = 2;
        assert_eq!(Root::decode(&deep, &large, PLACE).unwrap().levels, 2);
        assert!(
            HtreeNode::decode(&good, &EXPECT, PLACE).is_err(),
            "a root is no interior node"
        );
        // Four bits above the block's number are reserved.
        let mut reserved = good.clone();
        reserved[39] = 0xF0;
        assert_eq!(
            Root::decode(&reserved, &EXPECT, PLACE)
                .unwrap()
                .node
                .block(0),
            1
        );
    }

    #[test]
    fn a_checksum_covers_the_entries_in_use() {
        let seed = ChecksumSeed::new(3);
        for (is_root, mut block) in [
            (true, root(&[(0, 1), (100, 2)])),
            (false, node(&[(0, 1), (100, 2)])),
        ] {
            store_checksum(&mut block, is_root, seed, PLACE).unwrap();
            verify_checksum(&block, is_root, seed, PLACE).unwrap();
            let used = entries_offset(is_root) + 2 * ENTRY_SIZE;
            let tail = block.len() - TAIL_SIZE;
            for bit in (0..used * 8).chain(tail * 8..block.len() * 8) {
                let mut flipped = block.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    verify_checksum(&flipped, is_root, seed, PLACE).is_err(),
                    "bit {bit}"
                );
            }
            block[used] ^= 1;
            verify_checksum(&block, is_root, seed, PLACE).unwrap();
        }
    }

    proptest! {
        #[test]
        fn nodes_come_back(
            mut hashes in proptest::collection::vec(any::<u32>(), 0..122),
            blocks in proptest::collection::vec(1u32..1000, 123),
            probe: u32,
        ) {
            hashes.sort_unstable();
            let entries: Vec<_> = [0].into_iter().chain(hashes).zip(blocks).collect();
            let bytes = root(&entries);
            let read = Root::decode(&bytes, &EXPECT, PLACE).unwrap();
            prop_assert!(read.node.iter().eq(entries.iter().copied()));
            let mut again = bytes.clone();
            Root::encode(read.hash_version, read.levels, &read.node.to_owned(), &mut again);
            prop_assert_eq!(&again, &bytes);
            let want = entries.iter().skip(1).take_while(|(hash, _)| *hash <= probe).count();
            prop_assert_eq!(read.node.find(probe), want);
        }

        #[test]
        fn damaged_nodes_are_read_or_refused(
            entries in proptest::collection::vec((any::<u32>(), 1u32..1000), 1..120),
            damage in proptest::collection::vec((0usize..1024, any::<u8>()), 1..4),
            is_root: bool,
        ) {
            let mut bytes = if is_root { root(&entries) } else { node(&entries) };
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            let _ = verify_checksum(&bytes, is_root, ChecksumSeed::new(0), PLACE);
            let read = if is_root { Root::decode(&bytes, &EXPECT, PLACE).map(|root| root.node) } else { HtreeNode::decode(&bytes, &EXPECT, PLACE) };
            let seen = if is_root { Root::peek(&bytes, &EXPECT, PLACE).map(|root| root.node) } else { HtreeNode::peek(&bytes, &EXPECT, PLACE) };
            if let Ok(node) = &read {
                prop_assert!(node.iter().all(|(_, block)| (1..1000).contains(&block)));
                prop_assert!(node.find(u32::MAX) < node.len());
                prop_assert!(seen.as_ref().is_ok_and(|seen| seen.iter().eq(node.iter())));
            }
            if let Ok(seen) = seen {
                prop_assert!(seen.find(u32::MAX) < seen.len(), "in bounds, whatever it is");
                let of_entries = |kind| match kind {
                    CorruptKind::Field { field, .. } => field == "dx_entry.block",
                    kind => matches!(kind, CorruptKind::Order { .. }),
                };
                prop_assert!(read.is_ok() || read.is_err_and(|corrupt| of_entries(corrupt.kind)));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100), is_root: bool) {
            let _ = verify_checksum(&bytes, is_root, ChecksumSeed::new(0), PLACE);
            let _ = (Root::decode(&bytes, &EXPECT, PLACE).is_ok(), HtreeNode::decode(&bytes, &EXPECT, PLACE).is_ok());
        }
    }
}
