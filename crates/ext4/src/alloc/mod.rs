//! Taking blocks and inodes, and giving them back.

pub(crate) mod balloc;
pub(crate) mod block_allocator;
pub(crate) mod discard;
pub(crate) mod free_map;
pub(crate) mod ialloc;
pub(crate) mod orphan;
pub(crate) mod orphan_list;
pub(crate) mod preallocation;
pub(crate) mod trim;
