//! Changing where the blocks of a file stand: giving it blocks, and taking blocks from it.
//!
//! Everything here changes blocks of the map and the inode in memory; who calls stores the inode in the same change.
//! A map that has become deeper than its root is seen by readers while it changes, so whoever changes a map that
//! others may read holds the node's map lock from the first change of the map on until the changed inode is in its
//! place.
//!
//! # What it costs
//! | | blocks beyond the data | metadata blocks changed |
//! |---|---|---|
//! | [`allocate_for`](Change::allocate_for) | [`map_blocks_needed`](Ext4::map_blocks_needed) | [`ALLOCATE_CREDITS`] |
//! | [`enter`](Change::enter) | [`part_of_hole`](Ext4::part_of_hole) | [`ALLOCATE_CREDITS`] |
//! | [`mark_written`](Change::mark_written) | [`blocks_to_mark`](Ext4::blocks_to_mark) | [`MARK_CREDITS`] |
//! | [`unmap`](Change::unmap) | [`blocks_to_cut`](Ext4::blocks_to_cut): none if the range goes on to the end | [`UNMAP_CREDITS`] |
//! | [`shift`](Change::shift) | [`blocks_to_cut`](Ext4::blocks_to_cut) | [`SHIFT_CREDITS`] |
//!
//! The inode itself is not among them.

use std::ops::Range;

use extern4_disk::extent::Extent;
use extern4_vfs::Errno;

use crate::alloc::preallocation::Growth;
use crate::error::Result;
use crate::inode::InodeInfo;
use crate::map::{Run, RunKind};
use crate::map::{extents, indirect};
use crate::mount::Ext4;
use crate::volume::handle::Change;

/// The most nodes that one change of a leaf adds: one of each level, and one for a tree that grows.
pub(crate) const MAP_BLOCKS: u32 = 6;
/// Runs that one change gives a file at most: so many fit into a leaf that has just been split.
pub(crate) const MAX_RUNS: u32 = 12;
/// Bitmaps and descriptors of the data and of [`MAP_BLOCKS`], and the nodes on the way with their new neighbours.
pub(crate) const ALLOCATE_CREDITS: u32 = 2 * (1 + MAP_BLOCKS) + 2 * MAP_BLOCKS;
/// The same but for the data, of a leaf that is marked.
pub(crate) const MARK_CREDITS: u32 = ALLOCATE_CREDITS;
/// Groups that one [`Change::unmap`] begins to free blocks of.
pub(crate) const UNMAP_GROUPS: u32 = 24;
/// Blocks that may have been logged that one [`Change::unmap`] frees: the journal has to name each, and the smallest has little room for that.
const UNMAP_REVOKES: u64 = 1024;
/// Bitmaps and descriptors of these groups, of one more that the last extent reaches into and those of nodes that
/// become empty, and the nodes at both ends.
pub(crate) const UNMAP_CREDITS: u32 = 2 * (UNMAP_GROUPS + 6) + ALLOCATE_CREDITS;
/// Leaves that one [`Change::shift`] moves.
pub(crate) const SHIFT_LEAVES: u32 = 24;
/// These, the nodes above them, and those of a split.
pub(crate) const SHIFT_CREDITS: u32 = 2 * SHIFT_LEAVES + ALLOCATE_CREDITS;

impl Ext4 {
    /// How many blocks [`Change::allocate_for`] takes for the map itself, at most, if it is called up to [`MAX_RUNS`]
    /// times for `blocks` blocks from `logical` on, behind which the file has none.
    pub(crate) fn map_blocks_needed(&self, info: &InodeInfo, logical: u32, blocks: u32) -> Result<u32> {
        match info.has_extents() {
            true => extents::change::blocks_needed(self, info, logical, blocks),
            false => indirect::change::blocks_needed(self, info, logical, blocks),
        }
    }

    /// How many of `blocks` blocks of a hole from `logical` on one change maps, and how many blocks [`Change::enter`] takes for the
    /// map itself then, at most.
    pub(crate) fn part_of_hole(&self, info: &InodeInfo, logical: u32, blocks: u32) -> Result<(u32, u32)> {
        match info.has_extents() {
            true => extents::change::part_of_hole(self, info, logical, blocks),
            false => Ok((blocks, indirect::change::blocks_needed(self, info, logical, blocks)?)),
        }
    }
}

impl Ext4 {
    /// How many blocks cutting the map at both ends of a range takes for the map itself, at most: for
    /// [`unmap`](Change::unmap) and [`shift`](Change::shift) of it.
    pub(crate) fn blocks_to_cut(&self, info: &InodeInfo, blocks: &Range<u64>) -> Result<u32> {
        if info.has_extents() { extents::change::blocks_to_cut(self, info, blocks) } else { Ok(0) }
    }

