//! Writes and truncates regular files, and makes them durable.
//!
//! Data goes straight to the device, before the transaction that refers to it commits; a commit
//! flushes the device first. A writer writes blocks that are new to a file whole before the map
//! refers to them. So no reader sees what a former owner left in them, not even after a crash. The
//! last block of a file may hold anything after the file's end, such as a write from just before a
//! crash. A writer zeroes that before the file grows. Contents that go through the journal are
//! different: see `data_journal`.
//!
//! `FileOps` in `ops` calls [`write_file`], [`overwrite_file`], [`truncate_file`] and
//! [`sync_file_data`] with the lock that each names. A write that fails half way, because the
//! volume is full or the device fails, returns how many bytes it has written.

use std::ops::Range;

use extern4_disk::feature::RoCompat;
use extern4_disk::inode::InodeFlags;
use extern4_vfs::{ChangeContext, Errno, Inode, SpaceRights, Timespec};

use crate::alloc::reserve::{Demand, ReserveUse};
use crate::error::{Error, Result};
use crate::file::data_journal::{
    logged_part, write_logged_part, write_run, zero_logged, zero_logged_part,
};
use crate::file::inline::{resize_inline, spill_inline, write_inline};
use crate::fs::Ext4;
use crate::fs::quota_accounts::Owners;
use crate::fscrypt::check_key;
use crate::handle::Handle;
use crate::handle::publish::{publish, publish_times};
use crate::handle::times::{note_write_lazily, store_times};
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::inode::preallocation::Growth;
use crate::map::change::{
    ALLOCATE_CREDITS, MAP_BLOCKS, MARK_CREDITS, Placement, UNMAP_CREDITS, claim_blocks,
    insert_runs, mark_written, unmap_blocks,
};
use crate::map::map_blocks::MAX_RUNS;
use crate::run::{LOGICAL_END, Run, RunKind};
use crate::time::timestamp;
use crate::volume::group::to_usize;

/// The most bytes that one handle writes. A commit waits until they are on the device.
const PART_BYTES: u64 = 4 << 20;
/// A write of at most this many bytes is copied and padded rather than written in several pieces.
const COPIED_BYTES: usize = 64 << 10;
/// The most pieces of a write that runs in parallel with others. A more scattered write takes long
/// anyway.
const MAX_PIECES: usize = 16;
/// Credits for the runs with bitmap and descriptor, for indirect blocks with theirs, for the nodes
/// of a tree, and for the inode.
pub(crate) const WRITE_CREDITS: u32 =
    2 * MAX_RUNS + ALLOCATE_CREDITS + 2 * MAP_BLOCKS + MAX_RUNS + 1;

impl Ext4 {
    /// Starts a commit of all changes so far, and does not wait for it.
    pub fn begin_sync(&self) {
        if let Some(writer) = self.writer.get() {
            writer.transactions.begin_sync();
        }
    }
}

/// Ends the window of a file, if it has one.
pub(crate) fn end_window(fs: &Ext4, inode: &Inode) {
    let cached = inode.private::<CachedInode>();
    if let Some(group) = cached.window.take()
        && let Some(writer) = fs.writer.get()
    {
        writer.allocator.end_window(group, cached.info().ino());
    }
}

