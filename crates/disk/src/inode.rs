//! Inodes: all metadata of a file but its name.
//!
//! `ext4`, the builder and the checker decode and encode records here. Decoding checks the checksum
//! and the fields that later arithmetic depends on.
//!
//! A record has the 128 bytes of ext2, and more on volumes with larger records. `i_extra_isize`
//! gives the number of bytes of further fields, and the rest of the record holds extended
//! attributes.
//! ```text
//! | 128 bytes: mode, owner, size, ... | i_extra_isize bytes: more fields | extended attributes |
//! |<----------------------------------- s_inode_size bytes ----------------------------------->|
//! ```
//! An [`Inode`] has a copy of the fields and interprets them by the volume's features. A caller
//! that asks for a size or a count thus gets the number that Linux would use. The map's own
//! decoders read the content of `i_block` (extents, block numbers, a symbolic link, inline data, a
//! device).
//!
//! Source: the kernel's `Documentation/filesystems/ext4/inodes.rst` and `special_inodes.rst`;
//! letters and names of flags from `lsattr` 1.47.

mod expand;
mod set;

pub use expand::{new_xattr_start, stored_xattr_range};

use std::ops::Range;

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{ChecksumSeed, Crc32c, verify};
use crate::corrupt::{Corrupt, CorruptKind, Place};
use crate::feature::{Incompat, RoCompat};
use crate::superblock::{CreatorOs, Superblock, check, join, join16};
use crate::time::Timestamp;

pub use crate::inode_number::{
    BAD_BLOCKS_INO, BOOT_LOADER_INO, EXCLUDE_INO, GROUP_QUOTA_INO, JOURNAL_INO, REPLICA_INO,
    RESIZE_INO, ROOT_INO, UNDELETE_DIR_INO, USER_QUOTA_INO,
};

/// Bytes of the part of a record that every volume has.
pub const BASE_SIZE: usize = 128;
/// Bytes of `i_block`.
pub const MAP_SIZE: usize = 60;

/// The first 128 bytes of a record, with the operating system's fields as Linux uses them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields are the kernel documentation's, by its names"
)]
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    /// `osd1`: `l_i_version` of Linux, `h_i_translator` of Hurd.
    pub l_i_version: U32,
    pub i_block: [u8; MAP_SIZE],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    /// `osd2` begins here: Hurd has a reserved number here.
    pub l_i_blocks_high: U16,
    /// `h_i_mode_high` of Hurd.
    pub l_i_file_acl_high: U16,
    /// Hurd has the same field; in Masix it is reserved, but Linux uses it there, too.
    pub l_i_uid_high: U16,
    /// Hurd has the same field; in Masix it is reserved, but Linux uses it there, too.
    pub l_i_gid_high: U16,
    /// `h_i_author` of Hurd begins here.
    pub l_i_checksum_lo: U16,
    pub l_i_reserved: U16,
}

