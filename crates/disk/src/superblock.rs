//! The superblock: the parameters of the whole volume.
//!
//! It is 1024 bytes into the volume, whatever the block size, and in backups at the start of some
//! groups. [`Superblock::decode`] checks every pair of fields that later arithmetic combines. Group
//! counts, table sizes and block numbers derived from a [`Superblock`] can therefore neither
//! overflow nor disagree.
//!
//! Decoding judges the format only. The caller decides which features it supports, if need be
//! before decoding, with [`RawSuperblock::features`]. Counts of free blocks and inodes are hints
//! that a crash leaves wrong; they are returned as stored.
//!
//! `ext4` decodes the superblock before it reads anything else of a volume, and `mkfs` makes one.
//! Other decoders of this crate take it as an argument.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/super.rst`; `dumpe2fs` and `debugfs` 1.47
//! for the fields that it leaves out.

pub mod geometry;
mod impossible;

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{ChecksumSeed, crc32c, verify};
use crate::corrupt::{Corrupt, CorruptKind, Place};
use crate::feature::{Compat, Features, Incompat, RoCompat};
use crate::inode_number::ROOT_INO;
use crate::quota;
use crate::superblock::geometry::Geometry;

/// The offset of the primary superblock, in bytes from the start of the volume.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// `s_magic` of every ext2, ext3 and ext4 volume.
pub const MAGIC: u16 = 0xef53;

/// Inode size and first free inode of revision 0, which does not store them.
const OLD_INODE_SIZE: u16 = 128;
const OLD_FIRST_INO: u32 = 11;
/// The last of the hash functions that may be a volume's default.
const HASH_VERSION_LAST: u8 = 5;
const CHECKSUM_OFFSET: usize = 0x3fc;
const CHECKSUM_TYPE_CRC32C: u8 = 1;

/// The superblock as it stands on the volume.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields are the kernel documentation's, by its names"
)]
pub struct RawSuperblock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_encryption_level: u8,
    pub s_reserved_pad: u8,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_blocks: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_def_resuid_hi: U16,
    pub s_def_resgid_hi: U16,
    pub s_reserved: [U32; 93],
    pub s_checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, s_checksum) == CHECKSUM_OFFSET);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, s_orphan_file_inum) == 0x280);

impl RawSuperblock {
    /// Reads the fields and checks only the magic number.
    ///
    /// # Errors
    /// [`CorruptKind::Truncated`] for fewer than 1024 bytes, [`CorruptKind::Magic`] if they are
    /// from no ext2/3/4 volume.
    pub fn read(bytes: &[u8], at: Place) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = Self::read_from_prefix(bytes) else {
            return Err(at.corrupt(CorruptKind::Truncated {
                need: 1024,
                have: bytes.len() as u64,
            }));
        };
        raw.check_magic(at)?;
        Ok(raw)
    }

    fn check_magic(&self, at: Place) -> Result<(), Corrupt> {
        match self.s_magic.get() {
            MAGIC => Ok(()),
            found => Err(at.corrupt(CorruptKind::Magic {
                found: found.into(),
                expected: MAGIC.into(),
            })),
        }
    }

    /// Returns the features of the volume, known and unknown.
    pub const fn features(&self) -> Features {
        Features::from_bits(
            self.s_feature_compat.get(),
            self.s_feature_incompat.get(),
            self.s_feature_ro_compat.get(),
        )
    }

    /// Gives the volume the journal in inode `ino`, whose map and size the superblock keeps a copy
    /// of.
    pub fn set_journal(&mut self, ino: u32, backup: &JournalBackup) {
        self.s_feature_compat
            .set(self.s_feature_compat.get() | Compat::HAS_JOURNAL.bits());
        self.s_journal_inum.set(ino);
        (self.s_journal_dev, self.s_journal_uuid) = (U32::ZERO, [0; 16]);
        self.s_jnl_backup_type = 1;
        let [blocks @ .., size_high, size_low] = &mut self.s_jnl_blocks;
        blocks.as_mut_bytes().copy_from_slice(&backup.map);
        let [a, b, c, d, e, f, g, h] = backup.size.to_le_bytes();
        (*size_high, *size_low) = (U32::from_bytes([e, f, g, h]), U32::from_bytes([a, b, c, d]));
    }

    /// Takes the journal from the volume, with the note that it has to be replayed.
    pub fn clear_journal(&mut self) {
        self.s_feature_compat
            .set(self.s_feature_compat.get() & !Compat::HAS_JOURNAL.bits());
        self.s_feature_incompat
            .set(self.s_feature_incompat.get() & !Incompat::RECOVER.bits());
        self.s_journal_inum.set(0);
        self.s_jnl_blocks = [U32::ZERO; 17];
    }

    /// Clears the state "errors", and the record of the first and the last of them.
    ///
    /// Source: superblocks before and after `e2fsck -fp`, compared byte by byte.
    pub fn clear_errors(&mut self) {
        self.s_state.set(self.s_state.get() & !State::ERROR.bits());
        self.s_error_count.set(0);
        (self.s_first_error_time, self.s_first_error_time_hi) = (U32::ZERO, 0);
        (self.s_last_error_time, self.s_last_error_time_hi) = (U32::ZERO, 0);
        (self.s_first_error_ino, self.s_last_error_ino) = (U32::ZERO, U32::ZERO);
        (self.s_first_error_block, self.s_last_error_block) = (U64::ZERO, U64::ZERO);
        (self.s_first_error_func, self.s_last_error_func) = ([0; 32], [0; 32]);
        (self.s_first_error_line, self.s_last_error_line) = (U32::ZERO, U32::ZERO);
        (self.s_first_error_errcode, self.s_last_error_errcode) = (0, 0);
    }

    /// Returns the field with the inode of the quota file of a kind.
    pub const fn quota_inode_mut(&mut self, kind: quota::Kind) -> &mut U32 {
        match kind {
            quota::Kind::User => &mut self.s_usr_quota_inum,
            quota::Kind::Group => &mut self.s_grp_quota_inum,
            quota::Kind::Project => &mut self.s_prj_quota_inum,
        }
    }

    /// Returns the checksum that the other fields should have.
    pub fn compute_checksum(&self) -> u32 {
        crc32c(!0, &self.as_bytes()[..CHECKSUM_OFFSET])
    }
}

