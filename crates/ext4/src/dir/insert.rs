//! Adds, removes and replaces names in a directory.
//!
//! A name goes into the first gap of a linear directory that is large enough. If there is none, it
//! goes into a new block at the end. On a volume with `dir_index`, a directory that outgrows its
//! first block gets a hash tree instead (`htree::insert`). The module `inline` changes directories
//! inside their inode. No name ever moves between the blocks of a linear directory, so a listing
//! can continue at an offset.
//!
//! The operations in `ops` call these functions in a handle, under the lock on the directory's
//! names. They change the directory's blocks, and the size, map and flags of the [`InodeInfo`]; the
//! caller stores that with its new times. [`check_new_name`] and [`blocks_for_name`] tell
//! beforehand whether and with how many blocks an addition succeeds.

use extern4_disk::casefold;
use extern4_disk::dirent::{self, DirEntry, FileType, NAME_MAX, Slots};
use extern4_disk::feature::{Compat, Incompat};
use extern4_disk::htree;
use extern4_vfs::Errno;

use crate::dir::block_edit::{
    MAX_NEW_BLOCKS, append_dir_block, edit_names, edit_names_again, edit_names_at, encode_dots,
    find_gap, max_dir_blocks, names_len, names_place, put_name,
};
use crate::dir::blocks::{
    dir_block, dir_entries, dir_slots, names_block, read_ahead_dir, with_dir_block,
};
use crate::dir::htree::insert::{HtreePath, add_to_tree, make_tree, version_of_new_trees};
use crate::dir::inline::{
    add_inline, has_inline_room, move_to_block, new_inline_directory, remove_inline,
    replace_inline, set_inline_parent,
};
use crate::dir::namei::{FoundEntry, SearchName, find_entry, find_mapped};
use crate::dir::names::{mapped_block, name_hash};
use crate::dir_entries;
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::cached::{CachedInode, LockedNames};
use crate::inode::info::{InodeInfo, dir_layout};
use crate::inode::name_map::DirNames;

/// How many blocks a search for a gap reads ahead.
const READ_AHEAD: u32 = 32;
/// The superblock's flag that names in case-folded directories must be UTF-8.
const STRICT_ENCODING: u16 = 1;

