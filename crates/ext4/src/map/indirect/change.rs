//! Changes the indirect blocks of a file.
//!
//! `map::change` calls these functions for files without extents. [`blocks_needed`] returns in
//! advance the most indirect blocks that mapping allocates. Unmapping frees an indirect block when
//! its last number is cleared, works from the end of the range, stops at its budget and returns the
//! rest. Only volumes whose block numbers have 32 bits can have such files (`EFBIG` otherwise).

use std::ops::Range;

use extern4_disk::indirect::{Path, Pointers};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_vfs::Errno;

use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::map::map_blocks::{MAX_RUNS, UnmapBudget, allocate_map_block, home_block};
use crate::run::{Run, RunKind};
use crate::volume::group::to_usize;

/// The size of a block number in bytes.
const POINTER: usize = 4;
/// The most levels of indirect blocks.
const LEVELS: u32 = 3;

/// Returns the most indirect blocks that mapping `blocks` blocks from `logical` on allocates.
pub(crate) fn blocks_needed(fs: &Ext4, info: &InodeInfo, logical: u32, blocks: u32) -> Result<u32> {
    let Some(path) = fs.indirect_map().path(logical) else {
        return Ok(0);
    };
    let last = fs
        .indirect_map()
        .path(logical.saturating_add(blocks.saturating_sub(1)));
    if last.is_some_and(|last| last.levels() == 0) {
        return Ok(0);
    }
    if blocks > 1 {
        return Ok(LEVELS + (blocks / fs.indirect_map().per_block() + 2).min(MAX_RUNS));
    }
    let branch = Branch::load(fs, info, &path)?;
    Ok(path.levels() - branch.depth())
}

/// Returns the goal for blocks for the hole at `logical`, and how many of `want` blocks fit into
/// it.
pub(crate) fn goal(
    handle: &Handle<'_>,
    info: &InodeInfo,
    logical: u32,
    want: u32,
) -> Result<(u64, u32)> {
    let arithmetic = handle.fs.indirect_map();
    let path = arithmetic.path(logical).ok_or(Errno::EFBIG)?;
    // The map has room for 32-bit block numbers only.
    if u32::try_from(handle.fs.blocks().end).is_err() {
        return Err(Errno::EFBIG.into());
    }
    let hole = info.map(handle.fs, logical)?;
    if hole.kind != RunKind::Hole {
        let what = "blocks were to be mapped twice";
        return Err(place(info).corrupt(CorruptKind::Mismatch { what }).into());
    }
    let goal = match logical
        .checked_sub(1)
        .map(|before| info.map(handle.fs, before))
        .transpose()?
    {
        Some(before) => before.mapped().map(|blocks| blocks.start + 1),
        None => None,
    };
    // A run ends with the indirect block that holds its numbers.
    let room = path.offsets().last().map_or(hole.len_blocks, |&at| {
        hole.len_blocks
            .min(u64::from(arithmetic.per_block()) - u64::from(at))
    });
    let want = u64::from(want).min(room).max(1);
    // OK: no more than was wanted.
    Ok((
        goal.unwrap_or_else(|| home_block(handle, info)),
        want as u32,
    ))
}

fn place(info: &InodeInfo) -> Place {
    Place::new(Structure::IndirectBlock).ino(info.ino())
}

/// The indirect blocks on the path to a block, up to the first that does not exist, and the index
/// of the path in each.
struct Branch {
    blocks: Vec<(u64, usize)>,
}

impl Branch {
    fn load(fs: &Ext4, info: &InodeInfo, path: &Path) -> Result<Self> {
        let mut blocks = Vec::with_capacity(to_usize(LEVELS));
        let mut next =
            Pointers::decode(info.i_block(), fs.blocks(), place(info))?.get(path.root())?;
        for &at in path.offsets() {
            let Some(block) = next.map(|block| u64::from(block.get())) else {
                break;
            };
            blocks.push((block, usize::from(at)));
            if blocks.len() < path.offsets().len() {
                let buffer = fs.cache.read(block)?;
                let numbers = Pointers::decode(&buffer, fs.blocks(), place(info).block(block))?;
                next = numbers.get(usize::from(at))?;
            }
        }
        Ok(Self { blocks })
    }

