//! Fast commits: small changes, logged by their result.
//!
//! `jbd2` collects the valid commits at recovery, and `ext4` applies their records. The [`Scanner`]
//! stops at the first commit that is stale, incomplete or has a wrong checksum.
//!
//! The last blocks of a journal with the `fast_commit` feature hold the fast commits made since the
//! last full one, in their order. Each is a list of tag-length-value [`Record`]s that ends with a
//! [`Record::Tail`], whose checksum makes it valid. The first begins with a [`Record::Head`]. Every
//! commit starts at a new block, and a record never crosses the end of a block:
//!
//! ```text
//! | HEAD INODE ADD_RANGE CREAT ... TAIL........ | UNLINK INODE ... PAD... | INODE TAIL........ |
//! ```
//!
//! A record states a result ("this name is inode 12"), not a step, so applying one twice does no
//! harm. All valid records belong to one transaction: the next one after the full commits of the
//! log. All others are stale.
//!
//! Unlike the rest of the journal, numbers are little-endian. Source: "Fast commits" in the
//! kernel's ext4 documentation. The codes, the layouts and the coverage of the checksum come from
//! areas that the kernel wrote. So does the output of debugfs' `logdump` for these areas.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::corrupt::{Corrupt, CorruptKind, Place};
use crate::journal::Tid;

/// `struct ext4_fc_tl` as it is on the disk: the beginning of every record.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawTagLength {
    pub fc_tag: U16,
    /// Bytes that follow.
    pub fc_len: U16,
}

/// `struct ext4_fc_head` as it is on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawHead {
    pub fc_features: U32,
    pub fc_tid: U32,
}

/// `struct ext4_fc_add_range` as it is on the disk, its extent taken apart.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawAddRange {
    pub fc_ino: U32,
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}

/// `struct ext4_fc_del_range` as it is on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawDelRange {
    pub fc_ino: U32,
    pub fc_lblk: U32,
    pub fc_len: U32,
}

/// `struct ext4_fc_dentry_info` as it is on the disk. The name follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawDentryInfo {
    pub fc_parent_ino: U32,
    pub fc_ino: U32,
}

/// `struct ext4_fc_tail` as it is on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawTail {
    pub fc_tid: U32,
    pub fc_crc: U32,
}

const _: () = assert!(size_of::<RawTagLength>() == 4);
const _: () = assert!(size_of::<RawHead>() == 8);
const _: () = assert!(size_of::<RawAddRange>() == 16);
const _: () = assert!(size_of::<RawDelRange>() == 12);
const _: () = assert!(size_of::<RawDentryInfo>() == 8);
const _: () = assert!(size_of::<RawTail>() == 8);

/// The codes of the records.
mod tag {
    pub(super) const ADD_RANGE: u16 = 1;
    pub(super) const DEL_RANGE: u16 = 2;
    pub(super) const CREAT: u16 = 3;
    pub(super) const LINK: u16 = 4;
    pub(super) const UNLINK: u16 = 5;
    pub(super) const INODE: u16 = 6;
    pub(super) const PAD: u16 = 7;
    pub(super) const TAIL: u16 = 8;
    pub(super) const HEAD: u16 = 9;
}

/// The longest initialized extent. A longer `ee_len` is an unwritten extent, whose length is the
/// excess.
const MAX_INITIALIZED: u16 = 1 << 15;

/// The part of an inode that every inode has, in bytes.
const MIN_INODE: usize = 128;

/// A directory entry that a fast commit names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dentry {
    /// The inode number of the directory.
    pub parent: u32,
    /// The inode that the entry is for.
    pub ino: u32,
    /// The entry's name: 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// Blocks of a file that a fast commit maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first block, counted in the file.
    pub logical: u32,
    /// Number of blocks, at least 1.
    pub len: u16,
    /// The block of the volume that the first one is mapped to.
    pub physical: u64,
    /// Whether the blocks are allocated, but read as zeroes.
    pub unwritten: bool,
}

