//! Changing the contents of regular files: writing and truncating.
//!
//! Data goes straight to the device, before the transaction that leads to it commits; a commit flushes the device
//! first. Blocks that are new to a file are written whole before its map knows of them, so nobody, not even after a
//! crash, reads what their last owner left in them. Behind the end of a file its last block may hold anything, such as
//! what was written just before a crash: it is filled with zeroes before the file grows.
//!
//! Contents that go through the journal are another matter: see `data_journal`.

use std::ops::Range;

use extern4_disk::feature::RoCompat;
use extern4_disk::inode::InodeFlags;
use extern4_vfs::{Errno, Inode, SpaceRights, Timespec};

use crate::alloc::balloc::{Demand, ReserveUse};
use crate::alloc::preallocation::Growth;
use crate::error::{Error, Result};
use crate::inode::InodeInfo;
use crate::inode::inode_info::Node;
use crate::map::change::{ALLOCATE_CREDITS, MAP_BLOCKS, MARK_CREDITS, MAX_RUNS, Near, UNMAP_CREDITS};
use crate::map::{LOGICAL_END, Run, RunKind};
use crate::mount::Ext4;
use crate::ops::create::timestamp;
use crate::volume::group::to_usize;
use crate::volume::handle::Change;

/// Bytes that one change writes at most: a commit waits until they are on the device.
const PART_BYTES: u64 = 4 << 20;
/// So much is rather copied than written in two pieces.
const COPIED_BYTES: usize = 64 << 10;
/// Pieces of a write that is made beside others, at most. One whose blocks are scattered more takes long anyway.
const MOST_PIECES: usize = 16;
/// Runs with bitmap and descriptor, indirect blocks with theirs, the nodes of a tree, and the inode.
pub(crate) const WRITE_CREDITS: u32 = 2 * MAX_RUNS + ALLOCATE_CREDITS + 2 * MAP_BLOCKS + MAX_RUNS + 1;

