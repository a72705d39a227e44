//! Inodes: the state that is kept with an inode in use.
//!
//! | module | holds |
//! |---|---|
//! | `info` | the fields of an inode as operations copy and change them |
//! | `cached` | the current state of an inode in use, with its locks |
//! | `lazy_times` | times that are changed in memory only |
//! | `dir_hint`, `name_map` | where the names of a directory are |
//! | `preallocation` | blocks kept free ahead of a growing file |
//!
//! `fs::inode` reads a record and checks it each time it decodes it. An operation changes a copy of
//! the fields, stores it in its transaction and then publishes it (`handle::publish`), so readers
//! see all of a change or nothing.

pub(crate) mod cached;
pub(crate) mod dir_hint;
pub(crate) mod info;
pub(crate) mod lazy_times;
pub(crate) mod name_map;
pub(crate) mod preallocation;
