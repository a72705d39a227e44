//! The on-disk structures of ext2, ext3, ext4 and jbd2.
//!
//! `jbd2`, `ext4`, `mkfs`, the builder and the checker decode and encode everything through it.
//!
//! This crate turns bytes into validated types and back. It does no I/O and sets no policy. Each
//! structure comes in two forms. The raw struct is laid out as on the disk: its fields carry the
//! names of the format's documentation, and the compiler checks its size. The validated type comes
//! only from `decode`, and each of its fields holds a valid value. Bytes that break the format give
//! a [`Corrupt`]: the broken rule and its place.
//!
//! Numbers are little-endian everywhere but in the journal, which is big-endian; the types of the
//! raw structs show it.

#![forbid(unsafe_code)]

pub mod acl;
pub mod bitmap;
pub mod blocks;
pub mod casefold;
pub mod checksum;
pub mod corrupt;
pub mod dirent;
pub mod extent;
pub mod fast_commit;
pub mod feature;
pub mod group;
pub mod htree;
pub mod indirect;
pub mod inline;
pub mod inode;
mod inode_number;
pub mod journal;
pub mod mmp;
pub mod orphan;
pub mod quota;
pub mod superblock;
pub mod time;
pub mod xattr;

pub use corrupt::{Corrupt, CorruptKind, Place, Structure};
pub use superblock::geometry;
