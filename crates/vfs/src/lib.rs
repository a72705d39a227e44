//! A Linux-like VFS in user space.
//!
//! The FUSE server and the `extern4` crate are its hosts. Rights, errors and their order are
//! Linux's.
//!
//! It knows inodes, dentries, path walk, permissions, ACLs, sessions and mounts, and no on-disk
//! format: a file system plugs in through the traits of [`fs`]. A host makes a [`SuperBlock`] of a
//! file system, builds a [`Namespace`] on it, and acts through a [`Session`] for each caller.
//!
//! ```
//! use extern4_vfs::{
//!     Access, Cred, Errno, LookupFlags, MemFs, MemLimits, Namespace, OpenFlags, Session,
//!     SuperBlock, SuperOptions,
//! };
//!
//! # fn main() -> extern4_vfs::Result<()> {
//! let sb = SuperBlock::new(MemFs::new(MemLimits::default()), SuperOptions::default())?;
//! let root = Session::new(&Namespace::new(sb), Cred::root());
//! root.mkdir("/etc", 0o755)?;
//! let file = root.open("/etc/motd", OpenFlags::WRITE | OpenFlags::CREATE)?;
//! file.write_at(b"hello", 0)?;
//!
//! let user = root.with_cred(Cred::new(1000, 1000, &[]));
//! assert_eq!(user.stat("/etc/motd", LookupFlags::FOLLOW)?.size, 5);
//! let refused = user.access("/etc/motd", Access::WRITE, LookupFlags::FOLLOW).unwrap_err();
//! assert_eq!(refused, Errno::EACCES);
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod acl_cache;
#[cfg(feature = "lab")]
mod acl_lock;
pub mod attr;
mod clock;
mod create;
pub mod cred;
mod dcache;
mod dentry;
mod dentry_state;
pub mod dir_batch;
pub mod errno;
pub mod file;
pub mod fs;
mod handle;
mod icache;
pub mod inode;
mod inode_attrs;
mod key_locks;
#[cfg(feature = "lab")]
pub mod lab;
mod link;
mod lock;
pub mod lookup;
#[cfg(all(test, feature = "loom", not(feature = "shuttle")))]
#[path = "../tests/loom/mod.rs"]
mod loom_tests;
pub mod memfs;
pub mod mount;
mod name;
mod open;
pub mod open_files;
mod open_flags;
pub mod permission;
mod permission_cache;
mod range_lock;
mod rename;
pub mod session;
pub mod setattr;
pub mod superblock;
pub mod xattr;

pub use attr::{Attr, FileFlags, FileType, NamesAttr, Rdev, StatFs, Timespec};
pub use cred::{Caps, Cred};
pub use dir_batch::{DirBatch, DirEntry};
pub use errno::{Errno, Error, Result};
pub use extern4_acl::{Acl, AclEntry, AclError, AclKind, AclTag, XattrNamespace};
pub use extern4_sync::cache_budget::CacheBudget;
pub use file::{OpenFile, OpenHow};
pub use fs::{
    ChangeContext, FallocateMode, FileOps, FileSystem, FsTraits, InodeOps, Lent, NameRef, NewKind,
    NewNode, RawDirEntry, Rename, RenameFlags, SetAttr, SpaceRights, Span, SpanKind, Take,
    XattrFlags,
};
pub use inode::{Inode, NewInode};
pub use lookup::LookupFlags;
pub use memfs::{MemFs, MemLimits};
pub use mount::{Location, Mount, MountRef, Namespace};
pub use name::{hash_name, new_seed};
pub use open_files::{OpenFileInfo, OpenFileStats};
pub use open_flags::OpenFlags;
pub use permission::{Access, SecurityHook};
pub use session::{Session, Uncached};
pub use setattr::{Attributes, SetTime};
pub use superblock::{Atime, CacheStats, Shutdown, SuperBlock, SuperOptions};
