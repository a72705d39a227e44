//! The on-disk structures of ext2, ext3, ext4 and jbd2.
//!
//! This crate turns bytes into validated types and back; it does no I/O and knows no policy. Each structure comes in
//! two forms: a raw struct, laid out as on the disk, whose fields carry the names of the format's documentation and
//! whose size the compiler checks; and a validated type, which can only be had through `decode`, and whose fields
//! cannot be wrong by themselves. Bytes that break the format are a [`Corrupt`]: what rule, and where.
//!
//! Numbers are little-endian everywhere but in the journal, which is big-endian; the raw structs say so by type.

#![forbid(unsafe_code)]

pub mod acl;
pub mod bitmap;
pub mod blocks;
pub mod checksum;
pub mod corrupt;
pub mod dirent;
pub mod extent;
pub mod fast_commit;
pub mod feature;
pub mod geometry;
pub mod group;
pub mod htree;
pub mod indirect;
pub mod inline;
pub mod inode;
pub mod journal;
pub mod mmp;
pub mod orphan;
pub mod quota;
pub mod superblock;
pub mod time;
pub mod xattr;

pub use corrupt::{Corrupt, CorruptKind, Place, Structure};