/// The fields past the first 128 bytes; `i_extra_isize` says how many of them a record has.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields are the kernel documentation's, by its names"
)]
pub struct RawInodeExtra {
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

const EXTRA_SIZE: usize = size_of::<RawInodeExtra>();
const CHECKSUM_LO: usize = core::mem::offset_of!(RawInode, l_i_checksum_lo);
const CHECKSUM_HI: usize = BASE_SIZE + core::mem::offset_of!(RawInodeExtra, i_checksum_hi);
const ATIME: usize = core::mem::offset_of!(RawInode, i_atime);
const ATIME_EXTRA: usize = BASE_SIZE + core::mem::offset_of!(RawInodeExtra, i_atime_extra);
const _: () = assert!(size_of::<RawInode>() == BASE_SIZE && EXTRA_SIZE == 32);
const _: () = assert!(CHECKSUM_LO == 0x7c && CHECKSUM_HI == 0x82);
const _: () = assert!(ATIME == 0x8 && ATIME_EXTRA == 0x8c);

/// The type of a file (the upper bits of `i_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// No type: an inode that is free, or reserved, like the list of bad blocks.
    None,
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileKind {
    /// Returns the type in a mode; `None` for bits that name none.
    pub const fn of_mode(mode: u16) -> Option<Self> {
        Some(match mode & 0xf000 {
            0x0000 => Self::None,
            0x1000 => Self::Fifo,
            0x2000 => Self::CharDevice,
            0x4000 => Self::Directory,
            0x6000 => Self::BlockDevice,
            0x8000 => Self::Regular,
            0xa000 => Self::Symlink,
            0xc000 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns the bits of this type in a mode.
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::None => 0x0000,
            Self::Fifo => 0x1000,
            Self::CharDevice => 0x2000,
            Self::Directory => 0x4000,
            Self::BlockDevice => 0x6000,
            Self::Regular => 0x8000,
            Self::Symlink => 0xa000,
            Self::Socket => 0xc000,
        }
    }
}

bitflags! {
    /// The flags of an inode (`i_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u32 {
        /// Overwrite when deleting.
        const SECRM = 0x1;
        /// Keep for undeletion.
        const UNRM = 0x2;
        /// Compress.
        const COMPR = 0x4;
        /// Write synchronously.
        const SYNC = 0x8;
        /// No process may change the file.
        const IMMUTABLE = 0x10;
        /// The file may only grow.
        const APPEND = 0x20;
        /// `dump` skips the file.
        const NODUMP = 0x40;
        /// Reading does not change the access time.
        const NOATIME = 0x80;
        /// Compressed and changed.
        const DIRTY = 0x100;
        /// Has compressed clusters.
        const COMPRBLK = 0x200;
        /// Do not compress.
        const NOCOMPR = 0x400;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// A directory with a hash tree.
        const INDEX = 0x1000;
        /// An AFS directory.
        const IMAGIC = 0x2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Do not merge the tail.
        const NOTAIL = 0x8000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x1_0000;
        /// The top of a hierarchy, for placing its subdirectories.
        const TOPDIR = 0x2_0000;
        /// `i_blocks` counts blocks of the file system.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Protected by fs-verity.
        const VERITY = 0x10_0000;
        /// Holds the value of an extended attribute.
        const EA_INODE = 0x20_0000;
        /// Has blocks past its end (no longer used).
        const EOFBLOCKS = 0x40_0000;
        /// No copy on write.
        const NOCOW = 0x80_0000;
        /// A snapshot (never released).
        const SNAPFILE = 0x100_0000;
        /// Direct access to persistent memory.
        const DAX = 0x200_0000;
        /// A snapshot being deleted (never released).
        const SNAPFILE_DELETED = 0x400_0000;
        /// A snapshot that has been shrunk (never released).
        const SNAPFILE_SHRUNK = 0x800_0000;
        /// Data is in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// A directory that ignores case.
        const CASEFOLD = 0x4000_0000;
        /// Reserved for libraries.
        const RESERVED = 0x8000_0000;
        const _ = !0;
    }
}

impl InodeFlags {
    /// The flags that users may set. Source: each flag was set on a mounted volume. The other
    /// visible flags say how the inode is stored, and do not change. Nor does `EXTENTS`, with which
    /// Linux converts the map.
    pub const SETTABLE: Self = Self::SECRM
        .union(Self::UNRM)
        .union(Self::COMPR)
        .union(Self::SYNC)
        .union(Self::IMMUTABLE)
        .union(Self::APPEND)
        .union(Self::NODUMP)
        .union(Self::NOATIME)
        .union(Self::NOTAIL)
        .union(Self::DIRSYNC)
        .union(Self::TOPDIR)
        .union(Self::DAX)
        .union(Self::PROJINHERIT)
        .union(Self::CASEFOLD);
    /// The flags that are about a file and not about its storage, so that a copy of it has them,
    /// too.
    pub const KEPT: Self = Self::SETTABLE
        .union(Self::JOURNAL_DATA)
        .union(Self::ENCRYPT)
        .union(Self::VERITY);
}

/// Flag, letter and long name, in the order in which `lsattr` shows them.
const FLAG_NAMES: [(InodeFlags, char, &str); 22] = [
    (InodeFlags::SECRM, 's', "Secure_Deletion"),
    (InodeFlags::UNRM, 'u', "Undelete"),
    (InodeFlags::SYNC, 'S', "Synchronous_Updates"),
    (InodeFlags::DIRSYNC, 'D', "Synchronous_Directory_Updates"),
    (InodeFlags::IMMUTABLE, 'i', "Immutable"),
    (InodeFlags::APPEND, 'a', "Append_Only"),
    (InodeFlags::NODUMP, 'd', "No_Dump"),
    (InodeFlags::NOATIME, 'A', "No_Atime"),
    (InodeFlags::COMPR, 'c', "Compression_Requested"),
    (InodeFlags::ENCRYPT, 'E', "Encrypted"),
    (InodeFlags::JOURNAL_DATA, 'j', "Journaled_Data"),
    (InodeFlags::INDEX, 'I', "Indexed_directory"),
    (InodeFlags::NOTAIL, 't', "No_Tailmerging"),
    (InodeFlags::TOPDIR, 'T', "Top_of_Directory_Hierarchies"),
    (InodeFlags::EXTENTS, 'e', "Extents"),
    (InodeFlags::NOCOW, 'C', "No_COW"),
    (InodeFlags::DAX, 'x', "DAX"),
    (InodeFlags::CASEFOLD, 'F', "Casefold"),
    (InodeFlags::INLINE_DATA, 'N', "Inline_Data"),
    (InodeFlags::PROJINHERIT, 'P', "Project_Hierarchy"),
    (InodeFlags::VERITY, 'V', "Verity"),
    (InodeFlags::NOCOMPR, 'm', "Dont_Compress"),
];

impl InodeFlags {
    /// Returns the flags that have a letter and a long name, in `lsattr`'s order.
    pub fn named(self) -> impl Iterator<Item = (char, &'static str)> {
        FLAG_NAMES
            .iter()
            .filter(move |(flag, ..)| self.contains(*flag))
            .map(|(_, letter, name)| (*letter, *name))
    }

