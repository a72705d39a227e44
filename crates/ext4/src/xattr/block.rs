//! The attribute block of an inode, which other inodes may share.
//!
//! As in Linux, up to 1024 inodes with equal attributes share a block, which counts them in its
//! header. A shared block never changes. An inode whose attributes are to differ leaves the block
//! to the others.
//!
//! `xattr::set` calls [`change_block`] and [`leave_block`] in a handle. Each inode's lock
//! `attributes` is held.
//!
//! # Joining and leaving
//! A word of the block's buffer, [`Buffer::sharers`], counts the inodes that have the block. A
//! thread sets it from the header when it is first needed. From then on the word decides:
//!
//! - A joining thread increments the word and then compares the contents: now the block is neither
//!   changed nor freed. If the contents are not the wanted ones, the thread leaves again. Like any
//!   leaving thread, it may be the last.
//! - The last thread to leave closes the word, then removes the block from the cache of hints, and
//!   frees it. So no thread joins a block that is being freed, and a block that a thread has joined
//!   is not freed.
//! - A thread whose inode has the block alone closes the word while it changes the block.
//!
//! A word is lost with its buffer. A block that was found through the cache may have been freed
//! since, and its count may be unknown. So a thread that is about to set the word checks the cache
//! once more while it holds the buffer. If the entry is still there, the block had not been freed.
//!
//! # The journal
//! The header gets the word's value when the transaction closes
//! ([`crate::volume::deferred_checksum`]), while no handle is open. For that, the block has to be
//! part of the transaction as soon as the word has changed:
//!
//! - A thread that joins a block outside of the transaction adds it to the transaction only after
//!   it has joined. Adding it would cancel a revocation, and that of a freed block must stay.
//! - A thread that leaves such a block to others decrements the word inside its change of the
//!   block. So the last thread to leave comes after that change.
//! - Most shared blocks are part of the transaction already. A thread that joins or leaves one of
//!   these changes the word and nothing else ([`join_again`], [`leave_again`]). Such a block stays
//!   part of the transaction until it is freed, and if it becomes an attribute block again, it has
//!   been added again. So a thread may check for this before it has joined.

use extern4_block::{Buffer, Found};
use extern4_disk::xattr::{self, Attrs, Header, REFCOUNT_MAX, hash};
use extern4_disk::{Place, Structure};
use extern4_sync::closable_refcount::{ClosableRefcount, Put, TryGet};
use extern4_sync::primitive::AtomicU32;
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_vfs::Errno;

use crate::error::Result;
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::mbcache::sharing::Count;
use crate::volume::buffer::Verified;
use crate::volume::deferred_checksum;
use crate::xattr::ea_inode::{release_ea_inode, share_ea_inode};
use crate::xattr::get::attribute_block_at;
use crate::xattr::list::{Attribute, borrowed};
use crate::xattr::set::{charge_blocks, release_value};

/// Adds the attribute block of `info` to the cache, so that other inodes can share it. Locks: the
/// inode's `attributes`, held, so `info` stays current.
pub(crate) fn note_block(fs: &Ext4, info: &InodeInfo) {
    let (Some(writer), Some(block)) = (fs.writer.get(), info.fields().xattr_block()) else {
        return;
    };
    let Ok(hash) = fs.cache.with(block, xattr::stored_hash) else {
        return;
    };
    if hash != 0 {
        writer.sharing.blocks.insert(hash, block);
    }
}

/// Returns the first block of the group of inode `ino`.
fn home_of(fs: &Ext4, ino: u32) -> u64 {
    let geometry = fs.superblock().geometry();
    geometry
        .inode_slot(ino)
        .and_then(|slot| geometry.group_start(slot.group))
        .unwrap_or(0)
}

