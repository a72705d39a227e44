//! Changing where the blocks of a file stand: giving it blocks, and taking blocks from it.
//!
//! The functions here change blocks of the map and the inode in memory; the caller stores the inode
//! in the same change. Readers see a map that has become deeper than its root while it changes. So
//! a caller that changes a map that others may read holds the inode's map lock. It holds the lock
//! from the first change of the map until the changed inode is in its place.
//!
//! # What it costs
//! | | blocks beyond the data | metadata blocks changed |
//! |---|---|---|
//! | [`allocate_for`] | [`map_blocks_needed`] | [`ALLOCATE_CREDITS`] |
//! | [`insert_runs`] | [`part_of_hole`] | [`ALLOCATE_CREDITS`] |
//! | [`mark_written`] | [`blocks_to_mark`] | [`MARK_CREDITS`] |
//! | [`unmap_blocks`] | [`blocks_to_cut`]; none if cut to the end | [`UNMAP_CREDITS`] |
//! | [`shift_blocks`] | [`blocks_to_cut`] | [`SHIFT_CREDITS`] |
//!
//! [`map_blocks_needed`]: InodeInfo::map_blocks_needed
//! [`part_of_hole`]: InodeInfo::part_of_hole
//! [`blocks_to_mark`]: InodeInfo::blocks_to_mark
//! [`blocks_to_cut`]: InodeInfo::blocks_to_cut
//!
//! The inode itself is not among them.

use std::ops::Range;

use extern4_disk::extent::Extent;
use extern4_vfs::Errno;

use crate::alloc::preallocation::Growth;
use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::map::extents::change::{insert_extents, mark_extents, shift_down, shift_up, unmap_extents};
use crate::map::indirect::change::{insert_pointers, unmap_pointers};
use crate::map::map_blocks::{SHIFT_LEAVES, UnmapBudget};
use crate::map::run::{Run, RunKind};
use crate::map::{extents, indirect};
use crate::volume::handle::Handle;

/// The most nodes that one change of a leaf adds: one of each level, and one for a tree that grows.
pub(crate) const MAP_BLOCKS: u32 = 6;
/// Blocks of metadata that allocating changes: bitmaps and descriptors of the data and of
/// [`MAP_BLOCKS`], and the nodes on the path with their new neighbours.
pub(crate) const ALLOCATE_CREDITS: u32 = 2 * (1 + MAP_BLOCKS) + 2 * MAP_BLOCKS;
/// Blocks of metadata that marking a leaf changes: as [`ALLOCATE_CREDITS`], without those of the
/// data.
pub(crate) const MARK_CREDITS: u32 = ALLOCATE_CREDITS;
/// Groups that one [`unmap_blocks`] begins to free blocks of.
pub(crate) const UNMAP_GROUPS: u32 = 24;
/// How many blocks that may have been logged one [`unmap_blocks`] frees. The journal has to name
/// each, and the smallest has little room for that.
const UNMAP_REVOKES: u64 = 1024;
/// Blocks of metadata that freeing changes: bitmaps and descriptors of groups, and the nodes at
/// both ends. The groups are these, one more that the last extent reaches into, and those of nodes
/// that become empty.
pub(crate) const UNMAP_CREDITS: u32 = 2 * (UNMAP_GROUPS + 6) + ALLOCATE_CREDITS;
/// Blocks of metadata that shifting changes: these leaves, the nodes above them, and those of a
/// split.
pub(crate) const SHIFT_CREDITS: u32 = 2 * SHIFT_LEAVES + ALLOCATE_CREDITS;

impl InodeInfo {
    /// Returns how many blocks [`allocate_for`] takes for the map itself, at most. It may be called
    /// up to [`MAX_RUNS`] times for `blocks` blocks from `logical` on, behind which the file has
    /// none.
    pub(crate) fn map_blocks_needed(&self, fs: &Ext4, logical: u32, blocks: u32) -> Result<u32> {
        match self.has_extents() {
            true => extents::change::blocks_needed(fs, self, logical, blocks),
            false => indirect::change::blocks_needed(fs, self, logical, blocks),
        }
    }

