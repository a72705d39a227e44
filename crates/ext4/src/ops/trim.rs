//! Discards the free blocks of a volume on request (`FITRIM`, `fstrim(8)`).
//!
//! [`trim_range`] commits first, then finds free runs group by group. It holds a group's lock from
//! finding a run until the device has discarded it, so no thread allocates a block of the run in
//! between and writes to it. Blocks that are held for a transaction, windows of growing files, and
//! groups that are set aside are left out. `FileSystem::trim` in `ops` calls it.

use std::ops::Range;

use extern4_vfs::Errno;

use crate::error::Result;
use crate::fs::Ext4;

/// The most blocks of one discard. Other threads that need the group wait for it.
const MAX_BLOCKS: u32 = 4096;

/// Discards the free blocks among these bytes of the volume, except in runs of less than
/// `min_bytes`. Returns the number of bytes discarded. Commits first, so that all blocks freed by
/// now are free.
///
/// # Errors
/// `EINVAL` for a range outside the volume or of less than a block, or a minimum that no group can
/// meet, as Linux has it; `EROFS` if the volume was opened for reading; a device that fails.
pub(crate) fn trim_range(fs: &Ext4, bytes: Range<u64>, min_bytes: u64) -> Result<u64> {
    fs.changer()?.transactions.sync()?;
    let geometry = fs.superblock().geometry();
    let block_size = u64::from(geometry.block_size());
    let first = (bytes.start / block_size).max(u64::from(geometry.first_data_block()));
    let end = (bytes.end / block_size).min(geometry.blocks_count());
    let min_blocks = min_bytes.div_ceil(block_size);
    let too_short = bytes.end.saturating_sub(bytes.start) < block_size;
    if too_short
        || first >= geometry.blocks_count()
        || min_blocks > geometry.blocks_per_group().into()
    {
        return Err(Errno::EINVAL.into());
    }
    // OK: no more than a group has.
    let min_blocks = (min_blocks as u32).max(1);
    let mut trimmed = 0;
    for number in 0..geometry.group_count() {
        let Some(start) = geometry.group_start(number) else {
            break;
        };
        let blocks = geometry.group_clusters(number).unwrap_or(0);
        // OK: no more than a group has.
        let inside = |block: u64| block.saturating_sub(start).min(blocks.into()) as u32;
        let from = inside(first);
        let to = inside(end);
        if from < to {
            trimmed += trim_group(fs, number, start, from..to, min_blocks)?;
        }
    }
    Ok(trimmed * block_size)
}

/// Discards the free blocks among `blocks` of a group, which starts at block `start`. Returns how
/// many.
fn trim_group(
    fs: &Ext4,
    number: u32,
    start: u64,
    blocks: Range<u32>,
    min_blocks: u32,
) -> Result<u64> {
    let writer = fs.writer()?;
    let block_size = u64::from(fs.superblock().block_size());
    let mut at = blocks.start;
    let mut trimmed_to = None;
    let mut trimmed = 0;
    loop {
        let group = &mut *writer.allocator.lock(fs, number)?;
        if group.descriptor.free_clusters() < min_blocks
            || !writer.allocator.trusts_blocks(fs, number, group)?
        {
            return Ok(trimmed);
        }
        let want = MAX_BLOCKS.max(min_blocks);
        let Some(run) = fs.free_run(number, group, (at, blocks.end), want)? else {
            return Ok(trimmed);
        };
        at = run.end;
        // A run that continues one that was long enough belongs to it.
        if run.end - run.start >= min_blocks || trimmed_to == Some(run.start) {
            let run = start + u64::from(run.start)..start + u64::from(run.end);
            writer.zones.check(&run)?;
            fs.device
                .discard(run.start * block_size..run.end * block_size)?;
            trimmed += run.end - run.start;
            trimmed_to = Some(at);
        }
    }
}