/// One record of a fast commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The beginning of the area.
    Head {
        /// Features needed to understand the area; none is defined.
        features: u32,
        /// The transaction that the area belongs to.
        tid: Tid,
    },
    /// Blocks of the file map to these, whatever they mapped to before.
    AddRange {
        /// The file.
        ino: u32,
        /// The mapping.
        range: Range,
    },
    /// Blocks of the file are not mapped.
    DelRange {
        /// The file.
        ino: u32,
        /// The first block, counted in the file.
        logical: u32,
        /// Number of blocks.
        len: u32,
    },
    /// The entry exists, and its inode is new.
    Create(Dentry),
    /// The entry exists.
    Link(Dentry),
    /// The entry does not exist.
    Unlink(Dentry),
    /// The inode, as it is on the disk except for its block map.
    Inode {
        /// Its number.
        ino: u32,
        /// The inode's first bytes, at least 128; the bytes after them are unchanged.
        raw: Vec<u8>,
    },
    /// Padding to the end of a block.
    Pad,
    /// The end of a commit; fills the block.
    Tail {
        /// The transaction that the commit goes with.
        tid: Tid,
        /// The checksum of the commit up to this field.
        checksum: u32,
    },
}

impl Record {
    /// Decodes the record at the start of `bytes`, which end where the block ends. Also returns the
    /// record's size in bytes.
    ///
    /// # Errors
    /// If the block is no such block, or one of its numbers is impossible.
    pub fn decode(bytes: &[u8], at: Place) -> Result<(Self, usize), Corrupt> {
        let short = |need: usize| {
            let wide = |n| u64::try_from(n).unwrap_or(u64::MAX);
            at.corrupt(CorruptKind::Truncated {
                need: wide(need),
                have: wide(bytes.len()),
            })
        };
        let header = size_of::<RawTagLength>();
        let (raw, rest) = RawTagLength::ref_from_prefix(bytes).map_err(|_| short(header))?;
        let code = raw.fc_tag.get();
        let len = usize::from(raw.fc_len.get());
        let value = rest.get(..len).ok_or_else(|| short(header + len))?;
        // Values of heads, pads and tails may be longer than their fields; pads and tails fill
        // their block.
        let odd = || {
            at.corrupt(CorruptKind::Field {
                field: "fc_len",
                value: raw.fc_len.get().into(),
            })
        };
        let record = match code {
            tag::HEAD => Self::head(RawHead::ref_from_prefix(value).map_err(|_| odd())?.0),
            tag::TAIL => Self::tail(RawTail::ref_from_prefix(value).map_err(|_| odd())?.0),
            tag::ADD_RANGE => {
                Self::add_range(RawAddRange::ref_from_bytes(value).map_err(|_| odd())?, at)?
            }
            tag::DEL_RANGE => {
                Self::del_range(RawDelRange::ref_from_bytes(value).map_err(|_| odd())?)
            }
            tag::CREAT => Self::Create(Dentry::decode(value).ok_or_else(odd)?),
            tag::LINK => Self::Link(Dentry::decode(value).ok_or_else(odd)?),
            tag::UNLINK => Self::Unlink(Dentry::decode(value).ok_or_else(odd)?),
            tag::INODE => Self::inode(value).ok_or_else(odd)?,
            tag::PAD => Self::Pad,
            _ => {
                return Err(at.corrupt(CorruptKind::Field {
                    field: "fc_tag",
                    value: code.into(),
                }));
            }
        };
        Ok((record, header + len))
    }

    fn head(raw: &RawHead) -> Self {
        Self::Head {
            features: raw.fc_features.get(),
            tid: Tid(raw.fc_tid.get()),
        }
    }

    fn tail(raw: &RawTail) -> Self {
        Self::Tail {
            tid: Tid(raw.fc_tid.get()),
            checksum: raw.fc_crc.get(),
        }
    }

