//! The state in memory of free blocks, free inodes and orphans.
//!
//! | module | holds |
//! |---|---|
//! | `block_allocator` | the state of each group and the counters of free blocks |
//! | `reserve` | reserved blocks, and what a change demands |
//! | `set_aside`, `trust` | groups with a wrong bitmap or descriptor, which are passed over |
//! | `free_map` | the blocks of a group that can be allocated, and the search for a run |
//! | `orphan_list` | the inodes to be freed after a crash, in their order on the volume |
//! | `discard` | telling the device which blocks are free |
//!
//! All state is guarded by the lock of one group, or by the lock of the orphan list. `fs::writer`
//! holds it. `handle::balloc` and `handle::ialloc` allocate and free as part of a transaction, and
//! `ops::orphan` frees orphans.

pub(crate) mod block_allocator;
pub(crate) mod discard;
pub(crate) mod free_map;
pub(crate) mod orphan_list;
pub(crate) mod reserve;
pub(crate) mod set_aside;
pub(crate) mod trust;
