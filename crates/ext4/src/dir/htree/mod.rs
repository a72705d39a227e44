//! The hash tree of a directory: `read` walks and checks it, `insert` changes it.
//!
//! `list` and `namei` read a tree, and `insert` of the directory adds names to it. A walk always
//! ends, also in a damaged tree, and checks each node's checksum and block numbers.

pub(crate) mod insert;
pub(crate) mod read;
