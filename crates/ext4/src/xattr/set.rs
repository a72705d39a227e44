//! Setting and removing attributes.
//!
//! A change starts with a [`Plan`], so that an attribute that has no room is refused before
//! anything changes. The module `block` handles attributes in blocks, because inodes share blocks.
//! The module `ea_inode` handles values too large for inode and block.

use extern4_disk::feature::Compat;
use extern4_disk::xattr::{NameIndex, ValueSlot};
use extern4_vfs::{Errno, Inode, SpaceRights, Timespec, XattrFlags};

use crate::alloc::block_allocator::Demand;
use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::inode::publish::publish_attributes;
use crate::quota::accounts::Owners;
use crate::time::timestamp;
use crate::volume::handle::Handle;
use crate::xattr::block::{change_block, have_block_alone, leave_block};
use crate::xattr::ea_inode::{is_old_ea_inode, release_ea_inode, take_ea_inode};
use crate::xattr::get::lists;
use crate::xattr::list::{self, Plan, value_slot_for};

/// Sets the attribute with the full name `name`, or without a value removes it.
pub(crate) fn change_xattr(
    fs: &Ext4,
    inode: &Inode,
    name: &[u8],
    value: Option<&[u8]>,
    flags: XattrFlags,
    now: Timespec,
    rights: SpaceRights,
) -> Result<()> {
    let split = NameIndex::split(name).filter(|(index, _)| lists(fs, *index));
    let (index, rest) = split.ok_or(Errno::EOPNOTSUPP)?;
    if let Some(value) = value
        && let Some((slot, is_same)) = value_slot_for(fs, inode, (index, rest), value)?
    {
        if flags.contains(XattrFlags::CREATE) {
            return Err(Errno::EEXIST.into());
        }
        return if is_same { Ok(()) } else { overwrite_value(fs, inode, slot, value, now) };
    }
    let cached = inode.private::<CachedInode>();
    let mut info = cached.info();
    let _map = info.is_inline().then(|| cached.change_map());
    let _attributes = cached.change_attributes();
    let old = info.attributes(fs)?;
    match old.has(index, rest) {
        true if flags.contains(XattrFlags::CREATE) => return Err(Errno::EEXIST.into()),
        false if flags.contains(XattrFlags::REPLACE) || value.is_none() => {
            return Err(Errno::ENODATA.into());
        }
        // As in Linux, not even the time changes; a value in an inode of its own is not looked at.
        _ if old.says(index, rest, value) => return Ok(()),
        _ => {}
    }
    let plan = info.plan(fs, &old, (index, rest), value)?;
    let need = plan.need(fs);
    let tid = fs.with_handle(need.credits, Demand::new(need.blocks, rights), |handle| {
        handle.admit_plan(&info, rights, &plan)?;
        info.fields_mut().set_ctime(timestamp(now));
        apply_plan(handle, &mut info, plan)?;
        Ok(handle.tid())
    })?;
    publish_attributes(fs, inode, &info, tid)
}

/// Writes a value over the one that an attribute in the record has. A reader of attributes sees one
/// of the two values: the value changes in one step and nothing moves. So attributes need not be
/// locked.
fn overwrite_value(fs: &Ext4, inode: &Inode, slot: ValueSlot, value: &[u8], now: Timespec) -> Result<()> {
    // The record and the superblock.
    fs.with_handle(2, 0, |handle| {
        note_attributes(handle)?;
        handle.touch(inode, |fields, area| {
            fields.set_ctime(timestamp(now));
            slot.overwrite(area, value);
        })
    })
}

/// Gives up the values that attributes of a deleted inode have in EA inodes, each in a change of
/// its own. The rest, which is left for [`free_attributes`], takes few credits.
pub(crate) fn free_values(fs: &Ext4, info: &mut InodeInfo) -> Result<()> {
    if info.attributes(fs)?.first_with_ea_inode().is_none() {
        return Ok(());
    }
    // No other inode may join a block that is being taken apart.
    let _alone = fs.with_handle(2, 0, |handle| have_block_alone(handle, info))?;
    while let Some((index, name)) = info.attributes(fs)?.first_with_ea_inode() {
        let plan = info.plan(fs, &info.attributes(fs)?, (index, &name), None)?;
        let need = plan.need(fs);
        // In the block that there is.
        fs.with_handle(need.credits, 0, |handle| apply_plan(handle, info, plan))?;
    }
    Ok(())
}

