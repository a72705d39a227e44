//! Inodes: reading their records, the state kept with an inode in use, and contents inside the
//! inode.
//!
//! | module | holds |
//! |---|---|
//! | `read` | from a record of the inode table to the inode that the VFS gets |
//! | `info` | the fields of an inode as operations copy and change them |
//! | `cached` | the current state of an inode in use, with its locks |
//! | `publish` | making a changed inode the current one |
//! | `lazy_times` | times that are changed in memory only |
//! | `inline` | contents inside the inode |
//!
//! A record is checked each time it is decoded. An operation changes a copy of the fields, stores
//! it in its transaction and then publishes it, so readers see all of a change or nothing. All
//! other folders use these modules.

pub(crate) mod cached;
pub(crate) mod info;
pub(crate) mod inline;
pub(crate) mod lazy_times;
pub(crate) mod publish;
pub(crate) mod read;
