//! Contents that are inside the inode.

pub(crate) mod change;
pub(crate) mod read;
