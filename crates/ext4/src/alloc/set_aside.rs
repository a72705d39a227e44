//! Groups that are set aside, because a bitmap or the descriptor is wrong.
//!
//! Before the first block or inode of a group is allocated or freed, its bitmap is examined. A
//! wrong bitmap sets the group aside for blocks or for inodes, a wrong descriptor for both.
//! Allocation passes over such a group, and its free blocks are neither promised nor shown. Blocks
//! and inodes that are freed in it stay allocated in the bitmap, until `e2fsck` computes the bitmap
//! again. The operation that frees goes on, as in Linux: the file gives up its blocks, and quotas
//! count that.
//!
//! A bitmap is wrong in one of these ways:
//! - Its checksum does not match.
//! - It has free blocks among the blocks that [`SystemZones`] names.
//! - It has another number of free blocks or inodes than the descriptor says.
//! - A block or an inode that is to be freed is free already.
//!
//! The allocator only [notes](BlockAllocator::note_fault) a fault. The operation that met it
//! records it in the superblock when it ends (`handle`), because that is a change, too.
//!
//! # Promises
//! A bitmap is read when its group is first needed, so most groups have not been examined when an
//! operation reserves blocks. [`Offer`] knows how many of the free blocks are in such groups. A
//! reservation never counts on them: it [examines](BlockAllocator::reserve) more groups first. So
//! an operation that has reserved blocks finds them, even if it then meets a damaged bitmap. One
//! case remains: a group that has been examined turns out to be damaged later, because a block is
//! freed twice, while operations have reserved all blocks of the other groups.
//!
//! [`Offer`]: crate::alloc::trust::Offer

use std::ops::Range;
use std::sync::PoisonError;

use extern4_disk::bitmap::{self, Bitmap};
use extern4_disk::geometry::Geometry;
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};
use extern4_sync::primitive::Ordering;

use crate::alloc::block_allocator::{BitmapKind, BlockAllocator, Counts, Group};
use crate::alloc::reserve::Demand;
use crate::alloc::trust::Trust;
use crate::error::{Error, Result};
use crate::volume::Volume;
use crate::volume::system_zone::SystemZones;

impl BlockAllocator {
    /// Examines groups until one operation can reserve `demand`. Returns whether it has.
    #[cold]
    pub(crate) fn reserve_slowly(&self, volume: &Volume, demand: Demand) -> Result<bool> {
        let groups = volume.superblock().geometry().group_count();
        let blocks = u64::from(demand.blocks);
        let least = self.block_reserve.to_leave(demand.reserve);
        // Relaxed, here and below: a group that another thread is examining is locked, and this
        // thread waits for it or finds it examined.
        let mut group = self.examination.first_left.load(Ordering::Relaxed);
        while group < groups && self.offer.0.could_take(blocks, least, 0) {
            self.trusts_blocks(volume, group, &mut *self.lock(volume, group)?)?;
            group += 1;
            self.examination
                .first_left
                .fetch_max(group, Ordering::Relaxed);
            if self.offer.0.take(blocks, least) {
                return Ok(true);
            }
        }
        Ok(self.offer.0.take(blocks, least))
    }

    /// Whether blocks of the group can be allocated and freed. Examines its block bitmap at the
    /// first call. Locks: the group's, held.
    #[inline]
    pub(crate) fn trusts_blocks(
        &self,
        volume: &Volume,
        number: u32,
        group: &mut Group,
    ) -> Result<bool> {
        match group.blocks {
            Trust::Sound => Ok(true),
            Trust::SetAside => Ok(false),
            Trust::Unexamined => self.examine_blocks(volume, number, group),
        }
    }

    /// Whether inodes of the group can be allocated and freed. Examines its inode bitmap at the
    /// first call. Locks: the group's, held.
    #[inline]
    pub(crate) fn trusts_inodes(
        &self,
        volume: &Volume,
        number: u32,
        group: &mut Group,
    ) -> Result<bool> {
        match group.inodes {
            Trust::Sound => Ok(true),
            Trust::SetAside => Ok(false),
            Trust::Unexamined => self.examine_inodes(volume, number, group),
        }
    }