bitflags! {
    /// The state of the volume (`s_state`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct State: u16 {
        /// Cleanly unmounted.
        const VALID = 0x1;
        /// Errors were found.
        const ERROR = 0x2;
        /// Orphans are being deleted.
        const ORPHANS = 0x4;
        const _ = !0;
    }
}

bitflags! {
    /// Mount options that hold unless a mount says otherwise (`s_default_mount_opts`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DefaultMountOptions: u32 {
        /// Print debugging information.
        const DEBUG = 0x1;
        /// New files take the group of their directory.
        const BSDGROUPS = 0x2;
        /// Extended attributes of users.
        const USER_XATTR = 0x4;
        /// POSIX ACLs.
        const ACL = 0x8;
        /// No user and group numbers above 16 bits.
        const UID16 = 0x10;
        /// Journal data, too. With [`ORDERED`](Self::JOURNAL_DATA_ORDERED) as well: write data back
        /// in any order.
        const JOURNAL_DATA = 0x20;
        /// Write data before the metadata that points to it.
        const JOURNAL_DATA_ORDERED = 0x40;
        /// No write barriers.
        const NOBARRIER = 0x100;
        /// Check block numbers against the volume's fixed metadata.
        const BLOCK_VALIDITY = 0x200;
        /// Tell the device about freed blocks.
        const DISCARD = 0x400;
        /// No delayed allocation.
        const NODELALLOC = 0x800;
        const _ = !0;
    }
}

impl DefaultMountOptions {
    /// Returns the options by the names that `dumpe2fs` and `tune2fs -o` use.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let journal = match self.bits() & 0x60 {
            0x20 => Some("journal_data"),
            0x40 => Some("journal_data_ordered"),
            0x60 => Some("journal_data_writeback"),
            _ => None,
        };
        let named = |names: &'static [(Self, &'static str)]| {
            names
                .iter()
                .filter(move |(bit, _)| self.contains(*bit))
                .map(|(_, name)| *name)
        };
        named(&[
            (Self::DEBUG, "debug"),
            (Self::BSDGROUPS, "bsdgroups"),
            (Self::USER_XATTR, "user_xattr"),
            (Self::ACL, "acl"),
            (Self::UID16, "uid16"),
        ])
        .chain(journal)
        .chain(named(&[
            (Self::NOBARRIER, "nobarrier"),
            (Self::BLOCK_VALIDITY, "block_validity"),
            (Self::DISCARD, "discard"),
            (Self::NODELALLOC, "nodelalloc"),
        ]))
    }
}

