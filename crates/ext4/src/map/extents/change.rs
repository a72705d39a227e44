//! Changes the extents of a file, one leaf after the other.
//!
//! `map::change` calls these functions for files with extents. The functions named `blocks_*`
//! return in advance how many nodes a change allocates; a change never allocates more, so it stays
//! within its reservation. A change that spans many leaves stops at its budget and returns the
//! rest.

use std::ops::Range;

use extern4_disk::extent::{Extent, MAX_DEPTH};
use extern4_disk::{CorruptKind, Place, Structure};

use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::map::extents::tree::{ExtentPath, join, max_len, store_path};
use crate::map::map_blocks::{MAX_RUNS, SHIFT_LEAVES, UnmapBudget, home_block};
use crate::run::{LOGICAL_END, Run, RunKind};
use crate::volume::group::to_usize;

/// Returns the most nodes that mapping `blocks` blocks from `logical` on allocates.
pub(crate) fn blocks_needed(fs: &Ext4, info: &InodeInfo, logical: u32, blocks: u32) -> Result<u32> {
    let more = to_usize(blocks.min(MAX_RUNS));
    Ok(ExtentPath::load(fs, info, logical)?.nodes_needed(more))
}

/// Returns how many of `blocks` blocks of a hole belong in the leaf that maps `logical`, and the
/// most nodes that inserting them at once allocates. Blocks beyond could split the next leaf, too,
/// so they are left for another change.
pub(crate) fn part_of_hole(
    fs: &Ext4,
    info: &InodeInfo,
    logical: u32,
    blocks: u32,
) -> Result<(u32, u32)> {
    let path = ExtentPath::load(fs, info, logical)?;
    let room = u32::try_from(path.end().saturating_sub(logical.into())).unwrap_or(u32::MAX);
    let blocks = blocks.min(room).max(1);
    Ok((blocks, path.nodes_needed(to_usize(blocks.min(MAX_RUNS)))))
}

/// Returns the most nodes that cutting an extent in two allocates. The cut is at the start of
/// `blocks`, or anywhere in them if the extent goes on after them: one change may not reach their
/// start.
pub(crate) fn blocks_to_cut(fs: &Ext4, info: &InodeInfo, blocks: &Range<u64>) -> Result<u32> {
    let path = ExtentPath::load(fs, info, block(blocks.start))?;
    let at_start = nodes_to_cut(&path, blocks.start);
    if blocks.end >= LOGICAL_END {
        return Ok(at_start);
    }
    // As in Linux, a tree that is too deep to be read can only be cut at its end.
    info.map(fs, block(blocks.start))?;
    let at_end = nodes_to_cut(
        &ExtentPath::load(fs, info, block(blocks.end.saturating_sub(1)))?,
        blocks.end,
    );
    Ok(at_start.max(at_end))
}

/// Returns the most nodes that cutting a leaf's extent at block `at` allocates.
fn nodes_to_cut(path: &ExtentPath, at: u64) -> u32 {
    let goes_on = |it: &Extent| u64::from(it.logical) < at && it.end() > at;
    if path.extents().iter().any(goes_on) {
        path.nodes_needed(1)
    } else {
        0
    }
}

/// Returns how many nodes are allocated if `blocks` are marked in the leaf where they start.
pub(crate) fn blocks_to_mark(
    fs: &Ext4,
    info: &InodeInfo,
    blocks: &Range<u64>,
    unwritten: bool,
) -> Result<u32> {
    let path = ExtentPath::load(fs, info, block(blocks.start))?;
    let before = path.extents().len();
    let mut after = marked(path.extents(), blocks, unwritten);
    join(&mut after);
    Ok(path.nodes_needed(after.len().saturating_sub(before)))
}

/// Returns the extent that maps block `logical`.
pub(crate) fn extent_at(fs: &Ext4, info: &InodeInfo, logical: u32) -> Result<Option<Extent>> {
    let path = ExtentPath::load(fs, info, logical)?;
    Ok(path
        .extents()
        .iter()
        .find(|it| it.logical <= logical && it.end() > logical.into())
        .copied())
}

/// Returns one past the last block that is mapped.
pub(crate) fn end(fs: &Ext4, info: &InodeInfo) -> Result<u64> {
    Ok(ExtentPath::load(fs, info, u32::MAX)?
        .extents()
        .last()
        .map_or(0, Extent::end))
}

