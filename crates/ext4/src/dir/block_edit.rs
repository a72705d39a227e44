//! Changes the blocks of a directory in a handle: records of one block, and a new block at the end.
//!
//! `insert`, `inline` and `htree::insert` call it under the lock on the directory's names. A change
//! of a block defers the block's checksum. [`put_name`] keeps the directory's hint true.

use extern4_block::{Buffer, Unsealed};
use extern4_disk::dirent::{self, DirEntry, FileType};
use extern4_disk::feature::Incompat;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};
use extern4_vfs::Errno;

use crate::dir::blocks::{dir_physical, dir_slots, with_dir_block};
use crate::dir_entries::{self, Gap};
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::{InodeInfo, dir_layout};
use crate::map::change::allocate_for;
use crate::volume::deferred_checksum;

/// The most blocks by which a directory grows for one name. These are a leaf and the new halves of
/// nodes on two levels, or a leaf, one such half and a new node below the root. For an inline
/// directory they are its first block and two leaves.
pub(crate) const MAX_NEW_BLOCKS: u32 = 3;
/// The number of blocks that a hash tree can address.
const MAX_TREE_BLOCKS: u64 = 1 << 28;
/// The least size of the records of `.` and `..`.
pub(crate) const DOT_LEN: usize = 12;

/// Returns how many blocks a directory can have.
pub(crate) fn max_dir_blocks(fs: &Ext4) -> u64 {
    // Without the feature a directory's size has only 32 bits.
    let large = fs
        .superblock()
        .features()
        .incompat
        .contains(Incompat::LARGEDIR);
    if large {
        MAX_TREE_BLOCKS
    } else {
        u64::from(u32::MAX / fs.superblock().block_size())
    }
}

/// Returns a gap for `name` in block `logical` of a directory, and that block's number on the
/// volume.
pub(crate) fn find_gap(
    fs: &Ext4,
    dir: &InodeInfo,
    logical: u32,
    name: &[u8],
) -> Result<Option<(u64, Gap)>> {
    let physical = match dir.dir_hint.physical(logical) {
        Some(physical) => physical,
        None => dir_physical(fs, dir, logical)?,
    };
    let need = dir_layout(fs, dir).rec_len(name);
    let look = |bytes: &[u8]| find_gap_in(fs, dir, (logical, physical), bytes, need);
    let gap = with_dir_block(fs, dir, logical, physical, look)??;
    Ok(gap.map(|gap| (physical, gap)))
}

/// Returns the first gap of `need` bytes in `bytes`, which are block `logical` of the directory and
/// block `physical` of the volume.
fn find_gap_in(
    fs: &Ext4,
    dir: &InodeInfo,
    (logical, physical): (u32, u64),
    bytes: &[u8],
    need: usize,
) -> Result<Option<Gap>, Corrupt> {
    let slots = dir_slots(fs, dir, physical, bytes);
    let gap = dir_entries::find_gap(&slots, dir.dir_hint.room_from(logical, need), need)?;
    debug_assert_eq!(
        Ok(gap),
        dir_entries::find_gap(&slots, 0, need),
        "{:?} of {}",
        dir.dir_hint,
        dir.ino()
    );
    Ok(gap)
}

/// Puts an entry into a gap of block `logical` of a directory, which holds names. Returns false if
/// no gap is large enough.
pub(crate) fn put_name(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    logical: u32,
    entry: &DirEntry<'_>,
) -> Result<bool> {
    let (block, gap) = match put_near(handle, dir, logical, entry)? {
        Some(put) => put,
        None => {
            let Some((block, gap)) = find_gap(handle.fs, dir, logical, entry.name)? else {
                return Ok(false);
            };
            edit_names_at(handle, dir, block, |bytes, layout| {
                dir_entries::fill_gap(bytes, gap, entry, layout)
            })?;
            (block, gap)
        }
    };
    if !dir.is_indexed() {
        let need = dir_layout(handle.fs, dir).rec_len(entry.name);
        dir.dir_hint.note_added(logical, block, gap, need);
    }
    Ok(true)
}

/// Changes the records of a directory block. `edit` gets all of the block except the checksum's
/// tail.
pub(crate) fn edit_names(
    handle: &Handle<'_>,
    dir: &InodeInfo,
    block: &mut Buffer,
    edit: impl FnOnce(&mut [u8], &dirent::Layout),
) {
    let layout = dir_layout(handle.fs, dir);
    handle.edit_unsealed(block, |bytes, unsealed| {
        edit_records(dir, &layout, bytes, unsealed, edit)
    });
}

/// Changes the records of the directory block `block` of the volume without getting a buffer. No
/// other thread reads the block meanwhile.
pub(crate) fn edit_names_at(
    handle: &Handle<'_>,
    dir: &InodeInfo,
    block: u64,
    edit: impl FnOnce(&mut [u8], &dirent::Layout),
) -> Result<()> {
    let layout = dir_layout(handle.fs, dir);
    handle.edit_at(block, |bytes, unsealed| {
        edit_records(dir, &layout, bytes, unsealed, edit)
    })
}

