//! File contents that go through the journal like metadata: contents of files with the flag `+j`
//! (`chattr +j`), or of all files (`data=journal`).
//!
//! A writer changes a block of such contents in the buffer cache, under a handle. The block becomes
//! durable with its transaction, whole, and is in the log before it is written in place. So after a
//! crash all that one handle changed of a file is there, contents, size and times, or none of it. A
//! write of more than [`LOGGED_BLOCKS`] blocks takes several handles. So does a write over blocks
//! of which some have been written and some have not.
//!
//! `read` and `write` call this module where [`journals_contents`](InodeInfo::journals_contents) is
//! true.
//!
//! # Invariants
//! 1. A changed block is in the cache until its new contents are on the device. So a reader looks
//!    in the cache first, and reads other blocks from the device.
//! 2. The cached copy of a file's block is not older than the one on the device. A writer creates
//!    blocks that are new to the file in the cache, without reading them. Only a file that was
//!    written past the cache before it got the flag may have older copies there, from other uses of
//!    its blocks. [`prepare_switch`] reads these again.
//! 3. The log has no copy that a replay would write over contents that were written past the cache.
//!    So blocks that a file frees are revoked, as blocks of directories are, and the file's blocks
//!    in the log are written in place before it loses the flag.
//! 4. The raw image does not show such contents: see [`Ext4::is_raw_current`].
//!
//! A thread that sets or clears the flag holds the inode's `rwsem`, so that no other thread writes,
//! and its map lock, so that none reads.

use std::ops::Range;

use extern4_block::{Buffer, Pin, Unsealed};
use extern4_disk::inode::{FileKind, InodeFlags};
use extern4_sync::primitive::AtomicU32;
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_vfs::{Inode, Timespec};

use crate::error::Result;
use crate::file::write::{WriteRange, stamped, store_and_publish, write_new, write_run_directly};
use crate::fs::Ext4;
use crate::fs::data_mode::Journaling;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::run::{LOGICAL_END, Run, RunKind};
use crate::volume::group::to_usize;

/// The most blocks of contents that one handle logs. The smallest journal has room for a few such
/// handles.
const LOGGED_BLOCKS: u32 = 64;

/// A part of a block of contents.
pub(crate) struct LoggedRange {
    block: Buffer,
    bytes: Range<usize>,
}

impl Ext4 {
    /// Whether contents of files can go through the journal.
    pub(crate) fn has_data_journal(&self) -> bool {
        self.writer
            .get()
            .is_some_and(|writer| writer.journaling != Journaling::None)
    }

    /// Whether the device has the contents of all files, now and as long as the volume is open.
    pub fn is_raw_current(&self) -> bool {
        self.replayed.is_none() && !self.has_data_journal()
    }
}

/// Reads contents that may be in the log, from byte `start` of the volume on.
pub(crate) fn read_logged(fs: &Ext4, buf: &mut [u8], start: u64) -> Result<()> {
    let size = u64::from(fs.superblock().block_size());
    let mut missing = 0..0;
    while missing.end < buf.len() {
        let at = start + missing.end as u64;
        // OK: less than a block.
        let inside = (at % size) as usize;
        let end = (missing.end + (size as usize - inside)).min(buf.len());
        let target = &mut buf[missing.end..end];
        let copy = |block: &[u8]| target.copy_from_slice(&block[inside..inside + target.len()]);
        if fs.cache.with_cached(at / size, copy).is_none() {
            missing.end = end;
            continue;
        }
        fs.device
            .read_at(&mut buf[missing.clone()], start + missing.start as u64)?;
        missing = end..end;
    }
    Ok(fs
        .device
        .read_at(&mut buf[missing.clone()], start + missing.start as u64)?)
}