    /// Returns the flags as `lsattr` shows them: a letter or a dash for each.
    pub fn letters(self) -> String {
        FLAG_NAMES
            .iter()
            .map(|(flag, letter, _)| if self.contains(*flag) { *letter } else { '-' })
            .collect()
    }
}

/// The number of a device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// The major number: the driver.
    pub major: u32,
    /// The minor number: the device.
    pub minor: u32,
}

/// The properties of the volume that decide how an inode's fields are read. Each inode in memory
/// has a copy, so it is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    inode_size: u16,
    /// The sectors of a block, as a power of two.
    sector_bits: u8,
    flags: RuleFlags,
}

bitflags! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct RuleFlags: u8 {
        /// `i_blocks` has an upper half, and may count blocks.
        const HUGE_FILE = 1;
        /// `i_size` of a directory has an upper half.
        const LARGE_DIR = 1 << 1;
        /// `i_file_acl` has an upper half.
        const WIDE_XATTR_BLOCK = 1 << 2;
        const PROJECT = 1 << 3;
        /// Users and groups have 16 bits.
        const SHORT_IDS = 1 << 4;
        /// Records have a checksum, if the volume has checksums.
        const CHECKSUM = 1 << 5;
        /// The checksum is verified.
        const VERIFIED = 1 << 6;
    }
}

impl Rules {
    fn of(sb: &Superblock) -> Self {
        let features = sb.features();
        let os = sb.creator_os();
        let flag = |flag: RuleFlags, is_set: bool| if is_set { flag } else { RuleFlags::empty() };
        let flags = flag(RuleFlags::HUGE_FILE, features.ro_compat.contains(RoCompat::HUGE_FILE))
            | flag(RuleFlags::LARGE_DIR, features.incompat.contains(Incompat::LARGEDIR))
            | flag(
                RuleFlags::WIDE_XATTR_BLOCK,
                features.incompat.contains(Incompat::BIT64) && os != CreatorOs::Hurd,
            )
            | flag(RuleFlags::PROJECT, features.ro_compat.contains(RoCompat::PROJECT))
            | flag(RuleFlags::SHORT_IDS, sb.has_short_ids())
            // The inodes of these systems have other fields in its place.
            | flag(RuleFlags::CHECKSUM, !matches!(os, CreatorOs::Hurd | CreatorOs::Masix))
            // Linux does not look at them on volumes of other systems, which may keep something
            // else there.
            | flag(RuleFlags::VERIFIED, os == CreatorOs::Linux);
        // OK: block sizes are powers of two, of 1 KiB to 64 KiB.
        Self {
            inode_size: sb.inode_size(),
            sector_bits: (sb.block_size() / 512).ilog2() as u8,
            flags,
        }
    }

    const fn has(self, flag: RuleFlags) -> bool {
        self.flags.contains(flag)
    }
}

/// A validated inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    base: RawInode,
    extra: RawInodeExtra,
    ino: u32,
    kind: FileKind,
    rules: Rules,
}