    fn add_range(raw: &RawAddRange, at: Place) -> Result<Self, Corrupt> {
        let raw_len = raw.ee_len.get();
        let unwritten = raw_len > MAX_INITIALIZED;
        let len = if unwritten {
            raw_len - MAX_INITIALIZED
        } else {
            raw_len
        };
        let logical = raw.ee_block.get();
        if len == 0 || logical.checked_add(u32::from(len) - 1).is_none() {
            return Err(at.corrupt(CorruptKind::Field {
                field: "ee_len",
                value: raw_len.into(),
            }));
        }
        let physical = u64::from(raw.ee_start_hi.get()) << 32 | u64::from(raw.ee_start_lo.get());
        Ok(Self::AddRange {
            ino: raw.fc_ino.get(),
            range: Range {
                logical,
                len,
                physical,
                unwritten,
            },
        })
    }

    fn del_range(raw: &RawDelRange) -> Self {
        Self::DelRange {
            ino: raw.fc_ino.get(),
            logical: raw.fc_lblk.get(),
            len: raw.fc_len.get(),
        }
    }

    fn inode(value: &[u8]) -> Option<Self> {
        let (ino, raw) = U32::ref_from_prefix(value).ok()?;
        (raw.len() >= MIN_INODE).then(|| Self::Inode {
            ino: ino.get(),
            raw: raw.to_vec(),
        })
    }

    /// Returns the record as it is on the disk. A pad or tail takes `fill` bytes in all, to the end
    /// of its block; other records have their own length. `None` if the record does not fit into
    /// its length.
    pub fn encode(&self, fill: usize) -> Option<Vec<u8>> {
        let (code, mut value) = match self {
            Self::Head { features, tid } => {
                let raw = RawHead {
                    fc_features: (*features).into(),
                    fc_tid: tid.0.into(),
                };
                (tag::HEAD, raw.as_bytes().to_vec())
            }
            Self::AddRange { ino, range } => {
                (tag::ADD_RANGE, range.encode(*ino)?.as_bytes().to_vec())
            }
            Self::DelRange { ino, logical, len } => {
                let raw = RawDelRange {
                    fc_ino: (*ino).into(),
                    fc_lblk: (*logical).into(),
                    fc_len: (*len).into(),
                };
                (tag::DEL_RANGE, raw.as_bytes().to_vec())
            }
            Self::Create(dentry) => (tag::CREAT, dentry.encode()),
            Self::Link(dentry) => (tag::LINK, dentry.encode()),
            Self::Unlink(dentry) => (tag::UNLINK, dentry.encode()),
            Self::Inode { ino, raw } => (tag::INODE, [&ino.to_le_bytes()[..], raw].concat()),
            Self::Pad => (tag::PAD, Vec::new()),
            Self::Tail { tid, checksum } => {
                let raw = RawTail {
                    fc_tid: tid.0.into(),
                    fc_crc: (*checksum).into(),
                };
                (tag::TAIL, raw.as_bytes().to_vec())
            }
        };
        let header = size_of::<RawTagLength>();
        if matches!(self, Self::Pad | Self::Tail { .. }) {
            let len = fill.checked_sub(header).filter(|&len| len >= value.len())?;
            value.resize(len, 0);
        }
        let raw = RawTagLength {
            fc_tag: code.into(),
            fc_len: u16::try_from(value.len()).ok()?.into(),
        };
        Some([raw.as_bytes(), &value].concat())
    }
}