/// The reaction to an error on the volume (`s_errors`, `errors=` in `ext4(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorPolicy {
    /// Go on.
    Continue,
    /// Turn read-only.
    RemountReadOnly,
    /// Panic.
    Panic,
    /// A value without a meaning.
    Unknown(u16),
}

/// The system that made the volume, which decides what some inode fields mean (`s_creator_os`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreatorOs {
    /// Linux.
    Linux,
    /// GNU Hurd.
    Hurd,
    /// Masix.
    Masix,
    /// FreeBSD.
    FreeBsd,
    /// Lites.
    Lites,
    /// A value without a meaning.
    Unknown(u32),
}

/// The location of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JournalLocation {
    /// In an inode of this volume.
    Inode(u32),
    /// On another device, known by the UUID of its journal.
    Device {
        /// Its device number when it was last seen.
        device: u32,
        /// Its UUID.
        uuid: [u8; 16],
    },
}

/// The superblock's copy of the journal inode's map, for when the inode is lost (`s_jnl_blocks`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalBackup {
    /// The inode's `i_block`.
    pub map: [u8; 60],
    /// The inode's size in bytes.
    pub size: u64,
}

/// The first or the last error that was found on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// When, in seconds since 1970.
    pub time: u64,
    /// The inode involved, or 0.
    pub ino: u32,
    /// The block involved, or 0.
    pub block: u64,
    /// The function that found it, padded with zeros.
    pub function: [u8; 32],
    /// The line in its source.
    pub line: u32,
    /// The kind of error, in ext4's own numbers (0 if not recorded).
    pub code: u8,
}

/// A validated superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    raw: RawSuperblock,
    geometry: Geometry,
    seed: ChecksumSeed,
    short_ids: bool,
}

impl Superblock {
    /// Validates the 1024 bytes of a superblock (more may follow).
    ///
    /// The superblock of an external journal decodes too: it has no groups and no inodes.
    ///
    /// # Errors
    /// A [`Corrupt`] with the field's name for an impossible value, [`CorruptKind::Checksum`] if
    /// the volume has `metadata_csum` and the checksum is wrong.
    pub fn decode(bytes: &[u8], at: Place) -> Result<Self, Corrupt> {
        Self::from_raw(RawSuperblock::read(bytes, at)?, at)
    }

    /// Validates a superblock already read; see [`decode`](Self::decode).
    ///
    /// # Errors
    /// As `decode`.
    pub fn from_raw(raw: RawSuperblock, at: Place) -> Result<Self, Corrupt> {
        raw.check_magic(at)?;
        let features = raw.features();
        if features.metadata_csum() {
            check(
                raw.s_checksum_type == CHECKSUM_TYPE_CRC32C,
                "s_checksum_type",
                raw.s_checksum_type,
                at,
            )?;
            verify(raw.s_checksum.get(), raw.compute_checksum(), at)?;
        }
        let seed = if features.incompat.contains(Incompat::CSUM_SEED) {
            ChecksumSeed::new(raw.s_checksum_seed.get())
        } else {
            ChecksumSeed::of_uuid(&raw.s_uuid)
        };
        let geometry = Geometry::of_superblock(&raw, at)?;
        let sb = Self {
            raw,
            geometry,
            seed,
            short_ids: false,
        };
        sb.check_inodes(at)?;
        Ok(sb)
    }

    /// Returns the superblock with users and groups of 16 bits or not (`nouid32`). With 16 bits,
    /// inodes decoded with it ignore the upper halves of their ids.
    #[must_use]
    pub fn with_short_ids(mut self, short_ids: bool) -> Self {
        self.short_ids = short_ids;
        self
    }

    /// Returns the superblock of a volume on which no blocks after the descriptor table are kept
    /// for it to grow, whatever `s_reserved_gdt_blocks` says. The field itself stays as it is.
    pub const fn with_no_reserved_gdt(mut self) -> Self {
        self.geometry.keep_no_gdt_blocks();
        self
    }

    /// Returns whether users and groups have 16 bits.
    pub const fn has_short_ids(&self) -> bool {
        self.short_ids
    }

