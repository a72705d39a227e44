//! Sets and removes extended attributes.
//!
//! `InodeOps::set_xattr` calls [`change_xattr`]. A change starts with a [`Plan`], so that an
//! attribute without room is refused before anything changes. It is one transaction, and readers
//! see the old attributes or the new ones. A value that fits over the old one in the record is
//! overwritten in one step, without locks. `ops::delete` calls [`free_values`] and
//! [`free_attributes`]. The module `block` handles attributes in blocks, and `ea_inode` values that
//! are too large for inode and block.

use extern4_disk::feature::Compat;
use extern4_disk::xattr::{Attr, NameIndex, Value, ValueSlot};
use extern4_vfs::{ChangeContext, Errno, Inode, Timespec, XattrFlags};

use crate::alloc::reserve::Demand;
use crate::error::Result;
use crate::fs::Ext4;
use crate::fs::quota_accounts::Owners;
use crate::handle::Handle;
use crate::handle::publish::publish_attributes;
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::time::timestamp;
use crate::xattr::block::{change_block, have_block_alone, leave_block};
use crate::xattr::ea_inode::{check_value, is_old_ea_inode, release_ea_inode, take_ea_inode};
use crate::xattr::get::lists;
use crate::xattr::list::{self, Plan, value_slot_for};

/// Sets the attribute with the full name `name`. Removes it if `value` is `None`.
pub(crate) fn change_xattr(
    fs: &Ext4,
    inode: &Inode,
    name: &[u8],
    value: Option<&[u8]>,
    flags: XattrFlags,
    context: ChangeContext,
) -> Result<()> {
    let ChangeContext { now, rights } = context;
    let split = NameIndex::split(name).filter(|(index, _)| lists(fs, *index));
    let (index, rest) = split.ok_or(Errno::EOPNOTSUPP)?;
    if let Some(value) = value
        && let Some((slot, is_same)) = value_slot_for(fs, inode, (index, rest), value)?
    {
        if flags.contains(XattrFlags::CREATE) {
            return Err(Errno::EEXIST.into());
        }
        return if is_same {
            Ok(())
        } else {
            overwrite_value(fs, inode, slot, value, now)
        };
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
        // As in Linux, setting an equal value changes not even the time. A value in an EA inode is
        // not compared.
        _ if old.has_value(index, rest, value) => return Ok(()),
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

/// Overwrites the value of an attribute in the record. The value changes in one step and nothing
/// moves, so a reader sees one of the two values, and attributes need not be locked.
fn overwrite_value(
    fs: &Ext4,
    inode: &Inode,
    slot: ValueSlot,
    value: &[u8],
    now: Timespec,
) -> Result<()> {
    // The record and the superblock.
    fs.with_handle(2, 0, |handle| {
        note_attributes(handle)?;
        handle.touch(inode, |fields, area| {
            fields.set_ctime(timestamp(now));
            slot.overwrite(area, value);
        })
    })
}

/// Checks the attributes of an inode before they are freed with it, and the EA inodes that hold
/// values of them.
///
/// # Errors
/// A broken rule of the format, or a device that fails.
pub(crate) fn check_attributes(fs: &Ext4, info: &InodeInfo) -> Result<()> {
    let check = |attr: Attr<'_>, place| match attr.value {
        Value::EaInode { ino, .. } => check_value(fs, ino, info, place),
        Value::Here(_) => Ok(()),
    };
    let fault = info.with_attributes(fs, |attrs, place| {
        attrs
            .iter()
            .try_for_each(|attr| check(attr, place))
            .map(|()| None::<()>)
    });
    fault.map(drop)
}

/// Releases the EA inodes of a deleted inode's attributes, each in a separate transaction, so
/// that [`free_attributes`] needs few credits.
pub(crate) fn free_values(fs: &Ext4, info: &mut InodeInfo) -> Result<()> {
    if info.attributes(fs)?.first_with_ea_inode().is_none() {
        return Ok(());
    }
    // No other inode may join a block whose entries are being removed.
    let _alone = fs.with_handle(2, 0, |handle| have_block_alone(handle, info))?;
    while let Some((index, name)) = info.attributes(fs)?.first_with_ea_inode() {
        let plan = info.plan(fs, &info.attributes(fs)?, (index, &name), None)?;
        let need = plan.need(fs);
        // The plan changes the existing block, so it allocates nothing.
        fs.with_handle(need.credits, 0, |handle| apply_plan(handle, info, plan))?;
    }
    Ok(())
}

/// Sets one attribute of an inode, or without a value removes it, and stores the inode. Removing a
/// missing attribute does nothing.
///
/// # Errors
/// `ENOSPC`, without a change, if there is no room.
pub(crate) fn set_attribute(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    index: NameIndex,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    let plan = info.plan(
        handle.fs,
        &info.attributes(handle.fs)?,
        (index, name),
        value,
    )?;
    apply_plan(handle, info, plan)
}

/// Carries out a plan, and stores the inode.
pub(crate) fn apply_plan(handle: &Handle<'_>, info: &mut InodeInfo, mut plan: Plan) -> Result<()> {
    let mut made_for_block = None;
    // This comes first, because it fails if no inode is free.
    if let Some(value) = plan.value.take() {
        let ino = take_ea_inode(handle, info, &value)?;
        made_for_block = plan.is_value_of_block().then_some(ino);
        plan.made(ino);
        // OK: at most 64 KiB.
        charge_value(handle, info, value.len() as i64)?;
    }
    note_attributes(handle)?;
    for &(ino, size, _) in &plan.released {
        release_value(handle, info, ino, size)?;
    }
    if let Some(list) = &plan.block {
        change_block(handle, info, list, made_for_block)?;
    }
    match &plan.own {
        Some(list) => handle.store_with(info, |area| list::write_in_inode(list, area))??,
        None => handle.store(info)?,
    }
    // References of entries in a block belong to the block, which releases them itself.
    for &(ino, ..) in plan.released.iter().filter(|(_, _, in_block)| !in_block) {
        release_ea_inode(handle, ino, Some(info))?;
    }
    Ok(())
}

/// Releases all attributes of a deleted inode. The caller stores the inode. After [`free_values`]
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
    if old
        .own
        .iter()
        .any(|attribute| attribute.ea_inode().is_some())
    {
        handle.store_with(info, |area| area.fill(0))?;
    }
    Ok(())
}

