//! Telling the device which blocks are free: all of them when somebody asks for that (`FITRIM`, `fstrim(8)`), or those that are freed, as soon
//! as that is durable (`discard`).
//!
//! Who asks finds what is free. A group's lock is held from finding a free run until the device has been told of it, so that nobody takes a block of it in between
//! and writes to it. What has been freed, but belongs to somebody after a crash, is not free to whoever looks for runs (`balloc`).
//!
//! What a transaction has freed is nobody's once the transaction is durable, and nobody's yet until it is settled (`Space::settle`). In
//! between the device is told, with no lock, by the thread that commits.

use std::ops::Range;
use std::sync::Arc;

use extern4_block::BlockDevice;
use extern4_disk::superblock::DefaultMountOptions;
use extern4_sync::primitive::{AtomicBool, Ordering::Relaxed};
use extern4_vfs::Errno;

use crate::error::Result;
use crate::mount::Ext4;

/// The device is told of so many blocks at a time: as long as that takes, others wait for the group.
const MAX_BLOCKS: u32 = 4096;

/// Tells the device of blocks as they become free.
pub(crate) struct Discards {
    device: Arc<dyn BlockDevice>,
    block_size: u64,
    /// It has failed. What is not told is no loss, and a device that fails once at each commit would only hold commits up.
    has_failed: AtomicBool,
}

impl Discards {
    /// For this volume, if that is what is asked for, or else what its superblock says.
    pub(crate) fn chosen(fs: &Ext4, asked: Option<bool>) -> Option<Self> {
        let superblock = fs.superblock();
        let usual = superblock.default_mount_options().contains(DefaultMountOptions::DISCARD);
        asked.unwrap_or(usual).then(|| Self {
            device: Arc::clone(fs.cache.device()),
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

impl Ext4 {
    /// Tells the device that what is free among these bytes of the volume no longer matters, but for runs of less than `min_bytes`;
    /// gives the sum in bytes. Commits first, so that what has been freed by now is free.
    ///
    /// # Errors
    /// `EINVAL` for a range outside the volume or of less than a block, or a minimum that no group can meet, as Linux has it; `EROFS`
    /// if the volume was opened for reading; a corrupt bitmap, or a device that fails.
    pub(crate) fn trim_range(&self, bytes: Range<u64>, min_bytes: u64) -> Result<u64> {
        self.writer()?.transactions.sync()?;
        let geometry = self.superblock().geometry();
        let block_size = u64::from(geometry.block_size());
        let first = (bytes.start / block_size).max(u64::from(geometry.first_data_block()));
        let end = (bytes.end / block_size).min(geometry.blocks_count());
        let min_blocks = min_bytes.div_ceil(block_size);
        let too_short = bytes.end.saturating_sub(bytes.start) < block_size;
        if too_short || first >= geometry.blocks_count() || min_blocks > geometry.blocks_per_group().into() {
            return Err(Errno::EINVAL.into());
        }
        // OK: no more than a group has.
        let min_blocks = (min_blocks as u32).max(1);
        let mut trimmed = 0;
        for number in 0..geometry.group_count() {
            let Some(start) = geometry.group_start(number) else { break };
            let blocks = geometry.group_clusters(number).unwrap_or(0);
            // OK: no more than a group has.
            let inside = |block: u64| block.saturating_sub(start).min(blocks.into()) as u32;
            let (from, to) = (inside(first), inside(end));
            if from < to {
                trimmed += self.trim_group(number, start, from..to, min_blocks)?;
            }
        }
        Ok(trimmed * block_size)
    }

    /// The same for blocks of a group, which starts at block `start`; gives the sum in blocks.
    fn trim_group(&self, number: u32, start: u64, blocks: Range<u32>, min_blocks: u32) -> Result<u64> {
        let writer = self.writer()?;
        let block_size = u64::from(self.superblock().block_size());
        let (mut at, mut told_to, mut trimmed) = (blocks.start, None, 0);
        loop {
            let group = writer.space.lock(self, number)?;
            if group.descriptor.free_clusters() < min_blocks {
                return Ok(trimmed);
            }
            let want = MAX_BLOCKS.max(min_blocks);
            let Some(run) = self.free_run(number, &group, (at, blocks.end), want)? else {
                return Ok(trimmed);
            };
            at = run.end;
            // What goes on from a run that was long enough belongs to it.
            if run.end - run.start >= min_blocks || told_to == Some(run.start) {
                let run = start + u64::from(run.start)..start + u64::from(run.end);
                writer.zones.check(&run)?;
                self.device.discard(run.start * block_size..run.end * block_size)?;
                trimmed += run.end - run.start;
                told_to = Some(at);
            }
        }
    }
}
