//! Places the bitmaps and the inode table of each group.
//!
//! `Draft` calls [`take_fixed`], [`take_bad`] and [`place`] first of all, so that metadata is where
//! `mke2fs` puts it. They mark blocks as used in the draft's [`Space`]. A group without room for
//! its metadata is an error.

use std::collections::BTreeSet;
use std::ops::Range;

use extern4_disk::geometry::Geometry;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::space::Space;

/// The blocks of one group's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
    pub(crate) inode_table: u64,
}

/// Marks the blocks as used that no volume can have elsewhere: boot block, superblocks and
/// descriptors.
pub(crate) fn take_fixed(geometry: &Geometry, space: &mut Space) {
    if geometry.first_data_block() > 0 {
        space.take(0, geometry.first_data_block().into());
    }
    for group in 0..geometry.group_count() {
        let start = geometry.group_start(group).unwrap_or(0);
        space.take(start, geometry.fixed_blocks(group).unwrap_or(0).into());
    }
}

/// Marks bad blocks as used, and returns them in ascending order. The primary superblock and its
/// descriptors must be good. Copies may not be; a warning says which.
pub(crate) fn take_bad(
    geometry: &Geometry,
    bad: &[u64],
    space: &mut Space,
    warnings: &mut Vec<String>,
) -> Result<Vec<u64>> {
    let primary = geometry.first_data_block().into()
        ..u64::from(geometry.first_data_block()) + u64::from(geometry.fixed_blocks(0).unwrap_or(0));
    let mut taken = Vec::new();
    for &block in &bad.iter().copied().collect::<BTreeSet<_>>() {
        if primary.contains(&block) {
            let last = primary.end - 1;
            return Err(Error::Size(format!(
                "block {block} is bad: a volume needs all up to block {last}"
            )));
        }
        if block >= geometry.blocks_count() || block < primary.start {
            warnings.push(format!(
                "block {block} of the bad blocks is not in the volume"
            ));
        } else if space.used_in(block, block + 1) > 0 {
            warnings.push(format!(
                "a copy of the superblock or of the descriptors has the bad block {block}"
            ));
        } else {
            space.take(block, 1);
            taken.push(block);
        }
    }
    Ok(taken)
}

/// Places the metadata of all groups, and marks their blocks as used.
///
/// With `flex_bg`, the first group of a flexible group has the block bitmaps of all its groups,
/// then their inode bitmaps, then their inode tables. Otherwise each group has its own at its
/// start. On a RAID with a `stride`, the bitmaps of different groups are then on different disks.
pub(crate) fn place(
    geometry: &Geometry,
    options: &Options,
    space: &mut Space,
) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    // 1 without flex_bg. Packed metadata is that of a flexible group of all groups.
    let members = match geometry.groups_per_flex() {
        members if members > 1 && options.packed_metadata => geometry.group_count(),
        members => members,
    };
    let mut first = 0;
    while first < geometry.group_count() {
        let last = geometry.group_count().min(first + members);
        if members > 1 {
            place_flexible(geometry, first..last, space, &mut groups)?;
        } else {
            groups.push(place_alone(geometry, first, options.stride, space)?);
        }
        first = last;
    }
    Ok(groups)
}

fn place_flexible(
    geometry: &Geometry,
    members: Range<u32>,
    space: &mut Space,
    groups: &mut Vec<Group>,
) -> Result<()> {
    let start = geometry.group_start(members.start).unwrap_or(0);
    let mut take = taker(space, members.start, geometry.blocks_count());
    let count = members.len() as u64;
    let table = geometry.inode_table_blocks().into();
    let block_bitmaps = members
        .clone()
        .map(|_| take(1, start))
        .collect::<Result<Vec<_>>>()?;
    // A single group leaves room for the bitmaps of a full flexible group.
    let gap = if count == 1 {
        u64::from(geometry.groups_per_flex())
    } else {
        count
    };
    let inode_bitmaps = members
        .clone()
        .map(|_| take(1, block_bitmaps[0] + gap).or_else(|_| take(1, start)))
        .collect::<Result<Vec<_>>>()?;
    for (block_bitmap, &inode_bitmap) in block_bitmaps.into_iter().zip(&inode_bitmaps) {
        // The bitmap in the middle of a short last group may leave no run for the table.
        let inode_table = take(table, inode_bitmaps[0] + gap)
            .or_else(|_| take(table, start))
            .or_else(|_| take(table, 0))?;
        groups.push(Group {
            block_bitmap,
            inode_bitmap,
            inode_table,
        });
    }
    Ok(())
}

fn place_alone(geometry: &Geometry, group: u32, stride: u16, space: &mut Space) -> Result<Group> {
    let start = geometry.group_start(group).unwrap_or(0);
    let end = start + u64::from(geometry.group_blocks(group).unwrap_or(0));
    let table = u64::from(geometry.inode_table_blocks());
    let fixed = start + u64::from(geometry.fixed_blocks(group).unwrap_or(0));
    let goal = match (fixed + table, u64::from(stride) * u64::from(group)) {
        _ if stride == 0 => start,
        (after, shift) => after + shift % end.saturating_sub(after).max(1),
    };
    let mut take = taker(space, group, end);
    let block_bitmap = take(1, goal).or_else(|_| take(1, start))?;
    let inode_bitmap = take(1, goal).or_else(|_| take(1, start))?;
    Ok(Group {
        block_bitmap,
        inode_bitmap,
        inode_table: take(table, start)?,
    })
}

/// Returns a function that takes the first run of `len` free blocks between a goal and `end`.
fn taker(space: &mut Space, group: u32, end: u64) -> impl FnMut(u64, u64) -> Result<u64> {
    move |len, goal| {
        let at = space.find(len, goal, end).ok_or_else(|| {
            Error::Size(format!(
                "group {group} has no room for its bitmaps and inode table"
            ))
        })?;
        space.take(at, len);
        Ok(at)
    }
}
