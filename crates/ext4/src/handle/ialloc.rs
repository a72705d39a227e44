//! Allocates inodes and frees them.
//!
//! A file gets an inode in the group of its directory. Directories are spread as Orlov proposed:
//! one in the root goes to a group with more free inodes and blocks than the average, any other one
//! into the group of its parent. Threads that find their group locked use other groups of the
//! flexible group
//! ([`BlockAllocator::lock_near`](crate::alloc::block_allocator::BlockAllocator::lock_near)).
//!
//! `ops::create`, `xattr::ea_inode` and `ops::delete` call it inside a handle. A new inode was free
//! in a verified bitmap, and its number comes with a new generation. Its record is not cleared.

use extern4_block::Buffer;
use extern4_disk::bitmap::Bitmap;
use extern4_disk::geometry::InodeSlot;
use extern4_disk::group::GroupFlags;
use extern4_disk::inode::ROOT_INO;
use extern4_vfs::Errno;

use crate::alloc::block_allocator::{BitmapKind, BlockAllocator, Group, bad_bitmap};
use crate::alloc::free_map::flip;
use crate::alloc::set_aside::freed_twice;
use crate::alloc::trust::Trust;
use crate::error::Result;
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::volume::buffer::Verified;

/// Whether inode `ino` is taken, by its group's bitmap.
pub(crate) fn is_inode_taken(fs: &Ext4, ino: u32) -> Result<bool> {
    let Some(slot) = fs.superblock().geometry().inode_slot(ino) else {
        return Ok(false);
    };
    let descriptor = fs.group(slot.group)?;
    if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
        return Ok(false);
    }
    let bytes = fs.read_inode_bitmap(slot.group, descriptor)?;
    Ok(Bitmap::new(&bytes, slot.index + 1)
        .and_then(|bits| bits.get(slot.index))
        .unwrap_or(false))
}

impl BlockAllocator {
    /// Allocates an inode for a file in directory `parent`, and counts it as a directory if
    /// `is_dir`. Returns its number and a generation, which distinguishes it from former inodes of
    /// that number. Its record still holds the fields of the last one.
    ///
    /// # Errors
    /// `ENOSPC`, if no group that is not set aside has a free inode.
    pub(crate) fn allocate_inode(
        &self,
        handle: &Handle<'_>,
        parent: u32,
        is_dir: bool,
    ) -> Result<(u32, u32)> {
        let geometry = handle.fs.superblock().geometry();
        let groups = geometry.group_count();
        let home = geometry.inode_slot(parent).map_or(0, |slot| slot.group);
        let home = if is_dir {
            self.group_for_directory(handle, parent, home)?
        } else {
            home
        };
        let first = {
            let (near, mut group) = self.lock_near(handle.fs, home)?;
            if let Some(taken) = self.allocate_inode_in(handle, near, &mut group, is_dir)? {
                return Ok(taken);
            }
            near
        };
        for step in 1..groups {
            let number = ((u64::from(first) + u64::from(step)) % u64::from(groups)) as u32;
            let group = &mut *self.lock(handle.fs, number)?;
            if let Some(taken) = self.allocate_inode_in(handle, number, group, is_dir)? {
                return Ok(taken);
            }
        }
        Err(Errno::ENOSPC.into())
    }

    /// Returns the group where the search for a new directory begins.
    fn group_for_directory(&self, handle: &Handle<'_>, parent: u32, home: u32) -> Result<u32> {
        if parent != ROOT_INO {
            return Ok(home);
        }
        let groups = handle.fs.superblock().geometry().group_count();
        let inodes = self.free_inodes() / u64::from(groups);
        let blocks = self.free_blocks() / u64::from(groups);
        // The search can start in any group. A counter makes each start differ from the last.
        let first = handle.writer.next_spread() % groups;
        for step in 0..groups.min(64) {
            let group = ((u64::from(first) + u64::from(step)) % u64::from(groups)) as u32;
            let near = self.lock(handle.fs, group)?;
            if u64::from(near.descriptor.free_inodes()) >= inodes.max(1)
                && u64::from(near.descriptor.free_clusters()) >= blocks
                && near.blocks != Trust::SetAside
                && near.inodes != Trust::SetAside
            {
                return Ok(group);
            }
        }
        Ok(home)
    }

