//! Moves attributes from a record to the inode's block, so that the record has room for the fields
//! of new inodes.
//!
//! An inode whose attributes leave that room needs none of this: `fs::inode` expands it, and its
//! next change stores it so. Linux moves attributes with any change of the inode. Here that takes a
//! further transaction, before mode, owner, times or attributes are set.

use extern4_disk::inode::new_xattr_start;
use extern4_vfs::{Errno, Inode, SpaceRights};

use crate::alloc::reserve::Demand;
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::handle::publish::publish_attributes;
use crate::inode::cached::CachedInode;
use crate::xattr::set::apply_plan;

/// Expands an inode with attributes that leave no room for the fields of new inodes, if the block
/// has room for some of the attributes. Otherwise nothing changes, as with Linux.
///
/// Locks: the VFS's for a change of attributes.
#[inline]
pub(crate) fn expand(fs: &Ext4, inode: &Inode, rights: SpaceRights) -> Result<()> {
    // Nearly always the record has had these fields from the start.
    if inode.private::<CachedInode>().xattr_range().start < new_xattr_start(fs.superblock()) {
        return move_attributes(fs, inode, rights);
    }
    Ok(())
}

#[cold]
fn move_attributes(fs: &Ext4, inode: &Inode, rights: SpaceRights) -> Result<()> {
    let cached = inode.private::<CachedInode>();
    let mut info = cached.info();
    if !info.fields().lacks_fields(fs.superblock()) || fs.changer().is_err() {
        return Ok(());
    }
    let _map = info.is_inline().then(|| cached.change_map());
    let _attributes = cached.change_attributes();
    // The caller's change may not need damaged attributes.
    let Ok(old) = info.attributes(fs) else {
        return Ok(());
    };
    // `i_blocks` has to count a new block.
    if info
        .clone()
        .add_blocks(1, fs.superblock().block_size())
        .is_err()
    {
        return Ok(());
    }
    let plan = info.fields().expanded(fs.superblock()).find_map(|fields| {
        let plan = old.plan_to_move(fields.xattr_range().len(), fs)?;
        Some((fields, plan))
    });
    let Some((fields, plan)) = plan else {
        return Ok(());
    };
    *info.fields_mut() = fields;
    let need = plan.need(fs);
    let moved = fs.with_handle(need.credits, Demand::new(need.blocks, rights), |handle| {
        handle.admit_plan(&info, rights, &plan)?;
        apply_plan(handle, &mut info, plan)?;
        Ok(handle.tid())
    });
    match moved {
        Ok(tid) => publish_attributes(fs, inode, &info, tid),
        Err(Error::Answer(Errno::ENOSPC | Errno::EDQUOT)) => Ok(()),
        Err(error) => Err(error),
    }
}
