//! Inodes: the state kept with an inode in use, and contents inside the inode.
//!
//! | module | holds |
//! |---|---|
//! | `info` | the fields of an inode as operations copy and change them |
//! | `cached` | the current state of an inode in use, with its locks |
//! | `lazy_times` | times that are changed in memory only |
//! | `inline` | contents inside the inode |
//!
//! `fs::inode` reads a record and checks it each time it decodes it. An operation changes a copy of
//! the fields, stores it in its transaction and then publishes it (`handle::publish`), so readers
//! see all of a change or nothing.

pub(crate) mod cached;
pub(crate) mod info;
pub(crate) mod inline;
pub(crate) mod lazy_times;