    /// How many blocks [`mark_unwritten`](Change::mark_unwritten) and
    /// [`mark_written`](Change::mark_written) of a range take for the map itself.
    pub(crate) fn blocks_to_mark(
        &self,
        info: &InodeInfo,
        blocks: &Range<u64>,
        unwritten: bool,
    ) -> Result<u32> {
        if info.has_extents() {
            extents::change::blocks_to_mark(self, info, blocks, unwritten)
        } else {
            Ok(0)
        }
    }

    /// All of the extent that maps block `logical`.
    pub(crate) fn extent_at(&self, info: &InodeInfo, logical: u32) -> Result<Option<Extent>> {
        if info.has_extents() { extents::change::extent_at(self, info, logical) } else { Ok(None) }
    }

    /// Asks, before anything is changed, whether `i_blocks` can count `blocks` blocks more.
    ///
    /// # Errors
    /// `EFBIG` if it cannot.
    pub(crate) fn check_countable(&self, info: &InodeInfo, blocks: u32) -> Result<()> {
        if blocks == 0 {
            Ok(())
        } else {
            info.clone().add_blocks(blocks.into(), self.superblock().block_size())
        }
    }

    /// One past the last block of the file that is mapped.
    pub(crate) fn end_of_blocks(&self, info: &InodeInfo) -> Result<u64> {
        if !info.has_extents() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        extents::change::end(self, info)
    }
}

impl Change<'_> {
    /// Allocates up to `want` blocks that stand together for the hole at `logical`, and maps them: as many as there
    /// are up to the next block that is mapped, near what the file has before it. Returns the run, whose contents are
    /// for the caller to write before the transaction commits, unless they are `unwritten`.
    ///
    /// # Errors
    /// `EFBIG` for blocks beyond what the map reaches or `i_blocks` can count, before anything is changed.
    pub(crate) fn allocate_for(
        &self,
        info: &mut InodeInfo,
        logical: u32,
        want: u32,
        unwritten: bool,
    ) -> Result<Run> {
        let run = self.claim(info, logical, want, unwritten, Near::default())?;
        self.enter(info, &[run])?;
        Ok(run)
    }

    /// The first half of [`allocate_for`](Self::allocate_for): the blocks are taken, and the map does not know of
    /// them yet. So nobody reads them before their contents have been written. They are [entered](Self::enter) or
    /// freed in the same change.
    ///
    /// # Errors
    /// `EFBIG` if `i_blocks` could not count them with what the change has claimed before: then what there is can be entered.
    pub(crate) fn claim(
        &self,
        info: &InodeInfo,
        logical: u32,
        want: u32,
        unwritten: bool,
        near: Near<'_>,
    ) -> Result<Run> {
        let (goal, want) = match info.has_extents() {
            true => extents::change::goal(self, info, logical, want, unwritten)?,
            false if unwritten => return Err(Errno::EOPNOTSUPP.into()),
            false => indirect::change::goal(self, info, logical, want)?,
        };
        // OK: far fewer than 2^63 blocks.
        let blocks = near.claimed.cast_signed() + i64::from(want) + i64::from(MAP_BLOCKS);
        info.clone().add_blocks(blocks, self.fs.superblock().block_size())?;
        let blocks = self.allocate_growing(near.goal.unwrap_or(goal), want, near.growth)?;
        let physical = blocks.start;
        let kind = if unwritten { RunKind::Unwritten { physical } } else { RunKind::Mapped { physical } };
        Ok(Run { logical, len_blocks: blocks.end - blocks.start, kind })
    }

    /// The second half of [`allocate_for`](Self::allocate_for): maps runs that were [claimed](Self::claim) for one
    /// [part of a hole](Ext4::part_of_hole), all at once.
    pub(crate) fn enter(&self, info: &mut InodeInfo, runs: &[Run]) -> Result<()> {
        match info.has_extents() {
            true => self.insert_extents(info, runs)?,
            false => runs.iter().try_for_each(|run| self.insert_pointers(info, run))?,
        }
        let blocks: u64 = runs.iter().map(|run| run.len_blocks).sum();
        info.add_blocks(blocks.cast_signed(), self.fs.superblock().block_size())
    }

    /// Makes blocks that were allocated and not written count as written. The range lies in one run.
    pub(crate) fn mark_written(&self, info: &mut InodeInfo, blocks: Range<u32>) -> Result<()> {
        if info.has_extents() {
            let left = self.mark_extents(info, blocks.start.into()..blocks.end.into(), false)?;
            debug_assert!(left.is_empty(), "a run lies in one leaf");
        }
        Ok(())
    }

    /// Makes blocks that were written read as zeroes, though they stay allocated. Does as much as one change should,
    /// and returns what is left to do.
    pub(crate) fn mark_unwritten(&self, info: &mut InodeInfo, blocks: Range<u64>) -> Result<Range<u64>> {
        if !info.has_extents() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.mark_extents(info, blocks, true)
    }

    /// Takes blocks away from the file and frees them, with what of the map becomes empty; `metadata` if they may
    /// have been logged, as those of directories: those of a file whose contents are logged count as such in any case. Works
    /// from the end of the range towards its start, does as much as one change should, and returns what is left of the
    /// range: empty, when all is done.
    #[must_use = "what is left has to be done in another change"]
    pub(crate) fn unmap(
        &self,
        info: &mut InodeInfo,
        blocks: Range<u64>,
        metadata: bool,
    ) -> Result<Range<u64>> {
        let metadata = metadata || self.fs.journals_contents(info);
        let revokes = if metadata { UNMAP_REVOKES } else { u64::MAX };
        let mut quota = Quota { groups: UNMAP_GROUPS, last: None, revokes };
        match info.has_extents() {
            true => self.unmap_extents(info, blocks, metadata, &mut quota),
            false => self.unmap_pointers(info, blocks, metadata, &mut quota),
        }
    }

    /// Moves the blocks from `from` on by `by`: to where nothing is mapped, down after [`unmap`](Self::unmap) of the
    /// range before `from`, or up. Works from that end that has room first, does as much as one change should, and
    /// returns what is left of the file's blocks to move, where they are now.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a file without extents, as Linux has it.
    pub(crate) fn shift(&self, info: &mut InodeInfo, from: Range<u64>, by: i64) -> Result<Range<u64>> {
        match info.has_extents() {
            true if by < 0 => self.shift_down(info, from, by.unsigned_abs()),
            true => self.shift_up(info, from, by.unsigned_abs()),
            false => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// A block for the map of a file, near block `near`.
    pub(crate) fn allocate_map_block(&self, info: &mut InodeInfo, near: u64) -> Result<u64> {
        let block = self.allocate(near, 1)?.start;
        info.add_blocks(1, self.fs.superblock().block_size())?;
        Ok(block)
    }

    /// Where a file without blocks begins: in the group of its inode.
    pub(crate) fn home_block(&self, info: &InodeInfo) -> u64 {
        let geometry = self.fs.superblock().geometry();
        let group = geometry.inode_slot(info.ino()).map_or(0, |slot| slot.group);
        geometry.group_start(group).unwrap_or(0)
    }
}

/// Where a file is to be given blocks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Near<'g> {
    /// Near this block; by default where what stands before them in the file ends.
    goal: Option<u64>,
    /// In the file's window, or with a new one behind them.
    growth: Option<&'g Growth<'g>>,
    /// Blocks that the change has claimed for the file already.
    claimed: u64,
}

