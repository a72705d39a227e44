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
pub use extern4_vfs::{
    Acl, AclEntry, AclKind, AclTag, Attr, Errno, FileFlags, FileType, Rdev, Span, SpanKind, StatFs, Timespec,
};
pub use file::File;
pub use metadata::{Metadata, system_time};
pub use session::{Access, Session};
pub use volume::{OpenOptions, Volume};

/// Who calls: user, groups and capabilities.
#[derive(Clone, Debug)]
pub struct Cred {}

impl Cred {
    /// The superuser with every capability.
    pub fn root() -> Self {
        Self {}
    }
    /// User `uid` in group `gid` and the supplementary `groups`, without capabilities; uid 0 has all of them.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Self {
        let _ = (uid, gid, groups);
        Self {}
    }
}