/// Writes the start of a part through the journal, as much as one handle may: either over written
/// blocks, or to holes and unwritten blocks. Returns how many bytes.
pub(crate) fn write_logged_part(
    fs: &Ext4,
    inode: &Inode,
    info: &mut InodeInfo,
    part: &WriteRange<'_>,
    now: Timespec,
) -> Result<usize> {
    let bits = fs.superblock().geometry().block_bits();
    let first = part.offset >> bits;
    let end = part.end().div_ceil(1 << bits);
    let runs = written_runs(fs, info, first..end.min(first + u64::from(LOGGED_BLOCKS)))?;
    let written: u64 = runs.iter().map(|run| run.end - run.start).sum();
    let blocks = if runs.is_empty() {
        LOGGED_BLOCKS.into()
    } else {
        written
    };
    let most = usize::try_from(((first + blocks) << bits) - part.offset).unwrap_or(usize::MAX);
    let part = WriteRange {
        data: &part.data[..part.data.len().min(most)],
        ..*part
    };
    if runs.is_empty() {
        return write_new(fs, inode, info, &part, now);
    }
    // A block that is written over in part is read before the handle is opened, so that a failed
    // read has changed nothing. OK: one of a few blocks.
    let at = |offset: u64| {
        runs.iter()
            .cloned()
            .flatten()
            .nth(((offset >> bits) - first) as usize)
    };
    let edges = [part.offset, part.end()]
        .into_iter()
        .filter(|edge| edge % (1 << bits) != 0);
    let _kept: Vec<Pin> = edges
        .filter_map(at)
        .map(|block| Ok(fs.cache.read(block)?.pin()))
        .collect::<Result<_>>()?;
    fs.with_handle(LOGGED_BLOCKS + 2, 0, |handle| {
        log_contents(handle, runs.into_iter().flatten(), part.offset, part.data)?;
        let changed = stamped(handle, info.clone(), part.end(), now)?;
        *info = store_and_publish(handle, inode, changed)?;
        Ok(part.data.len())
    })
}

/// Returns the runs of a range of a file on the volume, up to the first block that has not been
/// written.
fn written_runs(fs: &Ext4, info: &InodeInfo, blocks: Range<u64>) -> Result<Vec<Range<u64>>> {
    let bits = fs.superblock().geometry().block_bits();
    let mut at = blocks.start;
    let mut runs = Vec::new();
    while at < blocks.end {
        let Some(mapped) = info.run_at(fs, at << bits)?.mapped() else {
            break;
        };
        let len = (mapped.end - mapped.start).min(blocks.end - at);
        runs.push(mapped.start..mapped.start + len);
        at += len;
    }
    Ok(runs)
}

/// Returns a range of a file inside one block, to be changed; `None` if the block has not been
/// written, or the range is empty.
pub(crate) fn logged_part(
    fs: &Ext4,
    info: &InodeInfo,
    from: u64,
    to: u64,
) -> Result<Option<LoggedRange>> {
    let size = u64::from(fs.superblock().block_size());
    if from >= to || from / size >= LOGICAL_END {
        return Ok(None);
    }
    let Some(mapped) = info.run_at(fs, from)?.mapped() else {
        return Ok(None);
    };
    // OK: less than a block.
    let bytes = (from % size) as usize..(from % size + (to - from)) as usize;
    Ok(Some(LoggedRange {
        block: fs.cache.read(mapped.start)?,
        bytes,
    }))
}

/// Makes a range inside one block of a file read as zeroes.
pub(crate) fn zero_logged(fs: &Ext4, info: &InodeInfo, from: u64, to: u64) -> Result<()> {
    match logged_part(fs, info, from, to)? {
        None => Ok(()),
        Some(part) => fs.with_handle(1, 0, |handle| {
            zero_logged_part(handle, part);
            Ok(())
        }),
    }
}

/// Prepares a file for its flag to be set or cleared. Locks: `rwsem` exclusive, and the map lock.
pub(crate) fn prepare_switch(fs: &Ext4, info: &InodeInfo) -> Result<()> {
    let writer = fs.writer()?;
    if writer.journaling != Journaling::Flagged || info.fields().kind() != FileKind::Regular {
        return Ok(());
    }
    if info.journals_contents(fs) {
        return Ok(writer.transactions.checkpoint_all()?);
    }
    if info.has_map(fs) {
        reload_contents(fs, info)
    } else {
        Ok(())
    }
}