impl<'g> Near<'g> {
    /// Behind the runs that the change has claimed before, if there are any.
    pub(crate) fn behind(runs: &[Run], growth: Option<&'g Growth<'g>>) -> Self {
        let goal = runs.last().and_then(|run| match run.kind {
            RunKind::Unwritten { physical } | RunKind::Mapped { physical } => Some(physical + run.len_blocks),
            RunKind::Hole => None,
        });
        Self { goal, growth, claimed: runs.iter().map(|run| run.len_blocks).sum() }
    }
}

/// How much one change may still free: each group costs a bitmap and a descriptor, and each block of metadata a place in the list
/// of what is revoked.
pub(crate) struct Quota {
    groups: u32,
    last: Option<u32>,
    /// Without end for what is not metadata.
    revokes: u64,
}

impl Quota {
    /// Counts `blocks`, and their groups, of which those of the last call cost nothing again.
    pub(crate) fn spend(&mut self, fs: &Ext4, blocks: &Range<u64>) {
        self.revokes = self.revokes.saturating_sub(blocks.end - blocks.start);
        let geometry = fs.superblock().geometry();
        let group_of = |block| geometry.group_of_block(block);
        let (Some(first), Some(last)) = (group_of(blocks.start), group_of(blocks.end - 1)) else { return };
        let known = u32::from(self.last.is_some_and(|known| (first..=last).contains(&known)));
        self.groups = self.groups.saturating_sub(last - first + 1 - known);
        self.last = Some(first);
    }

    /// How many blocks that stand together may still be freed: where groups are small, not all of a long extent.
    pub(crate) fn room(&self, fs: &Ext4) -> u64 {
        let in_groups =
            u64::from(self.groups.max(1)) * u64::from(fs.superblock().geometry().blocks_per_group());
        in_groups.min(self.revokes.max(1))
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.groups == 0 || self.revokes == 0
    }
}
