//! Makes the [map](crate::inode::name_map) of a directory's names by a scan of the directory.
//!
//! `namei` makes a map when lookups have paid for it. `insert` hashes names here to keep it true.

use std::borrow::Cow;

use extern4_disk::casefold;

use crate::dir::blocks::{dir_slots, names_physical, read_ahead_dir, with_dir_block};
use crate::dir::htree::read::Tree;
use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::inode::name_map::DirNames;

/// How many blocks a scan reads ahead.
const READ_AHEAD: u32 = 64;

/// Hashes and blocks of names.
type Mapped = Vec<(u32, u32)>;

/// Returns the hash by which the map of `dir` has `name`.
pub(crate) fn name_hash(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> u32 {
    let folded = if dir.is_casefolded() {
        casefold::fold(name)
    } else {
        None
    };
    fs.name_maps
        .hash(&folded.map_or(Cow::Borrowed(name), Cow::Owned))
}

/// Makes the map of a directory, unless it is damaged or the budget has no room. Locks: the
/// directory's names, shared.
pub(crate) fn map_names(fs: &Ext4, dir: &InodeInfo, names: &DirNames) {
    match scan(fs, dir).map(|mapped| mapped.and_then(|mapped| fs.name_maps.map(&mapped))) {
        Ok(Some(map)) => names.publish(map),
        Ok(None) => names.clear(),
        // Lookups meet the same error where it matters to them.
        Err(_) => names.refuse(),
    }
}

/// Returns all names; `None` if they are more than a map may have.
fn scan(fs: &Ext4, dir: &InodeInfo) -> Result<Option<Mapped>> {
    let mut mapped = Mapped::new();
    if dir.is_inline() {
        dir.with_inline_dir(fs, |inline, layout, place| {
            for entry in inline.entries(layout, place) {
                mapped.push((name_hash(fs, dir, entry?.name), 0));
            }
            Ok(())
        })?;
        return Ok(Some(mapped));
    }
    if dir.is_indexed() {
        Tree::open(fs, dir)?.check()?;
    }
    let most = fs.name_maps.most_names();
    for logical in 0..dir.len_blocks(fs)? {
        if logical % READ_AHEAD == 0 {
            read_ahead_dir(fs, dir, logical, READ_AHEAD)?;
        }
        if let Some(physical) = names_physical(fs, dir, logical)? {
            scan_block(fs, dir, (logical, physical), &mut mapped)?;
        }
        if mapped.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(mapped))
}

/// Adds the names of block `logical` of the directory, which is block `physical` of the volume.
fn scan_block(
    fs: &Ext4,
    dir: &InodeInfo,
    (logical, physical): (u32, u64),
    mapped: &mut Mapped,
) -> Result<()> {
    let block = mapped_block(dir, logical);
    with_dir_block(fs, dir, logical, physical, |bytes| {
        for slot in dir_slots(fs, dir, physical, bytes) {
            if let Some(entry) = slot?.entry {
                mapped.push((name_hash(fs, dir, entry.name), block));
            }
        }
        Ok(())
    })?
}

/// Returns the block that the map has for a name in block `logical`: a hash tree finds names itself
/// and moves them.
pub(crate) fn mapped_block(dir: &InodeInfo, logical: u32) -> u32 {
    if dir.is_indexed() { 0 } else { logical }
}
