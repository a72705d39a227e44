//! Quota files: the usage and the limits of users, groups and projects on the volume.
//!
//! `ext4` keeps the files up to date. Decoding checks each number that leads to another block of
//! the file.
//!
//! A volume with the feature `quota` has a hidden file for each [`Kind`] of quota. The file
//! consists of blocks of 1 KiB, whatever the volume's block size is. Block 0 is a header
//! ([`Info`]). Block 1 is the root of a radix tree over the four bytes of an id, the highest first
//! (`reference`).
//!
//! The last level of the tree points to leaves; a leaf is an array of [`Entry`]s in no order
//! ([`leaf`]). The leaves that have room form a list, and so do the blocks that are not in use.
//!
//! Sources: for the counts and limits, `quotactl(2)`; for the layout, files that `mke2fs`,
//! `tune2fs` and `e2fsck` made, read byte by byte. The fields have their customary names.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corrupt::{Corrupt, CorruptKind, Place};

/// Bytes of a block of a quota file.
pub const BLOCK_SIZE: usize = 1024;
/// The root block of the tree.
pub const ROOT: u32 = 1;
/// Levels of the tree above its leaves.
pub const DEPTH: u32 = 4;
/// Bytes of an entry.
pub const ENTRY_SIZE: usize = size_of::<RawEntry>();

/// The unit of the space limits, in bytes.
pub const SPACE_UNIT: u64 = 1024;

const VERSION: u32 = 1;
/// Bytes of the head of a leaf.
const LEAF_HEAD: usize = size_of::<RawLeafHead>();
/// Entries in a leaf.
const LEAF_ENTRIES: usize = (BLOCK_SIZE - LEAF_HEAD) / ENTRY_SIZE;
const _: () = assert!(ENTRY_SIZE == 72 && LEAF_HEAD == 16 && LEAF_ENTRIES == 14);

