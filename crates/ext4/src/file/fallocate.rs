//! Changes the allocation of a regular file: `fallocate(2)` with its modes.
//!
//! `FileOps::fallocate` in `ops` calls [`fallocate_file`] with the inode's `rwsem` held
//! exclusively. An operation of many transactions leaves the file consistent after each: a part of
//! the range is allocated, a hole, zeroed, or moved. On a full volume punching and collapsing still
//! work, because they use the blocks reserved for metadata. Files without extents can only have
//! holes punched (`EOPNOTSUPP`), as in Linux.

use std::ops::Range;

use extern4_vfs::{ChangeContext, Errno, FallocateMode, Inode, SpaceRights, Timespec};

use crate::alloc::reserve::{Demand, ReserveUse};
use crate::error::{Error, Result};
use crate::file::inline::spill_inline;
use crate::file::write::{max_bytes_in_extents, stamped, store_and_publish, writable_info};
use crate::fs::Ext4;
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::map::change::{
    ALLOCATE_CREDITS, MARK_CREDITS, Placement, SHIFT_CREDITS, UNMAP_CREDITS, claim_blocks,
    insert_runs, mark_unwritten, shift_blocks, unmap_blocks,
};
use crate::map::map_blocks::MAX_RUNS;
use crate::run::{LOGICAL_END, Run, RunKind};
use crate::volume::group::to_usize;

/// The most blocks that one handle allocates.
const PART_BLOCKS: u64 = 1 << 18;
const FALLOCATE_CREDITS: u32 = 2 * (MAX_RUNS + 8) + ALLOCATE_CREDITS + 2;
/// The size of a page. Like Linux, a hole after the end of a file reaches to the end of its last
/// page.
const PAGE: u64 = 4096;

/// A `fallocate` call on one file, with the current state of its inode.
struct FallocateFile<'f> {
    fs: &'f Ext4,
    inode: &'f Inode,
    info: InodeInfo,
    now: Timespec,
    rights: SpaceRights,
}

