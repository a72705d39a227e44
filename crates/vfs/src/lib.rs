//! A Linux-like VFS in user space.
//!
//! It knows inodes, dentries, path walk, permissions, ACLs, sessions and mounts, and no on-disk format: a file system
//! plugs in through the traits of [`fs`].

#![forbid(unsafe_code)]

pub mod acl;
pub mod attr;
pub mod errno;
pub mod fs;
pub mod inode;

pub use acl::{Acl, AclEntry, AclKind, AclTag};
pub use attr::{Attr, FileFlags, FileType, Rdev, StatFs, Timespec};
pub use errno::{Errno, Error, Result};
pub use fs::{FileOps, FileSystem, FsTraits, InodeOps, RawDirEntry, Span, SpanKind};
pub use inode::{Inode, NewInode};