    fn allocate_inode_in(
        &self,
        handle: &Handle<'_>,
        number: u32,
        group: &mut Group,
        is_dir: bool,
    ) -> Result<Option<(u32, u32)>> {
        let Some(free) = group.descriptor.free_inodes().checked_sub(1) else {
            return Ok(None);
        };
        if !self.trusts_inodes(handle.fs, number, group)? {
            return Ok(None);
        }
        let sb = handle.fs.superblock();
        let per_group = sb.geometry().inodes_per_group();
        // The search skips the reserved inodes, although the bitmap should mark them as used: a
        // damaged one may not.
        let reserved = sb.reserved_inodes(number);
        let first = group.first_free_inode.max(reserved);
        let free_bit = |bytes: &[u8]| Bitmap::new(bytes, per_group)?.next_clear(first);
        let taken = match Self::changed_bitmap(group, BitmapKind::Inodes) {
            // Cheaper than getting a buffer of the bitmap.
            Some(block) => handle.edit_at(block, |bytes, _| {
                free_bit(bytes).filter(|&index| flip(bytes, index..index + 1, true))
            })?,
            None => {
                let mut buffer = self.inode_bitmap(handle, number, group)?;
                let index =
                    free_bit(&buffer).ok_or_else(|| bad_bitmap(BitmapKind::Inodes, number))?;
                self.set_bits(
                    handle,
                    number,
                    group,
                    BitmapKind::Inodes,
                    &mut buffer,
                    (index..index + 1, true),
                )?;
                Some(index)
            }
        };
        let index = taken.ok_or_else(|| bad_bitmap(BitmapKind::Inodes, number))?;
        group.first_free_inode = index + 1;
        group.descriptor.set_free_inodes(free);
        if is_dir {
            group
                .descriptor
                .set_used_dirs(group.descriptor.used_dirs() + 1);
        }
        if self.tracks_unused(handle) {
            let unused = group.descriptor.unused_inodes().min(per_group - index - 1);
            group.descriptor.set_unused_inodes(unused);
        }
        self.count_inode_taken();
        let ino = sb.geometry().inode_number(InodeSlot {
            group: number,
            index,
        });
        Ok(Some((
            ino.ok_or_else(|| bad_bitmap(BitmapKind::Inodes, number))?,
            group.next_generation(),
        )))
    }

    /// Frees inode `ino`. In a group that is set aside it stays allocated in the bitmap; an inode
    /// that is free already sets its group aside.
    pub(crate) fn free_inode(&self, handle: &Handle<'_>, ino: u32, is_dir: bool) -> Result<()> {
        let geometry = handle.fs.superblock().geometry();
        let slot = geometry
            .inode_slot(ino)
            .ok_or_else(|| bad_bitmap(BitmapKind::Inodes, 0))?;
        let group = &mut *self.lock(handle.fs, slot.group)?;
        if !self.trusts_inodes(handle.fs, slot.group, group)? {
            return Ok(());
        }
        let bit = slot.index..slot.index + 1;
        let was_taken = match Self::changed_bitmap(group, BitmapKind::Inodes) {
            Some(block) => handle.edit_at(block, |bytes, _| flip(bytes, bit.clone(), false))?,
            None => {
                let mut buffer = self.inode_bitmap(handle, slot.group, group)?;
                let was_taken = Bitmap::new(&buffer, bit.end).and_then(|bits| bits.get(bit.start));
                if was_taken == Some(true) {
                    let bits = (bit.clone(), false);
                    self.set_bits(
                        handle,
                        slot.group,
                        group,
                        BitmapKind::Inodes,
                        &mut buffer,
                        bits,
                    )?;
                }
                was_taken == Some(true)
            }
        };
        if !was_taken {
            let fault = freed_twice(BitmapKind::Inodes, slot.group, &bit);
            self.set_aside(slot.group, group, BitmapKind::Inodes, fault);
            return Ok(());
        }
        group.first_free_inode = group.first_free_inode.min(slot.index);
        group
            .descriptor
            .set_free_inodes(group.descriptor.free_inodes() + 1);
        if is_dir {
            group
                .descriptor
                .set_used_dirs(group.descriptor.used_dirs().saturating_sub(1));
        }
        self.count_inode_freed();
        Ok(())
    }

