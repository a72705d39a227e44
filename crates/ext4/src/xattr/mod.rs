//! Extended attributes and ACLs.

pub(crate) mod acl;
pub(crate) mod block;
pub(crate) mod ea_inode;
pub(crate) mod get;
pub(crate) mod list;
pub mod mbcache;
pub(crate) mod set;
pub(crate) mod sharing;