/// The kinds of quota: the owners that it counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The quota of a file's owner.
    User,
    /// The quota of a file's group.
    Group,
    /// The quota of a file's project.
    Project,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Returns the reserved inode of the quota file; `None` for projects, whose file has an
    /// ordinary inode.
    pub const fn reserved_inode(self) -> Option<u32> {
        match self {
            Self::User => Some(3),
            Self::Group => Some(4),
            Self::Project => None,
        }
    }

    /// Returns the magic number that a file of this kind begins with.
    const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        })
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInfo {
    dqh_magic: U32,
    dqh_version: U32,
    dqi_bgrace: U32,
    dqi_igrace: U32,
    dqi_flags: U32,
    dqi_blocks: U32,
    dqi_free_blk: U32,
    dqi_free_entry: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLeafHead {
    dqdh_next_free: U32,
    dqdh_prev_free: U32,
    dqdh_entries: U16,
    dqdh_pad1: U16,
    dqdh_pad2: U32,
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct RawEntry {
    dqb_id: U32,
    dqb_pad: U32,
    dqb_ihardlimit: U64,
    dqb_isoftlimit: U64,
    dqb_curinodes: U64,
    dqb_bhardlimit: U64,
    dqb_bsoftlimit: U64,
    dqb_curspace: U64,
    dqb_btime: U64,
    dqb_itime: U64,
}

/// The header of a quota file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Seconds for which the soft limit of space may be exceeded.
    pub space_grace: u32,
    /// Seconds for which the soft limit of inodes may be exceeded.
    pub inode_grace: u32,
    /// Blocks of the file.
    pub blocks: u32,
    /// The first block that is not in use; 0 if there is none.
    pub free_block: u32,
    /// The first leaf that has room; 0 if there is none.
    pub free_leaf: u32,
    flags: u32,
}

impl Info {
    /// Seconds for which a soft limit may be exceeded, unless an administrator says otherwise: a
    /// week.
    const GRACE: u32 = 7 * 24 * 60 * 60;

    /// Returns the header of a new file of this many blocks, all of which are in use. `free_leaf`
    /// is the only leaf that has room; 0 if there is none.
    pub const fn new(blocks: u32, free_leaf: u32) -> Self {
        Self {
            space_grace: Self::GRACE,
            inode_grace: Self::GRACE,
            blocks,
            free_block: 0,
            free_leaf,
            flags: 0,
        }
    }

    /// Validates the first block of a file.
    ///
    /// # Errors
    /// [`CorruptKind::Magic`] for a file of another kind, and the errors of impossible values.
    pub fn decode(block: &[u8], kind: Kind, at: Place) -> Result<Self, Corrupt> {
        let (raw, _) = RawInfo::read_from_prefix(block).map_err(|_| truncated(block, at))?;
        if raw.dqh_magic.get() != kind.magic() {
            return Err(at.corrupt(CorruptKind::Magic {
                found: raw.dqh_magic.get(),
                expected: kind.magic(),
            }));
        }
        if raw.dqh_version.get() != VERSION {
            return Err(field("dqh_version", raw.dqh_version, at));
        }
        let info = Self {
            space_grace: raw.dqi_bgrace.get(),
            inode_grace: raw.dqi_igrace.get(),
            blocks: raw.dqi_blocks.get(),
            free_block: raw.dqi_free_blk.get(),
            free_leaf: raw.dqi_free_entry.get(),
            flags: raw.dqi_flags.get(),
        };
        // A file without a root block is invalid. Offsets in the file are below 2^42: 32 bits of
        // block number, blocks of 1 KiB.
        if info.blocks <= ROOT {
            return Err(field("dqi_blocks", raw.dqi_blocks, at));
        }
        info.check("dqi_free_blk", info.free_block, at)?;
        info.check("dqi_free_entry", info.free_leaf, at)?;
        Ok(info)
    }

    /// Writes the header to the first block of a file.
    ///
    /// # Errors
    /// A block that is too short for it.
    pub fn encode(&self, kind: Kind, block: &mut [u8], at: Place) -> Result<(), Corrupt> {
        let raw = RawInfo {
            dqh_magic: kind.magic().into(),
            dqh_version: VERSION.into(),
            dqi_bgrace: self.space_grace.into(),
            dqi_igrace: self.inode_grace.into(),
            dqi_flags: self.flags.into(),
            dqi_blocks: self.blocks.into(),
            dqi_free_blk: self.free_block.into(),
            dqi_free_entry: self.free_leaf.into(),
        };
        raw.write_to_prefix(block).map_err(|_| truncated(block, at))
    }

    /// Returns the number of a block below the root; `None` for 0, which means no block.
    fn check(&self, name: &'static str, block: u32, at: Place) -> Result<Option<u32>, Corrupt> {
        match block {
            0 => Ok(None),
            block if block > ROOT && block < self.blocks => Ok(Some(block)),
            block => Err(at.corrupt(CorruptKind::BlockOutOfRange {
                field: name,
                block: block.into(),
            })),
        }
    }
}

/// Returns the block of the next level on the way to `id`, given a block of the tree at `level`.
/// The root's level is 0. `None` if the way ends there.
///
/// # Errors
/// A block that is not in the file.
pub fn reference(
    block: &[u8],
    level: u32,
    id: u32,
    info: &Info,
    at: Place,
) -> Result<Option<u32>, Corrupt> {
    let slots = slots(block, at)?;
    info.check("tree reference", slots[slot(level, id)].get(), at)
}

/// Sets the block that `reference` finds to `next`.
///
/// # Errors
/// A block that is too short.
pub fn set_reference(
    block: &mut [u8],
    level: u32,
    id: u32,
    next: u32,
    at: Place,
) -> Result<(), Corrupt> {
    let short = truncated(block, at);
    let (slots, _) = <[U32; BLOCK_SIZE / 4]>::mut_from_prefix(block).map_err(|_| short)?;
    slots[slot(level, id)].set(next);
    Ok(())
}

fn slots(block: &[u8], at: Place) -> Result<&[U32; BLOCK_SIZE / 4], Corrupt> {
    Ok(<[U32; BLOCK_SIZE / 4]>::ref_from_prefix(block)
        .map_err(|_| truncated(block, at))?
        .0)
}

/// Returns the index of the reference to follow among the 256 of a block.
fn slot(level: u32, id: u32) -> usize {
    usize::from(id.to_be_bytes()[(level % DEPTH) as usize])
}

/// Returns the next block in the list of blocks that are not in use; `None` if there is none.
///
/// # Errors
/// A block that is not in the file.
pub fn next_free(block: &[u8], info: &Info, at: Place) -> Result<Option<u32>, Corrupt> {
    info.check(
        "dqdh_next_free",
        leaf_head(block, at)?.dqdh_next_free.get(),
        at,
    )
}

fn leaf_head(block: &[u8], at: Place) -> Result<RawLeafHead, Corrupt> {
    Ok(RawLeafHead::read_from_prefix(block)
        .map_err(|_| truncated(block, at))?
        .0)
}

/// The leaves of the tree.
pub mod leaf {
    use super::*;

    /// The result of inserting an entry into a leaf.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Put {
        /// The byte offset of the entry in the block.
        pub offset: usize,
        /// If the leaf is full now: the leaf that the list of those with room continues with, or 0
        /// if that list ends.
        pub full: Option<u32>,
    }

    /// Returns the byte offset of the entry of `id` in a leaf; `None` if the leaf does not have it.
    ///
    /// # Errors
    /// A block that is too short.
    pub fn find(block: &[u8], id: u32, at: Place) -> Result<Option<usize>, Corrupt> {
        let mut entries = entries(block, at)?;
        let found = entries.find(|(_, bytes)| !is_free(bytes) && bytes[..4] == id.to_le_bytes());
        Ok(found.map(|(offset, _)| offset))
    }

    /// Inserts an entry into the first leaf that has room, or into one that is all zeroes.
    ///
    /// # Errors
    /// A leaf that has no room, or more entries than it should.
    pub fn put(block: &mut [u8], entry: &Entry, info: &Info, at: Place) -> Result<Put, Corrupt> {
        let mut head = leaf_head(block, at)?;
        let free = entries(block, at)?
            .find(|(_, bytes)| is_free(bytes))
            .map(|(offset, _)| offset);
        let used = usize::from(head.dqdh_entries.get());
        let Some(offset) = free.filter(|_| used < LEAF_ENTRIES) else {
            return Err(field("dqdh_entries", U32::from(used as u32), at));
        };
        entry.encode(&mut block[offset..offset + ENTRY_SIZE], at)?;
        // OK: fewer than 14.
        head.dqdh_entries.set(used as u16 + 1);
        let mut full = None;
        if used + 1 == LEAF_ENTRIES {
            let next = info.check("dqdh_next_free", head.dqdh_next_free.get(), at)?;
            full = Some(next.unwrap_or(0));
            (head.dqdh_next_free, head.dqdh_prev_free) = (U32::ZERO, U32::ZERO);
        }
        head.write_to_prefix(block)
            .map_err(|_| at.corrupt(CorruptKind::Order { what: "entries" }))?;
        Ok(Put { offset, full })
    }

    /// Marks a leaf as the first of the leaves that have room.
    ///
    /// # Errors
    /// A block that is too short.
    pub fn become_first(block: &mut [u8], at: Place) -> Result<(), Corrupt> {
        let mut head = leaf_head(block, at)?;
        head.dqdh_prev_free = U32::ZERO;
        head.write_to_prefix(block)
            .map_err(|_| at.corrupt(CorruptKind::Order { what: "entries" }))
    }

    fn entries(block: &[u8], at: Place) -> Result<impl Iterator<Item = (usize, &[u8])>, Corrupt> {
        let body = block
            .get(LEAF_HEAD..BLOCK_SIZE)
            .ok_or_else(|| truncated(block, at))?;
        let offsets = (LEAF_HEAD..).step_by(ENTRY_SIZE);
        Ok(offsets.zip(body.chunks_exact(ENTRY_SIZE)))
    }

    /// Returns whether the place of an entry is free: all its bytes are zero.
    fn is_free(bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| *byte == 0)
    }
}

