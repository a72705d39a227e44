//! [`Options`]: the options of `mke2fs(8)`.
//!
//! The command, `build` and programs fill them; `numbers`, `features`, `superblock` and `draft`
//! read them. A wrong or contradicting value is not found here, but by
//! [`Plan::new`](crate::Plan::new). With equal options, equal configurations and equal device
//! sizes, equal volumes are made.

use std::fs::File;
use std::io::{self, Read as _};
use std::time::{SystemTime, UNIX_EPOCH};

use extern4_disk::quota::Kind;

use crate::external_journal::ExternalJournal;

/// The size of the journal (`-J size=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalSize {
    /// In MiB.
    Mebibytes(u32),
    /// In blocks of the volume.
    Blocks(u32),
}

/// A length, or a place, in a volume whose block size may not be chosen yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// In blocks of the volume.
    Blocks(u64),
    /// In bytes; a part of a block does not count.
    Bytes(u64),
}

impl Length {
    /// Returns the number of whole blocks.
    pub(crate) fn blocks(self, block_size: u32) -> u64 {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Bytes(bytes) => bytes / u64::from(block_size),
        }
    }
}

/// The options of `mke2fs(8)`. `None` leaves a choice to the configuration and to the size of the
/// volume.
///
/// By default UUID, hash seed and time are zero, so that the same volume is made each time.
/// [`Options::unique`] sets these three.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The type of file system (`-t`): `ext2`, `ext3`, `ext4` or another one of the configuration.
    pub fs_type: String,
    /// The usage of the volume (`-T`): types of the configuration.
    pub usage: Vec<String>,
    /// The block size in bytes (`-b`).
    pub block_size: Option<u32>,
    /// The least block size in bytes (`-b -SIZE`), where the configuration has a smaller one.
    pub least_block_size: Option<u32>,
    /// The size of the volume in bytes, rounded down to whole blocks; `None` fills the device, in
    /// whole pages of 4096 bytes.
    pub size: Option<u64>,
    /// Blocks of a group (`-g`).
    pub blocks_per_group: Option<u32>,
    /// Groups of a flexible group (`-G`): a power of two.
    pub groups_per_flex: Option<u32>,
    /// Bytes of the volume for each inode (`-i`).
    pub inode_ratio: Option<u64>,
    /// Bytes of an inode (`-I`).
    pub inode_size: Option<u16>,
    /// The least number of inodes (`-N`).
    pub inodes: Option<u64>,
    /// Features to add, or with `^` to remove, in this order (`-O`); `none` removes all.
    pub features: Vec<String>,
    /// The quotas that the feature `quota` turns on (`-E quotatype=`). `None` means the quotas of
    /// users and groups, and of projects with the feature `project`.
    pub quota: Option<Vec<Kind>>,
    /// Whether the volume gets a journal regardless of its type (`-j`).
    pub journal: bool,
    /// Size of the journal (`-J size=`).
    pub journal_size: Option<JournalSize>,
    /// The place from which on free space for the journal is searched (`-J location=`); `None` for
    /// the start of the middle group.
    pub journal_location: Option<Length>,
    /// Size of the fast commit area in KiB (`-J fast_commit_size=`).
    pub fast_commit_kib: Option<u32>,
    /// The external journal (`-J device=`).
    pub external_journal: Option<ExternalJournal>,
    /// The percentage of blocks that are reserved for the superuser (`-m`): 0 to 50.
    pub reserved_percent: Option<f64>,
    /// The label (`-L`): 16 bytes at most.
    pub label: Option<String>,
    /// The directory on which the volume was mounted last (`-M`).
    pub last_mounted: Option<String>,
    /// The UUID (`-U`).
    pub uuid: [u8; 16],
    /// The seed of directories' hashes (`-E hash_seed=`).
    pub hash_seed: [u8; 16],
    /// The seed of checksums with the feature `metadata_csum_seed`; `None` derives it from the
    /// UUID.
    pub checksum_seed: Option<u32>,
    /// The reaction of the kernel to an error that it finds (`-e`): 1 continue, 2 read-only, 3
    /// panic.
    pub errors: Option<u16>,
    /// The revision (`-r`): 0 or 1.
    pub revision: u32,
    /// The number of the system that the volume is for (`-o`): 0 is Linux.
    pub creator_os: u32,
    /// Owner and group of the root directory (`-E root_owner=`).
    pub root_owner: (u32, u32),
    /// The permissions of the root directory (`-E root_perms=`); `None` means 0755.
    pub root_perms: Option<u16>,
    /// Whether the volume is for experimental code of the kernel (`-E test_fs`).
    pub is_test: bool,
    /// Whether the kernel refuses names that are no UTF-8, with the feature `casefold`
    /// (`-E encoding_flags=strict`).
    pub strict_encoding: bool,
    /// Whether bitmaps, inode tables and the journal are at the start of the volume
    /// (`-E packed_meta_blocks`). Bitmaps and tables need the feature `flex_bg` for it.
    pub packed_metadata: bool,
    /// The size of the orphan file (`-E orphan_file_size=`).
    pub orphan_file_size: Option<Length>,
    /// Whether blocks that the device has for the volume stay allocated (`-E nodiscard`).
    pub keep_allocated: bool,
    /// Whether only superblocks and group descriptors are to be written, over a volume of the same
    /// options that has lost them (`-S`). Readers then believe no count and no bitmap, and e2fsck
    /// sets them right.
    pub superblocks_only: bool,
    /// Blocks that are not to be used, since the device cannot hold contents there (`-l`).
    pub bad_blocks: Vec<u64>,
    /// Blocks of a RAID's stripe on one disk (`-E stride=`).
    pub stride: u16,
    /// Blocks of a RAID's stripe on all disks (`-E stripe_width=`).
    pub stripe_width: u32,
    /// The size that the volume may grow to while it is mounted (`-E resize=`).
    pub resize_limit: Option<Length>,
    /// Copies of the superblock with `sparse_super2` (`-E num_backup_sb=`): 0 to 2.
    pub backup_superblocks: Option<u32>,
    /// Seconds between two updates of the block of `mmp` (`-E mmp_update_interval=`).
    pub mmp_interval: Option<u16>,
    /// Default mount options (`-E mount_opts=`).
    pub mount_options: Option<String>,
    /// The time of creation, in seconds since 1970.
    pub time: u64,
}

