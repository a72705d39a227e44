//! Inodes: their records, what is kept with an inode in use, and contents inside the inode.

pub(crate) mod cached;
pub(crate) mod info;
pub(crate) mod inline;
pub(crate) mod lazy_times;
pub(crate) mod publish;
pub(crate) mod read;