/// The usage of a resource by one id, and its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The owner's usage, in the unit of the limits.
    pub used: u64,
    /// The limit that usage never exceeds; 0 if there is no limit.
    pub hard: u64,
    /// The limit that usage may exceed for a while only; 0 if there is no limit.
    pub soft: u64,
    /// When usage must be back within the soft limit, in seconds since 1970; 0 while it is within.
    pub until: u64,
}

impl Resource {
    /// Returns whether there is any limit.
    pub const fn is_limited(&self) -> bool {
        self.hard != 0 || self.soft != 0
    }

    fn decode(
        used: U64,
        limits: [U64; 2],
        until: U64,
        unit: u64,
        at: Place,
    ) -> Result<Self, Corrupt> {
        let limit = |limit: U64| {
            let bytes = limit.get().checked_mul(unit);
            bytes.ok_or(at.corrupt(CorruptKind::Field {
                field: "limit of a quota",
                value: limit.get(),
            }))
        };
        let [hard, soft] = limits;
        Ok(Self {
            used: used.get(),
            hard: limit(hard)?,
            soft: limit(soft)?,
            until: until.get(),
        })
    }
}

/// The entry of one id in a quota file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The id of a user, a group or a project.
    pub id: u32,
    /// Bytes. The limits are whole multiples of [`SPACE_UNIT`].
    pub space: Resource,
    /// Usage and limits in inodes.
    pub inodes: Resource,
}

