//! Telling the device which blocks are free: all of them when somebody asks for that (`FITRIM`, `fstrim(8)`), or those that are freed, as soon
//! as that is durable (`discard`).
//!
//! Who asks finds what is free. A group's lock is held from finding a free run until the device has been told of it, so that nobody takes a block of it in between
//! and writes to it. What has been freed, but belongs to somebody after a crash, is not free to whoever looks for runs (`balloc`).
//!
//! What a transaction has freed is nobody's once the transaction is durable, and nobody's yet until it is settled (`BlockAllocator::settle`). In
//! between the device is told, with no lock, by the thread that commits.

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
    /// It has failed. What is not told is no loss, and a device that fails once at each commit would only hold commits up.
    has_failed: AtomicBool,
}

impl Discards {
    /// For this volume, if that is what is asked for, or else what its superblock says.
    pub(crate) fn chosen(volume: &Volume, asked: Option<bool>) -> Option<Self> {
        let superblock = volume.superblock();
        let usual = superblock.default_mount_options().contains(DefaultMountOptions::DISCARD);
        asked.unwrap_or(usual).then(|| Self {
            device: Arc::clone(volume.cache.device()),
            block_size: superblock.block_size().into(),
            has_failed: AtomicBool::new(false),
        })
    }

    /// These blocks are nobody's, and stay so until this returns.
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
