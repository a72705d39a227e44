//! Allocates blocks for files and metadata, and frees them.
//!
//! [`BlockAllocator::allocate`] returns blocks that were free, belong to no structure of the volume
//! and are covered by the handle's reservation. A freed block cannot be allocated again before the
//! transaction is durable. A group whose bitmap is wrong is passed over (`set_aside`). The block
//! maps, directories and attribute blocks call it with a handle open and no group locked. A call
//! locks one group at a time.

use std::ops::Range;
use std::sync::PoisonError;

use extern4_block::{Buffer, Pin};
use extern4_disk::bitmap::{self, Bitmap};
use extern4_disk::feature::RoCompat;
use extern4_disk::group::GroupFlags;
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_vfs::Errno;

use crate::alloc::block_allocator::{
    BitmapKind, BlockAllocator, Counts, DirtyGroup, Group, bad_bitmap,
};
use crate::alloc::free_map::flip;
use crate::alloc::set_aside::freed_twice;
use crate::error::Result;
use crate::handle::Handle;
use crate::inode::preallocation::Growth;
use crate::volume::group::to_usize;

/// The conditions of one pass over all groups.
#[derive(Clone, Copy)]
struct Search<'g> {
    want: u32,
    /// The growing file that gets a window after the allocated blocks.
    growth: Option<&'g Growth<'g>>,
    /// The length of that window in blocks.
    ahead: u32,
    /// The shortest run that is accepted, except at the goal.
    least: u32,
    /// Ends the windows of each group first, so that their blocks can be allocated.
    breaks_windows: bool,
}

impl<'g> Search<'g> {
    /// Returns the passes in their order. The first accepts only runs with room for everything, the
    /// second an eighth of that, and the others any run, including runs of windows. The last pass
    /// is repeated: other threads may allocate blocks in groups ahead of a pass and free blocks in
    /// groups that it has left. So one pass without a find does not prove that the volume is full.
    fn all(want: u32, growth: Option<&'g Growth<'g>>, most: u32) -> [Self; 5] {
        let ahead = growth.map_or(0, |growth| growth.ahead.min(most - want));
        let whole = Self {
            want,
            growth,
            ahead,
            least: want + ahead,
            breaks_windows: false,
        };
        let part = Self {
            least: whole.least.div_ceil(8),
            ..whole
        };
        let any = Self {
            growth: None,
            ahead: 0,
            least: 1,
            breaks_windows: true,
            ..whole
        };
        [whole, part, any, any, any]
    }

    /// Returns the length of the longest run that can be used.
    fn blocks(&self) -> u32 {
        self.want + self.ahead
    }
}

impl BlockAllocator {
    /// Returns the block of a group's bitmap, if the bitmap is part of the running transaction
    /// already, and so has been verified.
    pub(crate) fn changed_bitmap(group: &Group, which: BitmapKind) -> Option<u64> {
        let dirty = group.dirty.as_ref()?;
        let pin = match which {
            BitmapKind::Blocks => &dirty.blocks,
            BitmapKind::Inodes => &dirty.inodes,
        };
        pin.as_ref().map(Pin::number)
    }
}

impl BlockAllocator {
    /// Allocates a run of 1 to `want` blocks near block `goal`.
    ///
    /// # Errors
    /// `ENOSPC`, for a handle that has no reserved blocks left; damage, if reserved blocks are in a
    /// group that was set aside meanwhile, and no others are free.
    pub(crate) fn allocate(&self, handle: &Handle<'_>, goal: u64, want: u32) -> Result<Range<u64>> {
        self.allocate_growing(handle, goal, want, None)
    }

    /// Allocates blocks as [`allocate`](Self::allocate) does, for a growing file: from its window,
    /// or from a run that leaves room for a new window after them.
    pub(crate) fn allocate_growing(
        &self,
        handle: &Handle<'_>,
        goal: u64,
        want: u32,
        growth: Option<&Growth<'_>>,
    ) -> Result<Range<u64>> {
        let geometry = handle.fs.superblock().geometry();
        let groups = geometry.group_count();
        let goal_group = geometry.group_of_block(goal).unwrap_or(0);
        let goal_bit = geometry.cluster_in_group(goal);
        let want = want.clamp(1, geometry.blocks_per_group());
        if let Some(growth) = growth
            && let Some(found) =
                self.allocate_in_window(handle, growth, goal_group, goal_bit, want)?
        {
            return Ok(found);
        }
        for search in Search::all(want, growth, geometry.blocks_per_group()) {
            for step in 0..groups {
                let group = ((u64::from(goal_group) + u64::from(step)) % u64::from(groups)) as u32;
                let goal_bit = goal_bit.filter(|_| step == 0);
                if let Some(found) = self.allocate_in(handle, group, goal_bit, &search)? {
                    return Ok(found);
                }
            }
            if search.breaks_windows && handle.reserved.left.get() == 0 {
                return Err(Errno::ENOSPC.into());
            }
        }
        Err(bad_bitmap(BitmapKind::Blocks, goal_group))
    }

