//! Reads the blocks of a directory, verified.
//!
//! All other modules of `dir` read blocks through it. It knows which blocks of a directory hold
//! names and which are nodes of a hash tree, and not how a tree leads to a name.

use extern4_block::Buffer;
use extern4_disk::dirent::{self, Entries, Slots};
use extern4_disk::{Corrupt, CorruptKind, Place, Structure, htree};

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::{InodeInfo, dir_layout};
use crate::run::RunKind;
use crate::volume::buffer::Verified;

/// Returns the block of the volume that holds block `logical` of a directory. Directories have no
/// holes.
pub(crate) fn dir_physical(fs: &Ext4, dir: &InodeInfo, logical: u32) -> Result<u64> {
    match dir.map(fs, logical)?.kind {
        RunKind::Mapped { physical } => Ok(physical),
        RunKind::Hole | RunKind::Unwritten { .. } => {
            let place = Place::new(Structure::DirectoryBlock).ino(dir.ino());
            Err(place
                .corrupt(CorruptKind::Mismatch {
                    what: "a directory has a hole",
                })
                .into())
        }
    }
}

/// Returns block `logical` of a directory, of any kind, with its checksum verified.
pub(crate) fn dir_block(fs: &Ext4, dir: &InodeInfo, logical: u32) -> Result<Buffer> {
    dir_block_at(fs, dir, logical, dir_physical(fs, dir, logical)?)
}

/// Returns block `logical` of a directory, which is block `physical` of the volume, with its
/// checksum verified.
fn dir_block_at(fs: &Ext4, dir: &InodeInfo, logical: u32, physical: u64) -> Result<Buffer> {
    fs.verified(physical, Verified::DirectoryBlock, |bytes| {
        verify_block(dir, logical, physical, bytes)
    })
}

/// Calls `look` with the verified bytes of that block, as [`Ext4::with_verified`] does.
pub(crate) fn with_dir_block<R>(
    fs: &Ext4,
    dir: &InodeInfo,
    logical: u32,
    physical: u64,
    look: impl FnOnce(&[u8]) -> R,
) -> Result<R> {
    let verify = |bytes: &[u8]| verify_block(dir, logical, physical, bytes);
    fs.with_verified(physical, Verified::DirectoryBlock, verify, look)
}

/// Returns block `logical` of a directory if it holds names; `None` for a node of a hash tree,
/// which is not verified: a walk from block to block does not need the tree.
pub(crate) fn names_block(fs: &Ext4, dir: &InodeInfo, logical: u32) -> Result<Option<Buffer>> {
    let physical = names_physical(fs, dir, logical)?;
    physical
        .map(|physical| dir_block_at(fs, dir, logical, physical))
        .transpose()
}

/// Returns the block of the volume for block `logical` of a directory, if it holds names.
pub(crate) fn names_physical(fs: &Ext4, dir: &InodeInfo, logical: u32) -> Result<Option<u64>> {
    if is_root(dir, logical) {
        return Ok(None);
    }
    let physical = dir_physical(fs, dir, logical)?;
    let holds_nodes = dir.is_indexed() && fs.cache.with(physical, |bytes| is_node(dir, bytes))?;
    Ok(if holds_nodes { None } else { Some(physical) })
}

/// Returns the entries of a block of a linear directory, or of a leaf of a hash tree.
pub(crate) fn dir_entries<'b>(fs: &Ext4, dir: &InodeInfo, block: &'b Buffer) -> Entries<'b> {
    dir_slots(fs, dir, block.number(), block).into()
}

/// Returns the records of such a block, which is block `physical` of the volume.
pub(crate) fn dir_slots<'b>(
    fs: &Ext4,
    dir: &InodeInfo,
    physical: u64,
    bytes: &'b [u8],
) -> Slots<'b> {
    let place = Place::new(Structure::DirectoryBlock)
        .ino(dir.ino())
        .block(physical);
    Slots::new(bytes, &dir_layout(fs, dir), place)
}

/// Reads ahead up to `len` blocks of a directory from `logical` on, with one device read for each
/// run.
pub(crate) fn read_ahead_dir(fs: &Ext4, dir: &InodeInfo, logical: u32, len: u32) -> Result<()> {
    let end = u64::from(logical) + u64::from(len.min(dir.len_blocks(fs)?.saturating_sub(logical)));
    if end - u64::from(logical) <= 1 {
        return Ok(());
    }
    let mut at = u64::from(logical);
    while at < end {
        let Ok(block) = u32::try_from(at) else {
            return Ok(());
        };
        let run = dir.map(fs, block)?;
        let take = run.len_blocks.min(end - at);
        if let Some(mapped) = run.mapped() {
            fs.cache.read_ahead(mapped.start..mapped.start + take);
        }
        at += take;
    }
    Ok(())
}

pub(crate) fn is_root(dir: &InodeInfo, logical: u32) -> bool {
    dir.is_indexed() && logical == 0
}

/// Verifies the checksum of block `logical` of a directory, for any kind of block.
fn verify_block(dir: &InodeInfo, logical: u32, physical: u64, bytes: &[u8]) -> Result<(), Corrupt> {
    let place = Place::new(Structure::DirectoryBlock)
        .ino(dir.ino())
        .block(physical);
    match dir.seed() {
        None => Ok(()),
        Some(seed) if is_root(dir, logical) => htree::verify_checksum(bytes, true, seed, place),
        Some(seed) if is_node(dir, bytes) => htree::verify_checksum(bytes, false, seed, place),
        Some(seed) => dirent::verify_checksum(bytes, seed, place),
    }
}

fn is_node(dir: &InodeInfo, block: &[u8]) -> bool {
    dir.is_indexed() && htree::is_interior(block)
}