/// Makes `list` the attributes in the inode's block. It takes an existing block with these
/// attributes, or changes the inode's block if no other inode shares it, or makes a new one. `made`
/// is the EA inode of a new entry, which has a reference already.
pub(crate) fn change_block(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    list: &[Attribute],
    made: Option<u32>,
) -> Result<()> {
    if list.is_empty() {
        return leave_block(handle, info);
    }
    let deleted = has_closed_block(handle, info)?;
    let hash = hash::entries(list.iter().map(|attribute| attribute.as_attr().hash));
    if !deleted && let Some(block) = join_block(handle, list, hash)? {
        leave_block(handle, info)?;
        put_block(handle, info, block)?;
        // The shared block has a reference already.
        return match made {
            Some(ino) => release_ea_inode(handle, ino, Some(info)),
            None => Ok(()),
        };
    }
    let mut values: Vec<_> = list
        .iter()
        .filter_map(Attribute::ea_inode)
        .map(|(ino, _)| ino)
        .collect();
    remove_one(&mut values, made);
    if let Some((buffer, place)) = info.attribute_block(handle.fs)?
        && close(&buffer, place)?
    {
        return change_in_place(
            handle,
            info,
            buffer,
            &NewContents { list, hash, values },
            deleted,
        );
    }
    // Before the old block is left, because its references may be the last ones.
    for ino in values {
        share_ea_inode(handle, ino, place_of(info))?;
    }
    let mut buffer = new_attr_block(handle, info)?;
    write_block(handle, &mut buffer, list, hash)?;
    handle.writer.sharing.note(Count::BlocksMade);
    open(handle, &buffer);
    leave_block(handle, info)?;
    put_block(handle, info, buffer.number())
}

/// Whether the inode is being deleted, and its block is closed for that.
fn has_closed_block(handle: &Handle<'_>, info: &InodeInfo) -> Result<bool> {
    if info.fields().links() > 0 {
        return Ok(false);
    }
    let old = info.attribute_block(handle.fs)?;
    Ok(old.is_some_and(|(buffer, _)| buffer.sharers().snapshot().is_closed()))
}

/// Returns a new, closed block near the inode's present one, or in the inode's group. Freed
/// attribute blocks are held until the transaction is durable, and there may be many. So the search
/// starts where the last one in this transaction ended.
fn new_attr_block(handle: &Handle<'_>, info: &InodeInfo) -> Result<Buffer> {
    let geometry = handle.fs.superblock().geometry();
    let near = info
        .fields()
        .xattr_block()
        .unwrap_or_else(|| home_of(handle.fs, info.ino()));
    let group = geometry.group_of_block(near);
    let start = handle.writer.sharing.search_start(group, handle.tid());
    let goal = start
        .filter(|block| geometry.group_of_block(*block) == group)
        .unwrap_or(near);
    let block = handle.writer.allocator.allocate(handle, goal, 1)?.start;
    handle
        .writer
        .sharing
        .set_search_start(group, handle.tid(), block + 1);
    let buffer = handle.fresh(block)?;
    // A thread that has found the block with its former contents may still use the word.
    buffer.sharers().reset();
    Ok(buffer)
}

/// Changes a closed block, which one inode has.
fn change_in_place(
    handle: &Handle<'_>,
    info: &InodeInfo,
    mut buffer: Buffer,
    new: &NewContents<'_>,
    deleted: bool,
) -> Result<()> {
    let mut released = values_of(&Attrs::in_block(&buffer, place_of(info))?.1);
    for ino in &new.values {
        remove_one(&mut released, Some(*ino));
    }
    handle
        .writer
        .sharing
        .blocks
        .remove(xattr::stored_hash(&buffer), buffer.number());
    write_block(handle, &mut buffer, new.list, new.hash)?;
    if !deleted {
        open(handle, &buffer);
    }
    released
        .into_iter()
        .try_for_each(|ino| release_ea_inode(handle, ino, Some(info)))
}