    /// Returns the number of indirect blocks on the path.
    fn depth(&self) -> u32 {
        // OK: three at most.
        self.blocks.len() as u32
    }
}

/// Numbers that are to be cleared, and the blocks that they refer to.
struct Taken {
    indexes: Range<usize>,
    blocks: Vec<Range<u64>>,
}

/// Collects numbers to be cleared, from the last of `indexes` backwards, until `budget` is spent.
fn take(
    fs: &Ext4,
    numbers: &Pointers<'_>,
    indexes: Range<usize>,
    budget: &mut UnmapBudget,
) -> Result<Taken> {
    let mut blocks: Vec<Range<u64>> = Vec::new();
    let mut at = indexes.end;
    while at > indexes.start {
        let block = numbers.get(at - 1)?.map(|block| u64::from(block.get()));
        match (block, blocks.last_mut()) {
            (None, _) => {}
            (Some(_), _) if budget.is_spent() => break,
            (Some(block), Some(run)) if run.start == block + 1 => {
                budget.spend(fs, &(block..block + 1));
                run.start = block;
            }
            (Some(block), _) => {
                budget.spend(fs, &(block..block + 1));
                blocks.push(block..block + 1);
            }
        }
        at -= 1;
    }
    Ok(Taken {
        indexes: at..indexes.end,
        blocks,
    })
}

fn write_number(bytes: &mut [u8], at: usize, block: u64) {
    // OK: volumes whose blocks need more than 32 bits have been refused.
    bytes[at * POINTER..(at + 1) * POINTER].copy_from_slice(&(block as u32).to_le_bytes());
}

fn clear_numbers(bytes: &mut [u8], indexes: Range<usize>) {
    bytes[indexes.start * POINTER..indexes.end * POINTER].fill(0);
}

/// Maps a run whose numbers are all in one indirect block, or in the inode.
pub(crate) fn insert_pointers(handle: &Handle<'_>, info: &mut InodeInfo, run: &Run) -> Result<()> {
    let Some(Range {
        start: physical,
        end,
    }) = run.mapped()
    else {
        return Ok(());
    };
    let blocks = end - physical;
    let path = handle
        .fs
        .indirect_map()
        .path(run.logical)
        .ok_or(Errno::EFBIG)?;
    if path.levels() == 0 {
        edit_roots(info, |roots| {
            (physical..physical + blocks)
                .zip(path.root()..)
                .for_each(|(it, at)| write_number(roots, at, it));
        });
        return Ok(());
    }
    let mut branch = Branch::load(handle.fs, info, &path)?.blocks;
    while let Some(&at) = path.offsets().get(branch.len()) {
        let block = allocate_map_block(handle, info, physical + blocks)?;
        handle.fresh(block)?;
        match branch.last() {
            None => edit_roots(info, |roots| write_number(roots, path.root(), block)),
            Some(&(parent, at)) => {
                edit_numbers(handle, parent, |bytes| write_number(bytes, at, block))?
            }
        }
        branch.push((block, usize::from(at)));
    }
    let Some(&(last, at)) = branch.last() else {
        return Ok(());
    };
    edit_numbers(handle, last, |bytes| {
        (physical..physical + blocks)
            .zip(at..)
            .for_each(|(it, at)| write_number(bytes, at, it));
    })
}

fn edit_roots(info: &mut InodeInfo, edit: impl FnOnce(&mut [u8])) {
    let mut roots = *info.i_block();
    edit(&mut roots);
    info.fields_mut().set_map(&roots);
}

fn edit_numbers(handle: &Handle<'_>, block: u64, edit: impl FnOnce(&mut [u8])) -> Result<()> {
    let mut buffer = handle.fs.cache.read(block)?;
    handle.edit(&mut buffer, edit);
    Ok(())
}

