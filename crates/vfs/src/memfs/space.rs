//! The space of a file system in memory: its limits, and how much is used.
//!
//! `MemFs` takes each block and inode here before it uses it. So a volume never holds more than
//! [`MemLimits`] allows, and a call that would exceed them fails with `ENOSPC` and takes nothing.
//! The counts are atomic; threads take and return space without a lock.

use extern4_sync::primitive::{AtomicU64, Ordering};

use super::{BLOCK, MAGIC, NAME_MAX};
use crate::attr::StatFs;
use crate::errno::{Errno, Result};

/// How much a file system in memory may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemLimits {
    /// Blocks of 4096 bytes of file data.
    pub blocks: u64,
    /// The most inodes that the file system may have.
    pub inodes: u64,
    /// Links an inode may have: names of a file, subdirectories of a directory and two.
    pub max_links: u32,
}

impl Default for MemLimits {
    /// Returns limits of 4 GiB, 2^20 inodes, and 65,000 links as in ext4.
    fn default() -> Self {
        Self {
            blocks: 1 << 20,
            inodes: 1 << 20,
            max_links: 65_000,
        }
    }
}

pub(super) struct Space {
    limits: MemLimits,
    blocks: AtomicU64,
    inodes: AtomicU64,
}

impl Space {
    pub(super) fn new(limits: MemLimits) -> Self {
        // The root directory is there already.
        Self {
            limits,
            blocks: AtomicU64::new(0),
            inodes: AtomicU64::new(1),
        }
    }

    pub(super) fn limits(&self) -> &MemLimits {
        &self.limits
    }

    /// Takes a block; fails with `ENOSPC` if none is left.
    pub(super) fn take_block(&self) -> Result<()> {
        take(&self.blocks, self.limits.blocks)
    }

    pub(super) fn give_blocks(&self, count: u64) {
        // Relaxed: a count only; other locks guard the blocks.
        self.blocks.fetch_sub(count, Ordering::Relaxed);
    }

    /// Takes an inode; fails with `ENOSPC` if none is left.
    pub(super) fn take_inode(&self) -> Result<()> {
        take(&self.inodes, self.limits.inodes)
    }

    pub(super) fn give_inode(&self) {
        self.inodes.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn statfs(&self) -> StatFs {
        let blocks_free = self
            .limits
            .blocks
            .saturating_sub(self.blocks.load(Ordering::Relaxed));
        StatFs {
            block_size: BLOCK,
            blocks: self.limits.blocks,
            blocks_free,
            blocks_available: blocks_free,
            files: self.limits.inodes,
            files_free: self
                .limits
                .inodes
                .saturating_sub(self.inodes.load(Ordering::Relaxed)),
            name_max: u32::try_from(NAME_MAX).expect("a small constant"),
            magic: MAGIC,
            fsid: 0,
        }
    }
}

fn take(used: &AtomicU64, limit: u64) -> Result<()> {
    // Relaxed: the count alone decides.
    let taken = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        (used < limit).then_some(used + 1)
    });
    taken.map(drop).map_err(|_| Errno::ENOSPC.into())
}