    #[cold]
    fn examine_blocks(&self, volume: &Volume, number: u32, group: &mut Group) -> Result<bool> {
        match self.find_fault_of_blocks(volume, number, &group.descriptor) {
            Ok(()) => {
                group.blocks = Trust::Sound;
                self.offer
                    .0
                    .note_examined(group.descriptor.free_clusters().into());
                Ok(true)
            }
            Err(Error::Corrupt(fault)) => {
                self.set_aside(number, group, BitmapKind::Blocks, fault);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn examine_inodes(&self, volume: &Volume, number: u32, group: &mut Group) -> Result<bool> {
        match find_fault_of_inodes(volume, number, &group.descriptor) {
            Ok(()) => {
                group.inodes = Trust::Sound;
                Ok(true)
            }
            Err(Error::Corrupt(fault)) => {
                self.set_aside(number, group, BitmapKind::Inodes, fault);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Sets a group aside because of a fault: nothing is allocated or freed by this bitmap any
    /// more. Locks: the group's, held.
    pub(crate) fn set_aside(
        &self,
        number: u32,
        group: &mut Group,
        which: BitmapKind,
        fault: Corrupt,
    ) {
        let descriptor = &group.descriptor;
        let counts = match which {
            BitmapKind::Blocks => {
                // So no file has a window here, and all that is held has been freed.
                group.free.break_windows();
                let free = u64::from(descriptor.free_clusters());
                self.offer
                    .0
                    .withdraw(free - u64::from(group.free.held_blocks()));
                if group.blocks == Trust::Unexamined {
                    self.offer.0.note_examined(free);
                }
                group.blocks = Trust::SetAside;
                Counts {
                    blocks: free.wrapping_neg(),
                    inodes: 0,
                    freed: 0,
                }
            }
            BitmapKind::Inodes => {
                group.inodes = Trust::SetAside;
                Counts {
                    blocks: 0,
                    inodes: u64::from(descriptor.free_inodes()).wrapping_neg(),
                    freed: 0,
                }
            }
        };
        self.add(counts);
        self.note_fault(number, fault);
    }

    /// Notes a fault for the operation that has met it, or for the next one.
    pub(crate) fn note_fault(&self, group: u32, fault: Corrupt) {
        let fault = Corrupt {
            place: fault.place.group(group),
            ..fault
        };
        self.examination
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(fault);
        // Relaxed: the thread that has met the fault takes it, unless another one did before.
        self.examination.has_faults.store(true, Ordering::Relaxed);
    }

    /// Whether there may be faults to take.
    #[inline]
    pub(crate) fn has_faults(&self) -> bool {
        self.examination.has_faults.load(Ordering::Relaxed)
    }

    /// Takes the faults that have not been recorded.
    pub(crate) fn take_faults(&self) -> Vec<Corrupt> {
        self.examination.has_faults.store(false, Ordering::Relaxed);
        std::mem::take(
            &mut *self
                .examination
                .faults
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn find_fault_of_blocks(
        &self,
        volume: &Volume,
        number: u32,
        descriptor: &GroupDescriptor,
    ) -> Result<()> {
        let geometry = volume.superblock().geometry();
        let clusters = geometry.group_clusters(number).unwrap_or(0);
        let place = Place::new(Structure::BlockBitmap)
            .group(number)
            .block(descriptor.block_bitmap());
        let (read, made);
        let bytes = if descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
            made = bitmap::initial_block_bitmap(number, descriptor, geometry);
            made.as_deref()
        } else {
            read = volume.read_block_bitmap(number, descriptor)?;
            Some(&*read)
        };
        let bits = bytes.and_then(|bytes| Bitmap::new(bytes, clusters));
        let bits = bits.ok_or_else(|| mismatch(place, "it is no whole bitmap"))?;
        check_own_blocks(&self.zones, &bits, number, geometry)?;
        if bits.count_clear() == descriptor.free_clusters() {
            Ok(())
        } else {
            Err(mismatch(
                place,
                "the descriptor has another number of free blocks",
            ))
        }
    }
}

/// Returns an error if a block of the volume's own structures is free in a block bitmap.
fn check_own_blocks(
    zones: &SystemZones,
    bits: &Bitmap<'_>,
    number: u32,
    geometry: &Geometry,
) -> Result<()> {
    let Some(start) = geometry.group_start(number) else {
        return Ok(());
    };
    for (structure, blocks) in zones.within(&(start..start + u64::from(bits.len()))) {
        // OK: within the group, which has fewer than 2^32 blocks.
        let from = (blocks.start - start) as u32;
        let to = (blocks.end - start) as u32;
        if let Some(free) = bits.cut(to).next_clear(from) {
            let place = Place::new(structure)
                .group(number)
                .block(start + u64::from(free));
            return Err(mismatch(place, "it is free in the block bitmap"));
        }
    }
    Ok(())
}

fn find_fault_of_inodes(volume: &Volume, number: u32, descriptor: &GroupDescriptor) -> Result<()> {
    let per_group = volume.superblock().geometry().inodes_per_group();
    let place = Place::new(Structure::InodeBitmap)
        .group(number)
        .block(descriptor.inode_bitmap());
    let free = if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
        per_group
    } else {
        let read = volume.read_inode_bitmap(number, descriptor)?;
        let bits = Bitmap::new(&read, per_group);
        let bits = bits.ok_or_else(|| mismatch(place, "it is no whole bitmap"))?;
        if bits
            .cut(volume.superblock().reserved_inodes(number))
            .next_clear(0)
            .is_some()
        {
            return Err(mismatch(place, "reserved inodes are free in it"));
        }
        bits.count_clear()
    };
    if free == descriptor.free_inodes() {
        Ok(())
    } else {
        Err(mismatch(
            place,
            "the descriptor has another number of free inodes",
        ))
    }
}

fn mismatch(place: Place, what: &'static str) -> Error {
    place.corrupt(CorruptKind::Mismatch { what }).into()
}

/// Returns the fault of a block bitmap in which blocks that a file gives up are free already.
pub(crate) fn freed_twice(which: BitmapKind, group: u32, bits: &Range<u32>) -> Corrupt {
    let (structure, what) = match which {
        BitmapKind::Blocks => (
            Structure::BlockBitmap,
            "a block that a file has is free in it",
        ),
        BitmapKind::Inodes => (
            Structure::InodeBitmap,
            "an inode that is in use is free in it",
        ),
    };
    Place::new(structure)
        .group(group)
        .offset(bits.start / 8)
        .corrupt(CorruptKind::Mismatch { what })
}
