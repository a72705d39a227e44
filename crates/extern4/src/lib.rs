//! ext4 outside the kernel.

#![forbid(unsafe_code)]

mod dir;
mod error;
mod file;
mod metadata;
mod session;
mod volume;

pub use dir::{DirEntry, ReadDir, Walk};
pub use error::{Error, ErrorKind, Result};
pub use extern4_block as block;
pub use extern4_block::partition::{Partition, Table as PartitionTable};
pub use extern4_vfs::{
    Access, Acl, AclEntry, AclKind, AclTag, Attr, CacheStats, Caps, Cred, Errno, FileFlags, FileType, Rdev,
    Resolve, Span, SpanKind, StatFs, Timespec,
};
pub use file::File;
pub use metadata::{Metadata, system_time};
pub use session::Session;
pub use volume::{OpenOptions, Volume};