impl Entry {
    /// The inode time written for an entry that is all zeroes, so that its place does not look
    /// free.
    const NOTHING: u64 = 1;

    /// Validates the entry at `offset` of a leaf.
    ///
    /// # Errors
    /// A block that is too short, or a limit that is too large to count in bytes.
    pub fn decode(block: &[u8], offset: usize, at: Place) -> Result<Self, Corrupt> {
        let at = at.byte(offset);
        let bytes = block.get(offset..).unwrap_or_default();
        let (raw, _) = RawEntry::read_from_prefix(bytes).map_err(|_| truncated(block, at))?;
        let space = [raw.dqb_bhardlimit, raw.dqb_bsoftlimit];
        let inodes = [raw.dqb_ihardlimit, raw.dqb_isoftlimit];
        let mut entry = Self {
            id: raw.dqb_id.get(),
            space: Resource::decode(raw.dqb_curspace, space, raw.dqb_btime, SPACE_UNIT, at)?,
            inodes: Resource::decode(raw.dqb_curinodes, inodes, raw.dqb_itime, 1, at)?,
        };
        let nothing = Resource {
            until: Self::NOTHING,
            ..Resource::default()
        };
        if entry
            == (Self {
                inodes: nothing,
                ..Self::default()
            })
        {
            entry.inodes.until = 0;
        }
        Ok(entry)
    }

    /// Writes the entry to its place.
    ///
    /// # Errors
    /// A place that is too short.
    pub fn encode(&self, place: &mut [u8], at: Place) -> Result<(), Corrupt> {
        let until = if *self == Self::default() {
            Self::NOTHING
        } else {
            self.inodes.until
        };
        let raw = RawEntry {
            dqb_id: self.id.into(),
            dqb_pad: U32::ZERO,
            dqb_ihardlimit: self.inodes.hard.into(),
            dqb_isoftlimit: self.inodes.soft.into(),
            dqb_curinodes: self.inodes.used.into(),
            dqb_bhardlimit: (self.space.hard / SPACE_UNIT).into(),
            dqb_bsoftlimit: (self.space.soft / SPACE_UNIT).into(),
            dqb_curspace: self.space.used.into(),
            dqb_btime: self.space.until.into(),
            dqb_itime: until.into(),
        };
        raw.write_to_prefix(place).map_err(|_| truncated(place, at))
    }
}

fn truncated(block: &[u8], at: Place) -> Corrupt {
    at.corrupt(CorruptKind::Truncated {
        need: BLOCK_SIZE as u64,
        have: block.len() as u64,
    })
}

