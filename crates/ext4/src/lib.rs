//! The ext4 file system: reads and changes ext2, ext3 and ext4 volumes behind the traits of
//! `extern4_vfs`.
//!
//! [`Ext4::open`] and [`Ext4::open_for_writing`] make a file system from a device. The VFS calls it
//! through `FileSystem`, `InodeOps` and `FileOps`. [`Ext4`]'s own methods are for experts.
//!
//! The folders are layers. A file imports files in the same folder and in folders below it in this
//! table, and `xtask tidy` finds a circle of folders.
//!
//! | folder | holds |
//! |---|---|
//! | `mount` | opening a volume: its features and its journal |
//! | `own_files` | making and removing the journal and quota files |
//! | `ops` | the VFS traits, and the operations that create, link, rename and delete |
//! | `dir` | listing, lookup and changes of names, in linear, hashed and inline directories |
//! | `file` | contents of regular files and targets of symbolic links |
//! | `inline` | contents inside the inode |
//! | `quota` | usage and limits of users, groups and projects |
//! | `tune` | changes of the superblock |
//! | `xattr` | extended attributes and ACLs |
//! | `map` | the map from a file's blocks to the volume's: extents and indirect blocks |
//! | `handle` | one change inside a transaction: what it allocates, stores and publishes |
//! | `fs` | `Ext4` itself: the volume, the writer that all changes share, and the open options |
//! | `alloc` | the state of free blocks and inodes, orphans, discard |
//! | `mbcache` | finding attribute blocks and values that inodes can share |
//! | `inode` | what an inode in use keeps |
//! | `volume` | geometry, group descriptors, buffers, system zones |
//!
//! The folders below `fs` do not know `Ext4`: it holds their state. In the folders above,
//! operations are functions that take it, or a handle, as their first argument. Questions about one
//! inode are methods of `InodeInfo`.
//!
//! The code that reads a structure and the code that changes it are in one folder. An operation
//! that changes the volume reserves the blocks that it may need and opens a handle (`handle`). It
//! does all its work in that one transaction.
//!
//! Invariants: a volume opened for reading is never written. Every number from the volume is
//! checked before it is used, and an error names the broken structure and its place. No walk over a
//! structure is longer than the structure.

#![forbid(unsafe_code)]

mod alloc;
mod dir;
mod dir_entries;
pub mod error;
mod expert;
mod file;
mod fs;
mod fscrypt;
mod fscrypt_name;
mod handle;
mod inline;
mod inode;
mod map;
pub mod mbcache;
mod mount;
mod ops;
pub mod own_files;
pub mod quota;
mod run;
mod time;
pub mod tune;
mod volume;
mod xattr;

pub use dir::htree::read::{HtreeEntry, NameHash};
pub use error::{Error, InUse, Result, Unsupported};
pub use extern4_disk::superblock::ErrorPolicy;
pub use extern4_jbd2::{DEFAULT_COMMIT_INTERVAL, Replayed, Stats as JournalStats};
pub use fs::Ext4;
pub use fs::data_mode::DataMode;
pub use fs::options::OpenOptions;
pub use fs::transaction::Transaction;
pub use map::inode_blocks;
pub use map::walk::{DataRun, MapNode, MapVisitor};
#[cfg(feature = "lab")]
pub use mbcache::blocks::BlockCache;
pub use mbcache::sharing::SharingStats;
pub use mount::features::unwritable;
pub use mount::journal;
pub use run::{Run, RunKind};
pub use tune::checksum_rewrite;
pub use volume::Volume;
pub use volume::loss::Listener;
pub use volume::superblock::Backup;