impl Dentry {
    fn decode(value: &[u8]) -> Option<Self> {
        let (raw, name) = RawDentryInfo::ref_from_prefix(value).ok()?;
        let sound = (1..=255).contains(&name.len());
        sound.then(|| Self {
            parent: raw.fc_parent_ino.get(),
            ino: raw.fc_ino.get(),
            name: name.to_vec(),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let raw = RawDentryInfo {
            fc_parent_ino: self.parent.into(),
            fc_ino: self.ino.into(),
        };
        [raw.as_bytes(), &self.name].concat()
    }
}

impl Range {
    fn encode(&self, ino: u32) -> Option<RawAddRange> {
        let more = if self.unwritten { MAX_INITIALIZED } else { 0 };
        Some(RawAddRange {
            fc_ino: ino.into(),
            ee_block: self.logical.into(),
            ee_len: self.len.checked_add(more)?.into(),
            ee_start_hi: u16::try_from(self.physical >> 32).ok()?.into(),
            ee_start_lo: u32::try_from(self.physical & 0xFFFF_FFFF).ok()?.into(),
        })
    }
}

/// The reasons why the records of an area cannot be used at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The first commit is whole, but its checksum is wrong.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The area needs features that this crate does not know.
    #[error("unknown features {0:#x} in the fast commit area")]
    Features(u32),
}

/// Reads an area block by block and keeps the records of the commits that are valid.
///
/// Its memory is in proportion to the bytes that [`feed`](Self::feed) gets.
#[derive(Debug)]
pub struct Scanner {
    tid: Tid,
    /// Records of valid commits, without their heads, tails and pads.
    commits: Vec<Vec<Record>>,
    /// Records of the commit whose tail has not come yet.
    open: Vec<Record>,
    /// The checksum of the commit so far.
    checksum: u32,
    begun: bool,
    unusable: Option<Unusable>,
}

impl Scanner {
    /// Starts at the beginning of an area, to find the commits of transaction `tid`.
    pub const fn new(tid: Tid) -> Self {
        Self {
            tid,
            commits: Vec::new(),
            open: Vec::new(),
            checksum: 0,
            begun: false,
            unusable: None,
        }
    }

    /// Reads the next block of the area. Returns false if no valid commit can follow, so that the
    /// caller need not read the rest. This is so after bytes that are no record, and after a commit
    /// that is stale or torn.
    pub fn feed(&mut self, block: &[u8], at: Place) -> bool {
        let mut offset = 0;
        while block.len() - offset >= size_of::<RawTagLength>() {
            let here = at.offset(u32::try_from(offset).unwrap_or(u32::MAX));
            let Ok((record, size)) = Record::decode(&block[offset..], here) else {
                return false;
            };
            if !self.accept(record, &block[offset..offset + size], here) {
                return false;
            }
            offset += size;
        }
        true
    }

    /// Processes one record, which is `bytes` on the disk. Returns false if the area ends with it.
    fn accept(&mut self, record: Record, bytes: &[u8], at: Place) -> bool {
        match record {
            Record::Head { features, tid } => {
                if features != 0 {
                    self.unusable = self.unusable.or(Some(Unusable::Features(features)));
                    return false;
                }
                self.begun = true;
                if tid != self.tid {
                    return false;
                }
            }
            // Without a head, these records are left over from an older area.
            _ if !self.begun => return false,
            Record::Tail { tid, checksum } => return self.end_commit(tid, checksum, bytes, at),
            Record::Pad => {}
            record => self.open.push(record),
        }
        self.checksum = crc32c(self.checksum, bytes);
        true
    }

    fn end_commit(&mut self, tid: Tid, stored: u32, bytes: &[u8], at: Place) -> bool {
        let covered = size_of::<RawTagLength>() + size_of::<U32>();
        let computed = crc32c(self.checksum, &bytes[..covered]);
        if tid != self.tid || stored != computed {
            // A later commit may be torn: the crash interrupted it. A torn first commit makes the
            // whole recovery fail, as in the kernel and in e2fsck.
            if tid == self.tid && self.commits.is_empty() {
                let corrupt = at.corrupt(CorruptKind::Checksum { stored, computed });
                self.unusable = self.unusable.or(Some(corrupt.into()));
            }
            return false;
        }
        self.commits.push(std::mem::take(&mut self.open));
        self.checksum = 0;
        true
    }

    /// Returns the valid commits.
    ///
    /// # Errors
    /// If the records have a feature that is not known, so that none may be used.
    pub fn finish(self) -> Result<FastCommits, Unusable> {
        match self.unusable {
            Some(unusable) => Err(unusable),
            None => Ok(FastCommits {
                tid: self.tid,
                commits: self.commits,
            }),
        }
    }
}

/// The fast commits after the last full one, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastCommits {
    /// The transaction that the commits go with.
    pub tid: Tid,
    /// The records of each commit, without heads, pads and tails.
    pub commits: Vec<Vec<Record>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corrupt::Structure;