    /// Allocates blocks from the file's window, if it begins at the goal and has `want` blocks.
    /// Ends the window otherwise.
    fn allocate_in_window(
        &self,
        handle: &Handle<'_>,
        growth: &Growth<'_>,
        goal_group: u32,
        goal_bit: Option<u32>,
        want: u32,
    ) -> Result<Option<Range<u64>>> {
        let Some(number) = growth.group() else {
            return Ok(None);
        };
        let group = &mut *self.lock(handle.fs, number)?;
        let goal = goal_bit.filter(|_| number == goal_group);
        let Some(run) = goal.and_then(|goal| group.free.in_window(growth.ino(), goal, want)) else {
            group.free.end_window(growth.ino());
            return Ok(None);
        };
        let mut buffer = self.block_bitmap(handle, number, group)?;
        let blocks = self.take(handle, number, group, &mut buffer, run.clone())?;
        group.free.cut_window(growth.ino(), run.end);
        Ok(Some(blocks))
    }

    fn allocate_in(
        &self,
        handle: &Handle<'_>,
        number: u32,
        goal: Option<u32>,
        search: &Search<'_>,
    ) -> Result<Option<Range<u64>>> {
        let group = &mut *self.lock(handle.fs, number)?;
        if search.breaks_windows {
            group.free.break_windows();
        }
        // A run at the goal is accepted, however short it is.
        if group.descriptor.free_clusters() == 0
            || goal.is_none() && !group.free.may_have(search.least)
            || !self.trusts_blocks(handle.fs, number, group)?
        {
            return Ok(None);
        }
        let mut buffer = self.block_bitmap(handle, number, group)?;
        let len = handle
            .fs
            .superblock()
            .geometry()
            .group_clusters(number)
            .unwrap_or(0);
        let bitmap =
            Bitmap::new(&buffer, len).ok_or_else(|| bad_bitmap(BitmapKind::Blocks, number))?;
        let run = group.free.best_run(&bitmap, goal, search.blocks());
        let Some(run) =
            run.filter(|run| Some(run.start) == goal || run.end - run.start >= search.least)
        else {
            return Ok(None);
        };
        let end = run.end.min(run.start + search.want);
        let blocks = self.take(handle, number, group, &mut buffer, run.start..end)?;
        if let Some(growth) = search.growth.filter(|_| end < run.end) {
            group.free.open_window(growth.ino(), end..run.end);
            growth.opened(number);
        }
        Ok(Some(blocks))
    }

    /// Allocates blocks of a group, all of which are free. Locks: the group's, held.
    fn take(
        &self,
        handle: &Handle<'_>,
        number: u32,
        group: &mut Group,
        buffer: &mut Buffer,
        bits: Range<u32>,
    ) -> Result<Range<u64>> {
        let start = handle.fs.superblock().geometry().group_start(number);
        let start = start.ok_or_else(|| bad_bitmap(BitmapKind::Blocks, number))?;
        let blocks = start + u64::from(bits.start)..start + u64::from(bits.end);
        handle.writer.zones.check(&blocks)?;
        let taken = bits.end - bits.start;
        handle.reserved.take(u64::from(taken))?;
        group.free.start_at(bits.end);
        let free = group.descriptor.free_clusters().checked_sub(taken);
        group
            .descriptor
            .set_free_clusters(free.ok_or_else(|| bad_bitmap(BitmapKind::Blocks, number))?);
        self.add(Counts {
            blocks: u64::from(taken).wrapping_neg(),
            inodes: 0,
            freed: 0,
        });
        self.set_bits(
            handle,
            number,
            group,
            BitmapKind::Blocks,
            buffer,
            (bits, true),
        )?;
        Ok(blocks)
    }

