//! Discards the blocks that transactions free, as soon as they are durable (mount option
//! `discard`).
//!
//! The committing thread calls [`Discards::issue`] after the transaction is durable and before the
//! allocator releases the blocks (`BlockAllocator::release_freed`). In between the blocks belong to
//! no file and cannot be allocated, so no lock is needed and no discard hits new contents. A device
//! that fails a discard gets no more of them. Discards on request are in `trim`.

use std::ops::Range;
use std::sync::Arc;

use extern4_block::BlockDevice;
use extern4_disk::superblock::DefaultMountOptions;
use extern4_sync::primitive::AtomicBool;
use extern4_sync::primitive::Ordering::Relaxed;

use crate::volume::Volume;

/// Sends discards for blocks as they become free.
pub(crate) struct Discards {
    device: Arc<dyn BlockDevice>,
    block_size: u64,
    /// The device has failed a discard. A missing discard loses nothing, and a device that fails at
    /// each commit would only delay commits.
    has_failed: AtomicBool,
}

impl Discards {
    /// Returns the discards for this volume if `asked` says so, or by default if its superblock
    /// does.
    pub(crate) fn chosen(volume: &Volume, asked: Option<bool>) -> Option<Self> {
        let superblock = volume.superblock();
        let usual = superblock
            .default_mount_options()
            .contains(DefaultMountOptions::DISCARD);
        asked.unwrap_or(usual).then(|| Self {
            device: Arc::clone(volume.cache.device()),
            block_size: superblock.block_size().into(),
            has_failed: AtomicBool::new(false),
        })
    }

    /// Discards `freed` blocks. No file owns them, and none can get them before this returns.
    pub(crate) fn issue(&self, freed: &[Range<u64>]) {
        let mut freed = freed.to_vec();
        freed.sort_unstable_by_key(|blocks| blocks.start);
        for run in freed.chunk_by(|one, next| one.end == next.start) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            // Relaxed: one thread commits.
            if self.has_failed.load(Relaxed) {
                return;
            }
            let done = self
                .device
                .discard(first.start * self.block_size..last.end * self.block_size);
            self.has_failed.store(done.is_err(), Relaxed);
        }
    }
}
