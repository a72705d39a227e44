//! Tests on volumes that `mke2fs` makes, with `dumpe2fs` and `debugfs` as oracles.

mod hostile;
mod image;
mod inode;
mod special;
mod superblock;
mod volumes;
