//! The ext4 file system: reads and changes ext2, ext3 and ext4 volumes behind the traits of `extern4_vfs`.
//!
//! [`Ext4::open`] takes a device and makes a file system of it; the VFS calls it through `FileSystem`, `InodeOps` and
//! `FileOps` (module `ops`), each of which goes to the module named after what it does: `namei` looks names up, `dir`
//! lists, `file` reads what `encryption` lets out, `map` finds blocks by `extents` or `indirect`, `xattr` and `acl` read attributes. All of them
//! read metadata through the buffer cache and verify a block's checksum once a load. What `journal` and `fast_commit`
//! find that the blocks do not say yet is seen by all of them. [`Ext4`]'s own methods are for experts.
//!
//! A volume from [`Ext4::open_for_writing`] can be changed. Each operation is a `change`: it sets aside the blocks that it may need
//! (`balloc`), opens a handle of the journal's, and works through the modules beside those that read: `create` and `link` make,
//! name and remove files by `ialloc` and `names`; `file_change` and `fallocate` change contents by `map_change`; `set_attr`,
//! `xattr_change` and `acl_change` change what belongs to an inode, in the record, in an `attr_block` that inodes with the same attributes
//! share (`sharing`, found through `mbcache`), and in `ea_inode`s. `quota` counts what is taken and given back; `trim` tells the device what
//! is free. What the VFS's inode keeps is a `node`. `writer` is what all changes share.
//!
//! Invariants: a volume that was opened for reading is never written; every number from the volume is checked before it is used, and an error says
//! which structure is broken and where; no walk over a structure is longer than the structure.

#![forbid(unsafe_code)]

mod acl;
mod acl_change;
mod attr_block;
mod attrs;
mod balloc;
mod buffer;
mod casefold;
mod change;
pub mod check;
pub mod checksum_rewrite;
mod create;
mod data_journal;
mod dir;
mod ea_inode;
mod encryption;
pub mod error;
mod expert;
mod extent_change;
mod extent_tree;
mod extents;
mod fallocate;
mod fast_commit;
mod file;
mod file_change;
mod free_map;
mod group;
mod htree;
mod htree_change;
mod ialloc;
mod indirect;
mod indirect_change;
mod inline;
mod inline_change;
mod inline_dir;
mod inline_file;
mod inode;
pub mod journal;
mod lazy_times;
mod link;
mod loss;
pub mod map;
mod map_change;
pub mod mbcache;
mod mmp;
mod mount;
mod namei;
mod names;
mod near;
mod node;
mod nokey;
mod ops;
mod orphan;
pub mod quota;
mod quota_file;
mod records;
mod seal;
mod set_attr;
mod sha256;
mod sharing;
mod superblock;
mod symlink;
mod system_zone;
mod trim;
pub mod tune;
mod upgrade;
mod window;
mod writer;
mod xattr;
mod xattr_change;

pub use data_journal::DataMode;
pub use error::{Error, InUse, Result, Unsupported};
pub use expert::HtreeEntry;
pub use extern4_disk::superblock::ErrorPolicy;
pub use extern4_jbd2::Stats as JournalStats;
pub use loss::OnLoss;
pub use map::{Run, RunKind};
#[cfg(feature = "lab")]
pub use mbcache::blocks::BlockCache;
pub use mount::{Ext4, OpenOptions};
pub use sharing::SharingStats;
pub use superblock::Backup;