pub(crate) fn unmap_pointers(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    blocks: Range<u64>,
    metadata: bool,
    budget: &mut UnmapBudget,
) -> Result<Range<u64>> {
    let end = blocks.end.min(handle.fs.indirect_map().end());
    let mut left = blocks.start..end;
    while !left.is_empty() && !budget.is_spent() {
        left.end = match unmap_last(handle, info, &left, metadata, budget) {
            // The next transaction meets the damage before it has changed anything.
            Err(Error::Corrupt(_)) if left.end < end => break,
            reached => reached?,
        };
    }
    Ok(left)
}

/// Unmaps the blocks at the end of a range whose numbers are in the last indirect block. Returns
/// the new end.
fn unmap_last(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    left: &Range<u64>,
    metadata: bool,
    budget: &mut UnmapBudget,
) -> Result<u64> {
    let arithmetic = handle.fs.indirect_map();
    let last = left.end - 1;
    let path = u32::try_from(last)
        .ok()
        .and_then(|last| arithmetic.path(last))
        .ok_or(Errno::EFBIG)?;
    let branch = Branch::load(handle.fs, info, &path)?;
    let depth = branch.depth();
    if depth < path.levels() {
        // The branch ends at a number that is clear. Its last block is freed if all its numbers are
        // clear.
        if let Some(&(_, at)) = branch.blocks.last() {
            clear_branch(handle, info, &path, &branch, at..at, budget)?;
        }
        let span = arithmetic.span_blocks(path.levels() - depth);
        let start = (last + arithmetic.hole_blocks(&path, depth)).saturating_sub(span);
        return Ok(start.max(left.start));
    }
    let at = branch.blocks.last().map_or(path.root(), |&(_, at)| at);
    let most = usize::try_from(last - left.start).unwrap_or(usize::MAX);
    let indexes = at - at.min(most)..at + 1;
    let taken = match branch.blocks.last() {
        None => {
            let numbers = Pointers::decode(info.i_block(), handle.fs.blocks(), place(info))?;
            let taken = take(handle.fs, &numbers, indexes, budget)?;
            edit_roots(info, |roots| clear_numbers(roots, taken.indexes.clone()));
            taken
        }
        Some(&(block, _)) => {
            let buffer = handle.fs.cache.read(block)?;
            let numbers = Pointers::decode(&buffer, handle.fs.blocks(), place(info).block(block))?;
            let taken = take(handle.fs, &numbers, indexes, budget)?;
            drop(buffer);
            clear_branch(handle, info, &path, &branch, taken.indexes.clone(), budget)?;
            taken
        }
    };
    for blocks in &taken.blocks {
        handle
            .writer
            .allocator
            .free(handle, blocks.clone(), metadata)?;
        let count = blocks.end - blocks.start;
        info.add_blocks(-count.cast_signed(), handle.fs.superblock().block_size())?;
    }
    Ok(left.end - taken.indexes.len() as u64)
}

/// Clears numbers in the last block of a branch, and frees blocks of the branch that become empty.
fn clear_branch(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    path: &Path,
    branch: &Branch,
    indexes: Range<usize>,
    budget: &mut UnmapBudget,
) -> Result<()> {
    let mut indexes = indexes;
    for (nth, &(block, _)) in branch.blocks.iter().enumerate().rev() {
        let mut buffer = handle.fs.cache.read(block)?;
        if !is_clear_but(&buffer, &indexes) {
            if !indexes.is_empty() {
                handle.edit(&mut buffer, |bytes| clear_numbers(bytes, indexes));
            }
            return Ok(());
        }
        budget.spend(handle.fs, &(block..block + 1));
        handle
            .writer
            .allocator
            .free(handle, block..block + 1, true)?;
        info.add_blocks(-1, handle.fs.superblock().block_size())?;
        let above = nth
            .checked_sub(1)
            .map_or(path.root(), |above| branch.blocks[above].1);
        indexes = above..above + 1;
    }
    edit_roots(info, |roots| clear_numbers(roots, indexes));
    Ok(())
}

/// Whether all numbers except those at `indexes` are clear.
fn is_clear_but(bytes: &[u8], indexes: &Range<usize>) -> bool {
    let (before, rest) = bytes.split_at(indexes.start * POINTER);
    let behind = &rest[indexes.len() * POINTER..];
    before.iter().chain(behind).all(|&byte| byte == 0)
}