    const AT: Place = Place::new(Structure::FastCommit);
    const BLOCK: usize = 1024;

    fn dentry(name: &[u8]) -> Dentry {
        Dentry {
            parent: 12,
            ino: 14,
            name: name.to_vec(),
        }
    }

    fn range(len: u16, unwritten: bool) -> Range {
        Range {
            logical: 7,
            len,
            physical: 0x1_2345_6789,
            unwritten,
        }
    }

    fn samples() -> Vec<Record> {
        vec![
            Record::Head {
                features: 0,
                tid: Tid(3),
            },
            Record::Inode {
                ino: 14,
                raw: vec![5; 160],
            },
            Record::AddRange {
                ino: 14,
                range: range(1 << 15, false),
            },
            Record::AddRange {
                ino: 14,
                range: range((1 << 15) - 1, true),
            },
            Record::DelRange {
                ino: 14,
                logical: 0x8000_0001,
                len: 0x7FFF_FFFE,
            },
            Record::Create(dentry(b"new1")),
            Record::Link(dentry(&[0xFF; 255])),
            Record::Unlink(dentry(b"x")),
        ]
    }

    /// Returns one commit in one block.
    fn commit(records: &[Record], tid: Tid) -> Vec<u8> {
        let mut block: Vec<u8> = records
            .iter()
            .flat_map(|record| record.encode(0).expect("it fits"))
            .collect();
        let mut tail = Record::Tail { tid, checksum: 0 }
            .encode(BLOCK - block.len())
            .expect("it fits");
        let checksum = crc32c(crc32c(0, &block), &tail[..8]);
        tail[8..12].copy_from_slice(&checksum.to_le_bytes());
        block.extend(tail);
        block
    }

    fn scan(blocks: &[Vec<u8>]) -> Result<FastCommits, Unusable> {
        let mut scanner = Scanner::new(Tid(3));
        let _ = blocks.iter().all(|block| scanner.feed(block, AT));
        scanner.finish()
    }

    #[test]
    fn every_record_round_trips() {
        let mut records = samples();
        records.push(Record::Pad);
        records.push(Record::Tail {
            tid: Tid(3),
            checksum: 0xDEAD_BEEF,
        });
        for record in records {
            let bytes = record.encode(100).expect("it fits");
            assert_eq!(Record::decode(&bytes, AT), Ok((record, bytes.len())));
            let cut = Record::decode(&bytes[..bytes.len() - 1], AT).map_err(|corrupt| corrupt.kind);
            assert!(matches!(cut, Err(CorruptKind::Truncated { .. })), "{cut:?}");
        }
    }

