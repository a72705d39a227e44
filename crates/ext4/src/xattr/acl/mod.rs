//! ACLs, which are extended attributes in a format that only they have: `get` reads them, `set`
//! changes them.
//!
//! `InodeOps` in `ops` calls both for the VFS, which caches ACLs and checks permissions by them.
//! `ops::create` initializes the ACLs of new inodes.

pub(crate) mod get;
pub(crate) mod set;
