//! The journal's superblock: the ring's geometry, its features, and where the log begins.
//!
//! `jbd2` decodes it when it opens a journal, and writes it when the log's start changes; `mkfs`
//! and `tune` make new ones. Decoding checks that the numbers agree with each other, so that every
//! block of the ring has a valid number. Bytes without a meaning here stay as they are when it is
//! encoded again.

use core::fmt;
use core::ops::Range;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{BlockHeader, BlockKind, MAGIC, RawBlockHeader, Tid};
use super::format::{ChecksumVersion, Format, truncated};
use crate::checksum::{crc32c, verify};
use crate::corrupt::{Corrupt, CorruptKind, Place};

/// The most file systems that can share an external journal.
pub const MAX_USERS: usize = 48;

/// The fewest blocks that a log has, without the fast commit area.
pub const MIN_LOG_BLOCKS: u32 = 1024;

/// Blocks of the fast commit area if the superblock does not say.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

/// The checksum type that stands for CRC-32C.
const CRC32C: u8 = 4;

/// `journal_superblock_t` as it is on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawJournalSuperblock {
    pub s_header: RawBlockHeader,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [[u8; 16]; MAX_USERS],
}

const SIZE: usize = size_of::<RawJournalSuperblock>();
const _: () = assert!(SIZE == 1024);

bitflags::bitflags! {
    /// Features that an implementation may ignore if it does not know them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Compat: u32 {
        /// Commits carry a checksum of their transaction.
        const CHECKSUM = 0x1;
        const _ = !0;
    }

    /// Features that an implementation must know to replay the journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Incompat: u32 {
        /// There may be revoke blocks.
        const REVOKE = 0x1;
        /// Block numbers have 64 bits.
        const BIT64 = 0x2;
        /// A commit block may reach the disk before the blocks of its transaction.
        const ASYNC_COMMIT = 0x4;
        /// Every block of the log has a checksum, version 2.
        const CSUM_V2 = 0x8;
        /// Every block of the log has a checksum, version 3.
        const CSUM_V3 = 0x10;
        /// The last blocks of the journal are for fast commits.
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }

    /// Features that an implementation must know to write to the journal. None is defined.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct RoCompat: u32 {
        const _ = !0;
    }
}

impl Compat {
    /// The features that this crate knows.
    pub const KNOWN: Self = Self::CHECKSUM;
}

impl Incompat {
    /// The features that this crate knows.
    pub const KNOWN: Self = Self::REVOKE
        .union(Self::BIT64)
        .union(Self::ASYNC_COMMIT)
        .union(Self::CSUM_V2)
        .union(Self::CSUM_V3)
        .union(Self::FAST_COMMIT);
}

impl fmt::Display for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, self.bits(), 'C', &["journal_checksum"])
    }
}

impl fmt::Display for Incompat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            "journal_incompat_revoke",
            "journal_64bit",
            "journal_async_commit",
            "journal_checksum_v2",
            "journal_checksum_v3",
            "fast_commit",
        ];
        write_names(f, self.bits(), 'I', &names)
    }
}

impl fmt::Display for RoCompat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, self.bits(), 'R', &[])
    }
}

/// Writes the names of `bits` as dumpe2fs does: an unknown bit as `FEATURE_I7`.
fn write_names(f: &mut fmt::Formatter<'_>, bits: u32, set: char, names: &[&str]) -> fmt::Result {
    let mut separator = "";
    for bit in (0..32_usize).filter(|bit| bits & (1 << bit) != 0) {
        f.write_str(separator)?;
        match names.get(bit) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "FEATURE_{set}{bit}")?,
        }
        separator = " ";
    }
    Ok(())
}

/// The two forms of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// The form of the first ext3: no features, nothing after `errno`.
    V1,
    /// With features.
    V2,
}

/// The superblock of a journal.
///
/// In a [`Version::V1`] journal, the fields from `compat` on have the values of a journal without
/// features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSuperblock {
    /// The version of the superblock's format.
    pub version: Version,
    /// Size of the journal's blocks, in bytes: a power of two from 1024 to 65536.
    pub block_size: u32,
    /// Blocks of the whole journal, superblock and fast commit area included.
    pub len_blocks: u32,
    /// The first block of the ring.
    pub first: u32,
    /// The oldest transaction of the log; if the log is empty, the next transaction to be written.
    pub sequence: Tid,
    /// The block where the log begins; `None` when it is empty.
    pub start: Option<u32>,
    /// The error that made the file system stop, as the kernel's negative error number; zero if
    /// there was none.
    pub errno: i32,
    /// Features that may be ignored.
    pub compat: Compat,
    /// Features that an implementation must know to replay the journal.
    pub incompat: Incompat,
    /// Features that an implementation may ignore if it only reads.
    pub ro_compat: RoCompat,
    /// The journal's UUID, also the seed of its checksums.
    pub uuid: [u8; 16],
    /// File systems that use this journal, at most [`MAX_USERS`].
    pub users: Vec<[u8; 16]>,
    /// The block after the last one of the log, as the last clean unmount left it; zero if not
    /// recorded.
    pub head: u32,
    fast_commit_blocks: u32,
    raw: Box<Raw>,
}