/// Writes `data` at `offset` of a regular file. Returns how many bytes were written: all, unless
/// the volume is full or the device fails. Locks: `rwsem` exclusive.
pub(crate) fn write_file(
    fs: &Ext4,
    inode: &Inode,
    data: &[u8],
    offset: u64,
    context: ChangeContext,
) -> Result<usize> {
    let ChangeContext { now, rights } = context;
    let mut info = writable_info(fs, inode)?;
    let room = info
        .max_file_bytes(fs)
        .checked_sub(offset)
        .filter(|room| *room > 0);
    let room = usize::try_from(room.ok_or(Errno::EFBIG)?).unwrap_or(usize::MAX);
    let data = &data[..data.len().min(room)];
    if info.is_inline() {
        if write_inline(fs, inode, &info, data, offset, now)? {
            return Ok(data.len());
        }
        info = spill_inline(fs, inode, rights)?;
    }
    if offset > info.size() {
        info.zero_block_tail(fs, info.size())?;
    }
    let mut done = 0;
    while done < data.len() {
        let part = WriteRange {
            data: &data[done..],
            offset: offset + done as u64,
            rights,
        };
        match write_part(fs, inode, &mut info, &part, now) {
            Ok(len) => done += len,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Writes over blocks of a regular file that have been written before, within its size, if the
/// write changes nothing of the inode and its times are noted already. Returns false, without a
/// write, if more is needed. The map cannot change meanwhile, because a thread that changes it
/// holds `rwsem` exclusively. Calls `apart` as
/// [`FileOps::overwrite`](extern4_vfs::FileOps::overwrite) defines it: a single piece is written
/// atomically if the device does so. Locks: `rwsem` shared.
pub(crate) fn overwrite_file(
    fs: &Ext4,
    inode: &Inode,
    data: &[u8],
    offset: u64,
    apart: &mut dyn FnMut(),
) -> Result<bool> {
    let writer = fs.changer()?;
    let transactions = &writer.transactions;
    let cached = inode.private::<CachedInode>();
    // Changes of times or permission bits do not update the published copy; this reads none of
    // those fields.
    let info = cached.snapshot();
    let takes_more = InodeFlags::VERITY | InodeFlags::SYNC;
    if info.is_encrypted()
        || info.is_inline()
        || info.fields().flags().intersects(takes_more)
        || info.journals_contents(fs)
        || writer.held_files.is_held()
    {
        return Ok(false);
    }
    let mut pieces = [DeviceRange::default(); MAX_PIECES];
    let Some(count) = written_pieces(fs, &info, offset, data.len(), &mut pieces)? else {
        return Ok(false);
    };
    if count > 1 || !fs.cache.device().writes_whole() {
        apart();
    }
    let mut rest = data;
    let mut result = Ok(());
    for piece in &pieces[..count] {
        let (part, behind) = rest.split_at(piece.len);
        rest = behind;
        result = result.and_then(|()| write_contents(fs, piece.start, part));
    }
    // This also happens if a write has failed, because earlier pieces have been written.
    cached.note_written(transactions.next_flush());
    result?;
    transactions.note_data(data.len() as u64);
    Ok(true)
}

/// Fills `pieces` with the ranges of the device that hold a range of a file, and returns how many.
/// Returns `None` if the range exceeds the file's size, if a block of it has not been written, or
/// if there are too many pieces.
fn written_pieces(
    fs: &Ext4,
    info: &InodeInfo,
    offset: u64,
    len: usize,
    pieces: &mut [DeviceRange; MAX_PIECES],
) -> Result<Option<usize>> {
    let bits = fs.superblock().geometry().block_bits();
    let end = offset + len as u64;
    if end > info.size() {
        return Ok(None);
    }
    let mut at = offset;
    let mut count = 0;
    while at < end {
        let run = info.run_at(fs, at)?;
        let (Some(mapped), Some(piece)) = (run.mapped(), pieces.get_mut(count)) else {
            return Ok(None);
        };
        let to = end.min(run.end() << bits);
        let start = (mapped.start << bits) + (at - (u64::from(run.logical) << bits));
        // OK: within `len`.
        *piece = DeviceRange {
            start,
            len: (to - at) as usize,
        };
        (at, count) = (to, count + 1);
    }
    Ok(Some(count))
}

/// Returns the inode of a regular file whose contents may be changed.
pub(crate) fn writable_info(fs: &Ext4, inode: &Inode) -> Result<InodeInfo> {
    fs.changer()?;
    let cached = inode.private::<CachedInode>();
    check_key(fs, cached)?;
    let info = cached.info();
    if info.fields().flags().contains(InodeFlags::VERITY) {
        return Err(Errno::EPERM.into());
    }
    Ok(info)
}

/// Returns the largest size in bytes of a file with extents.
pub(crate) fn max_bytes_in_extents(fs: &Ext4) -> u64 {
    (LOGICAL_END - 1).min(countable_blocks(fs)) << fs.superblock().geometry().block_bits()
}

/// Returns how many blocks `i_blocks` can count.
fn countable_blocks(fs: &Ext4) -> u64 {
    let sb = fs.superblock();
    let huge = sb.features().ro_compat.contains(RoCompat::HUGE_FILE);
    if huge {
        u64::MAX
    } else {
        u64::from(u32::MAX) >> (sb.geometry().block_bits() - 9)
    }
}

/// Writes the start of a part: over written blocks, and then to one hole or unwritten run. Returns
/// how many bytes.
fn write_part(
    fs: &Ext4,
    inode: &Inode,
    info: &mut InodeInfo,
    part: &WriteRange<'_>,
    now: Timespec,
) -> Result<usize> {
    if info.journals_contents(fs) {
        let done = write_logged_part(fs, inode, info, part, now)?;
        fs.writer()?.transactions.note_data(done as u64);
        return Ok(done);
    }
    let offset = part.offset;
    let most = usize::try_from(PART_BYTES - offset % PART_BYTES).unwrap_or(usize::MAX);
    let data = &part.data[..part.data.len().min(most)];
    let transactions = &fs.writer()?.transactions;
    let old = overwrite(fs, info, data, offset);
    if !matches!(old, Ok(0)) {
        inode
            .private::<CachedInode>()
            .note_written(transactions.next_flush());
    }
    let old = old?;
    transactions.note_data(old as u64);
    if old < data.len() {
        let rest = WriteRange {
            data: &data[old..],
            offset: offset + old as u64,
            rights: part.rights,
        };
        match write_new(fs, inode, info, &rest, now) {
            Ok(new) => {
                transactions.note_data(new as u64);
                return Ok(old + new);
            }
            Err(error) if old == 0 => return Err(error),
            Err(_) => {}
        }
    }
    note_overwritten(fs, inode, info, offset + old as u64, now)?;
    Ok(old)
}

/// Notes that contents up to `end` have been overwritten. That may change nothing: many writes can
/// come between two ticks of the clock.
fn note_overwritten(
    fs: &Ext4,
    inode: &Inode,
    info: &mut InodeInfo,
    end: u64,
    now: Timespec,
) -> Result<()> {
    let fields = info.fields();
    let stamp = timestamp(now);
    let grows = end > info.size();
    // With the flag `SYNC` the handle below makes the write durable, so it cannot be skipped.
    if !grows && !fields.flags().contains(InodeFlags::SYNC) {
        let is_noted = fields.mtime() == stamp && fields.ctime() == stamp;
        if is_noted || note_write_lazily(fs, inode, info, now)? {
            return Ok(());
        }
    }
    fs.with_handle(2, 0, |handle| {
        let changed = stamped(handle, info.clone(), end, now)?;
        handle.store(&changed)?;
        if grows {
            publish(fs, inode, &changed, handle.tid())?
        } else {
            publish_times(fs, inode, &changed, handle.tid())?
        }
        *info = changed;
        Ok(())
    })
}

/// Writes over blocks that have been written before, up to the first that has not.
fn overwrite(fs: &Ext4, info: &InodeInfo, data: &[u8], offset: u64) -> Result<usize> {
    let bits = fs.superblock().geometry().block_bits();
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let run = info.run_at(fs, at)?;
        let RunKind::Mapped { physical } = run.kind else {
            break;
        };
        fs.writer()?.held_files.check_in_place(info, at)?;
        let part = usize::try_from((run.end() << bits) - at)
            .unwrap_or(usize::MAX)
            .min(data.len() - done);
        let start = (physical << bits) + (at - (u64::from(run.logical) << bits));
        write_contents(fs, start, &data[done..done + part])?;
        done += part;
    }
    Ok(done)
}

/// Writes the start of a part to unwritten blocks, or to new blocks for a hole. If the volume or a
/// quota has no room for all of it, it writes as much as there is room for.
pub(crate) fn write_new(
    fs: &Ext4,
    inode: &Inode,
    info: &mut InodeInfo,
    whole: &WriteRange<'_>,
    now: Timespec,
) -> Result<usize> {
    let WriteRange {
        data,
        offset,
        rights,
    } = *whole;
    let bits = fs.superblock().geometry().block_bits();
    let wanted = (offset + data.len() as u64).div_ceil(1 << bits);
    let run = info.run_at(fs, offset)?;
    let run = if run.kind == RunKind::Hole {
        whole_hole(fs, info, run, wanted)?
    } else {
        run
    };
    let end = (offset + data.len() as u64).min(run.end() << bits);
    // OK: no more than a part's blocks.
    let mut blocks = (end.div_ceil(1 << bits) - u64::from(run.logical)) as u32;
    loop {
        let end = end.min((u64::from(run.logical) + u64::from(blocks)) << bits);
        // OK: the end of a part of the data.
        let part = WriteRange {
            data: &data[..(end - offset) as usize],
            offset,
            rights,
        };
        let result = match run.kind {
            RunKind::Hole => fill_hole(fs, inode, info, run.logical, blocks, &part, now),
            RunKind::Unwritten { .. } => fill_unwritten(fs, inode, info, run, &part, now),
            RunKind::Mapped { .. } => return Ok(0),
        };
        match result {
            Err(Error::Answer(Errno::ENOSPC | Errno::EDQUOT)) if blocks > 1 => blocks /= 2,
            result => return result,
        }
    }
}

/// Extends a run that is a hole to the whole hole, at most up to block `end`. A map of indirect
/// blocks reports a hole in parts, one for each of its blocks.
fn whole_hole(fs: &Ext4, info: &InodeInfo, mut hole: Run, end: u64) -> Result<Run> {
    while let Ok(next) = u32::try_from(hole.end())
        && hole.end() < end.min(LOGICAL_END)
    {
        let more = info.map(fs, next)?;
        if more.kind != RunKind::Hole {
            break;
        }
        hole.len_blocks += more.len_blocks;
    }
    Ok(hole)
}

fn fill_hole(
    fs: &Ext4,
    inode: &Inode,
    info: &mut InodeInfo,
    logical: u32,
    blocks: u32,
    part: &WriteRange<'_>,
    now: Timespec,
) -> Result<usize> {
    let (blocks, nodes) = info.part_of_hole(fs, logical, blocks)?;
    fs.with_handle(
        WRITE_CREDITS + info.credits_for_contents(fs),
        Demand::new(blocks + nodes, part.rights),
        |handle| {
            handle.admit_blocks(info, part.rights, || Ok(blocks))?;
            let growth = Growth::of(fs, &inode.private::<CachedInode>().window, info, logical);
            let (runs, failed) =
                claim_and_write(handle, info, logical, blocks, part, growth.as_ref())?;
            let Some(last) = runs.last() else {
                return Ok(failed.map_or(Ok(0), Err));
            };
            let end = part
                .end()
                .min(last.end() << fs.superblock().geometry().block_bits());
            let _map = inode.private::<CachedInode>().change_map();
            let mut changed = info.clone();
            insert_runs(handle, &mut changed, &runs)?;
            let changed = stamped(handle, changed, end, now)?;
            *info = store_and_publish(handle, inode, changed)?;
            // OK: within the part.
            Ok(Ok((end - part.offset) as usize))
        },
    )?
}

/// Writes to the start of an unwritten run. This works on a full volume, too: if there is no block
/// for a map with more extents, the whole extent becomes written, with zeroes around the data.
fn fill_unwritten(
    fs: &Ext4,
    inode: &Inode,
    info: &mut InodeInfo,
    run: Run,
    part: &WriteRange<'_>,
    now: Timespec,
) -> Result<usize> {
    let bits = fs.superblock().geometry().block_bits();
    // OK: the part lies within the run, which ends at 2^32 at most.
    let end = u32::try_from(part.end().div_ceil(1 << bits)).unwrap_or(u32::MAX);
    let run = Run {
        len_blocks: u64::from(end - run.logical),
        ..run
    };
    match fill_and_mark(fs, inode, info, &run, part, run.logical..end, now) {
        Err(Error::Answer(Errno::ENOSPC)) => {
            let all = zero_around(fs, info, &run)?;
            fill_and_mark(fs, inode, info, &run, part, all, now)
        }
        result => result,
    }
}

/// Writes zeroes to the blocks of an unwritten extent before and after a run of it, up to the end
/// of the file. Returns the blocks that are written once the run is written as well.
fn zero_around(fs: &Ext4, info: &InodeInfo, run: &Run) -> Result<Range<u32>> {
    let inside = u64::from(run.logical)..run.end();
    let Some(extent) = info.extent_at(fs, run.logical)? else {
        return Ok(run.logical..run.logical);
    };
    let bits = fs.superblock().geometry().block_bits();
    let size = info.size().div_ceil(1 << bits);
    let all = u64::from(extent.logical)..extent.end().min(size).max(inside.end);
    for blocks in [all.start..inside.start, inside.end..all.end] {
        let start = extent.physical + (blocks.start - all.start);
        let blocks = start..start + (blocks.end - blocks.start);
        fs.cache
            .device()
            .write_zeroes(blocks.start << bits..blocks.end << bits)?;
        if info.journals_contents(fs) {
            blocks
                .into_iter()
                .try_for_each(|block| fs.cache.reload(block))?;
        }
    }
    // OK: within an extent, whose numbers fit.
    Ok(all.start as u32..all.end as u32)
}

/// Writes to an unwritten run, and marks `blocks`, which include it, as written.
fn fill_and_mark(
    fs: &Ext4,
    inode: &Inode,
    info: &mut InodeInfo,
    run: &Run,
    part: &WriteRange<'_>,
    blocks: Range<u32>,
    now: Timespec,
) -> Result<usize> {
    let nodes =
        info.blocks_to_mark(fs, &(u64::from(blocks.start)..u64::from(blocks.end)), false)?;
    info.check_countable(fs, nodes)?;
    let demand = Demand::new(nodes, ReserveUse::All);
    fs.with_handle(
        MARK_CREDITS + 1 + info.credits_for_contents(fs),
        demand,
        |handle| {
            if let Err(error) = write_run(handle, info, run, part) {
                return Ok(Err(error));
            }
            let _map = inode.private::<CachedInode>().change_map();
            let mut changed = info.clone();
            mark_written(handle, &mut changed, blocks)?;
            let changed = stamped(handle, changed, part.end(), now)?;
            *info = store_and_publish(handle, inode, changed)?;
            Ok(Ok(part.data.len()))
        },
    )?
}

/// Writes all blocks of a run to the device: the data of `part`, and zeroes before and after it.
pub(crate) fn write_run_directly(fs: &Ext4, run: &Run, part: &WriteRange<'_>) -> Result<()> {
    let (RunKind::Mapped { physical } | RunKind::Unwritten { physical }) = run.kind else {
        return Ok(());
    };
    let bits = fs.superblock().geometry().block_bits();
    let size = 1usize << bits;
    let start = u64::from(run.logical) << bits;
    let from = part.offset.max(start);
    let to = part.end().min(run.end() << bits);
    let mut target = physical << bits;
    // OK: a part of the data.
    let mut data = &part.data[(from - part.offset) as usize..(to - part.offset) as usize];
    let skip = (from - start) as usize;
    if data.len() <= COPIED_BYTES {
        return write_padded(fs, target, skip, data);
    }
    if skip > 0 {
        let (head, rest) = data.split_at(data.len().min(size - skip));
        write_padded(fs, target, skip, head)?;
        (data, target) = (rest, target + size as u64);
    }
    let (whole, tail) = data.split_at(data.len() & !(size - 1));
    if !whole.is_empty() {
        write_contents(fs, target, whole)?;
    }
    if tail.is_empty() {
        Ok(())
    } else {
        write_padded(fs, target + whole.len() as u64, 0, tail)
    }
}

/// Writes contents of a file to the device. With `data_err=abort` a failure aborts the journal.
fn write_contents(fs: &Ext4, target: u64, data: &[u8]) -> Result<()> {
    let written = fs.cache.write_bytes(target, data);
    if let Err(error) = &written
        && fs.aborts_on_data_error
    {
        fs.writer()?.transactions.abort(&error.to_string());
    }
    Ok(written?)
}

/// Writes whole blocks: `skip` zeroes, `data`, and zeroes up to the end of a block.
fn write_padded(fs: &Ext4, target: u64, skip: usize, data: &[u8]) -> Result<()> {
    let len = (skip + data.len()).next_multiple_of(to_usize(fs.superblock().block_size()));
    if len == data.len() {
        return write_contents(fs, target, data);
    }
    let mut blocks = Vec::with_capacity(len);
    blocks.resize(skip, 0);
    blocks.extend_from_slice(data);
    blocks.resize(len, 0);
    write_contents(fs, target, &blocks)
}

/// Makes a regular file `size` bytes long. Locks: `rwsem` exclusive.
pub(crate) fn truncate_file(
    fs: &Ext4,
    inode: &Inode,
    size: u64,
    context: ChangeContext,
) -> Result<()> {
    let ChangeContext { now, rights } = context;
    let mut info = writable_info(fs, inode)?;
    if size > info.max_file_bytes(fs) {
        return Err(Errno::EFBIG.into());
    }
    end_window(fs, inode);
    if info.is_inline() {
        if resize_inline(fs, inode, &info, size, now)? {
            return Ok(());
        }
        info = spill_inline(fs, inode, rights)?;
    }
    if size > info.size() {
        info.zero_block_tail(fs, info.size())?;
        return fs.with_handle(2, 0, |handle| {
            let changed = stamped(handle, info, size, now)?;
            store_and_publish(handle, inode, changed).map(drop)
        });
    }
    let _map = inode.private::<CachedInode>().change_map();
    let block_size = u64::from(fs.superblock().block_size());
    // Before the tail is zeroed.
    fs.note_damage(fs.check_accounts(Owners::of(info.fields())))?;
    fs.note_damage(info.check_map(fs, size.div_ceil(block_size)))?;
    let mut tail = None;
    if info.journals_contents(fs) {
        tail = logged_part(fs, &info, size, size.next_multiple_of(block_size))?;
    } else if !fs
        .writer()?
        .held_files
        .note_cut(info.ino(), !size.is_multiple_of(block_size))
    {
        info.zero_block_tail(fs, size)?;
    }
    info.fields_mut().set_size(size);
    let mut left = size.div_ceil(block_size)..LOGICAL_END;
    loop {
        let cut = fs.with_handle(UNMAP_CREDITS + 5, 0, |handle| {
            if let Some(tail) = tail.take() {
                zero_logged_part(handle, tail);
            }
            let mut changed = stamped(handle, info.clone(), size, now)?;
            let left = unmap_blocks(handle, &mut changed, left.clone(), false)?;
            // A file without links stays an orphan.
            match changed.fields().links() {
                0 => {}
                _ if left.is_empty() => {
                    handle.writer.orphans.orphan_remove(handle, &mut changed)?
                }
                _ => handle.writer.orphans.orphan_add(&mut changed),
            }
            info = store_and_publish(handle, inode, changed)?;
            Ok(left)
        });
        if let Err(Error::Corrupt(_)) = cut
            && info.is_orphan()
            && info.fields().links() > 0
        {
            // Otherwise the next opening of the volume would meet the same damage.
            let mut info = info.clone();
            fs.with_handle(2, 0, |handle| {
                handle.writer.orphans.orphan_remove(handle, &mut info)?;
                store_and_publish(handle, inode, info)
            })?;
        }
        left = cut?;
        if left.is_empty() {
            return Ok(());
        }
    }
}

/// Makes a file durable. With `data_only` its times need not become durable.
pub(crate) fn sync_file_data(fs: &Ext4, inode: &Inode, data_only: bool) -> Result<()> {
    let Some(writer) = fs.writer.get() else {
        return Ok(());
    };
    if fs.lazy_times.get().is_some() && !data_only {
        store_times(fs, inode.private::<CachedInode>().info().ino())?;
        return Ok(writer.transactions.sync()?);
    }
    let cached = inode.private::<CachedInode>();
    let transactions = &writer.transactions;
    let (changed_in, written) = cached.durable_with(data_only);
    match changed_in {
        Some(tid) => transactions.commit(tid)?,
        None => {
            let durable = transactions.committed();
            transactions.sync()?;
            cached.note_durable(durable);
        }
    }
    // The contents may have been written after that commit's flush, or there was no commit to wait
    // for.
    Ok(transactions.flush(written)?)
}

impl InodeInfo {
    /// Returns the largest size of the file that its map can address and `i_blocks` can count.
    pub(crate) fn max_file_bytes(&self, fs: &Ext4) -> u64 {
        if self.has_extents() {
            return max_bytes_in_extents(fs);
        }
        let map = fs.indirect_map();
        let countable = countable_blocks(fs);
        let blocks = map
            .end()
            .min(countable - map.indirect_blocks(countable.min(map.end())));
        blocks << fs.superblock().geometry().block_bits()
    }

    /// Zeroes a range inside one block, if the block has been written.
    pub(crate) fn zero_in_block(&self, fs: &Ext4, from: u64, to: u64) -> Result<()> {
        let bits = fs.superblock().geometry().block_bits();
        if from >= to || from >> bits >= LOGICAL_END {
            return Ok(());
        }
        if self.journals_contents(fs) {
            return zero_logged(fs, self, from, to);
        }
        let Some(mapped) = self.run_at(fs, from)?.mapped() else {
            return Ok(());
        };
        fs.writer()?.held_files.check_in_place(self, from)?;
        // OK: less than a block.
        let zeroes = vec![0; (to - from) as usize];
        write_contents(fs, (mapped.start << bits) + from % (1 << bits), &zeroes)
    }

    /// Zeroes the bytes from `size` to the end of their block.
    pub(crate) fn zero_block_tail(&self, fs: &Ext4, size: u64) -> Result<()> {
        let block_size = u64::from(fs.superblock().block_size());
        self.zero_in_block(fs, size, size.next_multiple_of(block_size))
    }
}

/// A range of the device.
#[derive(Clone, Copy, Default)]
struct DeviceRange {
    start: u64,
    len: usize,
}

/// Data to be written, or the rest of it.
pub(crate) struct WriteRange<'d> {
    pub(crate) data: &'d [u8],
    pub(crate) offset: u64,
    /// The reserves that the caller may use.
    pub(crate) rights: SpaceRights,
}

impl WriteRange<'_> {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// Allocates up to `blocks` blocks for the hole at `logical`, in a few runs, and writes to them. If
/// a write fails, it frees that run and returns the error with the runs before it.
pub(crate) fn claim_and_write(
    handle: &Handle<'_>,
    info: &InodeInfo,
    logical: u32,
    blocks: u32,
    part: &WriteRange<'_>,
    growth: Option<&Growth<'_>>,
) -> Result<(Vec<Run>, Option<Error>)> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = logical;
    let end = logical + blocks;
    while at < end && runs.len() < to_usize(MAX_RUNS) {
        let run = match claim_blocks(
            handle,
            info,
            at,
            end - at,
            false,
            Placement::after(&runs, growth),
        ) {
            Err(Error::Answer(_)) if !runs.is_empty() => break,
            run => run?,
        };
        if let (Err(error), Some(mapped)) = (write_run(handle, info, &run, part), run.mapped()) {
            handle
                .writer
                .allocator
                .free(handle, mapped, info.journals_contents(handle.fs))?;
            return Ok((runs, Some(error)));
        }
        runs.push(run);
        // OK: no more than up to `end`.
        at = run.end() as u32;
    }
    Ok((runs, None))
}