impl Inode {
    /// Validates the record of inode `ino`, the first [`Superblock::inode_size`] of `record`.
    ///
    /// Free inodes decode too; [`links`](Self::links) and [`dtime`](Self::dtime) tell them from
    /// others. A record that was never used is all zeros and has no checksum: see [`is_blank`].
    ///
    /// # Errors
    /// [`CorruptKind::Checksum`] if the volume has `metadata_csum` and the checksum is wrong.
    /// [`CorruptKind::Field`] for an invalid file type, a size beyond 63 bits or an `i_extra_isize`
    /// beyond the record. [`CorruptKind::BlockOutOfRange`] for an extended attribute block that the
    /// volume does not have.
    pub fn decode(record: &[u8], ino: u32, sb: &Superblock, at: Place) -> Result<Self, Corrupt> {
        Self::decode_with(record, ino, sb, at, Self::verify_checksum)
    }

    /// Validates a record as [`decode`](Self::decode) does, but one that has [no checksum
    /// yet](Self::encode_fields).
    ///
    /// # Errors
    /// As `decode`.
    pub fn decode_fields(
        record: &[u8],
        ino: u32,
        sb: &Superblock,
        at: Place,
    ) -> Result<Self, Corrupt> {
        Self::decode_with(record, ino, sb, at, |_, _, _, _| Ok(()))
    }

    fn decode_with(
        record: &[u8],
        ino: u32,
        sb: &Superblock,
        at: Place,
        verify: impl FnOnce(&Self, &[u8], ChecksumSeed, Place) -> Result<(), Corrupt>,
    ) -> Result<Self, Corrupt> {
        let at = at.ino(ino);
        let size = usize::from(sb.inode_size());
        let have = record.len() as u64;
        let truncated = at.corrupt(CorruptKind::Truncated {
            need: size as u64,
            have,
        });
        let record = record.get(..size).ok_or(truncated)?;
        let (base, rest) = RawInode::read_from_prefix(record).map_err(|_| truncated)?;
        let extra = match rest {
            [] => RawInodeExtra::new_zeroed(),
            rest => {
                RawInodeExtra::read_from_prefix(rest)
                    .map_err(|_| truncated)?
                    .0
            }
        };
        let extra_size = extra.i_extra_isize.get();
        let extra_ok = usize::from(extra_size) <= rest.len() && extra_size.is_multiple_of(4);
        check(extra_ok, "i_extra_isize", extra_size, at)?;

        let rules = Rules::of(sb);
        let kind = FileKind::of_mode(base.i_mode.get())
            .filter(|kind| {
                *kind != FileKind::None || ino < sb.first_ino() || base.i_links_count.get() == 0
            })
            .ok_or(at.corrupt(CorruptKind::Field {
                field: "i_mode",
                value: base.i_mode.get().into(),
            }))?;
        let inode = Self {
            base,
            extra,
            ino,
            kind,
            rules,
        };
        if let Some(seed) = sb.metadata_seed() {
            verify(&inode, record, seed, at)?;
        }
        check(
            i64::try_from(inode.size()).is_ok(),
            "i_size",
            inode.size(),
            at,
        )?;
        match inode.xattr_block() {
            Some(block) if !sb.geometry().contains_block(block) => {
                Err(at.corrupt(CorruptKind::BlockOutOfRange {
                    field: "i_file_acl",
                    block,
                }))
            }
            _ => Ok(inode),
        }
    }

    fn verify_checksum(
        &self,
        record: &[u8],
        volume: ChecksumSeed,
        at: Place,
    ) -> Result<(), Corrupt> {
        if !self.rules.has(RuleFlags::VERIFIED) {
            return Ok(());
        }
        let Some(computed) = self.compute_checksum(record, volume) else {
            return Ok(());
        };
        let hi = if self.has_wide_checksum() {
            self.extra.i_checksum_hi.get()
        } else {
            0
        };
        verify(join16(self.base.l_i_checksum_lo.get(), hi), computed, at)
    }