    /// Returns the inode bitmap of a group. Initializes it if the group is `INODE_UNINIT`.
    fn inode_bitmap(&self, handle: &Handle<'_>, number: u32, group: &mut Group) -> Result<Buffer> {
        let block = group.descriptor.inode_bitmap();
        let sb = handle.fs.superblock();
        if !group.descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            return handle.fs.read_inode_bitmap(number, &group.descriptor);
        }
        let per_group = sb.geometry().inodes_per_group();
        let mut buffer = handle.fresh(block)?;
        // Bits after the last inode are set, as the format demands.
        handle.edit(&mut buffer, |bytes| {
            flip(bytes, per_group..sb.block_size() * 8, true)
        });
        handle.fs.note_verified(&buffer, Verified::InodeBitmap);
        group
            .descriptor
            .set_flags(group.descriptor.flags() - GroupFlags::INODE_UNINIT);
        group.descriptor.set_unused_inodes(per_group);
        self.note_changed(handle, number, group, BitmapKind::Inodes, &buffer)?;
        Ok(buffer)
    }

    /// Clears the record of an inode that has just been allocated, so that no field of a former
    /// inode remains.
    pub(crate) fn clear_record(&self, handle: &Handle<'_>, ino: u32) -> Result<()> {
        let at = handle.fs.inode_position(ino)?;
        handle.edit_record(ino, at, |record, _| record.fill(0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extern4_block::{FileDevice, FileOptions};
    use extern4_testkit::image::ImageSpec;

    use super::*;
    use crate::fs::options::OpenOptions;

    /// Returns the group of a new file in the root, which stays allocated.
    fn group_of_new_file(fs: &Ext4) -> u32 {
        let taken = fs.with_handle(8, 0, |handle| {
            handle
                .writer
                .allocator
                .allocate_inode(handle, ROOT_INO, false)
        });
        fs.superblock()
            .geometry()
            .inode_slot(taken.unwrap().0)
            .unwrap()
            .group
    }

    #[test]
    fn threads_that_meet_in_a_group_go_apart() {
        let spec = ImageSpec::new("lanes", 32 << 20, &["-t", "ext4", "-b", "1024", "-G", "4"]);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let device = FileDevice::open_with(
            &image.path,
            &FileOptions {
                write: true,
                ..FileOptions::default()
            },
        );
        let fs =
            Ext4::open_for_writing(Arc::new(device.unwrap()), &OpenOptions::default()).unwrap();
        assert_eq!((group_of_new_file(&fs), group_of_new_file(&fs)), (0, 0));
        let mine = fs.writer().unwrap().allocator.lock(&fs, 0).unwrap();
        // Each thread goes to its own group, whatever numbers the threads have.
        let all = std::sync::Barrier::new(3);
        let work = || {
            let group = group_of_new_file(&fs);
            all.wait();
            group
        };
        let groups = std::thread::scope(|scope| {
            [(); 3]
                .map(|()| scope.spawn(work))
                .map(|it| it.join().unwrap())
        });
        drop(mine);
        let mut apart = groups;
        apart.sort_unstable();
        assert_eq!(apart, [1, 2, 3], "{groups:?}");
        assert_eq!(
            group_of_new_file(&fs),
            0,
            "a thread that has met no other stays"
        );
        fs.close().unwrap();
    }
}