/// The bytes that a superblock was decoded from. Encoding starts from them, so it keeps the bytes
/// that have no meaning to this crate.
#[derive(Clone, Copy, Debug)]
struct Raw(RawJournalSuperblock);

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes() == other.0.as_bytes()
    }
}

impl Eq for Raw {}

impl JournalSuperblock {
    /// Size on the disk, in bytes.
    pub const SIZE: usize = SIZE;

    /// [`errno`](Self::errno) after a device failed. The log is valid up to the failure.
    pub const EIO: i32 = -5;

    /// [`errno`](Self::errno) after the file system found damage on the volume: `EUCLEAN`, which
    /// the kernel also calls `EFSCORRUPTED`.
    pub const EUCLEAN: i32 = -117;

    /// Returns the superblock of a new journal of `len_blocks` blocks: empty, without features and
    /// users.
    ///
    /// The last `fast_commit_blocks` blocks are for fast commits, if the journal gets that feature
    /// later.
    ///
    /// # Errors
    /// [`CorruptKind::Field`] for sizes that no journal can have.
    pub fn new(
        block_size: u32,
        len_blocks: u32,
        fast_commit_blocks: u32,
        uuid: [u8; 16],
        at: Place,
    ) -> Result<Self, Corrupt> {
        let mut raw = RawJournalSuperblock::new_zeroed();
        raw.s_header = BlockHeader {
            kind: BlockKind::SuperblockV2,
            tid: Tid(0),
        }
        .encode();
        raw.s_blocksize = block_size.into();
        raw.s_maxlen = len_blocks.into();
        raw.s_first = 1.into();
        raw.s_sequence = 1.into();
        raw.s_uuid = uuid;
        raw.s_nr_users = 1.into();
        raw.s_num_fc_blks = fast_commit_blocks.into();
        Self::decode(raw.as_bytes(), at)
    }

    /// Decodes the first 1024 bytes of `bytes`, and checks that their numbers agree with each
    /// other.
    ///
    /// Features that this crate does not know are no error here: a caller that replays the journal
    /// first checks [`JournalSuperblock::unknown_features`]. Unknown features also switch the other
    /// checks off, because they may change what the fields mean.
    ///
    /// # Errors
    /// If the block is no such block, or one of its numbers is impossible.
    pub fn decode(bytes: &[u8], at: Place) -> Result<Self, Corrupt> {
        let (raw, _) = RawJournalSuperblock::ref_from_prefix(bytes)
            .map_err(|_| truncated(SIZE, bytes.len(), at))?;
        let this = Self::from_raw(raw, at)?;
        if this.unknown_features().is_none() {
            this.check_features(at)?;
            this.check_geometry(at)?;
        }
        Ok(this)
    }

    fn from_raw(raw: &RawJournalSuperblock, at: Place) -> Result<Self, Corrupt> {
        let magic = raw.s_header.h_magic.get();
        let version = match BlockHeader::recognise(raw.as_bytes()).map(|header| header.kind) {
            Some(BlockKind::SuperblockV1) => Version::V1,
            Some(BlockKind::SuperblockV2) => Version::V2,
            _ if magic != MAGIC => {
                return Err(at.corrupt(CorruptKind::Magic {
                    found: magic,
                    expected: MAGIC,
                }));
            }
            _ => return Err(field("h_blocktype", raw.s_header.h_blocktype.get(), at)),
        };
        let featured = version == Version::V2;
        let when_featured = |value: U32| if featured { value.get() } else { 0 };
        let users = when_featured(raw.s_nr_users);
        let user_count = usize::try_from(users)
            .ok()
            .filter(|&count| count <= MAX_USERS)
            .ok_or_else(|| field("s_nr_users", users, at))?;
        // The first file system to use an internal journal is not listed, so the list may be all
        // zeroes.
        Ok(Self {
            version,
            block_size: raw.s_blocksize.get(),
            len_blocks: raw.s_maxlen.get(),
            first: raw.s_first.get(),
            sequence: Tid(raw.s_sequence.get()),
            start: Some(raw.s_start.get()).filter(|&start| start != 0),
            errno: i32::from_be_bytes(raw.s_errno.to_bytes()),
            compat: Compat::from_bits_retain(when_featured(raw.s_feature_compat)),
            incompat: Incompat::from_bits_retain(when_featured(raw.s_feature_incompat)),
            ro_compat: RoCompat::from_bits_retain(when_featured(raw.s_feature_ro_compat)),
            uuid: if featured { raw.s_uuid } else { [0; 16] },
            users: raw.s_users[..user_count].to_vec(),
            head: when_featured(raw.s_head),
            fast_commit_blocks: when_featured(raw.s_num_fc_blks),
            raw: Box::new(Raw(*raw)),
        })
    }