    /// Returns how many of `blocks` blocks of a hole from `logical` on one change maps. Returns
    /// also how many blocks [`insert_runs`] takes for the map itself then, at most.
    pub(crate) fn part_of_hole(&self, fs: &Ext4, logical: u32, blocks: u32) -> Result<(u32, u32)> {
        match self.has_extents() {
            true => extents::change::part_of_hole(fs, self, logical, blocks),
            false => Ok((blocks, indirect::change::blocks_needed(fs, self, logical, blocks)?)),
        }
    }
}

impl InodeInfo {
    /// Returns how many blocks cutting the map at both ends of a range takes for the map itself, at
    /// most. [`unmap_blocks`] and [`shift_blocks`] of the range need that.
    pub(crate) fn blocks_to_cut(&self, fs: &Ext4, blocks: &Range<u64>) -> Result<u32> {
        if self.has_extents() { extents::change::blocks_to_cut(fs, self, blocks) } else { Ok(0) }
    }

    /// Returns how many blocks [`mark_unwritten`](mark_unwritten) and
    /// [`mark_written`](mark_written) of a range take for the map itself.
    pub(crate) fn blocks_to_mark(&self, fs: &Ext4, blocks: &Range<u64>, unwritten: bool) -> Result<u32> {
        if self.has_extents() { extents::change::blocks_to_mark(fs, self, blocks, unwritten) } else { Ok(0) }
    }

    /// Returns the whole extent that maps block `logical`.
    pub(crate) fn extent_at(&self, fs: &Ext4, logical: u32) -> Result<Option<Extent>> {
        if self.has_extents() { extents::change::extent_at(fs, self, logical) } else { Ok(None) }
    }

    /// Checks, before anything is changed, whether `i_blocks` can count `blocks` blocks more.
    ///
    /// # Errors
    /// `EFBIG` if it cannot.
    pub(crate) fn check_countable(&self, fs: &Ext4, blocks: u32) -> Result<()> {
        if blocks == 0 {
            Ok(())
        } else {
            self.clone().add_blocks(blocks.into(), fs.superblock().block_size())
        }
    }

    /// Returns one past the last block of the file that is mapped.
    pub(crate) fn end_of_blocks(&self, fs: &Ext4) -> Result<u64> {
        if !self.has_extents() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        extents::change::end(fs, self)
    }
}

/// Allocates up to `want` blocks that stand together for the hole at `logical`, and maps them. They
/// go up to the next mapped block at most, and are near the blocks that the file has before it.
/// Returns the run. The caller writes its contents before the transaction commits, unless they are
/// `unwritten`.
///
/// # Errors
/// `EFBIG` for blocks beyond what the map reaches or `i_blocks` can count, before anything is
/// changed.
pub(crate) fn allocate_for(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    logical: u32,
    want: u32,
    unwritten: bool,
) -> Result<Run> {
    let run = claim_blocks(handle, info, logical, want, unwritten, Placement::default())?;
    insert_runs(handle, info, &[run])?;
    Ok(run)
}

/// Takes the blocks of [`allocate_for`], as its first half; the map does not know of them yet. So
/// no reader reads them before their contents have been written. They are [inserted](insert_runs)
/// or freed in the same change.
///
/// # Errors
/// `EFBIG` if `i_blocks` could not count them with those that the change has claimed before. The
/// caller can then insert the earlier ones.
pub(crate) fn claim_blocks(
    handle: &Handle<'_>,
    info: &InodeInfo,
    logical: u32,
    want: u32,
    unwritten: bool,
    placement: Placement<'_>,
) -> Result<Run> {
    let (goal, want) = match info.has_extents() {
        true => extents::change::goal(handle, info, logical, want, unwritten)?,
        false if unwritten => return Err(Errno::EOPNOTSUPP.into()),
        false => indirect::change::goal(handle, info, logical, want)?,
    };
    // OK: far fewer than 2^63 blocks.
    let blocks = placement.claimed.cast_signed() + i64::from(want) + i64::from(MAP_BLOCKS);
    info.clone().add_blocks(blocks, handle.fs.superblock().block_size())?;
    let blocks = handle.writer.allocator.allocate_growing(
        handle,
        placement.goal.unwrap_or(goal),
        want,
        placement.growth,
    )?;
    let physical = blocks.start;
    let kind = if unwritten { RunKind::Unwritten { physical } } else { RunKind::Mapped { physical } };
    Ok(Run { logical, len_blocks: blocks.end - blocks.start, kind })
}

