//! Changes files whose contents are inside their inode, and moves contents to a block when they no
//! longer fit.
//!
//! `write` and `fallocate` call these functions with `rwsem` held exclusively. [`write_inline`] and
//! [`resize_inline`] return false, without a change, if the inode has no room; then the caller
//! calls [`spill_inline`]. Each function makes its change in one transaction.

use extern4_disk::inode::InodeFlags;
use extern4_vfs::{Inode, SpaceRights, Timespec};

use crate::alloc::reserve::Demand;
use crate::error::Result;
use crate::file::write::{WRITE_CREDITS, WriteRange, claim_and_write, stamped, store_and_publish};
use crate::fs::Ext4;
use crate::handle::publish::publish;
use crate::inline::change::{clear_inline_data, set_inline_data};
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::map::change::insert_runs;
use crate::map::map_blocks::empty_map;

/// Writes into the inode. Returns false, without a change, if it has no room.
pub(crate) fn write_inline(
    fs: &Ext4,
    inode: &Inode,
    info: &InodeInfo,
    data: &[u8],
    offset: u64,
    now: Timespec,
) -> Result<bool> {
    let size = info.size().max(offset.saturating_add(data.len() as u64));
    change_inline(fs, inode, info, size, now, |contents| {
        // OK: `change_inline` has made the contents long enough.
        let start = offset as usize;
        contents[start..start + data.len()].copy_from_slice(data);
    })
}

/// Changes the size. Returns false, without a change, if the inode has no room.
pub(crate) fn resize_inline(
    fs: &Ext4,
    inode: &Inode,
    info: &InodeInfo,
    size: u64,
    now: Timespec,
) -> Result<bool> {
    change_inline(fs, inode, info, size, now, |_| ())
}

/// Makes contents `size` bytes long and calls `edit` to change them. Returns false, without a
/// change, if the inode has no room.
fn change_inline(
    fs: &Ext4,
    inode: &Inode,
    info: &InodeInfo,
    size: u64,
    now: Timespec,
    edit: impl FnOnce(&mut [u8]),
) -> Result<bool> {
    let room = info.inline_room(fs)?.unwrap_or(0);
    let Some(size) = usize::try_from(size).ok().filter(|size| *size <= room) else {
        return Ok(false);
    };
    let mut contents = info.with_inline_data(fs, |data| Ok(data.to_vec()))?;
    contents.resize(size, 0);
    edit(&mut contents);
    fs.with_handle(2, 0, |handle| {
        let _map = inode.private::<CachedInode>().change_map();
        let mut changed = stamped(handle, info.clone(), 0, now)?;
        let fits = set_inline_data(handle, &mut changed, &contents)?;
        if fits {
            publish(fs, inode, &changed, handle.tid())?;
        }
        Ok(fits)
    })
}

/// Moves the contents from the inode to a block.
pub(crate) fn spill_inline(fs: &Ext4, inode: &Inode, rights: SpaceRights) -> Result<InodeInfo> {
    let cached = inode.private::<CachedInode>();
    let info = cached.info();
    let contents = info.with_inline_data(fs, |data| Ok(data.to_vec()))?;
    let part = WriteRange {
        data: &contents,
        offset: 0,
        rights,
    };
    // Inline contents fit into a block, since a record does.
    let blocks = u32::from(!contents.is_empty());
    fs.with_handle(
        WRITE_CREDITS + info.credits_for_contents(fs),
        Demand::new(blocks, rights),
        |handle| {
            handle.admit_blocks(&info, rights, || Ok(blocks))?;
            let mut empty = info.clone();
            let flags = empty.fields().flags() - InodeFlags::INLINE_DATA;
            empty.fields_mut().set_flags(flags);
            empty_map(handle, &mut empty);
            let (runs, failed) = claim_and_write(handle, &empty, 0, blocks, &part, None)?;
            if let Some(error) = failed {
                return Ok(Err(error));
            }
            let _map = cached.change_map();
            let mut changed = info.clone();
            clear_inline_data(handle, &mut changed)?;
            insert_runs(handle, &mut changed, &runs)?;
            store_and_publish(handle, inode, changed).map(Ok)
        },
    )?
}
