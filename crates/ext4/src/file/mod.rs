//! Contents of regular files and targets of symbolic links.

pub(crate) mod data_journal;
pub(crate) mod fallocate;
pub(crate) mod inline;
pub(crate) mod read;
pub(crate) mod symlink;
pub(crate) mod write;
