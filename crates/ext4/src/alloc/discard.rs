//! Telling the device which blocks are free: all of them on request (`FITRIM`, `fstrim(8)`), or
//! freed ones as soon as that is durable (`discard`).
//!
//! A request looks for free blocks. It holds a group's lock from finding a free run until the
//! device has been told of it. So no thread takes a block of the run in between and writes to it. A
//! freed block that still belongs to a file after a crash is not free to a search for runs
//! (`balloc`).
//!
//! Blocks that a transaction has freed belong to no file once the transaction is durable, and
//! cannot be taken until they are settled (`BlockAllocator::settle`). In between the committing
//! thread tells the device, without a lock.

use std::ops::Range;
use std::sync::Arc;

use extern4_block::BlockDevice;
use extern4_disk::superblock::DefaultMountOptions;
use extern4_sync::primitive::AtomicBool;
use extern4_sync::primitive::Ordering::Relaxed;

use crate::volume::Volume;

/// Tells the device of blocks as they become free.
pub(crate) struct Discards {
    device: Arc<dyn BlockDevice>,
    block_size: u64,
    /// The device has failed once. An untold block is no loss, and a device that fails at each
    /// commit would only hold commits up.
    has_failed: AtomicBool,
}

impl Discards {
    /// Returns the discards for this volume, if the caller asks for them, or else if its superblock
    /// does.
    pub(crate) fn chosen(volume: &Volume, asked: Option<bool>) -> Option<Self> {
        let superblock = volume.superblock();
        let usual = superblock.default_mount_options().contains(DefaultMountOptions::DISCARD);
        asked.unwrap_or(usual).then(|| Self {
            device: Arc::clone(volume.cache.device()),
            block_size: superblock.block_size().into(),
            has_failed: AtomicBool::new(false),
        })
    }

    /// No file owns these blocks, and none takes them until this returns.
    pub(crate) fn tell(&self, freed: &[Range<u64>]) {
        let mut freed = freed.to_vec();
        freed.sort_unstable_by_key(|blocks| blocks.start);
        for run in freed.chunk_by(|one, next| one.end == next.start) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            // Relaxed: one thread commits.
            if self.has_failed.load(Relaxed) {
                return;
            }
            let told = self.device.discard(first.start * self.block_size..last.end * self.block_size);
            self.has_failed.store(told.is_err(), Relaxed);
        }
    }
}
