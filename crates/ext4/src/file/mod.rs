//! Contents of regular files and targets of symbolic links.
//!
//! `ops` implements the VFS's `FileOps` with these modules: `read`, `write` and `fallocate` for
//! contents in blocks, `inline` for contents inside the inode, `data_journal` for contents that go
//! through the journal, and `symlink`. After a crash no file shows another file's bytes: new blocks
//! are written before the map refers to them.

pub(crate) mod data_journal;
pub(crate) mod fallocate;
pub(crate) mod inline;
pub(crate) mod read;
pub(crate) mod symlink;
pub(crate) mod write;