    /// Returns the checksum of this inode's record, in as many bits as it has room for. `None` if
    /// the inodes of the volume's creator system have other fields in its place. e2fsprogs 1.47
    /// writes it for all other systems, and e2fsck asks for it.
    fn compute_checksum(&self, record: &[u8], volume: ChecksumSeed) -> Option<u32> {
        if !self.rules.has(RuleFlags::CHECKSUM) {
            return None;
        }
        let seed = self.checksum_seed(volume);
        let base = Crc32c::new(seed.get())
            .update(&record[..CHECKSUM_LO])
            .zeros(2);
        let base = base.update(&record[CHECKSUM_LO + 2..BASE_SIZE]);
        if self.has_wide_checksum() {
            let extra = base.update(&record[BASE_SIZE..CHECKSUM_HI]).zeros(2);
            return Some(extra.update(&record[CHECKSUM_HI + 2..]).finish());
        }
        Some(base.update(&record[BASE_SIZE..]).finish() & 0xffff)
    }

    fn has_wide_checksum(&self) -> bool {
        self.extra_fits(4)
    }

    /// Returns whether the record has the first `len` bytes of the fields past the first 128.
    fn extra_fits(&self, len: u16) -> bool {
        self.extra.i_extra_isize.get() >= len
    }

    fn extra_field(&self, len: u16, field: U32) -> Option<u32> {
        self.extra_fits(len).then_some(field.get())
    }

    /// Writes the inode over its `record`, and computes the checksum if the volume has checksums.
    ///
    /// The extended attributes after the fields stay unchanged, and so do fields that this crate
    /// does not know. `record` must have at least [`Superblock::inode_size`] bytes.
    pub fn encode(&self, record: &mut [u8], sb: &Superblock) {
        let record = &mut record[..usize::from(self.rules.inode_size)];
        self.encode_fields(record);
        let checksum = sb
            .metadata_seed()
            .and_then(|seed| self.compute_checksum(record, seed));
        if let Some([a, b, c, d]) = checksum.map(u32::to_le_bytes) {
            record[CHECKSUM_LO..CHECKSUM_LO + 2].copy_from_slice(&[a, b]);
            if self.has_wide_checksum() {
                record[CHECKSUM_HI..CHECKSUM_HI + 2].copy_from_slice(&[c, d]);
            }
        }
    }

    /// Writes the inode as [`encode`](Self::encode) does, but without a checksum:
    /// [`store_checksum`] adds it later.
    pub fn encode_fields(&self, record: &mut [u8]) {
        let record = &mut record[..usize::from(self.rules.inode_size)];
        record[..BASE_SIZE].copy_from_slice(self.base.as_bytes());
        // A large record always has `i_extra_isize`, though its value may be zero.
        let extra_len = usize::from(self.extra.i_extra_isize.get())
            .clamp(2, EXTRA_SIZE)
            .min(record.len() - BASE_SIZE);
        let extra = self.extra.as_bytes();
        let record = &mut record[BASE_SIZE..];
        // Nearly always these are all fields, and then the copy needs no call.
        if extra_len == EXTRA_SIZE {
            record[..EXTRA_SIZE].copy_from_slice(extra);
        } else {
            record[..extra_len].copy_from_slice(&extra[..extra_len]);
        }
    }

    /// Returns the fields as stored. The fields after the first `i_extra_isize` bytes of the second
    /// part hold bytes of the extended attributes.
    pub const fn raw(&self) -> (&RawInode, &RawInodeExtra) {
        (&self.base, &self.extra)
    }

    /// Returns the inode's number.
    pub const fn ino(&self) -> u32 {
        self.ino
    }

    /// Returns the type of the file.
    pub const fn kind(&self) -> FileKind {
        self.kind
    }

    /// Returns type and permissions, as `stat` gives them.
    pub const fn mode(&self) -> u16 {
        self.base.i_mode.get()
    }

    /// Returns the permissions, with set-user-ID, set-group-ID and sticky bit.
    pub const fn permissions(&self) -> u16 {
        self.mode() & 0o7777
    }

    /// Returns the owner.
    pub fn uid(&self) -> u32 {
        self.shown_id(self.stored_uid())
    }

    /// Returns the group.
    pub fn gid(&self) -> u32 {
        self.shown_id(self.stored_gid())
    }

    /// Returns all stored bits of the owner, even where users have 16 bits: quotas count by them.
    pub fn stored_uid(&self) -> u32 {
        join16(self.base.i_uid.get(), self.base.l_i_uid_high.get())
    }

    /// Returns all stored bits of the group, even where groups have 16 bits.
    pub fn stored_gid(&self) -> u32 {
        join16(self.base.i_gid.get(), self.base.l_i_gid_high.get())
    }