    fn check_features(&self, at: Place) -> Result<(), Corrupt> {
        let versions = [
            self.compat.contains(Compat::CHECKSUM),
            self.incompat.contains(Incompat::CSUM_V2),
            self.incompat.contains(Incompat::CSUM_V3),
        ];
        if versions.into_iter().filter(|&set| set).count() > 1 {
            return Err(at.corrupt(CorruptKind::Mismatch {
                what: "more than one kind of checksum at once",
            }));
        }
        if self.format().checksums_blocks() {
            let kind = self.raw.0.s_checksum_type;
            if kind != CRC32C {
                return Err(field("s_checksum_type", kind.into(), at));
            }
            verify(self.raw.0.s_checksum.get(), checksum(&self.raw.0), at)?;
        }
        Ok(())
    }

    fn check_geometry(&self, at: Place) -> Result<(), Corrupt> {
        if !(1024..=65536).contains(&self.block_size) || !self.block_size.is_power_of_two() {
            return Err(field("s_blocksize", self.block_size, at));
        }
        let area = self.fast_commit_area_blocks();
        if self
            .len_blocks
            .checked_sub(area)
            .is_none_or(|log| log < MIN_LOG_BLOCKS)
        {
            let what = if area == 0 {
                "s_maxlen"
            } else {
                "s_num_fc_blks"
            };
            return Err(field(
                what,
                if area == 0 { self.len_blocks } else { area },
                at,
            ));
        }
        if self.first == 0 || self.first >= self.log().end {
            return Err(field("s_first", self.first, at));
        }
        match self.start {
            // No log starts before the ring. The reader has to detect that case: the kernel and
            // e2fsck then take the log for empty.
            Some(start) if start >= self.log().end => Err(field("s_start", start, at)),
            _ => Ok(()),
        }
    }

    /// Returns the names of the features that this crate does not know and that therefore forbid
    /// replaying the journal; `None` if there are none.
    ///
    /// A journal's read-only compatible features count too, unlike a file system's: replay writes.
    pub fn unknown_features(&self) -> Option<String> {
        let incompat = self.incompat.difference(Incompat::KNOWN).to_string();
        let ro_compat = self.ro_compat.to_string();
        let names: Vec<_> = [incompat, ro_compat]
            .into_iter()
            .filter(|names| !names.is_empty())
            .collect();
        if names.is_empty() {
            None
        } else {
            Some(names.join(" "))
        }
    }

    /// Returns the blocks of the ring. After its last block the log continues at its first.
    pub fn log(&self) -> Range<u32> {
        self.first
            ..self
                .len_blocks
                .saturating_sub(self.fast_commit_area_blocks())
    }

    /// Returns the blocks of the fast commit area; empty without the feature.
    ///
    /// In the journals that the kernel writes, one block between the ring and this area belongs to
    /// neither.
    pub fn fast_commits(&self) -> Range<u32> {
        if self.incompat.contains(Incompat::FAST_COMMIT) {
            self.log().end.saturating_add(1).min(self.len_blocks)..self.len_blocks
        } else {
            self.len_blocks..self.len_blocks
        }
    }

    /// Returns the number of blocks kept for fast commits at the end of the journal.
    fn fast_commit_area_blocks(&self) -> u32 {
        match (
            self.incompat.contains(Incompat::FAST_COMMIT),
            self.fast_commit_blocks,
        ) {
            (false, _) => 0,
            (true, 0) => DEFAULT_FAST_COMMIT_BLOCKS,
            (true, blocks) => blocks,
        }
    }

    /// Returns the layout of the log's blocks.
    pub fn format(&self) -> Format {
        let checksum = if self.incompat.contains(Incompat::CSUM_V3) {
            ChecksumVersion::V3
        } else if self.incompat.contains(Incompat::CSUM_V2) {
            ChecksumVersion::V2
        } else if self.compat.contains(Compat::CHECKSUM) {
            ChecksumVersion::V1
        } else {
            ChecksumVersion::None
        };
        Format {
            block_size: usize::try_from(self.block_size).unwrap_or(usize::MAX),
            checksum,
            wide: self.incompat.contains(Incompat::BIT64),
            seed: crc32c(!0, &self.uuid),
        }
    }

