//! The numbers of reserved inodes.
//!
//! `inode` hands them on to other crates. Source: the kernel's
//! `Documentation/filesystems/ext4/special_inodes.rst`.

/// The list of defective blocks.
pub const BAD_BLOCKS_INO: u32 = 1;
/// The root directory.
pub const ROOT_INO: u32 = 2;
/// The users' quota file by tradition; the superblock names the actual one.
pub const USER_QUOTA_INO: u32 = 3;
/// The groups' quota file by tradition; the superblock names the actual one.
pub const GROUP_QUOTA_INO: u32 = 4;
/// The boot loader.
pub const BOOT_LOADER_INO: u32 = 5;
/// The undelete directory.
pub const UNDELETE_DIR_INO: u32 = 6;
/// The blocks reserved for growing the descriptor table.
pub const RESIZE_INO: u32 = 7;
/// The journal by tradition; the superblock names the actual one.
pub const JOURNAL_INO: u32 = 8;
/// The snapshots' exclude inode (never released).
pub const EXCLUDE_INO: u32 = 9;
/// The replica inode (never released).
pub const REPLICA_INO: u32 = 10;