impl Ext4 {
    /// Writes `data` at `offset` of a regular file; returns how much was written, which is all unless the volume is
    /// full or the device fails. Locks: `rwsem` exclusive.
    pub(crate) fn write_file(
        &self,
        inode: &Inode,
        data: &[u8],
        offset: u64,
        now: Timespec,
        rights: SpaceRights,
    ) -> Result<usize> {
        let mut info = self.changeable(inode)?;
        let room = self.max_file_bytes(&info).checked_sub(offset).filter(|room| *room > 0);
        let room = usize::try_from(room.ok_or(Errno::EFBIG)?).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        if info.is_inline() {
            if self.write_inline(inode, &info, data, offset, now)? {
                return Ok(data.len());
            }
            info = self.spill_inline(inode, rights)?;
        }
        if offset > info.size() {
            self.zero_behind(&info, info.size())?;
        }
        let mut done = 0;
        while done < data.len() {
            let part = Part { data: &data[done..], offset: offset + done as u64, rights };
            match self.write_part(inode, &mut info, &part, now) {
                Ok(len) => done += len,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes over blocks of a regular file that have been written before, within its size, where that changes nothing of the inode and
    /// its times are noted already; false if it takes more, and then nothing has been written. The map stays as it is meanwhile, for who
    /// changes it has `rwsem` exclusive. `apart` is called as [`FileOps::overwrite`](extern4_vfs::FileOps::overwrite) says: one piece is
    /// written in one step, if the device writes whole what it is handed. Locks: `rwsem` shared.
    pub(crate) fn overwrite_file(
        &self,
        inode: &Inode,
        data: &[u8],
        offset: u64,
        apart: &mut dyn FnMut(),
    ) -> Result<bool> {
        let transactions = &self.writer()?.transactions;
        let node = inode.private::<Node>();
        // What changes of times or permission bits leave as it was shown is not looked at here.
        let info = node.shown();
        let takes_more = InodeFlags::VERITY | InodeFlags::SYNC;
        if info.is_encrypted()
            || info.is_inline()
            || info.fields().flags().intersects(takes_more)
            || self.journals_contents(&info)
        {
            return Ok(false);
        }
        let mut pieces = [Piece::default(); MOST_PIECES];
        let Some(count) = self.written_pieces(&info, offset, data.len(), &mut pieces)? else {
            return Ok(false);
        };
        if count > 1 || !self.cache.device().writes_whole() {
            apart();
        }
        let (mut rest, mut result) = (data, Ok(()));
        for piece in &pieces[..count] {
            let (part, behind) = rest.split_at(piece.len);
            rest = behind;
            result = result.and_then(|()| self.write_contents(piece.start, part));
        }
        // Also if one has failed, for those before it have been written.
        node.note_written(transactions.next_flush());
        result?;
        transactions.note_data(data.len() as u64);
        Ok(true)
    }

    /// Where that range of a file stands on the device, in how many pieces. Nothing if it does not lie within the file's size, in blocks
    /// that have all been written before, or if there is no room for all pieces.
    fn written_pieces(
        &self,
        info: &InodeInfo,
        offset: u64,
        len: usize,
        pieces: &mut [Piece; MOST_PIECES],
    ) -> Result<Option<usize>> {
        let (bits, end) = (self.superblock().geometry().block_bits(), offset + len as u64);
        if end > info.size() {
            return Ok(None);
        }
        let (mut at, mut count) = (offset, 0);
        while at < end {
            let run = self.run_at(info, at)?;
            let (Some(mapped), Some(piece)) = (run.mapped(), pieces.get_mut(count)) else { return Ok(None) };
            let to = end.min(run.end() << bits);
            let start = (mapped.start << bits) + (at - (u64::from(run.logical) << bits));
            // OK: within `len`.
            *piece = Piece { start, len: (to - at) as usize };
            (at, count) = (to, count + 1);
        }
        Ok(Some(count))
    }

    /// The inode of a regular file whose contents may be changed.
    pub(crate) fn changeable(&self, inode: &Inode) -> Result<InodeInfo> {
        self.writer()?;
        let node = inode.private::<Node>();
        self.check_key(node)?;
        let info = node.info();
        if info.fields().flags().contains(InodeFlags::VERITY) {
            return Err(Errno::EPERM.into());
        }
        Ok(info)
    }

    /// The largest size that a file can have: what its map reaches, and what `i_blocks` can count.
    pub(crate) fn max_file_bytes(&self, info: &InodeInfo) -> u64 {
        if info.has_extents() {
            return self.max_bytes_in_extents();
        }
        let (map, countable) = (self.indirect_map(), self.countable_blocks());
        let blocks = map.end().min(countable - map.indirect_blocks(countable.min(map.end())));
        blocks << self.superblock().geometry().block_bits()
    }

    /// The same for one with extents.
    pub(crate) fn max_bytes_in_extents(&self) -> u64 {
        (LOGICAL_END - 1).min(self.countable_blocks()) << self.superblock().geometry().block_bits()
    }

    /// How many blocks `i_blocks` can count.
    fn countable_blocks(&self) -> u64 {
        let sb = self.superblock();
        let huge = sb.features().ro_compat.contains(RoCompat::HUGE_FILE);
        if huge { u64::MAX } else { u64::from(u32::MAX) >> (sb.geometry().block_bits() - 9) }
    }

    /// Writes the beginning of a part: what is there already is written over, and then one hole is filled.
    fn write_part(
        &self,
        inode: &Inode,
        info: &mut InodeInfo,
        part: &Part<'_>,
        now: Timespec,
    ) -> Result<usize> {
        if self.journals_contents(info) {
            let done = self.write_logged_part(inode, info, part, now)?;
            self.writer()?.transactions.note_data(done as u64);
            return Ok(done);
        }
        let offset = part.offset;
        let most = usize::try_from(PART_BYTES - offset % PART_BYTES).unwrap_or(usize::MAX);
        let data = &part.data[..part.data.len().min(most)];
        let transactions = &self.writer()?.transactions;
        let old = self.overwrite(info, data, offset);
        if !matches!(old, Ok(0)) {
            inode.private::<Node>().note_written(transactions.next_flush());
        }
        let old = old?;
        transactions.note_data(old as u64);
        if old < data.len() {
            let rest = Part { data: &data[old..], offset: offset + old as u64, rights: part.rights };
            match self.write_new(inode, info, &rest, now) {
                Ok(new) => {
                    transactions.note_data(new as u64);
                    return Ok(old + new);
                }
                Err(error) if old == 0 => return Err(error),
                Err(_) => {}
            }
        }
        self.note_overwritten(inode, info, offset + old as u64, now)?;
        Ok(old)
    }

    /// Notes that contents up to `end` have been written over. That may change nothing: many come between two ticks of the clock.
    fn note_overwritten(&self, inode: &Inode, info: &mut InodeInfo, end: u64, now: Timespec) -> Result<()> {
        let (fields, stamp, grows) = (info.fields(), timestamp(now), end > info.size());
        // Otherwise the change is what makes them durable.
        if !grows && !fields.flags().contains(InodeFlags::SYNC) {
            let is_noted = fields.mtime() == stamp && fields.ctime() == stamp;
            if is_noted || self.note_write_lazily(inode, info, now)? {
                return Ok(());
            }
        }
        self.changing(2, 0, |change| {
            let changed = change.stamped(info.clone(), end, now)?;
            change.store(&changed)?;
            match grows {
                true => self.publish(inode, &changed, change.tid())?,
                false => self.publish_times(inode, &changed, change.tid())?,
            }
            *info = changed;
            Ok(())
        })
    }

    /// Writes over blocks that have been written before, up to the first that has not.
    fn overwrite(&self, info: &InodeInfo, data: &[u8], offset: u64) -> Result<usize> {
        let bits = self.superblock().geometry().block_bits();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let run = self.run_at(info, at)?;
            let RunKind::Mapped { physical } = run.kind else { break };
            let part = usize::try_from((run.end() << bits) - at).unwrap_or(usize::MAX).min(data.len() - done);
            let start = (physical << bits) + (at - (u64::from(run.logical) << bits));
            self.write_contents(start, &data[done..done + part])?;
            done += part;
        }
        Ok(done)
    }

    /// Writes the beginning of a part to blocks that hold nothing yet: to what has been allocated and not written, or
    /// to blocks for a hole. If there is no room for all, or a quota does not
    /// allow all, for as much as there is.
    pub(crate) fn write_new(
        &self,
        inode: &Inode,
        info: &mut InodeInfo,
        whole: &Part<'_>,
        now: Timespec,
    ) -> Result<usize> {
        let Part { data, offset, rights } = *whole;
        let bits = self.superblock().geometry().block_bits();
        let wanted = (offset + data.len() as u64).div_ceil(1 << bits);
        let run = self.run_at(info, offset)?;
        let run = if run.kind == RunKind::Hole { self.whole_hole(info, run, wanted)? } else { run };
        let end = (offset + data.len() as u64).min(run.end() << bits);
        // OK: no more than a part's blocks.
        let mut blocks = (end.div_ceil(1 << bits) - u64::from(run.logical)) as u32;
        loop {
            let end = end.min((u64::from(run.logical) + u64::from(blocks)) << bits);
            // OK: the end of a part of the data.
            let part = Part { data: &data[..(end - offset) as usize], offset, rights };
            let result = match run.kind {
                RunKind::Hole => self.fill_hole(inode, info, run.logical, blocks, &part, now),
                RunKind::Unwritten { .. } => self.fill_unwritten(inode, info, run, &part, now),
                RunKind::Mapped { .. } => return Ok(0),
            };
            match result {
                Err(Error::Answer(Errno::ENOSPC | Errno::EDQUOT)) if blocks > 1 => blocks /= 2,
                result => return result,
            }
        }
    }

    /// The hole that a run begins, up to block `end` if it goes on so far. A map of block numbers tells of one in parts, which end
    /// where the map goes on in another place.
    fn whole_hole(&self, info: &InodeInfo, mut hole: Run, end: u64) -> Result<Run> {
        while let Ok(next) = u32::try_from(hole.end())
            && hole.end() < end.min(LOGICAL_END)
        {
            let more = self.map(info, next)?;
            if more.kind != RunKind::Hole {
                break;
            }
            hole.len_blocks += more.len_blocks;
        }
        Ok(hole)
    }

    fn fill_hole(
        &self,
        inode: &Inode,
        info: &mut InodeInfo,
        logical: u32,
        blocks: u32,
        part: &Part<'_>,
        now: Timespec,
    ) -> Result<usize> {
        let (blocks, nodes) = self.part_of_hole(info, logical, blocks)?;
        self.changing(
            WRITE_CREDITS + self.credits_for_contents(info),
            Demand::new(blocks + nodes, part.rights),
            |change| {
                change.admit_blocks(info, part.rights, || Ok(blocks))?;
                let growth = Growth::of(self, inode, info, logical);
                let (runs, failed) = change.claim_and_write(info, logical, blocks, part, growth.as_ref())?;
                let Some(last) = runs.last() else { return Ok(failed.map_or(Ok(0), Err)) };
                let end = part.end().min(last.end() << self.superblock().geometry().block_bits());
                let _map = inode.private::<Node>().change_map();
                let mut changed = info.clone();
                change.enter(&mut changed, &runs)?;
                let changed = change.stamped(changed, end, now)?;
                *info = change.show(inode, changed)?;
                // OK: within the part.
                Ok(Ok((end - part.offset) as usize))
            },
        )?
    }

    /// Writes to the beginning of a run that is allocated and holds nothing yet. That works on a
    /// full volume too: where there is no block for a map with more extents, all of the extent
    /// becomes written.
    fn fill_unwritten(
        &self,
        inode: &Inode,
        info: &mut InodeInfo,
        run: Run,
        part: &Part<'_>,
        now: Timespec,
    ) -> Result<usize> {
        let bits = self.superblock().geometry().block_bits();
        // OK: the part lies within the run, which ends at 2^32 at most.
        let end = u32::try_from(part.end().div_ceil(1 << bits)).unwrap_or(u32::MAX);
        let run = Run { len_blocks: u64::from(end - run.logical), ..run };
        match self.fill_and_mark(inode, info, &run, part, run.logical..end, now) {
            Err(Error::Answer(Errno::ENOSPC)) => {
                let all = self.zero_around(info, &run)?;
                self.fill_and_mark(inode, info, &run, part, all, now)
            }
            result => result,
        }
    }

    /// Writes zeroes to the blocks of an unwritten extent before and behind a run of it. Not behind
    /// the end of the file: blocks there stay unwritten. Returns the blocks that hold something
    /// when the run is written as well.
    fn zero_around(&self, info: &InodeInfo, run: &Run) -> Result<Range<u32>> {
        let inside = u64::from(run.logical)..run.end();
        let Some(extent) = self.extent_at(info, run.logical)? else { return Ok(run.logical..run.logical) };
        let bits = self.superblock().geometry().block_bits();
        let size = info.size().div_ceil(1 << bits);
        let all = u64::from(extent.logical)..extent.end().min(size).max(inside.end);
        for blocks in [all.start..inside.start, inside.end..all.end] {
            let start = extent.physical + (blocks.start - all.start);
            let blocks = start..start + (blocks.end - blocks.start);
            self.cache.device().write_zeroes(blocks.start << bits..blocks.end << bits)?;
            if self.journals_contents(info) {
                blocks.into_iter().try_for_each(|block| self.cache.reload(block))?;
            }
        }
        // OK: within an extent, whose numbers fit.
        Ok(all.start as u32..all.end as u32)
    }

    /// Writes to blocks that are allocated, and makes `blocks`, in which they lie, count as
    /// written.
    fn fill_and_mark(
        &self,
        inode: &Inode,
        info: &mut InodeInfo,
        run: &Run,
        part: &Part<'_>,
        blocks: Range<u32>,
        now: Timespec,
    ) -> Result<usize> {
        let nodes = self.blocks_to_mark(info, &(u64::from(blocks.start)..u64::from(blocks.end)), false)?;
        self.check_countable(info, nodes)?;
        let demand = Demand::new(nodes, ReserveUse::All);
        self.changing(MARK_CREDITS + 1 + self.credits_for_contents(info), demand, |change| {
            if let Err(error) = change.write_run(info, run, part) {
                return Ok(Err(error));
            }
            let _map = inode.private::<Node>().change_map();
            let mut changed = info.clone();
            change.mark_written(&mut changed, blocks)?;
            let changed = change.stamped(changed, part.end(), now)?;
            *info = change.show(inode, changed)?;
            Ok(Ok(part.data.len()))
        })?
    }

    /// Writes the blocks of a run whole: data where there is some, and zeroes before and behind it.
    pub(crate) fn write_run(&self, run: &Run, part: &Part<'_>) -> Result<()> {
        let (RunKind::Mapped { physical } | RunKind::Unwritten { physical }) = run.kind else {
            return Ok(());
        };
        let bits = self.superblock().geometry().block_bits();
        let size = 1usize << bits;
        let start = u64::from(run.logical) << bits;
        let (from, to) = (part.offset.max(start), part.end().min(run.end() << bits));
        let mut target = physical << bits;
        // OK: a part of the data.
        let mut data = &part.data[(from - part.offset) as usize..(to - part.offset) as usize];
        let skip = (from - start) as usize;
        if data.len() <= COPIED_BYTES {
            return self.write_padded(target, skip, data);
        }
        if skip > 0 {
            let (head, rest) = data.split_at(data.len().min(size - skip));
            self.write_padded(target, skip, head)?;
            (data, target) = (rest, target + size as u64);
        }
        let (whole, tail) = data.split_at(data.len() & !(size - 1));
        if !whole.is_empty() {
            self.write_contents(target, whole)?;
        }
        if tail.is_empty() { Ok(()) } else { self.write_padded(target + whole.len() as u64, 0, tail) }
    }

    /// Writes contents of a file to the device. Where the mount asks for that, a failure ends all changes.
    fn write_contents(&self, target: u64, data: &[u8]) -> Result<()> {
        let written = self.cache.write_bytes(target, data);
        if let Err(error) = &written
            && self.aborts_on_data_error
        {
            self.writer()?.transactions.abort(&error.to_string());
        }
        Ok(written?)
    }

    /// Writes whole blocks: `skip` zeroes, `data`, and zeroes.
    fn write_padded(&self, target: u64, skip: usize, data: &[u8]) -> Result<()> {
        let len = (skip + data.len()).next_multiple_of(to_usize(self.superblock().block_size()));
        if len == data.len() {
            return self.write_contents(target, data);
        }
        let mut blocks = Vec::with_capacity(len);
        blocks.resize(skip, 0);
        blocks.extend_from_slice(data);
        blocks.resize(len, 0);
        self.write_contents(target, &blocks)
    }

    /// Writes zeroes over what is in a range of one block, if the block has been written.
    pub(crate) fn zero_in_block(&self, info: &InodeInfo, from: u64, to: u64) -> Result<()> {
        let bits = self.superblock().geometry().block_bits();
        if from >= to || from >> bits >= LOGICAL_END {
            return Ok(());
        }
        if self.journals_contents(info) {
            return self.zero_logged(info, from, to);
        }
        let Some(mapped) = self.run_at(info, from)?.mapped() else { return Ok(()) };
        // OK: less than a block.
        let zeroes = vec![0; (to - from) as usize];
        self.write_contents((mapped.start << bits) + from % (1 << bits), &zeroes)
    }

    /// Writes zeroes behind a file that ends at `size`, up to the end of its last block.
    pub(crate) fn zero_behind(&self, info: &InodeInfo, size: u64) -> Result<()> {
        let block_size = u64::from(self.superblock().block_size());
        self.zero_in_block(info, size, size.next_multiple_of(block_size))
    }

    /// Makes a regular file `size` bytes long. Locks: `rwsem` exclusive.
    pub(crate) fn truncate_file(
        &self,
        inode: &Inode,
        size: u64,
        now: Timespec,
        rights: SpaceRights,
    ) -> Result<()> {
        let mut info = self.changeable(inode)?;
        if size > self.max_file_bytes(&info) {
            return Err(Errno::EFBIG.into());
        }
        self.end_window(inode);
        if info.is_inline() {
            if self.resize_inline(inode, &info, size, now)? {
                return Ok(());
            }
            info = self.spill_inline(inode, rights)?;
        }
        if size > info.size() {
            self.zero_behind(&info, info.size())?;
            return self.changing(2, 0, |change| {
                let changed = change.stamped(info, size, now)?;
                change.show(inode, changed).map(drop)
            });
        }
        let _map = inode.private::<Node>().change_map();
        let mut tail = None;
        if self.journals_contents(&info) {
            tail =
                self.logged_part(&info, size, size.next_multiple_of(self.superblock().block_size().into()))?;
        } else {
            self.zero_behind(&info, size)?;
        }
        info.fields_mut().set_size(size);
        let mut left = size.div_ceil(self.superblock().block_size().into())..LOGICAL_END;
        loop {
            left = self.changing(UNMAP_CREDITS + 5, 0, |change| {
                if let Some(tail) = tail.take() {
                    change.zero_logged_part(tail);
                }
                let mut changed = change.stamped(info.clone(), size, now)?;
                let left = change.unmap(&mut changed, left.clone(), false)?;
                // A file without links is an orphan for good.
                match changed.fields().links() {
                    0 => {}
                    _ if left.is_empty() => change.orphan_remove(&mut changed)?,
                    _ => change.orphan_add(&mut changed)?,
                }
                info = change.show(inode, changed)?;
                Ok(left)
            })?;
            if left.is_empty() {
                return Ok(());
            }
        }
    }

    /// Begins to make durable what has been changed, and does not wait for it.
    pub fn begin_sync(&self) {
        if let Some(writer) = self.writer.get() {
            writer.transactions.begin_sync();
        }
    }

    /// Makes a file durable; with `data_only`, its times need not be.
    pub(crate) fn sync_file_data(&self, inode: &Inode, data_only: bool) -> Result<()> {
        let Some(writer) = self.writer.get() else { return Ok(()) };
        if self.lazy_times.get().is_some() && !data_only {
            self.store_times(inode.private::<Node>().info().ino())?;
            return Ok(writer.transactions.sync()?);
        }
        let (node, transactions) = (inode.private::<Node>(), &writer.transactions);
        let (changed_in, written) = node.durable_with(data_only);
        match changed_in {
            Some(tid) => transactions.commit(tid)?,
            None => {
                let durable = transactions.committed();
                transactions.sync()?;
                node.note_durable(durable);
            }
        }
        // A commit may have been under way when contents were written, or there was none to be waited for.
        Ok(transactions.flush(written)?)
    }
}

/// A piece of a file, where it stands on the device.
#[derive(Clone, Copy, Default)]
struct Piece {
    start: u64,
    len: usize,
}

/// A part of what is to be written.
pub(crate) struct Part<'d> {
    pub(crate) data: &'d [u8],
    pub(crate) offset: u64,
    /// The capabilities of who writes.
    pub(crate) rights: SpaceRights,
}

impl Part<'_> {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

impl Change<'_> {
    /// Allocates up to `blocks` blocks for the hole at `logical`, in a few runs, and writes to them. What could not
    /// be written is given back: then the error is returned beside the runs before it.
    pub(crate) fn claim_and_write(
        &self,
        info: &InodeInfo,
        logical: u32,
        blocks: u32,
        part: &Part<'_>,
        growth: Option<&Growth<'_>>,
    ) -> Result<(Vec<Run>, Option<Error>)> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut at, end) = (logical, logical + blocks);
        while at < end && runs.len() < to_usize(MAX_RUNS) {
            let run = match self.claim(info, at, end - at, false, Near::behind(&runs, growth)) {
                Err(Error::Answer(_)) if !runs.is_empty() => break,
                run => run?,
            };
            if let (Err(error), Some(mapped)) = (self.write_run(info, &run, part), run.mapped()) {
                self.free(mapped, self.fs.journals_contents(info))?;
                return Ok((runs, Some(error)));
            }
            runs.push(run);
            // OK: no more than up to `end`.
            at = run.end() as u32;
        }
        Ok((runs, None))
    }

    /// An inode whose contents have changed up to `end`.
    pub(crate) fn stamped(&self, mut info: InodeInfo, end: u64, now: Timespec) -> Result<InodeInfo> {
        let now = timestamp(now);
        info.fields_mut().set_mtime(now);
        info.fields_mut().set_ctime(now);
        let version = info.fields().version();
        info.fields_mut().set_version(version.wrapping_add(1));
        if end > info.size() {
            info.fields_mut().set_size(end);
            self.note_large_file(end)?;
        }
        Ok(info)
    }

    /// The superblock says if there are files of 2 GiB or more.
    fn note_large_file(&self, size: u64) -> Result<()> {
        let known = self.fs.superblock().features().ro_compat.contains(RoCompat::LARGE_FILE);
        if known || i32::try_from(size).is_ok() {
            return Ok(());
        }
        self.edit_superblock(|raw| {
            let features = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
            raw.s_feature_ro_compat.set((features | RoCompat::LARGE_FILE).bits());
        })
    }

    /// Stores a changed inode and puts it in the old one's place.
    pub(crate) fn show(&self, inode: &Inode, info: InodeInfo) -> Result<InodeInfo> {
        self.store(&info)?;
        self.fs.publish(inode, &info, self.tid())?;
        Ok(info)
    }
}