    const fn shown_id(&self, id: u32) -> u32 {
        if self.rules.has(RuleFlags::SHORT_IDS) {
            id & 0xffff
        } else {
            id
        }
    }

    /// Returns the size in bytes of the file; at most `i64::MAX`.
    pub fn size(&self) -> u64 {
        // ext2 kept ACLs of directories in the upper half, so directories have it only with
        // `large_dir`.
        let wide = self.kind == FileKind::Regular || self.rules.has(RuleFlags::LARGE_DIR);
        join(
            self.base.i_size_lo.get(),
            if wide { self.base.i_size_high.get() } else { 0 },
        )
    }

    /// Returns the number of hard links; 1 for a directory with more subdirectories than the field
    /// can count (`dir_nlink`).
    pub const fn links(&self) -> u16 {
        self.base.i_links_count.get()
    }

    /// Returns the number of 512-byte units that the file takes, its map and extended attribute
    /// block included.
    pub fn sectors(&self) -> u64 {
        let lo = self.base.i_blocks_lo.get();
        if !self.rules.has(RuleFlags::HUGE_FILE) {
            return lo.into();
        }
        let blocks = join(lo, self.base.l_i_blocks_high.get().into());
        if self.flags().contains(InodeFlags::HUGE_FILE) {
            return blocks << self.rules.sector_bits;
        }
        blocks
    }

