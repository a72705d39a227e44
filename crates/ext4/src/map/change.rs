//! Changes the map of a file: allocates, maps, unmaps and moves blocks.
//!
//! The functions change blocks of the map and the inode in memory, and the caller stores the inode
//! in the same handle. While the tree below the root changes, it does not agree with the root that
//! readers have. So a caller whose file others may read holds the inode's map lock, from the first
//! change of the map until it has published the inode. `file` and `dir` call these functions; a
//! function that may not finish in one transaction returns the rest.
//!
//! # Demand and credits
//! | | blocks beyond the data | metadata blocks changed |
//! |---|---|---|
//! | [`allocate_for`] | [`map_blocks_needed`] | [`ALLOCATE_CREDITS`] |
//! | [`insert_runs`] | [`part_of_hole`] | [`ALLOCATE_CREDITS`] |
//! | [`mark_written`] | [`blocks_to_mark`] | [`MARK_CREDITS`] |
//! | [`unmap_blocks`] | [`blocks_to_cut`]; none if cut to the end | [`UNMAP_CREDITS`] |
//! | [`shift_blocks`] | [`blocks_to_cut`] | [`SHIFT_CREDITS`] |
//!
//! [`map_blocks_needed`]: InodeInfo::map_blocks_needed [`part_of_hole`]: InodeInfo::part_of_hole
//! [`blocks_to_mark`]: InodeInfo::blocks_to_mark [`blocks_to_cut`]: InodeInfo::blocks_to_cut
//!
//! The credits do not include the inode itself.

use std::ops::Range;

use extern4_disk::extent::Extent;
use extern4_vfs::Errno;

use crate::error::Result;
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::inode::preallocation::Growth;
use crate::map::extents::change::{
    insert_extents, mark_extents, shift_down, shift_up, unmap_extents,
};
use crate::map::indirect::change::{insert_pointers, unmap_pointers};
use crate::map::map_blocks::{SHIFT_LEAVES, UnmapBudget};
use crate::map::{extents, indirect};
use crate::run::{Run, RunKind};

/// The most nodes that one change of a leaf adds: one on each level, and one for a tree that grows.
pub(crate) const MAP_BLOCKS: u32 = 6;
/// Blocks of metadata that allocating changes: bitmaps and descriptors of the data and of
/// [`MAP_BLOCKS`], and the nodes on the path with their new neighbours.
pub(crate) const ALLOCATE_CREDITS: u32 = 2 * (1 + MAP_BLOCKS) + 2 * MAP_BLOCKS;
/// Blocks of metadata that marking a leaf changes: at most as many as allocating does.
pub(crate) const MARK_CREDITS: u32 = ALLOCATE_CREDITS;
/// The groups of which one [`unmap_blocks`] starts to free blocks.
pub(crate) const UNMAP_GROUPS: u32 = 24;
/// How many blocks of metadata one [`unmap_blocks`] frees. The journal has to list each as revoked,
/// and the smallest journal has little room for that.
const UNMAP_REVOKES: u64 = 1024;
/// Blocks of metadata that freeing changes: bitmaps and descriptors of groups, and the nodes at
/// both ends. The groups are [`UNMAP_GROUPS`], one more that the last extent reaches into, and
/// blocks of nodes that become empty.
pub(crate) const UNMAP_CREDITS: u32 = 2 * (UNMAP_GROUPS + 6) + ALLOCATE_CREDITS;
/// Blocks of metadata that shifting changes: [`SHIFT_LEAVES`], the nodes above them, and the nodes
/// of a split.
pub(crate) const SHIFT_CREDITS: u32 = 2 * SHIFT_LEAVES + ALLOCATE_CREDITS;

impl InodeInfo {
    /// Returns the most blocks that [`allocate_for`] allocates for the map itself, in up to
    /// [`MAX_RUNS`] calls for `blocks` blocks from `logical` on. The file has no blocks after
    /// those.
    pub(crate) fn map_blocks_needed(&self, fs: &Ext4, logical: u32, blocks: u32) -> Result<u32> {
        if self.has_extents() {
            extents::change::blocks_needed(fs, self, logical, blocks)
        } else {
            indirect::change::blocks_needed(fs, self, logical, blocks)
        }
    }