/// Returns the goal for blocks for the hole at `logical`, and how many of `want` blocks fit into
/// it.
pub(crate) fn goal(
    handle: &Handle<'_>,
    info: &InodeInfo,
    logical: u32,
    want: u32,
    unwritten: bool,
) -> Result<(u64, u32)> {
    let path = ExtentPath::load(handle.fs, info, logical)?;
    path.check_room()?;
    let extents = path.extents();
    let next = extents.partition_point(|extent| extent.logical <= logical);
    let before = next.checked_sub(1).map(|at| extents[at]);
    if before.is_some_and(|before| before.end() > u64::from(logical)) {
        return Err(occupied(info));
    }
    let end = extents
        .get(next)
        .map_or(path.end(), |after| u64::from(after.logical));
    // The block with the last possible number cannot belong to a file.
    let room = end.min(LOGICAL_END - 1).saturating_sub(logical.into());
    let goal = before.map_or_else(
        || home_block(handle, info),
        |it| it.physical + u64::from(it.len_blocks),
    );
    let room = u32::try_from(room).unwrap_or(u32::MAX);
    match want.min(room).min(max_len(unwritten)) {
        0 => Err(extern4_vfs::Errno::EFBIG.into()),
        want => Ok((goal, want)),
    }
}

fn occupied(info: &InodeInfo) -> crate::Error {
    let what = "blocks were to be mapped twice";
    Place::new(Structure::ExtentNode)
        .ino(info.ino())
        .corrupt(CorruptKind::Mismatch { what })
        .into()
}

/// Returns the part of an extent inside `range`; `None` if there is none.
fn part(extent: &Extent, range: &Range<u64>) -> Option<Extent> {
    let start = u64::from(extent.logical).max(range.start);
    let end = extent.end().min(range.end);
    let skip = start.saturating_sub(extent.logical.into());
    // OK: a part of an extent, whose numbers fit.
    (start < end).then(|| Extent {
        logical: start as u32,
        len_blocks: (end - start) as u16,
        physical: extent.physical + skip,
        unwritten: extent.unwritten,
    })
}

/// Returns the parts of an extent before `range`, in it, and after it.
fn parts(extent: &Extent, range: &Range<u64>) -> [Option<Extent>; 3] {
    [
        part(extent, &(0..range.start)),
        part(extent, range),
        part(extent, &(range.end..LOGICAL_END)),
    ]
}

/// Returns the extent that maps a run; `None` for a hole.
fn extent_of(run: &Run) -> Option<Extent> {
    let (RunKind::Unwritten { physical } | RunKind::Mapped { physical }) = run.kind else {
        return None;
    };
    let unwritten = matches!(run.kind, RunKind::Unwritten { .. });
    // OK: a run that has been claimed has at most 32768 blocks.
    Some(Extent {
        logical: run.logical,
        len_blocks: run.len_blocks as u16,
        physical,
        unwritten,
    })
}

/// Returns the number of a file's block as 32 bits.
fn block(logical: u64) -> u32 {
    u32::try_from(logical).unwrap_or(u32::MAX)
}

/// Maps runs that all belong in one hole of one leaf. They are inserted at once. One by one, they
/// could split the leaf more than once, and allocate more nodes than are reserved.
pub(crate) fn insert_extents(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    runs: &[Run],
) -> Result<()> {
    let Some(first) = runs.first() else {
        return Ok(());
    };
    let mut path = ExtentPath::load(handle.fs, info, first.logical)?;
    let mut extents = path.extents().to_vec();
    let at = extents.partition_point(|extent| extent.logical <= first.logical);
    extents.splice(at..at, runs.iter().filter_map(extent_of));
    path.set_extents(extents);
    store_path(handle, info, path)
}

/// Marks the extents in a range written or unwritten, in the leaf where the range starts. Returns
/// the rest of the range. The caller reserves nodes for the next leaf only then: a split of this
/// one changes the room in the nodes above.
pub(crate) fn mark_extents(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    blocks: Range<u64>,
    unwritten: bool,
) -> Result<Range<u64>> {
    let mut path = ExtentPath::load(handle.fs, info, block(blocks.start))?;
    let left = path.end().min(blocks.end)..blocks.end;
    if path
        .extents()
        .iter()
        .any(|it| it.unwritten != unwritten && part(it, &blocks).is_some())
    {
        path.set_extents(marked(path.extents(), &blocks, unwritten));
        store_path(handle, info, path)?;
    }
    Ok(left)
}