/// Adds `blocks` to the blocks of an inode, and so to its owner's usage. Each inode that shares a
/// block counts it.
pub(crate) fn charge_blocks(handle: &Handle<'_>, info: &mut InodeInfo, blocks: i64) -> Result<()> {
    info.add_blocks(blocks, handle.fs.superblock().block_size())
}

/// Subtracts a value of `size` bytes in EA inode `ino` from the inode's blocks and its owner's
/// usage.
pub(crate) fn release_value(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    ino: u32,
    size: u32,
) -> Result<()> {
    if is_old_ea_inode(handle.fs, ino, info) {
        Ok(())
    } else {
        charge_value(handle, info, -i64::from(size))
    }
}

/// Adds a value of `size` bytes in an EA inode to the inode's blocks and its owner's usage;
/// subtracts it if `size` is negative. Each attribute with the value counts it.
fn charge_value(handle: &Handle<'_>, info: &mut InodeInfo, size: i64) -> Result<()> {
    let block_size = u64::from(handle.fs.superblock().block_size());
    // OK: at most 16 MiB.
    charge_blocks(
        handle,
        info,
        size.unsigned_abs().div_ceil(block_size) as i64 * size.signum(),
    )?;
    handle.count_for(Owners::of(info.fields()), handle.amount(0, size.signum()))
}

/// Sets the feature `ext_attr` in the superblock.
fn note_attributes(handle: &Handle<'_>) -> Result<()> {
    // This is the superblock at the open. Setting the feature again has no effect.
    if handle
        .fs
        .superblock()
        .features()
        .compat
        .contains(Compat::EXT_ATTR)
    {
        return Ok(());
    }
    handle.edit_superblock(|raw| {
        raw.s_feature_compat
            .set((raw.features().compat | Compat::EXT_ATTR).bits())
    })
}