    /// Frees blocks. `metadata` says that the journal may have copies of them. No thread can
    /// allocate them before the transaction is durable. Blocks in a group that is set aside stay
    /// allocated in its bitmap; a block that is free already sets its group aside.
    ///
    /// # Errors
    /// A block that belongs to a structure of the volume.
    pub(crate) fn free(
        &self,
        handle: &Handle<'_>,
        blocks: Range<u64>,
        metadata: bool,
    ) -> Result<()> {
        let allowed = handle.fs.blocks();
        if blocks.is_empty() || blocks.start < allowed.first || blocks.end > allowed.end {
            let kind = CorruptKind::BlockOutOfRange {
                field: "block",
                block: blocks.start,
            };
            return Err(Place::new(Structure::BlockBitmap).corrupt(kind).into());
        }
        handle.writer.zones.check(&blocks)?;
        let mut at = blocks.start;
        for (number, bits) in self.split(blocks) {
            let len = bits.end - bits.start;
            let part = at..at + u64::from(len);
            at = part.end;
            let group = &mut *self.lock(handle.fs, number)?;
            if !self.trusts_blocks(handle.fs, number, group)? {
                continue;
            }
            let mut buffer = self.block_bitmap(handle, number, group)?;
            if Bitmap::new(&buffer, bits.end)
                .and_then(|bitmap| bitmap.next_clear(bits.start))
                .is_some()
            {
                let fault = freed_twice(BitmapKind::Blocks, number, &bits);
                self.set_aside(number, group, BitmapKind::Blocks, fault);
                continue;
            }
            self.set_bits(
                handle,
                number,
                group,
                BitmapKind::Blocks,
                &mut buffer,
                (bits.clone(), false),
            )?;
            group
                .descriptor
                .set_free_clusters(group.descriptor.free_clusters() + len);
            group.free.hold(bits);
            self.add(Counts {
                blocks: len.into(),
                inodes: 0,
                freed: len.into(),
            });
            handle.note_freed(part, metadata);
        }
        Ok(())
    }

    /// Returns the block bitmap of a group. Initializes it if the group is `BLOCK_UNINIT`.
    fn block_bitmap(&self, handle: &Handle<'_>, number: u32, group: &mut Group) -> Result<Buffer> {
        let block = group.descriptor.block_bitmap();
        let sb = handle.fs.superblock();
        if !group.descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
            return handle.fs.read_block_bitmap(number, &group.descriptor);
        }
        let bytes = bitmap::initial_block_bitmap(number, &group.descriptor, sb.geometry())
            .ok_or_else(|| bad_bitmap(BitmapKind::Blocks, number))?;
        let mut buffer = handle.fresh(block)?;
        handle.edit(&mut buffer, |old| old.copy_from_slice(&bytes));
        handle
            .fs
            .note_verified(&buffer, crate::volume::buffer::Verified::BlockBitmap);
        group
            .descriptor
            .set_flags(group.descriptor.flags() - GroupFlags::BLOCK_UNINIT);
        self.note_changed(handle, number, group, BitmapKind::Blocks, &buffer)?;
        Ok(buffer)
    }

    /// Sets `bits` of a group's bitmap to `value`. All of them must have the other value. The
    /// group's descriptor is stored when the transaction closes. Locks: the group's, held.
    pub(crate) fn set_bits(
        &self,
        handle: &Handle<'_>,
        number: u32,
        group: &mut Group,
        which: BitmapKind,
        buffer: &mut Buffer,
        (bits, value): (Range<u32>, bool),
    ) -> Result<()> {
        if !handle.edit(buffer, |bytes| flip(bytes, bits, value)) {
            return Err(bad_bitmap(which, number));
        }
        self.note_changed(handle, number, group, which, buffer)
    }

    /// Notes that a bitmap has been changed, so that its checksum is stored when the transaction
    /// closes. Locks: the group's, held.
    pub(crate) fn note_changed(
        &self,
        handle: &Handle<'_>,
        number: u32,
        group: &mut Group,
        which: BitmapKind,
        bitmap: &Buffer,
    ) -> Result<()> {
        if group.dirty.is_none() {
            let geometry = handle.fs.superblock().geometry();
            let at = geometry
                .descriptor_position(number)
                .ok_or_else(|| bad_bitmap(which, number))?;
            let mut descriptors = handle.fs.cache.read(at.block)?;
            // Adds the block to the transaction now, so that this handle's credits pay for it and
            // it stays in memory until the transaction closes.
            handle.edit(&mut descriptors, |_| ());
            let descriptors = descriptors.pin();
            let offset = to_usize(at.offset);
            group.dirty = Some(DirtyGroup {
                descriptors,
                offset,
                blocks: None,
                inodes: None,
            });
            self.dirty
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(number);
        }
        if let Some(dirty) = &mut group.dirty {
            let pin = match which {
                BitmapKind::Blocks => &mut dirty.blocks,
                BitmapKind::Inodes => &mut dirty.inodes,
            };
            pin.get_or_insert_with(|| bitmap.pin());
        }
        Ok(())
    }

    /// Whether descriptors record how many inodes of a group have never been used.
    pub(crate) fn tracks_unused(&self, handle: &Handle<'_>) -> bool {
        let features = handle.fs.superblock().features().ro_compat;
        features.intersects(RoCompat::GDT_CSUM | RoCompat::METADATA_CSUM)
    }
}