    /// Sets the checksum version of the log. The log must be empty. A [`Version::V1`] journal has
    /// no features and stays unchanged.
    pub fn set_checksum(&mut self, checksum: ChecksumVersion) {
        if self.version == Version::V1 {
            return;
        }
        self.compat
            .set(Compat::CHECKSUM, checksum == ChecksumVersion::V1);
        self.incompat
            .set(Incompat::CSUM_V2, checksum == ChecksumVersion::V2);
        self.incompat
            .set(Incompat::CSUM_V3, checksum == ChecksumVersion::V3);
        self.raw.0.s_checksum_type = if self.format().checksums_blocks() {
            CRC32C
        } else {
            0
        };
    }

    /// Returns the superblock as it is on the disk, with a computed checksum if the journal has
    /// one. Bytes that have no meaning to this crate stay as decoded.
    pub fn encode(&self) -> RawJournalSuperblock {
        let mut raw = self.raw.0;
        raw.s_blocksize = self.block_size.into();
        raw.s_maxlen = self.len_blocks.into();
        raw.s_first = self.first.into();
        raw.s_sequence = self.sequence.0.into();
        raw.s_start = self.start.unwrap_or(0).into();
        raw.s_errno = U32::from_bytes(self.errno.to_be_bytes());
        if self.version == Version::V2 {
            raw.s_feature_compat = self.compat.bits().into();
            raw.s_feature_incompat = self.incompat.bits().into();
            raw.s_feature_ro_compat = self.ro_compat.bits().into();
            raw.s_uuid = self.uuid;
            raw.s_nr_users = u32::try_from(self.users.len()).unwrap_or(u32::MAX).into();
            for (place, user) in raw.s_users.iter_mut().zip(&self.users) {
                *place = *user;
            }
            raw.s_num_fc_blks = self.fast_commit_blocks.into();
            raw.s_head = self.head.into();
            if self.format().checksums_blocks() {
                raw.s_checksum = checksum(&raw).into();
            }
        }
        raw
    }
}

/// Returns the checksum of a whole superblock, with its checksum field taken as zeroes. Unlike in
/// the log, the seed is all ones.
fn checksum(raw: &RawJournalSuperblock) -> u32 {
    crc32c(
        !0,
        RawJournalSuperblock {
            s_checksum: U32::ZERO,
            ..*raw
        }
        .as_bytes(),
    )
}