/// Changes the allocation of a regular file. Locks: `rwsem` exclusive.
pub(crate) fn fallocate_file(
    fs: &Ext4,
    inode: &Inode,
    mode: FallocateMode,
    offset: u64,
    len: u64,
    context: ChangeContext,
) -> Result<()> {
    let ChangeContext { now, rights } = context;
    let mut info = writable_info(fs, inode)?;
    let keep_size = mode.contains(FallocateMode::KEEP_SIZE);
    let shape = mode - FallocateMode::KEEP_SIZE;
    let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
    // As in Linux, a hole may reach beyond the largest size of a file without extents.
    let punches = shape == FallocateMode::PUNCH_HOLE;
    let most = if punches {
        max_bytes_in_extents(fs)
    } else {
        info.max_file_bytes(fs)
    };
    if end > most {
        return Err(Errno::EFBIG.into());
    }
    if info.is_inline() {
        info = spill_inline(fs, inode, rights)?;
    }
    if !info.has_extents() && shape != FallocateMode::PUNCH_HOLE {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let size = if keep_size { 0 } else { end };
    if size > info.size() || shape == FallocateMode::INSERT_RANGE {
        info.zero_block_tail(fs, info.size())?;
    }
    let mut work = FallocateFile {
        fs,
        inode,
        info,
        now,
        rights,
    };
    match shape {
        FallocateMode::PUNCH_HOLE => work.punch(offset, end),
        FallocateMode::ZERO_RANGE => work.zero(offset, end, size),
        FallocateMode::COLLAPSE_RANGE if !keep_size => work.collapse(offset, end),
        FallocateMode::INSERT_RANGE if !keep_size => work.insert(offset, end),
        shape if shape.is_empty() => work.allocate(offset, end, size),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

impl FallocateFile<'_> {
    fn block_size(&self) -> u64 {
        self.fs.superblock().block_size().into()
    }

    /// Returns the blocks that a range of bytes touches.
    fn around(&self, from: u64, to: u64) -> Range<u64> {
        from / self.block_size()..to.div_ceil(self.block_size())
    }

    /// Returns the blocks that are entirely in a range of bytes.
    fn inside(&self, from: u64, to: u64) -> Range<u64> {
        let start = from.div_ceil(self.block_size());
        let end = to / self.block_size();
        start..end.max(start)
    }

    /// Stores the inode with new times and a size of at least `size`.
    fn finish(&mut self, size: u64) -> Result<()> {
        self.fs.with_handle(2, 0, |handle| {
            let changed = stamped(handle, self.info.clone(), size, self.now)?;
            self.info = store_and_publish(handle, self.inode, changed)?;
            Ok(())
        })
    }

    /// Allocates blocks for every hole of a range. Afterwards the file is at least `size` bytes
    /// long.
    fn allocate(&mut self, from: u64, to: u64, size: u64) -> Result<()> {
        let range = self.around(from, to);
        let mut at = range.start;
        while at < range.end {
            // OK: within the file's largest size.
            let run = self.info.map(self.fs, at as u32)?;
            let end = run.end().min(range.end);
            at = match run.kind {
                RunKind::Hole => {
                    let done =
                        self.allocate_hole(at as u32, (end - at).min(PART_BLOCKS) as u32, size)?;
                    done.max(at + 1)
                }
                RunKind::Mapped { .. } | RunKind::Unwritten { .. } => end,
            };
        }
        self.finish(size)
    }

    /// Allocates blocks for the start of a hole. Returns where they end.
    fn allocate_hole(&mut self, logical: u32, blocks: u32, size: u64) -> Result<u64> {
        let mut blocks = blocks;
        loop {
            match self.try_allocate_hole(logical, blocks, size) {
                Err(Error::Answer(Errno::ENOSPC | Errno::EDQUOT)) if blocks > 1 => blocks /= 2,
                result => return result,
            }
        }
    }

    fn try_allocate_hole(&mut self, logical: u32, blocks: u32, size: u64) -> Result<u64> {
        let (blocks, nodes) = self.info.part_of_hole(self.fs, logical, blocks)?;
        self.fs.with_handle(
            FALLOCATE_CREDITS,
            Demand::new(blocks + nodes, self.rights),
            |handle| {
                handle.admit_blocks(&self.info, self.rights, || Ok(blocks))?;
                let mut at = u64::from(logical);
                let end = u64::from(logical) + u64::from(blocks);
                let mut runs: Vec<Run> = Vec::new();
                while at < end && runs.len() < to_usize(MAX_RUNS) {
                    let placement = Placement::after(&runs, None);
                    let run = match claim_blocks(
                        handle,
                        &self.info,
                        at as u32,
                        (end - at) as u32,
                        true,
                        placement,
                    ) {
                        Err(Error::Answer(_)) if !runs.is_empty() => break,
                        run => run?,
                    };
                    at = run.end();
                    runs.push(run);
                }
                let _map = self.inode.private::<CachedInode>().change_map();
                let mut changed = self.info.clone();
                insert_runs(handle, &mut changed, &runs)?;
                let changed = stamped(handle, changed, size.min(at * self.block_size()), self.now)?;
                self.info = store_and_publish(handle, self.inode, changed)?;
                Ok(at)
            },
        )
    }

    /// Writes zeroes to those parts of a range that do not fill a block.
    fn zero_edges(&self, from: u64, to: u64) -> Result<()> {
        let size = self.block_size();
        let first = from.next_multiple_of(size).min(to);
        let last = (to - to % size).max(first);
        self.info.zero_in_block(self.fs, from, first)?;
        self.info.zero_in_block(self.fs, last, to)
    }

    /// Unmaps blocks, in as many handles as needed.
    fn unmap(&mut self, blocks: Range<u64>) -> Result<()> {
        // The change frees space, so it may use all reserves.
        let mut left = blocks;
        while !left.is_empty() {
            let blocks = self.info.blocks_to_cut(self.fs, &left)?;
            // A change that allocates blocks for the map frees at least one.
            self.info
                .check_countable(self.fs, blocks.saturating_sub(1))?;
            left = self.fs.with_handle(
                UNMAP_CREDITS + 2,
                Demand::new(blocks, ReserveUse::All),
                |handle| {
                    let mut changed = stamped(handle, self.info.clone(), 0, self.now)?;
                    let left = unmap_blocks(handle, &mut changed, left.clone(), false)?;
                    self.info = store_and_publish(handle, self.inode, changed)?;
                    Ok(left)
                },
            )?;
        }
        Ok(())
    }

    fn punch(&mut self, from: u64, to: u64) -> Result<()> {
        let size = self.info.size();
        if from >= size {
            return Ok(());
        }
        // After the end of the file, only the rest of its last page.
        let to = to.min(size.next_multiple_of(PAGE.max(self.block_size())));
        let _map = self.inode.private::<CachedInode>().change_map();
        self.zero_edges(from, to)?;
        self.unmap(self.inside(from, to))?;
        self.finish(0)
    }

    fn zero(&mut self, from: u64, to: u64, size: u64) -> Result<()> {
        // The file grows only after its range reads as zeroes, so that a crash shows no other
        // bytes.
        self.allocate(from, to, 0)?;
        let _map = self.inode.private::<CachedInode>().change_map();
        self.zero_edges(from, to)?;
        let mut left = self.inside(from, to);
        while !left.is_empty() {
            let blocks = self.info.blocks_to_mark(self.fs, &left, true)?;
            self.info.check_countable(self.fs, blocks)?;
            left = self.fs.with_handle(
                MARK_CREDITS + 2,
                Demand::new(blocks, self.rights),
                |handle| {
                    let mut changed = stamped(handle, self.info.clone(), 0, self.now)?;
                    let left = mark_unwritten(handle, &mut changed, left.clone())?;
                    self.info = store_and_publish(handle, self.inode, changed)?;
                    Ok(left)
                },
            )?;
        }
        self.finish(size)
    }

    /// Returns the blocks of a range; `EINVAL` unless it starts and ends at block boundaries.
    fn aligned(&self, from: u64, to: u64) -> Result<Range<u64>> {
        let aligned =
            from.is_multiple_of(self.block_size()) && to.is_multiple_of(self.block_size());
        if aligned {
            Ok(self.inside(from, to))
        } else {
            Err(Errno::EINVAL.into())
        }
    }

    /// Moves the file's blocks in a range of blocks by `by`.
    fn shift(&mut self, blocks: Range<u64>, by: i64) -> Result<()> {
        // The file must not stay half moved for want of a block, so the change may use all
        // reserves.
        let mut left = blocks;
        while !left.is_empty() {
            let blocks = self.info.blocks_to_cut(self.fs, &left)?;
            left = self.fs.with_handle(
                SHIFT_CREDITS + 2,
                Demand::new(blocks, ReserveUse::All),
                |handle| {
                    let mut changed = stamped(handle, self.info.clone(), 0, self.now)?;
                    let left = shift_blocks(handle, &mut changed, left.clone(), by)?;
                    self.info = store_and_publish(handle, self.inode, changed)?;
                    Ok(left)
                },
            )?;
        }
        Ok(())
    }

    fn collapse(&mut self, from: u64, to: u64) -> Result<()> {
        let blocks = self.aligned(from, to)?;
        if to >= self.info.size() {
            return Err(Errno::EINVAL.into());
        }
        let _map = self.inode.private::<CachedInode>().change_map();
        self.unmap(blocks.clone())?;
        // OK: fewer than 2^32 blocks.
        self.shift(
            blocks.end..LOGICAL_END,
            -((blocks.end - blocks.start) as i64),
        )?;
        let size = self.info.size() - (to - from);
        self.info.fields_mut().set_size(size);
        self.finish(0)
    }

    fn insert(&mut self, from: u64, to: u64) -> Result<()> {
        let blocks = self.aligned(from, to)?;
        let by = blocks.end - blocks.start;
        if from >= self.info.size() {
            return Err(Errno::EINVAL.into());
        }
        let size = self.info.size().saturating_add(to - from);
        if size > self.info.max_file_bytes(self.fs) {
            return Err(Errno::EFBIG.into());
        }
        let end = self.info.end_of_blocks(self.fs)?;
        if end + by >= LOGICAL_END {
            return Err(Errno::EINVAL.into());
        }
        let _map = self.inode.private::<CachedInode>().change_map();
        self.info.check_countable(
            self.fs,
            self.info.blocks_to_cut(self.fs, &(blocks.start..end))?,
        )?;
        self.finish(size)?;
        // OK: fewer than 2^32 blocks.
        self.shift(blocks.start..end, by as i64)
    }
}
