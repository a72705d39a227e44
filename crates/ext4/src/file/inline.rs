//! Changing files whose contents live inside their inode, and giving them a block when they do not fit any more.

use extern4_disk::inode::InodeFlags;
use extern4_vfs::{Inode, SpaceRights, Timespec};

use crate::alloc::balloc::Demand;
use crate::error::Result;
use crate::file::write::{Part, WRITE_CREDITS};
use crate::inode::InodeInfo;
use crate::inode::inode_info::Node;
use crate::mount::Ext4;

impl Ext4 {
    /// Writes into the inode; false, and nothing is done, if there is no room.
    pub(crate) fn write_inline(
        &self,
        inode: &Inode,
        info: &InodeInfo,
        data: &[u8],
        offset: u64,
        now: Timespec,
    ) -> Result<bool> {
        let size = info.size().max(offset.saturating_add(data.len() as u64));
        self.change_inline(inode, info, size, now, |contents| {
            // OK: the contents have been made as long as it takes.
            let start = offset as usize;
            contents[start..start + data.len()].copy_from_slice(data);
        })
    }

    /// Changes the size; false, and nothing is done, if there is no room.
    pub(crate) fn resize_inline(
        &self,
        inode: &Inode,
        info: &InodeInfo,
        size: u64,
        now: Timespec,
    ) -> Result<bool> {
        self.change_inline(inode, info, size, now, |_| ())
    }

    /// Makes contents `size` bytes long and lets `edit` change them; false, and nothing is done, if there is no room.
    fn change_inline(
        &self,
        inode: &Inode,
        info: &InodeInfo,
        size: u64,
        now: Timespec,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<bool> {
        let room = self.inline_room(info)?.unwrap_or(0);
        let Some(size) = usize::try_from(size).ok().filter(|size| *size <= room) else { return Ok(false) };
        let mut contents = self.with_inline_data(info, |data| Ok(data.to_vec()))?;
        contents.resize(size, 0);
        edit(&mut contents);
        self.changing(2, 0, |change| {
            let _map = inode.private::<Node>().change_map();
            let mut changed = change.stamped(info.clone(), 0, now)?;
            let fits = change.set_inline_data(&mut changed, &contents)?;
            if fits {
                self.publish(inode, &changed, change.tid())?;
            }
            Ok(fits)
        })
    }

    /// Moves the contents out of the inode, to a block.
    pub(crate) fn spill_inline(&self, inode: &Inode, rights: SpaceRights) -> Result<InodeInfo> {
        let node = inode.private::<Node>();
        let info = node.info();
        let contents = self.with_inline_data(&info, |data| Ok(data.to_vec()))?;
        let part = Part { data: &contents, offset: 0, rights };
        // A record is not longer than a block.
        let blocks = u32::from(!contents.is_empty());
        self.changing(
            WRITE_CREDITS + self.credits_for_contents(&info),
            Demand::new(blocks, rights),
            |change| {
                change.admit_blocks(&info, rights, || Ok(blocks))?;
                let mut empty = info.clone();
                let flags = empty.fields().flags() - InodeFlags::INLINE_DATA;
                empty.fields_mut().set_flags(flags);
                change.empty_map(&mut empty);
                let (runs, failed) = change.claim_and_write(&empty, 0, blocks, &part, None)?;
                if let Some(error) = failed {
                    return Ok(Err(error));
                }
                let _map = node.change_map();
                let mut changed = info.clone();
                change.clear_inline_data(&mut changed)?;
                change.enter(&mut changed, &runs)?;
                change.show(inode, changed).map(Ok)
            },
        )?
    }
}