fn field(field: &'static str, value: U32, at: Place) -> Corrupt {
    at.corrupt(CorruptKind::Field {
        field,
        value: value.get().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corrupt::Structure;

    const AT: Place = Place::new(Structure::Quota);

    /// Returns the users' file of a new volume of `mke2fs -b 1024 -O quota`. The superuser has a
    /// root directory of 1 KiB and a `lost+found` of 12 KiB.
    fn real() -> Vec<[u8; BLOCK_SIZE]> {
        let mut blocks = vec![[0; BLOCK_SIZE]; 6];
        blocks[0][..16].copy_from_slice(b"\x11\x1f\xc0\xd9\x01\0\0\0\x80\x3a\x09\0\x80\x3a\x09\0");
        blocks[0][16..32].copy_from_slice(&[0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]);
        for (block, next) in blocks[1..].iter_mut().zip(2..=5) {
            block[0] = next;
        }
        blocks[5][8] = 1;
        blocks[5][0x28] = 2;
        blocks[5][0x41] = 0x34;
        blocks
    }

    #[test]
    fn the_file_of_a_new_volume_is_read() {
        let blocks = real();
        let info = Info::decode(&blocks[0], Kind::User, AT).unwrap();
        let week = 7 * 24 * 60 * 60;
        let want = Info {
            space_grace: week,
            inode_grace: week,
            blocks: 6,
            free_block: 0,
            free_leaf: 5,
            flags: 0,
        };
        assert_eq!(info, want);
        let way = |id| {
            (0..DEPTH).try_fold(ROOT, |block, level| {
                reference(&blocks[block as usize], level, id, &info, AT).unwrap()
            })
        };
        assert_eq!(way(0), Some(5));
        assert_eq!((way(1), way(1 << 24)), (None, None));
        let offset = leaf::find(&blocks[5], 0, AT).unwrap().unwrap();
        let entry = Entry::decode(&blocks[5], offset, AT).unwrap();
        assert_eq!(
            (offset, entry.id, entry.space.used, entry.inodes.used),
            (16, 0, 13 << 10, 2)
        );
        assert!(!entry.space.is_limited() && !entry.inodes.is_limited());
        assert_eq!(leaf::find(&blocks[5], 1, AT).unwrap(), None);
    }

    #[test]
    fn entries_encode_as_they_were_decoded() {
        let blocks = real();
        let mut again = blocks.clone();
        let info = Info::decode(&blocks[0], Kind::User, AT).unwrap();
        again[0][..32].fill(0xff);
        info.encode(Kind::User, &mut again[0], AT).unwrap();
        let entry = Entry::decode(&blocks[5], 16, AT).unwrap();
        again[5][16..88].fill(0xff);
        entry.encode(&mut again[5][16..88], AT).unwrap();
        assert!(again == blocks);
    }

    #[test]
    fn the_header_says_what_it_is_of() {
        let mut block = real()[0];
        let kind = Info::decode(&block, Kind::Group, AT).unwrap_err().kind;
        assert_eq!(
            kind,
            CorruptKind::Magic {
                found: 0xd9c0_1f11,
                expected: 0xd9c0_1927
            }
        );
        block[0x1c] = 6;
        let kind = Info::decode(&block, Kind::User, AT).unwrap_err().kind;
        assert_eq!(
            kind,
            CorruptKind::BlockOutOfRange {
                field: "dqi_free_entry",
                block: 6
            }
        );
        block[4] = 0;
        assert!(Info::decode(&block, Kind::User, AT).is_err());
        assert!(Info::decode(&block[..31], Kind::User, AT).is_err());
    }

    #[test]
    fn a_leaf_takes_fourteen_entries_and_leaves_the_list() {
        let mut blocks = real();
        let info = Info::decode(&blocks[0], Kind::User, AT).unwrap();
        for id in 1..LEAF_ENTRIES as u32 {
            let space = Resource {
                used: 1 << 40,
                hard: 5 << 10,
                soft: 3 << 10,
                until: 7,
            };
            let entry = Entry {
                id: id << 20,
                space,
                inodes: Resource::default(),
            };
            let put = leaf::put(&mut blocks[5], &entry, &info, AT).unwrap();
            assert_eq!(put.full, (id == 13).then_some(0));
            assert_eq!(
                leaf::find(&blocks[5], id << 20, AT).unwrap(),
                Some(put.offset)
            );
            assert_eq!(Entry::decode(&blocks[5], put.offset, AT).unwrap(), entry);
        }
        let one_more = Entry {
            id: 99,
            ..Entry::default()
        };
        assert!(leaf::put(&mut blocks[5], &one_more, &info, AT).is_err());
    }

    #[test]
    fn the_entry_of_the_superuser_stays_one_when_nothing_is_in_it() {
        let mut block = real()[5];
        Entry::default().encode(&mut block[16..88], AT).unwrap();
        assert_eq!(leaf::find(&block, 0, AT).unwrap(), Some(16));
        assert_eq!(Entry::decode(&block, 16, AT).unwrap(), Entry::default());
    }

    #[test]
    fn hostile_bytes_are_errors() {
        let blocks = real();
        let info = Info::decode(&blocks[0], Kind::User, AT).unwrap();
        let mut tree = blocks[1];
        for hostile in [1, 6, u32::MAX] {
            set_reference(&mut tree, 0, 0, hostile, AT).unwrap();
            let kind = reference(&tree, 0, 0, &info, AT).unwrap_err().kind;
            assert_eq!(
                kind,
                CorruptKind::BlockOutOfRange {
                    field: "tree reference",
                    block: hostile.into()
                }
            );
        }
        let hostile = [0xff; BLOCK_SIZE];
        assert!(Info::decode(&hostile, Kind::User, AT).is_err());
        assert!(Entry::decode(&hostile, 16, AT).is_err());
        assert!(leaf::put(&mut hostile.clone(), &Entry::default(), &info, AT).is_err());
        assert!(next_free(&hostile, &info, AT).is_err());
        for len in [0, 15, 87, 1023] {
            assert!(reference(&blocks[1][..len], 0, 0, &info, AT).is_err());
            assert!(leaf::find(&blocks[5][..len], 0, AT).is_err());
            assert!(Entry::decode(&blocks[5][..len.min(87)], 16, AT).is_err());
        }
    }
}
