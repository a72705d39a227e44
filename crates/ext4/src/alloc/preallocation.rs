//! Windows: blocks kept free ahead of files that grow.
//!
//! Files that grow alternately would stand in each other's way: each takes the block behind the
//! other's end. So a file that grows at its end, and not for the first time, gets a longer run of
//! blocks than it takes now. The rest of the run is its window. Others leave the window alone while
//! they find blocks elsewhere, and the file grows into it without a search. The first blocks of a
//! file come without a window, so small files stand tightly next to each other.
//!
//! A window is in memory only: its blocks are free on the volume and in every count, for `statfs`
//! and for quotas. When the free blocks outside are too few or in too small pieces, windows are
//! broken, and the file has to look for blocks again. A window ends when one of the file's writers
//! closes it, and when the file is cut. If another writer goes on, the next window begins where
//! this one did.
//!
//! # Locks
//! Windows are a part of the [`FreeMap`](crate::alloc::free_map::FreeMap) of their group, by the
//! number of the inode, under the group's lock. An inode has one window at most. A [`Window`] only
//! says in which group to look. It changes without a lock, and a thread that finds no window there
//! takes it that the file has none.
//!
//! The thread that grows the file holds its `rwsem`, and so is alone; it sets the group here while
//! it has the group locked. A thread that ends the window may come at the same time. It takes the
//! group out of here, and then the window out of the group. If the window is in another group by
//! then, it stays. The thread that has just made it has the file open and ends it later.

use extern4_sync::primitive::AtomicU32;
use extern4_sync::primitive::Ordering::Relaxed;

use crate::inode::info::InodeInfo;
use crate::volume::Volume;

/// The smallest window. Powers of two lead from here to the largest. A window is no larger than the
/// file, so that no more blocks are kept free than are in use.
const LEAST_BYTES: u64 = 64 << 10;
/// The largest window: that much is worth one movement of a disk's head.
const MOST_BYTES: u64 = 8 << 20;
/// A window is no larger than this part of a group.
const PART_OF_GROUP: u32 = 4;

/// Which group a file has its window in: one more than its number, 0 for none.
#[derive(Default)]
pub(crate) struct Window(AtomicU32);

impl Window {
    /// Returns the group to look in.
    fn group(&self) -> Option<u32> {
        // Relaxed: it only says where to look. See the module.
        self.0.load(Relaxed).checked_sub(1)
    }

    fn set(&self, group: u32) {
        self.0.store(group + 1, Relaxed);
    }

    /// Forgets the group.
    pub(crate) fn take(&self) -> Option<u32> {
        // Every file that was written comes here, and most have no window.
        self.group().and_then(|_| self.0.swap(0, Relaxed).checked_sub(1))
    }
}

/// A file that grows at its end.
pub(crate) struct Growth<'n> {
    window: &'n Window,
    ino: u32,
    /// Blocks to be kept free behind those that it takes.
    pub(crate) ahead: u32,
}

impl<'n> Growth<'n> {
    /// Returns the growth of a file by blocks from `logical` on; `None` if these are its first, or
    /// do not stand at its end.
    pub(crate) fn of(volume: &Volume, window: &'n Window, info: &InodeInfo, logical: u32) -> Option<Self> {
        let geometry = volume.superblock().geometry();
        let bits = geometry.block_bits();
        if info.size() == 0 || u64::from(logical) << bits < info.size() {
            return None;
        }
        let bytes = 1_u64 << info.size().clamp(LEAST_BYTES, MOST_BYTES).ilog2();
        // OK: a few thousand blocks.
        let ahead = ((bytes >> bits) as u32).max(1).min(geometry.blocks_per_group() / PART_OF_GROUP);
        Some(Self { window, ino: info.ino(), ahead })
    }

    /// Returns the inode whose window it is.
    pub(crate) fn ino(&self) -> u32 {
        self.ino
    }

    /// Returns the group that may have the file's window.
    pub(crate) fn group(&self) -> Option<u32> {
        self.window.group()
    }

    /// Notes that the file has its window in this group now. Locks: the group's, held.
    pub(crate) fn opened(&self, group: u32) {
        self.window.set(group);
    }
}