    fn check_inodes(&self, at: Place) -> Result<(), Corrupt> {
        if self.is_journal_device() {
            return Ok(());
        }
        let first = self.first_ino();
        check(
            first >= OLD_FIRST_INO && first <= self.inodes_count(),
            "s_first_ino",
            first,
            at,
        )?;
        match self
            .journal_inode()
            .filter(|ino| *ino > self.inodes_count())
        {
            Some(ino) => {
                let field = "s_journal_inum";
                Err(at.corrupt(CorruptKind::InodeOutOfRange {
                    field,
                    ino: ino.into(),
                }))
            }
            None => Ok(()),
        }
    }

    /// Returns the bytes of the superblock, with a computed checksum if the volume has checksums.
    pub fn encode(&self) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = self.raw;
        if self.features().metadata_csum() {
            raw.s_checksum.set(raw.compute_checksum());
        }
        zerocopy::transmute!(raw)
    }

    /// Returns the stored fields for changes. The caller must not change those from which
    /// [`geometry`](Self::geometry) was computed.
    pub const fn raw_mut(&mut self) -> &mut RawSuperblock {
        &mut self.raw
    }

    /// Returns the fields as stored.
    pub const fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Returns the features of the volume, known and unknown.
    pub const fn features(&self) -> Features {
        self.raw.features()
    }

    /// Returns the geometry: the places of groups, blocks and inodes.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns whether this is not a file system but the external journal of one.
    pub const fn is_journal_device(&self) -> bool {
        self.features().incompat.contains(Incompat::JOURNAL_DEV)
    }

    /// Returns the revision (0 for the original format, 1 with features) and the minor revision.
    pub const fn revision(&self) -> (u32, u16) {
        (self.raw.s_rev_level.get(), self.raw.s_minor_rev_level.get())
    }

    /// Returns the volume's seed, mixed into the checksums of metadata and of extended attribute
    /// inodes.
    ///
    /// It exists even without `metadata_csum`; [`metadata_seed`](Self::metadata_seed) tells whether
    /// to verify.
    pub const fn checksum_seed(&self) -> ChecksumSeed {
        self.seed
    }

    /// Returns the volume's seed if its metadata has crc32c checksums (`metadata_csum`), else
    /// `None`.
    pub const fn metadata_seed(&self) -> Option<ChecksumSeed> {
        if self.features().metadata_csum() {
            Some(self.seed)
        } else {
            None
        }
    }

    /// Returns the size in bytes of a block: a power of two from 1024 to 65536.
    pub const fn block_size(&self) -> u32 {
        self.geometry.block_size()
    }

    /// Returns the size in bytes of a cluster, the unit of allocation: the block size, or more with
    /// `bigalloc`.
    pub const fn cluster_size(&self) -> u64 {
        self.geometry.cluster_size()
    }

    /// Returns the number of blocks of the volume.
    pub const fn blocks_count(&self) -> u64 {
        self.geometry.blocks_count()
    }

    /// Returns the number of inodes of the volume; inode numbers run from 1 to this one.
    pub const fn inodes_count(&self) -> u32 {
        self.geometry.inodes_count()
    }

    /// Returns the size in bytes of an inode record: a power of two from 128 to the block size.
    pub const fn inode_size(&self) -> u16 {
        self.geometry.inode_size()
    }

    /// Returns the number of blocks that only the superuser may fill. On a damaged volume it may
    /// exceed the number of blocks.
    pub const fn reserved_blocks(&self) -> u64 {
        self.join_64bit(self.raw.s_r_blocks_count_lo, self.raw.s_r_blocks_count_hi)
    }

    /// Returns the number of free blocks when the superblock was last written. This is a hint: it
    /// may be wrong, and even exceed the number of blocks.
    pub const fn free_blocks(&self) -> u64 {
        self.join_64bit(
            self.raw.s_free_blocks_count_lo,
            self.raw.s_free_blocks_count_hi,
        )
    }

    /// Returns the number of free inodes when the superblock was last written. This is a hint, like
    /// [`free_blocks`](Self::free_blocks).
    pub const fn free_inodes(&self) -> u32 {
        self.raw.s_free_inodes_count.get()
    }

    /// Returns the number of clusters that hold the volume's fixed metadata, as `mke2fs` counted
    /// them; 0 if it did not.
    pub const fn overhead_clusters(&self) -> u32 {
        self.raw.s_overhead_blocks.get()
    }

    /// Joins the two halves of a counter; the high half means something only on `64bit` volumes.
    const fn join_64bit(&self, lo: U32, hi: U32) -> u64 {
        let hi = if self.features().incompat.contains(Incompat::BIT64) {
            hi.get()
        } else {
            0
        };
        join(lo.get(), hi)
    }

    /// Returns the first inode that is not reserved; 11 at least.
    pub const fn first_ino(&self) -> u32 {
        if self.raw.s_rev_level.get() == 0 {
            OLD_FIRST_INO
        } else {
            self.raw.s_first_ino.get()
        }
    }

    /// Returns how many inodes at the beginning of `group` are reserved. If groups are small,
    /// several may have reserved inodes.
    pub const fn reserved_inodes(&self, group: u32) -> u32 {
        let per_group = self.geometry().inodes_per_group();
        let left = (self.first_ino() - 1).saturating_sub(group.saturating_mul(per_group));
        if left < per_group { left } else { per_group }
    }

    /// Returns the inode of `lost+found`, if recorded.
    pub fn lost_found_inode(&self) -> Option<u32> {
        nonzero(self.raw.s_lpf_ino)
    }

    /// Returns the group whose copy this is: 0 for the primary superblock.
    pub const fn block_group(&self) -> u16 {
        self.raw.s_block_group_nr.get()
    }

    /// Returns the volume's UUID.
    pub const fn uuid(&self) -> [u8; 16] {
        self.raw.s_uuid
    }

    /// Returns the volume's label, without its padding. Any bytes but zero.
    pub fn label(&self) -> &[u8] {
        until_zero(&self.raw.s_volume_name)
    }

    /// Returns the mount point of the last mount. Any bytes but zero.
    pub fn last_mounted(&self) -> &[u8] {
        until_zero(&self.raw.s_last_mounted)
    }

    /// Returns the mount options stored with `tune2fs -E mount_opts`, separated by commas.
    pub fn mount_options(&self) -> &[u8] {
        until_zero(&self.raw.s_mount_opts)
    }

    /// Returns the mount options that are on by default.
    pub const fn default_mount_options(&self) -> DefaultMountOptions {
        DefaultMountOptions::from_bits_retain(self.raw.s_default_mount_opts.get())
    }

    /// Returns the state bits.
    pub const fn state(&self) -> State {
        State::from_bits_retain(self.raw.s_state.get())
    }

    /// Returns the reaction to an error on the volume.
    pub const fn error_policy(&self) -> ErrorPolicy {
        match self.raw.s_errors.get() {
            1 => ErrorPolicy::Continue,
            2 => ErrorPolicy::RemountReadOnly,
            3 => ErrorPolicy::Panic,
            other => ErrorPolicy::Unknown(other),
        }
    }

    /// Returns the system that made the volume.
    pub const fn creator_os(&self) -> CreatorOs {
        match self.raw.s_creator_os.get() {
            0 => CreatorOs::Linux,
            1 => CreatorOs::Hurd,
            2 => CreatorOs::Masix,
            3 => CreatorOs::FreeBsd,
            4 => CreatorOs::Lites,
            other => CreatorOs::Unknown(other),
        }
    }

    /// Returns the user and the group that may fill the reserved blocks.
    pub const fn reserved_ids(&self) -> (u32, u32) {
        let raw = &self.raw;
        let uid = join16(raw.s_def_resuid.get(), raw.s_def_resuid_hi.get());
        (
            uid,
            join16(raw.s_def_resgid.get(), raw.s_def_resgid_hi.get()),
        )
    }

    /// Returns when the volume was created, in seconds since 1970. This and the other times have 40
    /// bits.
    pub const fn made_time(&self) -> u64 {
        join_time(self.raw.s_mkfs_time, self.raw.s_mkfs_time_hi)
    }

    /// Returns when the volume was last mounted; 0 for never.
    pub const fn mount_time(&self) -> u64 {
        join_time(self.raw.s_mtime, self.raw.s_mtime_hi)
    }

    /// Returns when the superblock was last written.
    pub const fn write_time(&self) -> u64 {
        join_time(self.raw.s_wtime, self.raw.s_wtime_hi)
    }

    /// Returns when the volume was last checked.
    pub const fn check_time(&self) -> u64 {
        join_time(self.raw.s_lastcheck, self.raw.s_lastcheck_hi)
    }

    /// Returns the number of seconds after which the volume should be checked again; 0 for never.
    pub const fn check_interval(&self) -> u32 {
        self.raw.s_checkinterval.get()
    }

    /// Returns the number of mounts since the last check.
    pub const fn mount_count(&self) -> u16 {
        self.raw.s_mnt_count.get()
    }

    /// Returns the number of mounts after which the volume should be checked; `None` for never.
    pub fn max_mount_count(&self) -> Option<u16> {
        Some(self.raw.s_max_mnt_count.get()).filter(|count| (1..0x8000).contains(count))
    }

    /// Returns the KiB written to the volume in its life.
    pub const fn kbytes_written(&self) -> u64 {
        self.raw.s_kbytes_written.get()
    }

    /// Returns the number of errors found since the last check.
    pub const fn error_count(&self) -> u32 {
        self.raw.s_error_count.get()
    }

    /// Returns the first error found since the last check.
    pub fn first_error(&self) -> Option<ErrorRecord> {
        let raw = &self.raw;
        let error = ErrorRecord {
            time: join_time(raw.s_first_error_time, raw.s_first_error_time_hi),
            ino: raw.s_first_error_ino.get(),
            block: raw.s_first_error_block.get(),
            function: raw.s_first_error_func,
            line: raw.s_first_error_line.get(),
            code: raw.s_first_error_errcode,
        };
        Some(error).filter(|error| error.time != 0)
    }

    /// Returns the last error found.
    pub fn last_error(&self) -> Option<ErrorRecord> {
        let raw = &self.raw;
        let error = ErrorRecord {
            time: join_time(raw.s_last_error_time, raw.s_last_error_time_hi),
            ino: raw.s_last_error_ino.get(),
            block: raw.s_last_error_block.get(),
            function: raw.s_last_error_func,
            line: raw.s_last_error_line.get(),
            code: raw.s_last_error_errcode,
        };
        Some(error).filter(|error| error.time != 0)
    }

    /// Returns the location of the journal; `None` without one.
    pub fn journal(&self) -> Option<JournalLocation> {
        if !self.features().compat.contains(Compat::HAS_JOURNAL) {
            return None;
        }
        let device = self.raw.s_journal_dev.get();
        let uuid = self.raw.s_journal_uuid;
        match self.raw.s_journal_inum.get() {
            0 => Some(JournalLocation::Device { device, uuid }),
            ino => Some(JournalLocation::Inode(ino)),
        }
    }

    /// Returns the journal's inode, if it is in one.
    pub fn journal_inode(&self) -> Option<u32> {
        match self.journal() {
            Some(JournalLocation::Inode(ino)) => Some(ino),
            _ => None,
        }
    }

    /// Returns the copy of the journal inode's map, if there is one.
    pub fn journal_backup(&self) -> Option<JournalBackup> {
        if self.raw.s_jnl_backup_type != 1 || self.journal_inode().is_none() {
            return None;
        }
        let [blocks @ .., size_hi, size_lo] = &self.raw.s_jnl_blocks;
        let mut map = [0; 60];
        map.copy_from_slice(blocks.as_bytes());
        Some(JournalBackup {
            map,
            size: join(size_lo.get(), size_hi.get()),
        })
    }

    /// Returns the first inode of the list of orphans. Only the walk of the list checks it.
    pub fn last_orphan(&self) -> Option<u32> {
        nonzero(self.raw.s_last_orphan)
    }

    /// Returns the inode of the orphan file, if the volume has one.
    pub fn orphan_file_inode(&self) -> Option<u32> {
        nonzero(self.raw.s_orphan_file_inum)
            .filter(|_| self.features().compat.contains(Compat::ORPHAN_FILE))
    }

    /// Returns the inode of the quota file of a kind, if the volume has one.
    pub fn quota_inode(&self, kind: quota::Kind) -> Option<u32> {
        let ino = match kind {
            quota::Kind::User => self.raw.s_usr_quota_inum,
            quota::Kind::Group => self.raw.s_grp_quota_inum,
            quota::Kind::Project => self.raw.s_prj_quota_inum,
        };
        nonzero(ino).filter(|_| self.features().ro_compat.contains(RoCompat::QUOTA))
    }

    /// Returns whether users do not see inode `ino`: it is reserved, or one of the volume's own
    /// files. The root directory is the one reserved inode that users see.
    pub fn is_hidden(&self, ino: u32) -> bool {
        let is_own = || {
            [self.journal_inode(), self.orphan_file_inode()].contains(&Some(ino))
                || quota::Kind::ALL
                    .iter()
                    .any(|kind| self.quota_inode(*kind) == Some(ino))
        };
        ino != ROOT_INO && (ino < self.first_ino() || is_own())
    }

    /// Returns the block of the multiple mount protection, if the volume has it and the number is
    /// that of one of its blocks.
    pub fn mmp_block(&self) -> Option<u64> {
        let block = self.raw.s_mmp_block.get();
        let has_it = self.features().incompat.contains(Incompat::MMP);
        Some(block).filter(|block| has_it && self.geometry.contains_block(*block))
    }

    /// Returns the number of seconds between two updates of the multiple mount protection block.
    pub const fn mmp_interval(&self) -> u16 {
        self.raw.s_mmp_interval.get()
    }

    /// Returns the seed of directory hashes; all zeros select the hash functions' own start values.
    pub const fn hash_seed(&self) -> [u32; 4] {
        let [a, b, c, d] = self.raw.s_hash_seed;
        [a.get(), b.get(), c.get(), d.get()]
    }

    /// Returns the number of the hash function of new directories: 0 legacy, 1 half MD4, 2 TEA. 3
    /// to 5 are these functions with unsigned characters.
    pub const fn default_hash_version(&self) -> u8 {
        self.raw.s_def_hash_version
    }

    /// Returns whether directory hashes take the bytes of names as unsigned. They were `char`s of
    /// the machine that created the volume.
    ///
    /// A volume without a record of this was written by a machine with signed ones, or has no
    /// hashed directories yet.
    pub const fn unsigned_hash(&self) -> bool {
        self.raw.s_flags.get() & 0x2 != 0
    }

    /// Returns the number of the encoding of names (1 is UTF-8 12.1.0) and its flags (bit 0: refuse
    /// invalid names).
    pub fn encoding(&self) -> Option<(u16, u16)> {
        let casefold = self.features().incompat.contains(Incompat::CASEFOLD);
        casefold.then_some((self.raw.s_encoding.get(), self.raw.s_encoding_flags.get()))
    }

    /// Returns two sizes of the fields past the first 128 bytes: the one that every inode has, and
    /// the one that new inodes should have.
    pub const fn extra_isize(&self) -> (u16, u16) {
        (
            self.raw.s_min_extra_isize.get(),
            self.raw.s_want_extra_isize.get(),
        )
    }

    /// Returns RAID stride and stripe width in blocks; zeros if not set.
    pub const fn raid(&self) -> (u16, u32) {
        (
            self.raw.s_raid_stride.get(),
            self.raw.s_raid_stripe_width.get(),
        )
    }

    /// Returns the number of blocks kept after the descriptor table for the volume to grow.
    pub const fn reserved_gdt_blocks(&self) -> u16 {
        self.geometry.reserved_gdt_blocks()
    }
}