fn field(field: &'static str, value: u32, at: Place) -> Corrupt {
    at.corrupt(CorruptKind::Field {
        field,
        value: value.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corrupt::Structure;

    const AT: Place = Place::new(Structure::JournalSuperblock);

    /// Returns the superblock that mke2fs 1.47 writes for `-t ext4 -O fast_commit -b 4096` and a
    /// volume of 64 MiB, once mounted.
    fn sample() -> RawJournalSuperblock {
        let mut raw = RawJournalSuperblock::read_from_bytes(&[0; SIZE]).expect("the size");
        raw.s_header = BlockHeader {
            kind: BlockKind::SuperblockV2,
            tid: Tid(0),
        }
        .encode();
        raw.s_blocksize = 4096.into();
        raw.s_maxlen = 0x410.into();
        raw.s_first = 1.into();
        raw.s_sequence = 2.into();
        raw.s_start = 1.into();
        raw.s_feature_incompat = 0x32.into();
        raw.s_uuid = 0x097f_6a1b_4dd7_4e20_8506_4f94_1e0c_4471_u128.to_be_bytes();
        raw.s_nr_users = 1.into();
        raw.s_checksum_type = CRC32C;
        raw.s_num_fc_blks = 16.into();
        raw.s_checksum = 0x1484_1f80.into();
        raw
    }

    fn decode(raw: &RawJournalSuperblock) -> Result<JournalSuperblock, CorruptKind> {
        JournalSuperblock::decode(raw.as_bytes(), AT).map_err(|corrupt| corrupt.kind)
    }

    /// Decodes the sample without checksums after `change`.
    fn changed(
        change: impl FnOnce(&mut RawJournalSuperblock),
    ) -> Result<JournalSuperblock, CorruptKind> {
        let mut raw = sample();
        raw.s_feature_incompat = 0x22.into();
        change(&mut raw);
        decode(&raw)
    }

    #[test]
    fn a_real_superblock_decodes_and_round_trips() {
        let sb = decode(&sample()).expect("sound");
        assert_eq!(
            (sb.version, sb.block_size, sb.len_blocks),
            (Version::V2, 4096, 1040)
        );
        assert_eq!((sb.sequence, sb.start), (Tid(2), Some(1)));
        assert_eq!((sb.log(), sb.fast_commits()), (1..1024, 1025..1040));
        assert_eq!(
            sb.incompat.to_string(),
            "journal_64bit journal_checksum_v3 fast_commit"
        );
        assert_eq!(sb.format().tag_size(), 16);
        assert_eq!(sb.encode().as_bytes(), sample().as_bytes());
    }

    #[test]
    fn meaningless_bytes_survive() {
        let sb = changed(|raw| {
            raw.s_padding[7] = 99.into();
            raw.s_users[40] = [3; 16];
            raw.s_dynsuper = 5.into();
        })
        .expect("sound");
        let again = JournalSuperblock::decode(sb.encode().as_bytes(), AT).expect("sound");
        assert_eq!(again, sb);
        assert_eq!(sb.encode().s_padding[7].get(), 99);
    }

    #[test]
    fn version_1_has_no_features() {
        let sb = changed(|raw| raw.s_header.h_blocktype = 3.into()).expect("sound");
        assert_eq!(
            (sb.version, sb.incompat, sb.log()),
            (Version::V1, Incompat::empty(), 1..1040)
        );
        assert_eq!(sb.encode().s_feature_incompat.get(), 0x22);
    }

    #[test]
    fn unknown_features_are_named() {
        let sb = changed(|raw| {
            raw.s_feature_incompat = 0x122.into();
            raw.s_feature_ro_compat = 0x8000_0000.into();
            raw.s_feature_compat = 0x80.into();
        });
        assert_eq!(
            sb.expect("sound").unknown_features().as_deref(),
            Some("FEATURE_I8 FEATURE_R31")
        );
    }

    #[test]
    fn impossible_numbers_are_errors() {
        let bad = |field, value| Err(CorruptKind::Field { field, value });
        assert_eq!(changed(|raw| raw.s_first = 0.into()), bad("s_first", 0));
        assert_eq!(
            changed(|raw| raw.s_first = 1024.into()),
            bad("s_first", 1024)
        );
        assert_eq!(
            changed(|raw| raw.s_start = 1024.into()),
            bad("s_start", 1024)
        );
        assert_eq!(
            changed(|raw| raw.s_start = u32::MAX.into()),
            bad("s_start", u64::from(u32::MAX))
        );
        let early = changed(|raw| (raw.s_first, raw.s_start) = (5.into(), 1.into()));
        assert_eq!(early.expect("sound").start, Some(1));
        assert_eq!(
            changed(|raw| raw.s_blocksize = 512.into()),
            bad("s_blocksize", 512)
        );
        assert_eq!(
            changed(|raw| raw.s_blocksize = 4095.into()),
            bad("s_blocksize", 4095)
        );
        assert_eq!(
            changed(|raw| raw.s_num_fc_blks = 17.into()),
            bad("s_num_fc_blks", 17)
        );
        assert_eq!(
            changed(|raw| raw.s_num_fc_blks = u32::MAX.into()),
            bad("s_num_fc_blks", u64::from(u32::MAX))
        );
        assert_eq!(
            changed(|raw| raw.s_num_fc_blks = 0.into()),
            bad("s_num_fc_blks", 256)
        );
        assert_eq!(
            changed(|raw| raw.s_nr_users = 49.into()),
            bad("s_nr_users", 49)
        );
        assert_eq!(
            changed(|raw| raw.s_header.h_blocktype = 5.into()),
            bad("h_blocktype", 5)
        );
        assert_eq!(
            changed(|raw| raw.s_header.h_magic = 1.into()),
            Err(CorruptKind::Magic {
                found: 1,
                expected: MAGIC
            })
        );
        let both = changed(|raw| raw.s_feature_incompat = 0x3A.into());
        assert!(
            matches!(both, Err(CorruptKind::Mismatch { .. })),
            "{both:?}"
        );
    }

    #[test]
    fn checksum_is_verified() {
        let mut raw = sample();
        raw.s_sequence = 3.into();
        assert!(matches!(
            decode(&raw),
            Err(CorruptKind::Checksum {
                stored: 0x1484_1f80,
                ..
            })
        ));
        raw.s_checksum_type = 1;
        assert_eq!(
            decode(&raw),
            Err(CorruptKind::Field {
                field: "s_checksum_type",
                value: 1
            })
        );
    }
}
