//! Sizes of a volume, and the layout of its structures.
//!
//! `Info` has them.

use std::fmt;

use extern4_disk::feature::RoCompat;
use extern4_disk::quota::Kind;
use extern4_disk::superblock::Superblock;
use extern4_vfs::StatFs;

/// Sizes and free space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a cluster; `None` without the feature `bigalloc`.
    pub cluster_size: Option<u64>,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks reserved for the superuser.
    pub reserved_blocks: u64,
    /// The user that may take reserved blocks, too.
    pub reserved_uid: u32,
    /// The group that may take reserved blocks, too.
    pub reserved_gid: u32,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u64,
}

impl Space {
    pub(super) fn of(superblock: &Superblock, free: &StatFs) -> Self {
        let (reserved_uid, reserved_gid) = superblock.reserved_ids();
        let has_clusters = superblock.geometry().bigalloc();
        Self {
            block_size: superblock.block_size(),
            cluster_size: has_clusters.then(|| superblock.cluster_size()),
            blocks: superblock.blocks_count(),
            free_blocks: free.blocks_free,
            reserved_blocks: superblock.reserved_blocks(),
            reserved_uid,
            reserved_gid,
            inodes: superblock.inodes_count(),
            free_inodes: free.files_free,
        }
    }

    /// Returns the bytes of that many blocks.
    pub fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.block_size.into())
    }
}

/// The layout of a volume's structures.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// The first block of data.
    pub first_block: u32,
    /// Block groups.
    pub groups: u32,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Blocks of the inode table of a group.
    pub inode_blocks_per_group: u32,
    /// Bytes of a group descriptor.
    pub descriptor_size: u16,
    /// Blocks reserved for more descriptors.
    pub reserved_gdt_blocks: u16,
    /// Groups of a flexible group; 1 without the feature `flex_bg`.
    pub groups_per_flex: u32,
    /// The layout of a RAID below; `None` if the volume notes none.
    pub raid: Option<Raid>,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Bytes after the first 128 that each inode has to use.
    pub extra_isize_required: u16,
    /// Bytes after the first 128 that new inodes use.
    pub extra_isize_desired: u16,
    /// The first inode that is not reserved.
    pub first_inode: u32,
    /// The name of the hash of new directories.
    pub directory_hash: &'static str,
    /// Whether that hash takes bytes as unsigned, where its name does not say so.
    pub has_unsigned_hash: bool,
    /// The seed of that hash.
    pub hash_seed: [u8; 16],
    /// The structures that have checksums.
    pub checksums: Checksums,
    /// Multiple mount protection; `None` without the feature.
    pub multiple_mount: Option<MultipleMount>,
    /// The inodes of the volume's own files.
    pub inodes: InternalInodes,
}

/// The layout of a RAID, in blocks of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raid {
    /// Blocks on one disk before the next.
    pub stride: u16,
    /// Blocks of a stripe.
    pub stripe_width: u32,
}

/// The structures that have checksums, and their function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// None has.
    None,
    /// Group descriptors have a CRC16 (`uninit_bg`).
    Descriptors,
    /// All metadata has a CRC32C (`metadata_csum`).
    Metadata,
}

/// Multiple mount protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultipleMount {
    /// The block that a host writes while it has the volume mounted.
    pub block: u64,
    /// Seconds between the writes.
    pub interval: u16,
}

/// The inodes of the volume's own files; `None` for a file that the volume does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InternalInodes {
    /// The journal.
    pub journal: Option<u32>,
    /// The orphan file.
    pub orphan_file: Option<u32>,
    /// The quotas of users.
    pub user_quota: Option<u32>,
    /// The quotas of groups.
    pub group_quota: Option<u32>,
    /// The quotas of projects.
    pub project_quota: Option<u32>,
    /// The first inode of the orphan list.
    pub first_orphan: Option<u32>,
}

impl Layout {
    pub(super) fn of(superblock: &Superblock) -> Self {
        let geometry = superblock.geometry();
        let (extra_isize_required, extra_isize_desired) = superblock.extra_isize();
        let (stride, stripe_width) = superblock.raid();
        let mut hash_seed = [0; 16];
        let words = superblock.hash_seed().map(u32::to_le_bytes);
        hash_seed.copy_from_slice(words.as_flattened());
        Self {
            first_block: geometry.first_data_block(),
            groups: geometry.group_count(),
            blocks_per_group: geometry.blocks_per_group(),
            inodes_per_group: geometry.inodes_per_group(),
            inode_blocks_per_group: geometry.inode_table_blocks(),
            descriptor_size: geometry.desc_size(),
            reserved_gdt_blocks: superblock.reserved_gdt_blocks(),
            groups_per_flex: geometry.groups_per_flex(),
            raid: (stride != 0 || stripe_width != 0).then_some(Raid {
                stride,
                stripe_width,
            }),
            inode_size: superblock.inode_size(),
            extra_isize_required,
            extra_isize_desired,
            first_inode: superblock.first_ino(),
            directory_hash: hash_name(superblock.default_hash_version()),
            has_unsigned_hash: superblock.unsigned_hash() && superblock.default_hash_version() < 3,
            hash_seed,
            checksums: Checksums::of(superblock),
            multiple_mount: superblock.mmp_block().map(|block| MultipleMount {
                block,
                interval: superblock.mmp_interval(),
            }),
            inodes: InternalInodes {
                journal: superblock.journal_inode(),
                orphan_file: superblock.orphan_file_inode(),
                user_quota: superblock.quota_inode(Kind::User),
                group_quota: superblock.quota_inode(Kind::Group),
                project_quota: superblock.quota_inode(Kind::Project),
                first_orphan: superblock.last_orphan(),
            },
        }
    }
}

/// Returns the name of a hash of directories by its number on the volume.
fn hash_name(version: u8) -> &'static str {
    match version {
        0 => "legacy",
        1 => "half_md4",
        2 => "tea",
        3 => "legacy_unsigned",
        4 => "half_md4_unsigned",
        5 => "tea_unsigned",
        6 => "siphash",
        _ => "unknown",
    }
}

impl Checksums {
    fn of(superblock: &Superblock) -> Self {
        let features = superblock.features();
        if features.metadata_csum() {
            Self::Metadata
        } else if features.ro_compat.contains(RoCompat::GDT_CSUM) {
            Self::Descriptors
        } else {
            Self::None
        }
    }
}

impl fmt::Display for Checksums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "crc32c of all metadata",
            Self::Descriptors => "crc16 of group descriptors",
            Self::None => "none",
        })
    }
}