/// Removes the inode's attribute block. If no other inode shares it, frees it and releases the
/// values that it refers to.
pub(crate) fn leave_block(handle: &Handle<'_>, info: &mut InodeInfo) -> Result<()> {
    let Some(block) = info.fields().xattr_block() else {
        return Ok(());
    };
    let place = place_of(info).block(block);
    let left = match leave_again(handle, block) {
        Some(left) => left?,
        None => leave_first(
            handle,
            &mut attribute_block_at(handle.fs, block, place)?,
            place,
        )?,
    };
    if left == Put::Last {
        free_attr_block(handle, block, Some(info))?;
    }
    info.fields_mut().set_xattr_block(None);
    charge_blocks(handle, info, -1)
}

/// Frees an attribute block that no inode has any more, and releases the values that it refers to.
/// `owner` was the last inode.
fn free_attr_block(handle: &Handle<'_>, block: u64, owner: Option<&InodeInfo>) -> Result<()> {
    let place = owner
        .map_or(Place::new(Structure::Xattr), place_of)
        .block(block);
    let values =
        values_of(&Attrs::in_block(&attribute_block_at(handle.fs, block, place)?, place)?.1);
    handle
        .writer
        .allocator
        .free(handle, block..block + 1, true)?;
    values
        .into_iter()
        .try_for_each(|ino| release_ea_inode(handle, ino, owner))
}

/// Makes sure that no inode joins the attribute block of a deleted inode, as long as the returned
/// buffer is held. Leaves the block if other inodes have it.
pub(crate) fn have_block_alone(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
) -> Result<Option<Buffer>> {
    let Some((mut buffer, place)) = info.attribute_block(handle.fs)? else {
        return Ok(None);
    };
    if leave_first(handle, &mut buffer, place)? == Put::Last {
        return Ok(Some(buffer));
    }
    let old = info.attributes(handle.fs)?;
    for (ino, size, _) in old.ea_inodes().filter(|(_, _, in_block)| *in_block) {
        release_value(handle, info, ino, size)?;
    }
    info.fields_mut().set_xattr_block(None);
    charge_blocks(handle, info, -1)?;
    handle.store(info)?;
    Ok(None)
}

/// Leaves the inode's block. If the inode was the last to have it, no lookup finds the block any
/// more.
fn leave_first(handle: &Handle<'_>, buffer: &mut Buffer, place: Place) -> Result<Put> {
    let block = buffer.number();
    let hash = xattr::stored_hash(buffer);
    let leave = || {
        Ok(if close(buffer, place)? {
            Put::Last
        } else {
            leave_in_change(handle, buffer)
        })
    };
    handle.writer.sharing.blocks.leave(hash, block, leave)
}

/// Leaves a block that is part of the transaction and marked as shared; `None` for any other block.
fn leave_again(handle: &Handle<'_>, block: u64) -> Option<Result<Put>> {
    let left = handle.fs.cache.with_found(block, |found| {
        if !is_part(handle, &found) || found.flags().load(Relaxed) & IS_SHARED == 0 {
            return None;
        }
        handle.note_begun();
        let hash = found.look(xattr::stored_hash);
        Some(
            handle
                .writer
                .sharing
                .blocks
                .leave(hash, block, || Ok(found.sharers().put())),
        )
    });
    left.flatten()
}

/// Whether `found` is an attribute block that is part of the transaction.
fn is_part(handle: &Handle<'_>, found: &Found<'_>) -> bool {
    // Relaxed: the flag guards no other memory.
    handle.has(found.tag()) && found.flags().load(Relaxed) & Verified::XattrBlock as u32 != 0
}

/// Closes the word of a block that the inode has. Returns false if other inodes have the block.
fn close(buffer: &Buffer, place: Place) -> Result<bool> {
    let sharers = buffer.sharers();
    let seen = buffer.sharers().snapshot();
    if !seen.is_known() {
        sharers.set(seen, Attrs::in_block(buffer, place)?.0.refcount);
    }
    Ok(sharers.try_close())
}

/// Leaves a shared block to the others, as a change of the block. If they have left meanwhile, this
/// thread is the last.
fn leave_in_change(handle: &Handle<'_>, buffer: &mut Buffer) -> Put {
    let pin = buffer.pin();
    note_shared(buffer.flags());
    edit_block(handle, buffer, |_| pin.sharers().put())
}

