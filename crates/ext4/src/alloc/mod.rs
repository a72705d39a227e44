//! Allocation of blocks and inodes, and freeing them.
//!
//! | module | holds |
//! |---|---|
//! | `block_allocator` | the state of each group and the counters of free blocks |
//! | `balloc`, `ialloc` | allocating and freeing blocks, and inodes |
//! | `set_aside`, `trust` | groups with a wrong bitmap or descriptor, which are passed over |
//! | `free_map` | the blocks of a group that can be allocated, and the search for a run |
//! | `preallocation` | blocks kept free ahead of a growing file |
//! | `orphan_list`, `orphan` | inodes to be freed after a crash, in memory and on the volume |
//! | `discard`, `trim` | telling the device which blocks are free |
//!
//! All state is guarded by the lock of one group, or by the lock of the orphan list. An allocation
//! or a free is part of the caller's transaction, and passes over a group whose bitmap is wrong.
//! The maps, directories, attributes and `ops` call it through a
//! [`Handle`](crate::volume::handle).

pub(crate) mod balloc;
pub(crate) mod block_allocator;
pub(crate) mod discard;
pub(crate) mod free_map;
pub(crate) mod ialloc;
pub(crate) mod orphan;
pub(crate) mod orphan_list;
pub(crate) mod preallocation;
pub(crate) mod set_aside;
pub(crate) mod trim;
pub(crate) mod trust;