/// Sets one attribute of an inode, or without a value removes it, and stores the inode. Nothing
/// happens if there is none to remove.
///
/// # Errors
/// `ENOSPC`, and nothing is changed, if it has no room.
pub(crate) fn set_attribute(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    index: NameIndex,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    let plan = info.plan(handle.fs, &info.attributes(handle.fs)?, (index, name), value)?;
    apply_plan(handle, info, plan)
}

/// Does what has been planned, and stores the inode.
pub(crate) fn apply_plan(handle: &Handle<'_>, info: &mut InodeInfo, mut plan: Plan) -> Result<()> {
    let mut made_for_block = None;
    // First, because there may be no inode.
    if let Some(value) = plan.value.take() {
        let ino = take_ea_inode(handle, info, &value)?;
        made_for_block = plan.is_value_of_block().then_some(ino);
        plan.made(ino);
        // OK: at most 64 KiB.
        charge_value(handle, info, value.len() as i64)?;
    }
    note_attributes(handle)?;
    for &(ino, size, _) in &plan.given_up {
        release_value(handle, info, ino, size)?;
    }
    if let Some(list) = &plan.block {
        change_block(handle, info, list, made_for_block)?;
    }
    match &plan.own {
        Some(list) => handle.store_with(info, |area| list::write_in_inode(list, area))??,
        None => handle.store(info)?,
    }
    // Values that a block refers to belong to the block.
    for &(ino, ..) in plan.given_up.iter().filter(|(_, _, in_block)| !in_block) {
        release_ea_inode(handle, ino, Some(info))?;
    }
    Ok(())
}

/// Gives up all attributes of an inode that is deleted. The caller stores it. After [`free_values`]
/// it changes four blocks of metadata: the attribute block, its bitmap and descriptor, and the
/// record.
pub(crate) fn free_attributes(handle: &Handle<'_>, info: &mut InodeInfo) -> Result<()> {
    let old = info.attributes(handle.fs)?;
    for (ino, size, in_block) in old.ea_inodes() {
        release_value(handle, info, ino, size)?;
        if !in_block {
            release_ea_inode(handle, ino, Some(info))?;
        }
    }
    leave_block(handle, info)?;
    if old.own.iter().any(|attribute| attribute.ea_inode().is_some()) {
        handle.store_with(info, |area| area.fill(0))?;
    }
    Ok(())
}

/// Counts `blocks` more for an inode, and for its owner: each inode that shares a block counts it.
pub(crate) fn charge_blocks(handle: &Handle<'_>, info: &mut InodeInfo, blocks: i64) -> Result<()> {
    info.add_blocks(blocks, handle.fs.superblock().block_size())
}

/// Counts what a value of `size` bytes in EA inode `ino` takes no longer: an attribute of the
/// inode with that value goes.
pub(crate) fn release_value(handle: &Handle<'_>, info: &mut InodeInfo, ino: u32, size: u32) -> Result<()> {
    if is_old_ea_inode(handle.fs, ino, info) { Ok(()) } else { charge_value(handle, info, -i64::from(size)) }
}

/// Counts the room of a value of `size` bytes in an EA inode, which each attribute with that value
/// counts. A number below 0 gives the room up.
fn charge_value(handle: &Handle<'_>, info: &mut InodeInfo, size: i64) -> Result<()> {
    let block_size = u64::from(handle.fs.superblock().block_size());
    // OK: at most 16 MiB.
    charge_blocks(handle, info, size.unsigned_abs().div_ceil(block_size) as i64 * size.signum())?;
    handle.count_for(Owners::of(info.fields()), handle.amount(0, size.signum()))
}

/// Says in the superblock that there are attributes.
fn note_attributes(handle: &Handle<'_>) -> Result<()> {
    // As it was when the volume was opened: it is only set here, and setting it again does no harm.
    if handle.fs.superblock().features().compat.contains(Compat::EXT_ATTR) {
        return Ok(());
    }
    handle.edit_superblock(|raw| raw.s_feature_compat.set((raw.features().compat | Compat::EXT_ATTR).bits()))
}
