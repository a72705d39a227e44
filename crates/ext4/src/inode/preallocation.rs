//! Windows: blocks kept free ahead of files that grow.
//!
//! Files that grow alternately would fragment each other: each allocates the block after the
//! other's end. So a file that grows at its end, and not for the first time, gets a run with more
//! blocks than it needs now. The rest of the run is its window. Other files leave the window alone
//! while there are blocks elsewhere, and the file grows into it without a search. The first blocks
//! of a file come without a window, so small files lie densely next to each other.
//!
//! A window is in memory only: its blocks are free on the volume and in every counter, for `statfs`
//! and for quotas. When the other free blocks are too few or too fragmented, windows are ended, and
//! their files search again. A window also ends when one of the file's writers closes it, and when
//! the file is truncated. If another writer goes on, the next window starts where this one did.
//!
//! `file::write` makes a [`Growth`] for `balloc`; `inode::cached` has the [`Window`].
//!
//! # Locks
//! 1. The windows themselves are in the [`FreeMap`](crate::alloc::free_map::FreeMap) of their
//!    group, by inode number, under the group's lock. An inode has at most one.
//! 2. A [`Window`] only names the group to look in. It changes without a lock. A thread that finds
//!    no window in that group assumes that the file has none.
//! 3. The thread that grows the file holds its `rwsem` exclusively. It sets the group here while it
//!    holds the group's lock.
//! 4. A thread that ends the window may run at the same time. It takes the group out of the
//!    [`Window`] first, and then removes the window from that group.
//!
//! If a new window has been made in another group meanwhile, step 4 misses it. The thread that made
//! it has the file open and ends it later.

use extern4_sync::primitive::AtomicU32;
use extern4_sync::primitive::Ordering::Relaxed;

use crate::inode::info::InodeInfo;
use crate::volume::Volume;

/// The smallest window. Larger ones are powers of two up to [`MAX_BYTES`], and not larger than the
/// file, so a file keeps no more blocks free than it uses.
const MIN_BYTES: u64 = 64 << 10;
/// The largest window. Reading that much takes a disk far longer than the seek before it.
const MAX_BYTES: u64 = 8 << 20;
/// A window is at most the `PART_OF_GROUP`th part of a group.
const PART_OF_GROUP: u32 = 4;

/// The group of a file's window: one more than its number, 0 for none.
#[derive(Default)]
pub(crate) struct Window(AtomicU32);

impl Window {
    /// Returns the group to look in.
    fn group(&self) -> Option<u32> {
        // Relaxed: the group's lock orders the window itself; this only says where to look.
        self.0.load(Relaxed).checked_sub(1)
    }

    fn set(&self, group: u32) {
        self.0.store(group + 1, Relaxed);
    }

    /// Returns the group, and forgets it.
    pub(crate) fn take(&self) -> Option<u32> {
        // The load avoids a locked instruction: every file that was written gets here, and most
        // have no window.
        self.group()
            .and_then(|_| self.0.swap(0, Relaxed).checked_sub(1))
    }
}

/// A file that grows at its end.
pub(crate) struct Growth<'n> {
    window: &'n Window,
    ino: u32,
    /// How many blocks to keep free after the blocks that it allocates.
    pub(crate) ahead: u32,
}

impl<'n> Growth<'n> {
    /// Returns the growth of a file by blocks from `logical` on; `None` if they are the first
    /// blocks of the file, or not at its end.
    pub(crate) fn of(
        volume: &Volume,
        window: &'n Window,
        info: &InodeInfo,
        logical: u32,
    ) -> Option<Self> {
        let geometry = volume.superblock().geometry();
        let bits = geometry.block_bits();
        if info.size() == 0 || u64::from(logical) << bits < info.size() {
            return None;
        }
        let bytes = 1_u64 << info.size().clamp(MIN_BYTES, MAX_BYTES).ilog2();
        // OK: a few thousand blocks.
        let ahead = ((bytes >> bits) as u32)
            .max(1)
            .min(geometry.blocks_per_group() / PART_OF_GROUP);
        Some(Self {
            window,
            ino: info.ino(),
            ahead,
        })
    }

    /// Returns the inode whose window it is.
    pub(crate) fn ino(&self) -> u32 {
        self.ino
    }

    /// Returns the group that may have the file's window.
    pub(crate) fn group(&self) -> Option<u32> {
        self.window.group()
    }

    /// Notes that the file's window is in this group now. Locks: the group's, held.
    pub(crate) fn opened(&self, group: u32) {
        self.window.set(group);
    }
}