/// Refuses `value` of `field` unless `ok`.
pub(crate) fn check(
    ok: bool,
    field: &'static str,
    value: impl Into<u64>,
    at: Place,
) -> Result<(), Corrupt> {
    if ok {
        Ok(())
    } else {
        Err(at.corrupt(CorruptKind::Field {
            field,
            value: value.into(),
        }))
    }
}

/// Returns the 64-bit number of two halves.
#[inline]
pub(crate) const fn join(lo: u32, hi: u32) -> u64 {
    // `From` is not const yet.
    (hi as u64) << 32 | lo as u64
}

/// Returns the 32-bit number of two halves.
#[inline]
pub(crate) const fn join16(lo: u16, hi: u16) -> u32 {
    (hi as u32) << 16 | lo as u32
}

const fn join_time(lo: U32, hi: u8) -> u64 {
    join(lo.get(), join16(u16::from_le_bytes([hi, 0]), 0))
}

fn nonzero(number: U32) -> Option<u32> {
    Some(number.get()).filter(|number| *number != 0)
}

/// Returns the bytes before the first zero.
pub(crate) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Returns the size of inode records, which revision 0 does not store.
pub(crate) const fn inode_size_of(raw: &RawSuperblock) -> u16 {
    if raw.s_rev_level.get() == 0 {
        OLD_INODE_SIZE
    } else {
        raw.s_inode_size.get()
    }
}