impl Options {
    /// Returns the default options with a random UUID, a random hash seed and the current time.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn unique() -> io::Result<Self> {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        Ok(Self {
            uuid: random_uuid()?,
            hash_seed: random_uuid()?,
            time,
            ..Self::default()
        })
    }
}

/// Returns a random UUID, of version 4.
///
/// # Errors
/// The system gives no random bytes.
pub fn random_uuid() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}

/// Returns a UUID that is made of the time, of version 1. In place of the address of a network card
/// it has a random one, as RFC 4122 says in 4.5.
///
/// # Errors
/// The system gives no random bytes.
pub fn time_uuid() -> io::Result<[u8; 16]> {
    /// Steps of 100 ns from the first day of the Gregorian calendar to 1970.
    const TO_1970: u128 = 0x01b2_1dd2_1381_4000;
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    let time = (since / 100 + TO_1970).to_be_bytes();
    let mut bytes = random_uuid()?;
    bytes[..4].copy_from_slice(&time[12..]);
    bytes[4..6].copy_from_slice(&time[10..12]);
    bytes[6] = time[8] & 0x0f | 0x10;
    bytes[7] = time[9];
    // A bit that no network card has in its address.
    bytes[10] |= 1;
    Ok(bytes)
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fs_type: "ext4".to_owned(),
            usage: Vec::new(),
            block_size: None,
            least_block_size: None,
            size: None,
            blocks_per_group: None,
            groups_per_flex: None,
            inode_ratio: None,
            inode_size: None,
            inodes: None,
            features: Vec::new(),
            quota: None,
            journal: false,
            journal_size: None,
            journal_location: None,
            fast_commit_kib: None,
            external_journal: None,
            reserved_percent: None,
            label: None,
            last_mounted: None,
            uuid: [0; 16],
            hash_seed: [0; 16],
            checksum_seed: None,
            errors: None,
            revision: 1,
            creator_os: 0,
            root_owner: (0, 0),
            root_perms: None,
            is_test: false,
            strict_encoding: false,
            packed_metadata: false,
            orphan_file_size: None,
            keep_allocated: false,
            superblocks_only: false,
            bad_blocks: Vec::new(),
            stride: 0,
            stripe_width: 0,
            resize_limit: None,
            backup_superblocks: None,
            mmp_interval: None,
            mount_options: None,
            time: 0,
        }
    }
}