pub(crate) fn unmap_extents(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    blocks: Range<u64>,
    metadata: bool,
    budget: &mut UnmapBudget,
) -> Result<Range<u64>> {
    let mut left = blocks.start..blocks.end.min(LOGICAL_END);
    while !left.is_empty() && !budget.is_spent() {
        let mut path = match ExtentPath::load(handle.fs, info, block(left.end - 1)) {
            // The next transaction meets the damage before it has changed anything.
            Err(Error::Corrupt(_)) if left.end < blocks.end.min(LOGICAL_END) => break,
            path => path?,
        };
        let is_deep = path.depth() > u32::from(MAX_DEPTH);
        let mut kept = path.extents().to_vec();
        let mut behind = Vec::new();
        let mut done = left.start.max(path.start());
        let mut freed = 0;
        while let Some(extent) = kept.pop() {
            let reach = extent
                .end()
                .min(left.end)
                .saturating_sub(budget.room(handle.fs))
                .max(left.start);
            let [before, inside, after] = parts(&extent, &(reach..left.end));
            behind.extend(after);
            if let Some(inside) = inside {
                let gone = inside.physical..inside.physical + u64::from(inside.len_blocks);
                budget.spend(handle.fs, &gone);
                handle.writer.allocator.free(handle, gone, metadata)?;
                freed += i64::from(inside.len_blocks);
            }
            kept.extend(before);
            if budget.is_spent() || u64::from(extent.logical) < reach {
                done = u64::from(extent.logical).max(reach).max(done);
                break;
            }
        }
        // Nothing can be mapped before the first leaf.
        if path.is_first() && done == path.start() {
            done = left.start;
        }
        // An empty leaf is freed, even if an earlier change has emptied it.
        let is_void = path.depth() > 0 && kept.is_empty() && behind.is_empty();
        if freed > 0 || is_void {
            info.add_blocks(-freed, handle.fs.superblock().block_size())?;
            kept.extend(behind.into_iter().rev());
            path.set_extents(kept);
            store_path(handle, info, path)?;
        }
        left.end = done;
        if is_deep {
            // Freeing this leaf may free many nodes above it, so the next leaf is left for another
            // change.
            break;
        }
    }
    Ok(left)
}

/// Moves extents to lower blocks, from the lowest on.
pub(crate) fn shift_down(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    from: Range<u64>,
    by: u64,
) -> Result<Range<u64>> {
    let mut left = from;
    for _ in 0..SHIFT_LEAVES {
        if left.is_empty() {
            break;
        }
        let mut path = ExtentPath::load(handle.fs, info, block(left.start))?;
        let next = path.end();
        let move_down = |extent: &Extent| match u64::from(extent.logical) {
            // OK: the caller has made a hole of `by` blocks before the first that moves.
            at if at >= left.start => Extent {
                logical: block(at.saturating_sub(by)),
                ..*extent
            },
            _ => *extent,
        };
        let moved: Vec<Extent> = path.extents().iter().map(move_down).collect();
        if moved != path.extents() {
            path.set_extents(moved);
            store_path(handle, info, path)?;
        }
        left.start = next.max(left.start + 1);
    }
    Ok(left)
}

/// Moves extents to higher blocks, from the highest on. An extent that starts before the range is
/// cut at its start.
pub(crate) fn shift_up(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    from: Range<u64>,
    by: u64,
) -> Result<Range<u64>> {
    let mut left = from;
    for _ in 0..SHIFT_LEAVES {
        if left.is_empty() {
            break;
        }
        let mut path = ExtentPath::load(handle.fs, info, block(left.end - 1))?;
        let mut moved = Vec::with_capacity(path.extents().len() + 1);
        for extent in path.extents() {
            let [before, inside, behind] = parts(extent, &left);
            let up = |it: Extent| Extent {
                logical: block(u64::from(it.logical) + by),
                ..it
            };
            moved.extend(before.into_iter().chain(inside.map(up)).chain(behind));
        }
        left.end = if path.is_first() {
            left.start
        } else {
            path.start().max(left.start)
        };
        if moved != path.extents() {
            path.set_extents(moved);
            store_path(handle, info, path)?;
        }
    }
    Ok(left)
}

/// Returns the extents of a leaf after those in `range` have been marked.
fn marked(extents: &[Extent], range: &Range<u64>, unwritten: bool) -> Vec<Extent> {
    let mut all = Vec::with_capacity(extents.len() + 2);
    for extent in extents {
        let [before, inside, after] = parts(extent, range);
        all.extend(before);
        if let Some(inside) = inside {
            let marked = Extent {
                unwritten,
                ..inside
            };
            // A written extent may be one block longer than an unwritten one can be.
            let cut = u64::from(inside.logical) + u64::from(max_len(unwritten));
            all.extend(part(&marked, &(0..cut)));
            all.extend(part(&marked, &(cut..LOGICAL_END)));
        }
        all.extend(after);
    }
    all
}
