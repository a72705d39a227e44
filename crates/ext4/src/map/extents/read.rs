//! Maps a block by extents: descends from an inode's root to the leaf that covers the block.
//!
//! The descent ends because each child must be one level lower than its parent, and the root's
//! depth is bounded. A child with blocks outside of the range that its parent has for it is an
//! error, so no node can be used in place of another. `InodeInfo::map` calls [`map`].

use extern4_disk::extent::{Expect, Extent, ExtentNode, Found, sole_extent, verify_checksum};
use extern4_disk::{Place, Structure};

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::run::{Run, RunKind};
use crate::volume::buffer::Verified;

/// Returns the run at block `logical` of a file with extents.
pub(crate) fn map(fs: &Ext4, inode: &InodeInfo, logical: u32) -> Result<Run> {
    let place = Place::new(Structure::ExtentNode).ino(inode.ino());
    if let Some(extent) = sole_extent(inode.i_block(), fs.blocks(), place)
        && extent.contains(logical)
    {
        return Ok(run_from(&extent, logical));
    }
    let mut found =
        ExtentNode::decode(inode.i_block(), Expect::root(fs.blocks()), place)?.find(logical);
    loop {
        match found {
            Found::Extent(extent) => return Ok(run_from(&extent, logical)),
            Found::Hole { end } => return Ok(Run::hole(logical, end)),
            Found::Child(index, expect) => {
                let place = place.block(index.child);
                let block = node_block(fs, inode, index.child, expect)?;
                found = ExtentNode::peek(&block, expect, place)?.find(logical);
            }
        }
    }
}

/// Returns the block of a node below the root, with its checksum and its entries verified. They may
/// have been verified at another place of a tree ([`ExtentNode::peek`]).
pub(crate) fn node_block(
    fs: &Ext4,
    inode: &InodeInfo,
    block: u64,
    expect: Expect,
) -> Result<extern4_block::Buffer> {
    let place = Place::new(Structure::ExtentNode)
        .ino(inode.ino())
        .block(block);
    fs.verified(block, Verified::ExtentNode, |bytes| {
        if let Some(seed) = inode.seed() {
            verify_checksum(bytes, seed, place)?;
        }
        ExtentNode::decode(bytes, expect, place).map(drop)
    })
}

/// Returns the part of `extent` from `logical` on.
fn run_from(extent: &Extent, logical: u32) -> Run {
    let skip = u64::from(logical - extent.logical);
    let physical = extent.physical + skip;
    let kind = if extent.unwritten {
        RunKind::Unwritten { physical }
    } else {
        RunKind::Mapped { physical }
    };
    Run {
        logical,
        len_blocks: u64::from(extent.len_blocks) - skip,
        kind,
    }
}