    /// Returns how many of `blocks` blocks of a hole from `logical` on one change can map, and the
    /// most blocks that [`insert_runs`] then allocates for the map itself.
    pub(crate) fn part_of_hole(&self, fs: &Ext4, logical: u32, blocks: u32) -> Result<(u32, u32)> {
        if self.has_extents() {
            extents::change::part_of_hole(fs, self, logical, blocks)
        } else {
            Ok((
                blocks,
                indirect::change::blocks_needed(fs, self, logical, blocks)?,
            ))
        }
    }
}

impl InodeInfo {
    /// Returns the most blocks that [`unmap_blocks`] and [`shift_blocks`] of a range allocate for
    /// the map itself, because they cut extents at its ends.
    pub(crate) fn blocks_to_cut(&self, fs: &Ext4, blocks: &Range<u64>) -> Result<u32> {
        if self.has_extents() {
            extents::change::blocks_to_cut(fs, self, blocks)
        } else {
            Ok(0)
        }
    }

    /// Returns how many blocks [`mark_unwritten`] and [`mark_written`] of a range allocate for the
    /// map itself.
    pub(crate) fn blocks_to_mark(
        &self,
        fs: &Ext4,
        blocks: &Range<u64>,
        unwritten: bool,
    ) -> Result<u32> {
        if self.has_extents() {
            extents::change::blocks_to_mark(fs, self, blocks, unwritten)
        } else {
            Ok(0)
        }
    }

    /// Returns the whole extent that maps block `logical`.
    pub(crate) fn extent_at(&self, fs: &Ext4, logical: u32) -> Result<Option<Extent>> {
        if self.has_extents() {
            extents::change::extent_at(fs, self, logical)
        } else {
            Ok(None)
        }
    }