    #[test]
    fn real_bytes_decode() {
        // Observed on a volume written by the kernel, as debugfs logdump prints them.
        let cases: [(&str, Record); 4] = [
            (
                "09000800 00000000 03000000",
                Record::Head {
                    features: 0,
                    tid: Tid(3),
                },
            ),
            (
                "01001000 0e000000 00000000 1900 0000 220c0000",
                Record::AddRange {
                    ino: 14,
                    range: Range {
                        logical: 0,
                        len: 25,
                        physical: 3106,
                        unwritten: false,
                    },
                },
            ),
            (
                "02000c00 0e000000 02000000 ffffff7f",
                Record::DelRange {
                    ino: 14,
                    logical: 2,
                    len: 0x7FFF_FFFF,
                },
            ),
            (
                "05000900 0c000000 0d000000 61",
                Record::Unlink(Dentry {
                    parent: 12,
                    ino: 13,
                    name: b"a".into(),
                }),
            ),
        ];
        for (hex, record) in cases {
            let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
            let pair =
                |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).expect("ASCII"), 16);
            let bytes: Vec<u8> = digits
                .chunks(2)
                .map(|digits| pair(digits).expect("hex"))
                .collect();
            assert_eq!(Record::decode(&bytes, AT), Ok((record, bytes.len())));
        }
    }

    #[test]
    fn impossible_lengths_and_codes_are_errors() {
        let kind = |bytes: &[u8]| Record::decode(bytes, AT).map_err(|corrupt| corrupt.kind);
        let odd = |value| {
            Err(CorruptKind::Field {
                field: "fc_len",
                value,
            })
        };
        assert_eq!(
            kind(&[
                tag::DEL_RANGE as u8,
                0,
                11,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0
            ]),
            odd(11)
        );
        assert_eq!(
            kind(&[tag::UNLINK as u8, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            odd(8)
        );
        assert_eq!(kind(&[tag::TAIL as u8, 0, 4, 0, 0, 0, 0, 0]), odd(4));
        assert_eq!(
            kind(&[10, 0, 0, 0]),
            Err(CorruptKind::Field {
                field: "fc_tag",
                value: 10
            })
        );
        let mut long = vec![tag::LINK as u8, 0, 8, 1];
        long.resize(4 + 264, 0);
        assert_eq!(kind(&long), odd(264));
        let mut empty = Record::AddRange {
            ino: 1,
            range: range(1, false),
        }
        .encode(0)
        .expect("it fits");
        empty[12] = 0;
        assert_eq!(
            kind(&empty),
            Err(CorruptKind::Field {
                field: "ee_len",
                value: 0
            })
        );
    }

    #[test]
    fn valid_commits_are_kept_up_to_the_first_torn_one() {
        let first = commit(&samples(), Tid(3));
        let second = commit(&samples()[5..6], Tid(3));
        let third = commit(&samples()[6..], Tid(3));
        let all = scan(&[first.clone(), second.clone(), third.clone()]).expect("sound");
        assert_eq!(
            all.commits,
            [&samples()[1..], &samples()[5..6], &samples()[6..]]
        );

        let mut torn = second.clone();
        torn[5] ^= 1;
        let some = scan(&[first.clone(), torn, third.clone()]).expect("sound");
        assert_eq!(some.commits, [&samples()[1..]]);

        let stale = scan(&[first, second, vec![0; BLOCK], third]).expect("sound");
        assert_eq!(stale.commits, all.commits[..2]);
    }

    #[test]
    fn a_commit_may_span_blocks() {
        let mut first: Vec<u8> = samples()
            .iter()
            .flat_map(|record| record.encode(0).expect("it fits"))
            .collect();
        first.extend(Record::Pad.encode(BLOCK - first.len()).expect("it fits"));
        let mut last = Record::Tail {
            tid: Tid(3),
            checksum: 0,
        }
        .encode(BLOCK)
        .expect("it fits");
        let checksum = crc32c(crc32c(0, &first), &last[..8]);
        last[8..12].copy_from_slice(&checksum.to_le_bytes());
        let found = scan(&[first, last]).expect("sound");
        assert_eq!(found.commits, [&samples()[1..]]);
    }

    #[test]
    fn other_transactions_are_stale() {
        let mut records = samples();
        records[0] = Record::Head {
            features: 0,
            tid: Tid(4),
        };
        assert_eq!(
            scan(&[commit(&records, Tid(4))])
                .expect("stale")
                .commits
                .len(),
            0
        );
        assert_eq!(
            scan(&[commit(&samples(), Tid(2))])
                .expect("stale")
                .commits
                .len(),
            0
        );
        assert_eq!(
            scan(&[commit(&samples()[1..], Tid(3))])
                .expect("stale")
                .commits
                .len(),
            0
        );
        assert_eq!(scan(&[vec![0; BLOCK]]).expect("empty").commits.len(), 0);
    }

    #[test]
    fn a_broken_first_commit_and_unknown_features_make_it_unusable() {
        let mut block = commit(&samples(), Tid(3));
        block[30] ^= 1;
        assert!(matches!(scan(&[block]), Err(Unusable::Corrupt(_))));
        let head = Record::Head {
            features: 0x10,
            tid: Tid(3),
        };
        assert_eq!(
            scan(&[commit(&[head], Tid(3))]),
            Err(Unusable::Features(0x10))
        );
    }
}