/// Searches and changes the records of a block in one step, if the block is part of the transaction
/// already, and so has been verified. `edit` gets all of the block, and returns `None` if it has
/// changed nothing.
pub(crate) fn edit_names_again<R>(
    handle: &Handle<'_>,
    dir: &InodeInfo,
    block: u64,
    edit: impl FnOnce(&mut [u8], &dirent::Layout) -> Result<Option<R>, Corrupt>,
) -> Result<Option<R>> {
    let layout = dir_layout(handle.fs, dir);
    handle.edit_again(block, |bytes, unsealed| {
        let result = edit(bytes, &layout)?;
        if result.is_some() {
            defer(dir, bytes, unsealed);
        }
        Ok(result)
    })
}

/// Puts an entry into block `logical` of a directory, if the hint covers it, it is part of the
/// transaction and it has room. Returns the block and the gap.
fn put_near(
    handle: &Handle<'_>,
    dir: &InodeInfo,
    logical: u32,
    entry: &DirEntry<'_>,
) -> Result<Option<(u64, Gap)>> {
    let Some(block) = dir.dir_hint.physical(logical) else {
        return Ok(None);
    };
    let need = dir_layout(handle.fs, dir).rec_len(entry.name);
    let gap = edit_names_again(handle, dir, block, |bytes, layout| {
        let gap = find_gap_in(handle.fs, dir, (logical, block), bytes, need)?;
        let names = names_len(bytes.len(), layout);
        if let Some(gap) = gap {
            dir_entries::fill_gap(&mut bytes[..names], gap, entry, layout);
        }
        Ok(gap)
    })?;
    Ok(gap.map(|gap| (block, gap)))
}

/// Appends a block of zeroes to a directory. Returns its number in the directory and its buffer.
pub(crate) fn append_dir_block(handle: &Handle<'_>, dir: &mut InodeInfo) -> Result<(u32, Buffer)> {
    let logical = dir.len_blocks(handle.fs)?;
    if u64::from(logical) >= max_dir_blocks(handle.fs) {
        return Err(Errno::ENOSPC.into());
    }
    let size = (u64::from(logical) + 1) * u64::from(handle.fs.superblock().block_size());
    let run = allocate_for(handle, dir, logical, 1, false).map_err(|error| match error {
        // A directory reaches its largest size long before `i_blocks` or the map does.
        Error::Answer(Errno::EFBIG) => dir.corrupt_field("i_blocks", dir.fields().sectors()),
        error => error,
    })?;
    let physical = run.mapped().map(|mapped| mapped.start).ok_or_else(|| {
        let place = Place::new(Structure::DirectoryBlock).ino(dir.ino());
        place.corrupt(CorruptKind::Mismatch {
            what: "there is a block behind a directory's end",
        })
    })?;
    dir.fields_mut().set_size(size);
    Ok((logical, handle.fresh(physical)?))
}

/// Changes the records of a directory block, and defers its checksum.
fn edit_records(
    dir: &InodeInfo,
    layout: &dirent::Layout,
    bytes: &mut [u8],
    unsealed: &mut Unsealed,
    edit: impl FnOnce(&mut [u8], &dirent::Layout),
) {
    let end = names_len(bytes.len(), layout);
    edit(&mut bytes[..end], layout);
    defer(dir, bytes, unsealed);
}

/// Defers the checksum of a directory block.
fn defer(dir: &InodeInfo, bytes: &mut [u8], unsealed: &mut Unsealed) {
    if let Some(seed) = dir.seed() {
        dirent::store_tail(bytes, 0);
        deferred_checksum::defer_names(unsealed, seed);
    }
}

/// Returns how many bytes of a directory block hold records.
pub(crate) fn names_len(block_size: usize, layout: &dirent::Layout) -> usize {
    block_size
        - if layout.checksum {
            dirent::TAIL_SIZE
        } else {
            0
        }
}

pub(crate) fn names_place(dir: &InodeInfo, block: &Buffer) -> Place {
    Place::new(Structure::DirectoryBlock)
        .ino(dir.ino())
        .block(block.number())
}

/// Writes `.` and `..` to the start of a block. The record of `..` gets all the rest.
pub(crate) fn encode_dots(bytes: &mut [u8], ino: u32, parent: u32, layout: &dirent::Layout) {
    let dot = |ino, name| DirEntry {
        ino,
        kind: FileType::Directory,
        name,
        offset: 0,
        hash: None,
    };
    let (first, rest) = bytes.split_at_mut(DOT_LEN);
    dot(ino, b".").encode(first, layout);
    dot(parent, b"..").encode(rest, layout);
}