    /// Checks, before anything is changed, whether `i_blocks` can count `blocks` blocks more.
    ///
    /// # Errors
    /// `EFBIG` if it cannot.
    pub(crate) fn check_countable(&self, fs: &Ext4, blocks: u32) -> Result<()> {
        if blocks == 0 {
            Ok(())
        } else {
            self.clone()
                .add_blocks(blocks.into(), fs.superblock().block_size())
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

/// Allocates a run of up to `want` blocks for the hole at `logical`, and maps it. The run ends
/// before the next mapped block, and is near the blocks that precede it in the file. The caller
/// writes its contents before the transaction commits, unless the run is `unwritten`.
///
/// # Errors
/// `EFBIG` for blocks that the map cannot address or `i_blocks` cannot count, before anything is
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

/// Allocates the blocks of [`allocate_for`], without mapping them. So no reader reads them before
/// their contents have been written. The caller [inserts](insert_runs) or frees them in the same
/// handle.
///
/// # Errors
/// `EFBIG` if `i_blocks` cannot count them together with the blocks that the handle has claimed
/// before. The caller can still insert the earlier ones.
pub(crate) fn claim_blocks(
    handle: &Handle<'_>,
    info: &InodeInfo,
    logical: u32,
    want: u32,
    unwritten: bool,
    placement: Placement<'_>,
) -> Result<Run> {
    let (goal, want) = if info.has_extents() {
        extents::change::goal(handle, info, logical, want, unwritten)?
    } else if unwritten {
        return Err(Errno::EOPNOTSUPP.into());
    } else {
        indirect::change::goal(handle, info, logical, want)?
    };
    // OK: far fewer than 2^63 blocks.
    let blocks = placement.claimed.cast_signed() + i64::from(want) + i64::from(MAP_BLOCKS);
    info.clone()
        .add_blocks(blocks, handle.fs.superblock().block_size())?;
    let blocks = handle.writer.allocator.allocate_growing(
        handle,
        placement.goal.unwrap_or(goal),
        want,
        placement.growth,
    )?;
    let physical = blocks.start;
    let kind = if unwritten {
        RunKind::Unwritten { physical }
    } else {
        RunKind::Mapped { physical }
    };
    Ok(Run {
        logical,
        len_blocks: blocks.end - blocks.start,
        kind,
    })
}

/// Maps all runs that were [claimed](claim_blocks) for one [part of a
/// hole](InodeInfo::part_of_hole).
pub(crate) fn insert_runs(handle: &Handle<'_>, info: &mut InodeInfo, runs: &[Run]) -> Result<()> {
    if info.has_extents() {
        insert_extents(handle, info, runs)?
    } else {
        runs.iter()
            .try_for_each(|run| insert_pointers(handle, info, run))?
    }
    let blocks: u64 = runs.iter().map(|run| run.len_blocks).sum();
    info.add_blocks(blocks.cast_signed(), handle.fs.superblock().block_size())
}

/// Marks unwritten blocks as written. The range is in one run.
pub(crate) fn mark_written(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    blocks: Range<u32>,
) -> Result<()> {
    if info.has_extents() {
        let left = mark_extents(handle, info, blocks.start.into()..blocks.end.into(), false)?;
        debug_assert!(left.is_empty(), "a run lies in one leaf");
    }
    Ok(())
}

/// Marks written blocks as unwritten: they read as zeroes and stay allocated. Does as much as one
/// handle should, and returns the rest of the range.
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

/// Unmaps blocks of the file and frees them, with the nodes of the map that become empty.
/// `metadata` says that the journal may have copies of them, as of a directory's blocks; it is
/// implied if the file's contents go through the journal. Works from the end of the range towards
/// its start, and does as much as one handle should. Returns the rest of the range, which is empty
/// when all is done.
#[must_use = "the rest has to be done in another change"]
pub(crate) fn unmap_blocks(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    blocks: Range<u64>,
    metadata: bool,
) -> Result<Range<u64>> {
    let metadata = metadata || info.journals_contents(handle.fs);
    let revokes = if metadata { UNMAP_REVOKES } else { u64::MAX };
    let mut budget = UnmapBudget {
        groups: UNMAP_GROUPS,
        last: None,
        revokes,
    };
    if info.has_extents() {
        unmap_extents(handle, info, blocks, metadata, &mut budget)
    } else {
        unmap_pointers(handle, info, blocks, metadata, &mut budget)
    }
}

/// Moves the logical blocks `from` by `by`, to a hole: down after [`unmap_blocks`] of the range
/// before them, or up. Does as much as one handle should, starting at the end that has room.
/// Returns the logical blocks that are left to move.
///
/// # Errors
/// `EOPNOTSUPP` for a file without extents, as in Linux.
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

/// Where to allocate blocks for a file.
#[derive(Clone, Copy, Default)]
pub(crate) struct Placement<'g> {
    /// The block to search near; by default the end of the blocks that precede them in the file.
    goal: Option<u64>,
    /// The growth of the file, for allocation from its window.
    growth: Option<&'g Growth<'g>>,
    /// Blocks that the handle has claimed for the file already.
    claimed: u64,
}

impl<'g> Placement<'g> {
    /// Returns the placement near block `goal`.
    pub(crate) fn near(goal: u64) -> Self {
        Self {
            goal: Some(goal),
            ..Self::default()
        }
    }

    /// Returns the placement after the runs that the handle has claimed before, if there are any.
    pub(crate) fn after(runs: &[Run], growth: Option<&'g Growth<'g>>) -> Self {
        let goal = runs.last().and_then(|run| match run.kind {
            RunKind::Unwritten { physical } | RunKind::Mapped { physical } => {
                Some(physical + run.len_blocks)
            }
            RunKind::Hole => None,
        });
        Self {
            goal,
            growth,
            claimed: runs.iter().map(|run| run.len_blocks).sum(),
        }
    }
}