/// Checks that `name` can be added to `dir`. After that, adding it can only fail if the volume is
/// full.
///
/// # Errors
/// `ENOKEY` for encrypted directories, `EINVAL` for a name that breaks the volume's encoding,
/// `ENAMETOOLONG`, `ENOSPC` if the hash tree or the directory's size cannot grow.
pub(crate) fn check_new_name(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> Result<()> {
    check_name(fs, dir, name)?;
    if dir.is_inline() {
        return Ok(());
    }
    let blocks = dir.len_blocks(fs)?;
    if u64::from(blocks) + u64::from(MAX_NEW_BLOCKS) > max_dir_blocks(fs) {
        return Err(Errno::ENOSPC.into());
    }
    check_dir_limit(fs, dir, name)?;
    if !dir.is_indexed() {
        return Ok(());
    }
    if HtreePath::root_has_room(fs, dir)?
        || HtreePath::to(fs, dir, name)?.has_room_for(fs, dir, name)?
    {
        Ok(())
    } else {
        Err(Errno::ENOSPC.into())
    }
}

/// Whether `dir` surely has room for `name`, even if other threads add names at the same time. If
/// it returns false, [`check_new_name`] decides.
pub(crate) fn has_much_room(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> Result<bool> {
    /// More names than threads can be adding at the same time.
    const OTHERS: u64 = 1 << 16;
    check_name(fs, dir, name)?;
    if dir.is_inline() {
        return Ok(true);
    }
    if fs.max_dir_blocks.is_some() {
        return Ok(false);
    }
    let blocks = u64::from(dir.len_blocks(fs)?);
    let has_blocks = blocks + OTHERS * u64::from(MAX_NEW_BLOCKS) <= max_dir_blocks(fs);
    if !has_blocks || !dir.is_indexed() {
        return Ok(has_blocks);
    }
    match HtreePath::tree_has_room_for(fs, dir, OTHERS) {
        // `dir` may be older than the tree, which only looks corrupt then. If it is corrupt, a
        // later caller that holds the lock on the names gets the error.
        Err(Error::Corrupt(_)) => Ok(false),
        answer => answer,
    }
}

/// Returns the most blocks that adding a name to `dir` allocates. It searches for room as the
/// addition does.
pub(crate) fn blocks_for_name(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> Result<u32> {
    let grows_by = new_blocks_for_name(fs, dir, name)?;
    if dir.is_inline() || grows_by == 0 {
        return Ok(grows_by);
    }
    Ok(grows_by + dir.map_blocks_needed(fs, dir.len_blocks(fs)?, grows_by)?)
}

fn new_blocks_for_name(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> Result<u32> {
    if dir.is_inline() {
        return Ok(if has_inline_room(fs, dir, name)? {
            0
        } else {
            MAX_NEW_BLOCKS
        });
    }
    if dir.is_indexed() {
        let path = HtreePath::to(fs, dir, name)?;
        let has_gap = find_gap(fs, dir, path.leaf(), name)?.is_some();
        return if has_gap {
            Ok(0)
        } else {
            path.blocks_for_leaf(fs, dir)
        };
    }
    let len_blocks = dir.len_blocks(fs)?;
    for logical in 0..len_blocks {
        if find_gap(fs, dir, logical, name)?.is_some() {
            return Ok(0);
        }
    }
    // A block, or two leaves of a tree.
    Ok(if len_blocks == 1 { 2 } else { 1 })
}

/// Returns the entry of a name that is about to be changed, in a directory that is not inline.
fn find_to_change(
    fs: &Ext4,
    dir: &InodeInfo,
    names: &DirNames,
    (name, wanted): (&[u8], &SearchName<'_>),
) -> Result<FoundEntry> {
    if let (SearchName::Exact(name), Some((logical, block))) = (wanted, dir.dir_hint.block()) {
        let look = |bytes: &[u8]| dir.dir_hint.find(&dir_slots(fs, dir, block, bytes), name);
        if let Some((record, ino)) = with_dir_block(fs, dir, logical, block, look)?? {
            return Ok(FoundEntry {
                ino,
                logical,
                block,
                record,
            });
        }
    }
    if let Some(found) = find_mapped(fs, dir, names, (name, wanted)).flatten() {
        return Ok(found);
    }
    find_entry(fs, dir, wanted)?.ok_or_else(|| Errno::ENOENT.into())
}

/// Refuses a name that makes `dir` grow beyond the limit of directories (`max_dir_size_kb`).
fn check_dir_limit(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> Result<()> {
    let Some(most) = fs.max_dir_blocks else {
        return Ok(());
    };
    let grows_by = u64::from(new_blocks_for_name(fs, dir, name)?);
    let is_beyond = grows_by > 0 && u64::from(dir.len_blocks(fs)?) + grows_by > most;
    if is_beyond {
        Err(Errno::ENOSPC.into())
    } else {
        Ok(())
    }
}

/// Checks that `dir` may have such a name at all.
fn check_name(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> Result<()> {
    if dir.is_encrypted() {
        return Err(Errno::ENOKEY.into());
    }
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    let strict = fs
        .superblock()
        .encoding()
        .is_some_and(|(_, flags)| flags & STRICT_ENCODING != 0);
    if strict && dir.is_casefolded() && casefold::fold(name).is_none() {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

/// Whether a directory has no names but `.` and `..`.
pub(crate) fn is_empty_directory(fs: &Ext4, dir: &InodeInfo) -> Result<bool> {
    if dir.is_inline() {
        return dir.with_inline_dir(fs, |inline, layout, place| {
            let mut entries = inline.entries(layout, place);
            Ok(entries.next().transpose()?.is_none())
        });
    }
    for logical in 0..dir.len_blocks(fs)? {
        if logical % READ_AHEAD == 0 {
            read_ahead_dir(fs, dir, logical, READ_AHEAD)?;
        }
        let Some(block) = names_block(fs, dir, logical)? else {
            continue;
        };
        for entry in dir_entries(fs, dir, &block) {
            if !entry?.is_dot_or_dotdot() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Gives a new directory its first contents: `.`, and `..` for `parent`. Its record must be cleared
/// already.
pub(crate) fn new_directory(handle: &Handle<'_>, dir: &mut InodeInfo, parent: u32) -> Result<()> {
    if handle
        .fs
        .superblock()
        .features()
        .incompat
        .contains(Incompat::INLINE_DATA)
        && new_inline_directory(handle, dir, parent)?
    {
        return Ok(());
    }
    let (_, mut block) = append_dir_block(handle, dir)?;
    edit_names(handle, dir, &mut block, |bytes, layout| {
        encode_dots(bytes, dir.ino(), parent, layout);
    });
    Ok(())
}

/// Changes of names, and of the directory's [map](crate::inode::name_map) in the same step. A
/// change that fails drops the map, since it may have changed the blocks in part, and so does one
/// that gives the directory a hash tree.
impl LockedNames<'_> {
    /// Adds a name that the directory does not have yet.
    pub(crate) fn add(
        &mut self,
        handle: &Handle<'_>,
        name: &[u8],
        ino: u32,
        kind: FileType,
    ) -> Result<()> {
        let block = self.change(|dir, _| add_name(handle, dir, name, ino, kind))?;
        self.names()
            .add(|| name_hash(handle.fs, &self.info, name), block);
        Ok(())
    }

    /// Removes a name.
    pub(crate) fn remove(&mut self, handle: &Handle<'_>, name: &[u8]) -> Result<()> {
        let (_, block) = self.change(|dir, names| remove_name(handle, dir, names, name))?;
        self.names()
            .remove(|| name_hash(handle.fs, &self.info, name), block);
        Ok(())
    }

    /// Makes a name refer to another inode.
    pub(crate) fn replace(
        &mut self,
        handle: &Handle<'_>,
        name: &[u8],
        ino: u32,
        kind: FileType,
    ) -> Result<()> {
        self.change(|dir, names| replace_name(handle, dir, names, name, ino, kind))
    }

    /// Renames an entry where it is, if that can be done. Returns whether it was.
    pub(crate) fn rename(
        &mut self,
        handle: &Handle<'_>,
        from: &[u8],
        entry: &DirEntry<'_>,
    ) -> Result<bool> {
        let Some(block) =
            self.change(|dir, names| rename_in_place(handle, dir, names, from, entry))?
        else {
            return Ok(false);
        };
        self.names()
            .add(|| name_hash(handle.fs, &self.info, entry.name), block);
        self.names()
            .remove(|| name_hash(handle.fs, &self.info, from), block);
        Ok(true)
    }

    fn change<R>(
        &mut self,
        change: impl FnOnce(&mut InodeInfo, &DirNames) -> Result<R>,
    ) -> Result<R> {
        let names = &self.dir.private::<CachedInode>().names;
        let had_tree = self.info.is_indexed();
        let changed = change(&mut self.info, names);
        if changed.is_err() || self.info.is_indexed() != had_tree {
            names.clear();
        }
        changed
    }

    fn names(&self) -> &DirNames {
        &self.dir.private::<CachedInode>().names
    }
}

/// Adds a name that the directory does not have yet.
///
/// Returns the block of the directory that has it; 0 if the directory is inline or has a hash tree.
///
/// # Errors
/// The errors of [`check_new_name`], before anything is changed.
fn add_name(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    name: &[u8],
    ino: u32,
    kind: FileType,
) -> Result<u32> {
    check_name(handle.fs, dir, name)?;
    let entry = DirEntry {
        ino,
        kind,
        name,
        offset: 0,
        hash: None,
    };
    if dir.is_inline() {
        if add_inline(handle, dir, &entry)? {
            return Ok(0);
        }
        move_to_block(handle, dir)?;
    }
    if dir.is_indexed() {
        add_to_tree(handle, dir, &entry)?;
        return Ok(0);
    }
    add_linear(handle, dir, &entry)
}

fn add_linear(handle: &Handle<'_>, dir: &mut InodeInfo, entry: &DirEntry<'_>) -> Result<u32> {
    let len_blocks = dir.len_blocks(handle.fs)?;
    for logical in 0..len_blocks {
        if logical % READ_AHEAD == 0 && len_blocks > 1 {
            read_ahead_dir(handle.fs, dir, logical, READ_AHEAD)?;
        }
        if put_name(handle, dir, logical, entry)? {
            return Ok(logical);
        }
    }
    let indexes = handle
        .fs
        .superblock()
        .features()
        .compat
        .contains(Compat::DIR_INDEX);
    if indexes
        && len_blocks == 1
        && let Some(version) = version_of_new_trees(handle.fs)
    {
        make_tree(handle, dir, version, entry)?;
        return Ok(0);
    }
    let (logical, mut block) = append_dir_block(handle, dir)?;
    edit_names(handle, dir, &mut block, |bytes, layout| {
        dir_entries::fill(bytes, [entry], layout)
    });
    Ok(logical)
}

/// Removes a name. Returns its inode, and its block as [`add_name`] does.
fn remove_name(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    names: &DirNames,
    name: &[u8],
) -> Result<(u32, u32)> {
    let wanted = SearchName::new(dir, name).ok_or(Errno::ENOENT)?;
    if dir.is_inline() {
        return Ok((remove_inline(handle, dir, &wanted)?, 0));
    }
    let FoundEntry {
        ino,
        logical,
        block,
        record,
    } = match remove_near(handle, dir, &wanted)? {
        Some(removed) => removed,
        None => {
            let found = find_to_change(handle.fs, dir, names, (name, &wanted))?;
            edit_names_at(handle, dir, found.block, |bytes, _| {
                dir_entries::remove(bytes, found.record)
            })?;
            found
        }
    };
    if !dir.is_indexed() {
        dir.dir_hint.note_removed(logical, block, record);
    }
    Ok((ino, mapped_block(dir, logical)))
}

/// Makes a name refer to another inode.
fn replace_name(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    names: &DirNames,
    name: &[u8],
    ino: u32,
    kind: FileType,
) -> Result<()> {
    let wanted = SearchName::new(dir, name).ok_or(Errno::ENOENT)?;
    if dir.is_inline() {
        return replace_inline(handle, dir, &wanted, ino, kind);
    }
    let FoundEntry { block, record, .. } = find_to_change(handle.fs, dir, names, (name, &wanted))?;
    edit_names_at(handle, dir, block, |bytes, layout| {
        dir_entries::replace(bytes, record, ino, kind, layout)
    })
}

/// Renames the entry `from` to that of `entry`, in the same record. The directory must not have the
/// new name yet. Returns its block in the directory; `None`, without a change, if the record is too
/// short, or if the directory is not linear.
fn rename_in_place(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    names: &DirNames,
    from: &[u8],
    entry: &DirEntry<'_>,
) -> Result<Option<u32>> {
    if dir.is_inline() || dir.is_indexed() {
        return Ok(None);
    }
    let wanted = SearchName::new(dir, from).ok_or(Errno::ENOENT)?;
    let need = dir_layout(handle.fs, dir).rec_len(entry.name);
    let found = find_to_change(handle.fs, dir, names, (from, &wanted))?;
    let FoundEntry {
        logical,
        block,
        record,
        ..
    } = found;
    if record.rec_len() < need {
        return Ok(None);
    }
    edit_names_at(handle, dir, block, |bytes, layout| {
        dir_entries::rename(bytes, record, entry, layout)
    })?;
    dir.dir_hint.note_renamed(logical, block, record, need);
    Ok(Some(logical))
}

/// Makes `..` refer to another directory.
pub(crate) fn set_parent(handle: &Handle<'_>, dir: &mut InodeInfo, parent: u32) -> Result<()> {
    if dir.is_inline() {
        return set_inline_parent(handle, dir, parent);
    }
    let mut block = dir_block(handle.fs, dir, 0)?;
    let layout = dir_layout(handle.fs, dir);
    let place = names_place(dir, &block);
    dirent::dot_and_dotdot(&block, &layout, place)?;
    let slots = Slots::without_tail(&block, &layout, place);
    let (record, _) =
        dir_entries::find(slots, |entry| entry.name == b"..")?.ok_or(Errno::ENOENT)?;
    let set = |bytes: &mut [u8]| {
        dir_entries::replace(bytes, record, parent, FileType::Directory, &layout)
    };
    if !dir.is_indexed() {
        edit_names(handle, dir, &mut block, |bytes, _| set(bytes));
        return Ok(());
    }
    handle.edit(&mut block, |bytes| {
        set(bytes);
        match dir.seed() {
            Some(seed) => htree::store_checksum(bytes, true, seed, place),
            None => Ok(()),
        }
    })?;
    Ok(())
}

/// Removes the entry `wanted`, if it is near the last change and that was in this transaction.
/// Returns the entry.
fn remove_near(
    handle: &Handle<'_>,
    dir: &InodeInfo,
    wanted: &SearchName<'_>,
) -> Result<Option<FoundEntry>> {
    let (SearchName::Exact(name), Some((logical, block))) = (wanted, dir.dir_hint.block()) else {
        return Ok(None);
    };
    edit_names_again(handle, dir, block, |bytes, layout| {
        let found = dir
            .dir_hint
            .find(&dir_slots(handle.fs, dir, block, bytes), name)?;
        let names = names_len(bytes.len(), layout);
        Ok(found.map(|(record, ino)| {
            dir_entries::remove(&mut bytes[..names], record);
            FoundEntry {
                ino,
                logical,
                block,
                record,
            }
        }))
    })
}

#[cfg(test)]
mod tests;