/// Opens the word of a block that the inode has alone, so that other inodes can share it.
fn open(handle: &Handle<'_>, buffer: &Buffer) {
    // Relaxed: the flag is a hint.
    if buffer.flags().load(Relaxed) & IS_SHARED != 0 {
        buffer.flags().fetch_and(!IS_SHARED, Relaxed);
    }
    buffer.sharers().open();
    let hash = xattr::stored_hash(buffer);
    if hash != 0 {
        handle.writer.sharing.blocks.insert(hash, buffer.number());
    }
}

/// Finds a block that holds `list`, whose hash is `hash`, and joins it.
fn join_block(handle: &Handle<'_>, list: &[Attribute], hash: u32) -> Result<Option<u64>> {
    if hash == 0 {
        return Ok(None);
    }
    let wanted = WantedContents { list, hash };
    let mut last_of = Vec::new();
    let join = |block, is_there: &dyn Fn() -> bool| {
        let again = join_again(handle, block, &wanted);
        // A block that cannot be read is not shared.
        let came = again.unwrap_or_else(|| {
            join_first(handle, block, is_there, &wanted).unwrap_or(JoinResult::Not)
        });
        if came == JoinResult::Last {
            last_of.push(block);
        }
        came == JoinResult::Joined
    };
    let found = handle.writer.sharing.blocks.find(hash, join);
    // Freeing removes cache entries, so it waits for the end of the search.
    last_of
        .into_iter()
        .try_for_each(|block| free_unwanted(handle, block))?;
    Ok(found)
}

/// Joins attribute block `block`, if it is part of the transaction and has the wanted contents.
/// `None` if it is not part.
fn join_again(handle: &Handle<'_>, block: u64, wanted: &WantedContents<'_>) -> Option<JoinResult> {
    let came = handle.fs.cache.with_found(block, |found| {
        if !is_part(handle, &found) {
            return None;
        }
        let holds = || found.look(|bytes| wanted.is_held_by(bytes, block));
        join_by(handle, found.sharers(), found.flags(), block, wanted, holds)
    });
    came.flatten()
}

/// Joins any attribute block that is still in the cache, if it has the wanted contents.
fn join_first(
    handle: &Handle<'_>,
    block: u64,
    is_there: &dyn Fn() -> bool,
    wanted: &WantedContents<'_>,
) -> Result<JoinResult> {
    let place = Place::new(Structure::Xattr).block(block);
    let mut buffer = attribute_block_at(handle.fs, block, place)?;
    let pin = buffer.pin();
    let seen = pin.sharers().snapshot();
    // This thread holds the buffer now. If the entry is still there, the block has not been freed,
    // so the count in its header is valid.
    if !is_there() {
        return Ok(JoinResult::Not);
    }
    pin.sharers()
        .set(seen, Attrs::in_block(&pin.buffer(), place)?.0.refcount);
    let holds = || wanted.is_held_by(&pin.buffer(), block);
    let came = join_by(handle, pin.sharers(), buffer.flags(), block, wanted, holds);
    if came == Some(JoinResult::Joined) {
        edit_block(handle, &mut buffer, |_| ());
    }
    Ok(came.unwrap_or(JoinResult::Not))
}

/// Joins a block, and leaves it again if it does not have the wanted contents. `None` if the
/// block's count is unknown.
fn join_by(
    handle: &Handle<'_>,
    sharers: &ClosableRefcount,
    flags: &AtomicU32,
    block: u64,
    wanted: &WantedContents<'_>,
    holds: impl FnOnce() -> bool,
) -> Option<JoinResult> {
    let sharing = &handle.writer.sharing;
    match sharers.try_get(REFCOUNT_MAX) {
        TryGet::Unknown => return None,
        TryGet::Closed => return Some(JoinResult::Not),
        TryGet::Got if holds() => {
            handle.note_begun();
            note_shared(flags);
            sharing.note(Count::BlocksShared);
            return Some(JoinResult::Joined);
        }
        TryGet::Got => sharing.note(Count::Differing),
        // If another inode leaves before the mark is set, `note_left` below clears it.
        TryGet::Full => sharing.blocks.set_full(wanted.hash, block, true),
    }
    let left = sharers.put();
    sharing.blocks.note_left(wanted.hash, block, left);
    Some(if left == Put::Last {
        JoinResult::Last
    } else {
        JoinResult::Not
    })
}