/// Returns the inode with new times and version, and a size of at least `end`.
pub(crate) fn stamped(
    handle: &Handle<'_>,
    mut info: InodeInfo,
    end: u64,
    now: Timespec,
) -> Result<InodeInfo> {
    let now = timestamp(now);
    info.fields_mut().set_mtime(now);
    info.fields_mut().set_ctime(now);
    let version = info.fields().version();
    info.fields_mut().set_version(version.wrapping_add(1));
    if end > info.size() {
        info.fields_mut().set_size(end);
        note_large_file(handle, end)?;
    }
    Ok(info)
}

/// Sets the feature `large_file` in the superblock, if `size` is 2 GiB or more.
fn note_large_file(handle: &Handle<'_>, size: u64) -> Result<()> {
    let known = handle
        .fs
        .superblock()
        .features()
        .ro_compat
        .contains(RoCompat::LARGE_FILE);
    if known || i32::try_from(size).is_ok() {
        return Ok(());
    }
    handle.edit_superblock(|raw| {
        let features = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
        raw.s_feature_ro_compat
            .set((features | RoCompat::LARGE_FILE).bits());
    })
}

/// Stores a changed inode and publishes it as the current one.
pub(crate) fn store_and_publish(
    handle: &Handle<'_>,
    inode: &Inode,
    info: InodeInfo,
) -> Result<InodeInfo> {
    handle.store(&info)?;
    publish(handle.fs, inode, &info, handle.tid())?;
    Ok(info)
}