/// Reads those blocks of a file again that are in the cache.
fn reload_contents(fs: &Ext4, info: &InodeInfo) -> Result<()> {
    let mut at = 0;
    while let Some(logical) = u32::try_from(at).ok().filter(|_| at < LOGICAL_END) {
        let run = info.map(fs, logical)?;
        let mapped = run.mapped().unwrap_or_default();
        mapped
            .into_iter()
            .try_for_each(|block| fs.cache.reload(block))?;
        at = run.end();
    }
    Ok(())
}

impl InodeInfo {
    /// Whether the contents of a file go through the journal.
    pub(crate) fn journals_contents(&self, fs: &Ext4) -> bool {
        let Some(writer) = fs.writer.get() else {
            return false;
        };
        let chosen = match writer.journaling {
            Journaling::None => false,
            Journaling::Flagged => self.fields().flags().contains(InodeFlags::JOURNAL_DATA),
            Journaling::All => true,
        };
        chosen && self.fields().kind() == FileKind::Regular
    }

    /// Returns the extra credits that a handle needs for contents that it writes to a file.
    pub(crate) fn credits_for_contents(&self, fs: &Ext4) -> u32 {
        if self.journals_contents(fs) {
            LOGGED_BLOCKS
        } else {
            0
        }
    }
}

/// Writes all blocks of a run, to the device or through the journal, with zeroes where `part` has
/// no data.
pub(crate) fn write_run(
    handle: &Handle<'_>,
    info: &InodeInfo,
    run: &Run,
    part: &WriteRange<'_>,
) -> Result<()> {
    if !info.journals_contents(handle.fs) {
        return write_run_directly(handle.fs, run, part);
    }
    let (RunKind::Mapped { physical } | RunKind::Unwritten { physical }) = run.kind else {
        return Ok(());
    };
    let bits = handle.fs.superblock().geometry().block_bits();
    for block in physical..physical + run.len_blocks {
        handle.fresh(block)?;
    }
    let start = u64::from(run.logical) << bits;
    let from = part.offset.max(start);
    let to = part.end().min(run.end() << bits);
    // OK: a part of the data.
    let data = &part.data[(from - part.offset) as usize..(to - part.offset) as usize];
    let skipped = (from - start) >> bits;
    log_contents(
        handle,
        physical + skipped..physical + run.len_blocks,
        from,
        data,
    )
}

/// Writes data to blocks through the journal. `offset` in the file is in the first of them.
fn log_contents(
    handle: &Handle<'_>,
    blocks: impl Iterator<Item = u64>,
    offset: u64,
    data: &[u8],
) -> Result<()> {
    let size = to_usize(handle.fs.superblock().block_size());
    // OK: less than a block.
    let mut inside = (offset % size as u64) as usize;
    let mut data = data;
    for block in blocks {
        let (now, rest) = data.split_at(data.len().min(size - inside));
        let cache = &handle.fs.cache;
        let mut buffer = if now.len() == size {
            cache.read_as(block, now)?
        } else {
            cache.read(block)?
        };
        handle.edit_unsealed(&mut buffer, |bytes, unsealed| {
            bytes[inside..inside + now.len()].copy_from_slice(now);
            *unsealed = Unsealed::default();
        });
        clear_verified(buffer.flags());
        (inside, data) = (0, rest);
    }
    debug_assert!(
        data.is_empty(),
        "{} bytes too many for the blocks",
        data.len()
    );
    Ok(())
}

/// Makes a part of a block of contents read as zeroes.
pub(crate) fn zero_logged_part(handle: &Handle<'_>, part: LoggedRange) {
    let LoggedRange { mut block, bytes } = part;
    handle.edit_unsealed(&mut block, |all, unsealed| {
        all[bytes].fill(0);
        *unsealed = Unsealed::default();
    });
    clear_verified(block.flags());
}

/// Clears the flags of a changed block of contents. If a damaged volume uses it for metadata as
/// well, it must be verified again.
fn clear_verified(flags: &AtomicU32) {
    // Relaxed: see `volume::buffer`.
    flags.store(0, Relaxed);
}
