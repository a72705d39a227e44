//! Tests on volumes that `mke2fs` and the kernel make, with `dumpe2fs`, `debugfs` and the kernel's
//! mount as oracles.

mod hostile;
mod htree;
mod image;
mod inode;
mod map;
mod names;
mod reader;
mod special;
mod superblock;
mod volumes;