    /// Returns the flags.
    pub const fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.base.i_flags.get())
    }

    /// Returns the generation, which tells this file from earlier ones with the same number.
    pub const fn generation(&self) -> u32 {
        self.base.i_generation.get()
    }

    /// Returns whether the 60 bytes of `i_block` map blocks, and are not a device number, a short
    /// link's target or the data itself.
    pub fn has_map(&self) -> bool {
        if self.flags().contains(InodeFlags::INLINE_DATA) {
            return false;
        }
        match self.kind() {
            FileKind::Regular | FileKind::Directory => true,
            // A target of 60 bytes and more has a block, and so has a shorter one with the extents
            // flag. The count of sectors does not tell: it includes large values of attributes.
            FileKind::Symlink => self.flags().contains(InodeFlags::EXTENTS) || self.size() >= 60,
            // Reserved inodes without a type map the bad blocks and the blocks kept for resizing.
            FileKind::None => self.links() > 0 || self.size() > 0 || self.sectors() > 0,
            FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo | FileKind::Socket => {
                false
            }
        }
    }

    /// Returns the block of extended attributes, if there is one; it is in the volume.
    pub fn xattr_block(&self) -> Option<u64> {
        let hi = if self.rules.has(RuleFlags::WIDE_XATTR_BLOCK) {
            self.base.l_i_file_acl_high.get()
        } else {
            0
        };
        Some(join(self.base.i_file_acl_lo.get(), hi.into())).filter(|block| *block != 0)
    }

    /// Returns when the file was last read.
    pub fn atime(&self) -> Timestamp {
        Timestamp::decode(
            self.base.i_atime.get(),
            self.extra_field(16, self.extra.i_atime_extra),
        )
    }

    /// Returns when the inode was last changed.
    pub fn ctime(&self) -> Timestamp {
        Timestamp::decode(
            self.base.i_ctime.get(),
            self.extra_field(8, self.extra.i_ctime_extra),
        )
    }

    /// Returns when the content was last changed.
    pub fn mtime(&self) -> Timestamp {
        Timestamp::decode(
            self.base.i_mtime.get(),
            self.extra_field(12, self.extra.i_mtime_extra),
        )
    }

    /// Returns when the file was created, if the record has room for it.
    pub fn crtime(&self) -> Option<Timestamp> {
        let seconds = self.extra_field(20, self.extra.i_crtime)?;
        Some(Timestamp::decode(
            seconds,
            self.extra_field(24, self.extra.i_crtime_extra),
        ))
    }

    /// Returns when the file was deleted, in seconds since 1970; 0 if it was not. For an orphan,
    /// see [`next_orphan`](Self::next_orphan).
    pub const fn dtime(&self) -> u32 {
        self.base.i_dtime.get()
    }

    /// Returns the next orphan, for an inode in the list of orphans. The field is that of
    /// [`dtime`](Self::dtime).
    pub fn next_orphan(&self) -> Option<u32> {
        Some(self.dtime()).filter(|ino| *ino != 0)
    }

    /// Returns the project. It is 0, the default one, if the volume has no projects or the record
    /// has no room for one.
    pub fn project(&self) -> u32 {
        self.extra_field(32, self.extra.i_projid)
            .filter(|_| self.rules.has(RuleFlags::PROJECT))
            .unwrap_or(0)
    }

    /// Returns the version, which counts the changes of the file (NFS).
    pub fn version(&self) -> u64 {
        join(
            self.base.l_i_version.get(),
            self.extra_field(28, self.extra.i_version_hi).unwrap_or(0),
        )
    }

    /// Returns the 60 bytes of `i_block`.
    pub const fn map(&self) -> &[u8; MAP_SIZE] {
        &self.base.i_block
    }

    /// Returns the number of a device file, from the first or the second word of the map; `None`
    /// for other files.
    pub fn device(&self) -> Option<DeviceNumber> {
        if !matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            return None;
        }
        let [a, b, c, d, e, f, g, h, ..] = self.base.i_block;
        let old = u32::from_le_bytes([a, b, c, d]);
        let new = u32::from_le_bytes([e, f, g, h]);
        Some(if old != 0 {
            DeviceNumber {
                major: old >> 8 & 0xff,
                minor: old & 0xff,
            }
        } else {
            DeviceNumber {
                major: new >> 8 & 0xfff,
                minor: new & 0xff | new >> 12 & 0xf_ff00,
            }
        })
    }

    /// Returns how many attributes share the value of an extended attribute inode.
    pub const fn ea_refcount(&self) -> u64 {
        join(self.base.l_i_version.get(), self.base.i_ctime.get())
    }

    /// Returns the checksum of the value of an extended attribute inode.
    pub const fn ea_hash(&self) -> u32 {
        self.base.i_atime.get()
    }

    /// Returns whether this extended attribute inode names `owner` as Lustre did: by its number in
    /// place of a time, and by its generation. If its hash is wrong as well, it has neither hash
    /// nor reference count, and belongs to `owner` alone.
    pub fn may_be_old_value_of(&self, owner: &Self) -> bool {
        self.base.i_mtime.get() == owner.ino() && self.generation() == owner.generation()
    }

    /// Returns the seed for the checksums of all that belongs to this inode, given the volume's
    /// seed.
    pub fn checksum_seed(&self, volume: ChecksumSeed) -> ChecksumSeed {
        volume.inode(self.ino, self.generation())
    }

    /// Returns the size in bytes of the fields past the first 128 bytes, `i_extra_isize`.
    pub const fn extra_isize(&self) -> u16 {
        self.extra.i_extra_isize.get()
    }

    /// Returns the part of its `record` that is for extended attributes; empty if there is none.
    ///
    /// The part begins with a magic number if the inode has attributes there.
    pub fn xattr_area<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        record.get(self.xattr_range()).unwrap_or_default()
    }

    /// Returns the range of the record that [`xattr_area`](Self::xattr_area) borrows; it may be
    /// empty.
    pub fn xattr_range(&self) -> Range<usize> {
        let end = usize::from(self.rules.inode_size);
        // Without extra fields the rest of the record was never initialized.
        match usize::from(self.extra_isize()) {
            0 => end..end,
            extra => (BASE_SIZE + extra).min(end)..end,
        }
    }
}

/// Returns whether a record has a nonzero number for a block of extended attributes.
/// [`Inode::xattr_block`] may still return `None`: it ignores the high half where the volume does
/// not use it.
pub fn has_xattr_block(record: &[u8]) -> bool {
    let Ok((base, _)) = RawInode::ref_from_prefix(record) else {
        return false;
    };
    base.i_file_acl_lo.get() != 0 || base.l_i_file_acl_high.get() != 0
}

/// Computes the checksum of the record of inode `ino` and stores it, if the volume has checksums.
///
/// This is for a record put together from several sources; for a decoded one, [`Inode::encode`]
/// does it. A record that is too short, or whose `i_extra_isize` exceeds it, stays unchanged:
/// [`Inode::decode`] will refuse it.
pub fn store_checksum(record: &mut [u8], ino: u32, sb: &Superblock) {
    let Some(record) = record.get_mut(..usize::from(sb.inode_size())) else {
        return;
    };
    let Ok((base, rest)) = RawInode::read_from_prefix(record) else {
        return;
    };
    let extra = RawInodeExtra::read_from_prefix(rest)
        .map_or(RawInodeExtra::new_zeroed(), |(extra, _)| extra);
    if usize::from(extra.i_extra_isize.get()) > rest.len() {
        return;
    }
    let inode = Inode {
        base,
        extra,
        ino,
        kind: FileKind::None,
        rules: Rules::of(sb),
    };
    inode.encode(record, sb);
}