/// Maps runs that were [claimed](claim_blocks) for one [part of a hole](InodeInfo::part_of_hole),
/// all at once, as the second half of [`allocate_for`].
pub(crate) fn insert_runs(handle: &Handle<'_>, info: &mut InodeInfo, runs: &[Run]) -> Result<()> {
    match info.has_extents() {
        true => insert_extents(handle, info, runs)?,
        false => runs.iter().try_for_each(|run| insert_pointers(handle, info, run))?,
    }
    let blocks: u64 = runs.iter().map(|run| run.len_blocks).sum();
    info.add_blocks(blocks.cast_signed(), handle.fs.superblock().block_size())
}

/// Makes blocks that were allocated and not written count as written. The range lies in one run.
pub(crate) fn mark_written(handle: &Handle<'_>, info: &mut InodeInfo, blocks: Range<u32>) -> Result<()> {
    if info.has_extents() {
        let left = mark_extents(handle, info, blocks.start.into()..blocks.end.into(), false)?;
        debug_assert!(left.is_empty(), "a run lies in one leaf");
    }
    Ok(())
}

/// Makes blocks that were written read as zeroes, though they stay allocated. Does as much as one
/// change should, and returns the rest of the range.
pub(crate) fn mark_unwritten(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    blocks: Range<u64>,
) -> Result<Range<u64>> {
    if !info.has_extents() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    mark_extents(handle, info, blocks, true)
}

/// Takes blocks away from the file and frees them, with the parts of the map that become empty.
/// `metadata` if they may have been logged, as those of directories; logged contents of a file
/// count as such in any case. Works from the end of the range towards its start, and does as much
/// as one change should. Returns the rest of the range: empty, when all is done.
#[must_use = "the rest has to be done in another change"]
pub(crate) fn unmap_blocks(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    blocks: Range<u64>,
    metadata: bool,
) -> Result<Range<u64>> {
    let metadata = metadata || info.journals_contents(handle.fs);
    let revokes = if metadata { UNMAP_REVOKES } else { u64::MAX };
    let mut budget = UnmapBudget { groups: UNMAP_GROUPS, last: None, revokes };
    match info.has_extents() {
        true => unmap_extents(handle, info, blocks, metadata, &mut budget),
        false => unmap_pointers(handle, info, blocks, metadata, &mut budget),
    }
}

/// Moves the blocks from `from` on by `by`, to where nothing is mapped: down after
/// [`unmap_blocks`] of the range before `from`, or up. Works from that end that has room
/// first, and does as much as one change should. Returns the file's blocks that are left to move,
/// where they are now.
///
/// # Errors
/// `EOPNOTSUPP` for a file without extents, as Linux has it.
pub(crate) fn shift_blocks(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    from: Range<u64>,
    by: i64,
) -> Result<Range<u64>> {
    match info.has_extents() {
        true if by < 0 => shift_down(handle, info, from, by.unsigned_abs()),
        true => shift_up(handle, info, from, by.unsigned_abs()),
        false => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Where a file is to be given blocks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Placement<'g> {
    /// Near this block; by default near the end of the blocks that stand before them in the file.
    goal: Option<u64>,
    /// In the file's window, or with a new one behind them.
    growth: Option<&'g Growth<'g>>,
    /// Blocks that the change has claimed for the file already.
    claimed: u64,
}

impl<'g> Placement<'g> {
    /// Behind the runs that the change has claimed before, if there are any.
    pub(crate) fn behind(runs: &[Run], growth: Option<&'g Growth<'g>>) -> Self {
        let goal = runs.last().and_then(|run| match run.kind {
            RunKind::Unwritten { physical } | RunKind::Mapped { physical } => Some(physical + run.len_blocks),
            RunKind::Hole => None,
        });
        Self { goal, growth, claimed: runs.iter().map(|run| run.len_blocks).sum() }
    }
}