/// Frees a block that all others left while this thread compared its contents.
#[cold]
fn free_unwanted(handle: &Handle<'_>, block: u64) -> Result<()> {
    let hash = handle.fs.cache.with(block, xattr::stored_hash)?;
    handle.writer.sharing.blocks.remove(hash, block);
    free_attr_block(handle, block, None)
}

/// Sets the attribute block of an inode that has none.
fn put_block(handle: &Handle<'_>, info: &mut InodeInfo, block: u64) -> Result<()> {
    info.fields_mut().set_xattr_block(Some(block));
    charge_blocks(handle, info, 1)
}

/// Writes the attributes of one inode to its own block.
fn write_block(
    handle: &Handle<'_>,
    buffer: &mut Buffer,
    list: &[Attribute],
    hash: u32,
) -> Result<()> {
    let header = Header { refcount: 1, hash };
    let encode = |bytes: &mut [u8]| xattr::encode_in_block(&header, &borrowed(list), bytes);
    edit_block(handle, buffer, encode).map_err(|_| Errno::ENOSPC)?;
    handle.fs.note_verified(buffer, Verified::XattrBlock);
    Ok(())
}

/// Changes an attribute block, and defers its checksum and count.
fn edit_block<R>(handle: &Handle<'_>, buffer: &mut Buffer, edit: impl FnOnce(&mut [u8]) -> R) -> R {
    let number = buffer.number();
    handle.edit_unsealed(buffer, |bytes, unsealed| {
        deferred_checksum::defer_attributes(unsealed, number);
        edit(bytes)
    })
}

/// The new contents of a block: attributes, their hash, and the EA inodes that they refer to.
struct NewContents<'l> {
    list: &'l [Attribute],
    hash: u32,
    values: Vec<u32>,
}

/// The contents that a block must have to be joined.
struct WantedContents<'l> {
    list: &'l [Attribute],
    hash: u32,
}

impl WantedContents<'_> {
    fn is_held_by(&self, bytes: &[u8], block: u64) -> bool {
        let place = Place::new(Structure::Xattr).block(block);
        Attrs::in_block(bytes, place).is_ok_and(|(header, attrs)| {
            header.hash == self.hash && attrs.iter().eq(self.list.iter().map(Attribute::as_attr))
        })
    }
}

/// The result of joining a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinResult {
    Joined,
    /// The block was not joined.
    Not,
    /// The block did not match, and all others have left it meanwhile: the caller frees it.
    Last,
}

/// A flag of a buffer: several inodes have had the block at the same time. An inode that leaves it
/// need not try to close it.
const IS_SHARED: u32 = 1 << 31;

fn note_shared(flags: &AtomicU32) {
    // Relaxed: the flag is a hint.
    if flags.load(Relaxed) & IS_SHARED == 0 {
        flags.fetch_or(IS_SHARED, Relaxed);
    }
}

fn place_of(info: &InodeInfo) -> Place {
    Place::new(Structure::Xattr).ino(info.ino())
}

/// Returns the EA inodes that a block refers to, once for each entry that does.
fn values_of(attrs: &Attrs<'_>) -> Vec<u32> {
    let ino = |value| match value {
        xattr::Value::EaInode { ino, .. } => Some(ino),
        xattr::Value::Here(_) => None,
    };
    attrs.iter().filter_map(|attr| ino(attr.value)).collect()
}

fn remove_one(from: &mut Vec<u32>, ino: Option<u32>) {
    if let Some(at) = from.iter().position(|other| Some(*other) == ino) {
        from.swap_remove(at);
    }
}