/// Returns whether two records differ in the time of the last access at most, and so in the
/// checksum.
pub fn is_same_but_for_atime(one: &[u8], other: &[u8]) -> bool {
    let extra_isize = one
        .get(BASE_SIZE..)
        .and_then(|rest| RawInodeExtra::read_from_prefix(rest).ok());
    let extra_isize = extra_isize.map_or(0, |(extra, _)| extra.i_extra_isize.get());
    let mut at = 0;
    for (start, len, needed) in [
        (ATIME, 4, 0),
        (CHECKSUM_LO, 2, 0),
        (CHECKSUM_HI, 2, 4),
        (ATIME_EXTRA, 4, 16),
    ] {
        if extra_isize >= needed {
            if one.get(at..start) != other.get(at..start) {
                return false;
            }
            at = start + len;
        }
    }
    one.get(at..) == other.get(at..)
}

/// Returns whether a record was never used: it is all zeros, and so has no checksum.
pub fn is_blank(record: &[u8]) -> bool {
    record.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_as_lsattr_shows_them() {
        assert_eq!(InodeFlags::all().letters(), "suSDiadAcEjItTeCxFNPVm");
        assert_eq!(InodeFlags::EXTENTS.letters(), "--------------e-------");
        let names: Vec<_> = (InodeFlags::EXTENTS | InodeFlags::IMMUTABLE | InodeFlags::HUGE_FILE)
            .named()
            .collect();
        assert_eq!(names, [('i', "Immutable"), ('e', "Extents")]);
    }

    #[test]
    fn records_may_differ_in_the_time_of_access() {
        let bytes_that_count = |size: usize, extra_isize: u8| {
            let mut record = vec![7; size];
            if size > BASE_SIZE {
                record[BASE_SIZE..BASE_SIZE + 2].copy_from_slice(&[extra_isize, 0]);
            }
            assert!(is_same_but_for_atime(&record, &record));
            let counts = (0..size).filter(|at| {
                let mut other = record.clone();
                other[*at] ^= 1;
                !is_same_but_for_atime(&record, &other)
            });
            counts.collect::<Vec<_>>()
        };
        let all_but = |size, out: &[Range<usize>]| -> Vec<_> {
            (0..size)
                .filter(|at| !out.iter().any(|range| range.contains(at)))
                .collect()
        };
        let atime = 8..12;
        let low = 0x7c..0x7e;
        let high = 0x82..0x84;
        assert_eq!(
            bytes_that_count(128, 0),
            all_but(128, &[atime.clone(), low.clone()])
        );
        assert_eq!(
            bytes_that_count(256, 0),
            all_but(256, &[atime.clone(), low.clone()])
        );
        assert_eq!(
            bytes_that_count(256, 4),
            all_but(256, &[atime.clone(), low.clone(), high.clone()])
        );
        assert_eq!(
            bytes_that_count(256, 32),
            all_but(256, &[atime, low, high, 0x8c..0x90])
        );
        assert!(!is_same_but_for_atime(&[0; 128], &[0; 256]));
    }

    #[test]
    fn kinds_and_modes() {
        let kinds = (0..=15u16).filter_map(|bits| FileKind::of_mode(bits << 12 | 0o644));
        let modes: Vec<u16> = kinds.map(FileKind::mode_bits).collect();
        assert_eq!(
            modes,
            [0, 0x1000, 0x2000, 0x4000, 0x6000, 0x8000, 0xa000, 0xc000]
        );
    }

    #[test]
    fn a_record_says_whether_there_is_a_block_of_attributes() {
        let [none, mut low, mut high] = [RawInode::new_zeroed(); 3];
        low.i_file_acl_lo.set(1 << 31);
        high.l_i_file_acl_high.set(1);
        assert_eq!(
            [none, low, high].map(|base| has_xattr_block(base.as_bytes())),
            [false, true, true]
        );
    }
}
