//! Extended attributes and ACLs.
//!
//! | module | holds |
//! |---|---|
//! | `get`, `set` | reading attributes, setting and removing them |
//! | `list` | attributes as lists, and the plan of a change |
//! | `block` | attribute blocks, which inodes share |
//! | `ea_inode` | values in separate inodes |
//! | `expand` | moving attributes, for more fields in the record |
//! | `acl` | ACLs, which are attributes in a format that only they have |
//!
//! An attribute is in the inode's record, or else in the inode's attribute block. Its value may be
//! in an EA inode. `mbcache` finds blocks and values to share. Readers and changers hold the
//! inode's lock `attributes`. A change is planned first, so that one without room fails before
//! anything changes. `InodeOps` in `ops` calls `get`, `set` and `acl`.

pub(crate) mod acl;
pub(crate) mod block;
pub(crate) mod ea_inode;
pub(crate) mod expand;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod set;
