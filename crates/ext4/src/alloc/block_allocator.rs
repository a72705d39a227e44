//! The allocation state of each group, and the counters of free blocks and inodes.
//!
//! Each group has a bitmap, and counts in its descriptor. A thread that changes them holds the
//! group's lock. The descriptor, which also has the checksums of the group's bitmaps, is stored
//! once a transaction, when the transaction closes. A freed block is held until the transaction
//! that freed it is durable. If it were reused earlier, a crash could leave it with its old file
//! and with another file's contents.
//!
//! `fs::writer` makes the one [`BlockAllocator`] of a volume and calls it when a transaction
//! closes and when it is durable. `handle` reserves blocks; `balloc` and `ialloc` allocate.
//!
//! # Locks
//! A group's lock is the innermost one, except for the locks of buffers. Its holder waits for
//! nothing but the read of a bitmap. A thread locks only one group at a time.
//!
//! # Shared memory
//! Threads that work in different groups write one word in common: the number of blocks that no
//! operation has reserved ([`BlockAllocator::reserve`]). Each thread has its own counters of free
//! blocks, free inodes and freed blocks, and readers sum them.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError};

use extern4_block::{Buffer, Pin};
use extern4_disk::bitmap::{self, Bitmap};
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::superblock::Superblock;
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_jbd2::Closing;
use extern4_sync::per_thread::PerThread;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU32, AtomicU64, Latch, LatchGuard, Mutex, Ordering};
use extern4_sync::thread_counter::ThreadCounter;
use extern4_vfs::Errno;

use crate::alloc::free_map::FreeMap;
use crate::alloc::reserve::{BlockReserve, Demand};
use crate::alloc::trust::{Examination, Offer, Trust};
use crate::error::{Error, Result};
use crate::volume::Volume;
use crate::volume::group::to_usize;
use crate::volume::system_zone::SystemZones;

/// The free blocks and inodes of a volume that is open for writing.
pub(crate) struct BlockAllocator {
    groups: Box<[Slot]>,
    blocks_per_group: u32,
    first_data_block: u64,
    /// Changed only while a handle is open.
    counts: ThreadCounter<3>,
    /// Free blocks that operations can reserve. On a separate cache line, since each operation
    /// writes it.
    pub(crate) offer: Padded<Offer>,
    pub(crate) block_reserve: BlockReserve,
    pub(crate) zones: Arc<SystemZones>,
    pub(crate) examination: Examination,
    /// Blocks freed since the volume was opened by transactions that are durable. Written once a
    /// commit.
    released: AtomicU64,
    /// Groups whose descriptors are to be stored when the running transaction closes. Locks:
    /// innermost.
    pub(crate) dirty: Mutex<Vec<u32>>,
    hints: PerThread<Cell<GroupHint>>,
    /// The offset for the next thread that finds its group locked.
    next_offset: AtomicU32,
}

/// Where a thread allocates inodes, relative to the group of the directory.
#[derive(Clone, Copy, Default)]
struct GroupHint {
    /// How many groups after that of the directory; 0 until the thread finds that group locked.
    offset: u32,
    /// How often the thread has found its group locked.
    met: u32,
}

/// The state of a group, made when it is first needed. Each fills cache lines, since
/// different threads use neighbouring groups.
type Slot = OnceLock<Box<Padded<Latch<Group>>>>;

/// The counters of [`BlockAllocator`]: free blocks and free inodes, as in the group descriptors,
/// and blocks freed since the volume was opened. They wrap, so adding a wrapped negative number
/// subtracts.
pub(crate) struct Counts {
    pub(crate) blocks: u64,
    pub(crate) inodes: u64,
    pub(crate) freed: u64,
}

/// The current state of a group.
pub(crate) struct Group {
    pub(crate) descriptor: GroupDescriptor,
    /// Which of its free blocks can be allocated.
    pub(crate) free: FreeMap,
    /// Whether its block bitmap, and its inode bitmap, can be used.
    pub(crate) blocks: Trust,
    pub(crate) inodes: Trust,
    /// No inode before this one is free.
    pub(crate) first_free_inode: u32,
    /// The generation of the inode that was allocated last; random at first.
    generation: u32,
    pub(crate) dirty: Option<DirtyGroup>,
}

/// A group that the running transaction has changed. Its descriptor is stored when the transaction
/// closes.
pub(crate) struct DirtyGroup {
    /// The block that holds the descriptor, which is part of the transaction, and the descriptor's
    /// offset in it.
    pub(crate) descriptors: Pin,
    pub(crate) offset: usize,
    /// The bitmaps, if they have been changed: their checksums are in the descriptor.
    pub(crate) blocks: Option<Pin>,
    pub(crate) inodes: Option<Pin>,
}

/// The two bitmaps of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BitmapKind {
    Blocks,
    Inodes,
}

/// Blocks reserved for an operation. Dropping it returns the blocks that the operation has not
/// allocated.
pub(crate) struct BlockReservation<'s> {
    allocator: &'s BlockAllocator,
    pub(crate) left: Cell<u64>,
}

impl BlockAllocator {
    /// Returns the allocator of `volume`, counted from its groups. Groups with a wrong descriptor
    /// are set aside.
    pub(crate) fn count(
        volume: &Volume,
        block_reserve: BlockReserve,
        zones: Arc<SystemZones>,
    ) -> Result<Self> {
        let geometry = volume.superblock().geometry();
        let groups: Box<[Slot]> = (0..geometry.group_count())
            .map(|_| OnceLock::new())
            .collect();
        let mut blocks = 0;
        let mut inodes = 0;
        let mut faults = Vec::new();
        for group in 0..geometry.group_count() {
            match counted_descriptor(volume, group) {
                Ok(descriptor) => {
                    blocks += u64::from(descriptor.free_clusters());
                    inodes += u64::from(descriptor.free_inodes());
                }
                Err(Error::Corrupt(fault)) => {
                    faults.push((group, fault));
                    let unusable = Latch::new(Group::set_aside(volume.superblock()));
                    let _ = groups[to_usize(group)].set(Box::new(Padded(unusable)));
                }
                Err(error) => return Err(error),
            }
        }
        let allocator = Self {
            groups,
            blocks_per_group: geometry.blocks_per_group(),
            first_data_block: u64::from(geometry.first_data_block()),
            counts: ThreadCounter::new(),
            offer: Padded(Offer::new(blocks)),
            block_reserve,
            zones,
            examination: Examination::default(),
            released: AtomicU64::new(0),
            dirty: Mutex::default(),
            hints: PerThread::new(),
            next_offset: AtomicU32::new(1),
        };
        allocator.add(Counts {
            blocks,
            inodes,
            freed: 0,
        });
        faults
            .into_iter()
            .for_each(|(group, fault)| allocator.note_fault(group, fault));
        Ok(allocator)
    }

    /// Reserves free blocks; `ENOSPC` if there are too few that the change may use. Examines groups
    /// until the sound groups have enough. Locks: no group's is held.
    pub(crate) fn reserve(&self, volume: &Volume, demand: Demand) -> Result<BlockReservation<'_>> {
        if demand.blocks > 0
            && !self.offer.0.take(
                demand.blocks.into(),
                self.block_reserve.to_leave(demand.reserve),
            )
            && !self.reserve_slowly(volume, demand)?
        {
            return Err(Errno::ENOSPC.into());
        }
        Ok(self.reserved(demand.blocks))
    }

    /// Returns the reservation of blocks that have been taken from the offer.
    pub(crate) fn reserved(&self, blocks: u32) -> BlockReservation<'_> {
        BlockReservation {
            allocator: self,
            left: Cell::new(blocks.into()),
        }
    }

    /// Whether the demand could be met after a commit, which releases all blocks freed so far.
    pub(crate) fn commit_helps(&self, demand: Demand) -> bool {
        // The loads are in this order, so that no block released meanwhile is missed. Acquire:
        // pairs with the Release in `release_freed`, so the sum of freed blocks includes the
        // released ones.
        let released = self.released.load(Ordering::Acquire);
        let pending = self.counted().freed.wrapping_sub(released);
        let least = self.block_reserve.to_leave(demand.reserve);
        self.offer
            .0
            .could_take(demand.blocks.into(), least, pending)
    }

    /// Returns the number of free blocks, including blocks that operations have reserved and blocks
    /// that are held until a commit.
    pub(crate) fn free_blocks(&self) -> u64 {
        non_negative(self.counted().blocks)
    }

    /// Returns the number of free inodes.
    pub(crate) fn free_inodes(&self) -> u64 {
        non_negative(self.counted().inodes)
    }

    pub(crate) fn add(&self, counts: Counts) {
        self.counts
            .add([counts.blocks, counts.inodes, counts.freed]);
    }

    fn counted(&self) -> Counts {
        let [blocks, inodes, freed] = self.counts.sum();
        Counts {
            blocks,
            inodes,
            freed,
        }
    }

    /// Counts an inode that has been allocated.
    pub(crate) fn count_inode_taken(&self) {
        self.add(Counts {
            blocks: 0,
            inodes: 1_u64.wrapping_neg(),
            freed: 0,
        });
    }

    /// Counts an inode that has been freed.
    pub(crate) fn count_inode_freed(&self) {
        self.add(Counts {
            blocks: 0,
            inodes: 1,
            freed: 0,
        });
    }

    /// Locks a group.
    pub(crate) fn lock(&self, volume: &Volume, group: u32) -> Result<LatchGuard<'_, Group>> {
        Ok(self
            .group(volume, group)?
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the group where this thread places new objects that belong near group `home`, and
    /// returns its number too.
    ///
    /// This is `home` itself, until the thread finds it locked. From then on it is another group of
    /// the same flexible group, whose bitmaps and inodes lie next to the bitmaps and inodes of
    /// `home`. So threads that work in one directory, or in several near each other, change
    /// different blocks. A thread that finds that group locked, too, moves on. It moves at its
    /// first, second, fourth, eighth conflict and so on, so that threads stop moving even where
    /// they outnumber the groups.
    pub(crate) fn lock_near(
        &self,
        volume: &Volume,
        home: u32,
    ) -> Result<(u32, LatchGuard<'_, Group>)> {
        let mut hint = self.hints.with(Cell::get).unwrap_or_default();
        let near = neighbour_group(volume, home, hint.offset);
        if let Ok(locked) = self.group(volume, near)?.try_lock() {
            return Ok((near, locked));
        }
        hint.met = hint.met.wrapping_add(1);
        if hint.met.is_power_of_two() {
            // Relaxed: the number only sends two threads in conflict to different groups.
            hint.offset = self.next_offset.fetch_add(1, Ordering::Relaxed);
        }
        self.hints.with(|own| own.set(hint));
        let near = neighbour_group(volume, home, hint.offset);
        Ok((near, self.lock(volume, near)?))
    }

    fn group(&self, volume: &Volume, group: u32) -> Result<&Latch<Group>> {
        let slot = &self.groups[to_usize(group)];
        let known = match slot.get() {
            Some(known) => known,
            None => {
                let found = Latch::new(Group::new(*volume.group(group)?));
                slot.get_or_init(|| Box::new(Padded(found)))
            }
        };
        Ok(&known.0)
    }

    /// Ends the window of inode `ino` in a group, if it has one there.
    pub(crate) fn end_window(&self, group: u32, ino: u32) {
        if let Some(mut group) = self.lock_known(group) {
            group.free.end_window(ino);
        }
    }

    /// Locks a group if its state has been made.
    fn lock_known(&self, group: u32) -> Option<LatchGuard<'_, Group>> {
        let known = self.groups[to_usize(group)].get()?;
        Some(known.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the descriptor of a group whose counts are possible.
fn counted_descriptor(volume: &Volume, group: u32) -> Result<&GroupDescriptor> {
    let descriptor = volume.group(group)?;
    let place = Place::new(Structure::GroupDescriptor).group(group);
    descriptor.check_counts(group, volume.superblock().geometry(), place)?;
    Ok(descriptor)
}

/// Returns the group `offset` groups after `home` in its flexible group, modulo the latter's size.
fn neighbour_group(volume: &Volume, home: u32, offset: u32) -> u32 {
    let geometry = volume.superblock().geometry();
    let per_flex = geometry.groups_per_flex();
    let first = home - home % per_flex;
    let groups = per_flex.min(geometry.group_count() - first);
    first + (home - first + offset % groups) % groups
}

impl BlockReservation<'_> {
    /// Uses up some of the reserved blocks. A caller that has reserved too few gets further free
    /// blocks while there are any, and otherwise finds the volume full half way.
    pub(crate) fn take(&self, blocks: u64) -> Result<()> {
        match self.left.get().checked_sub(blocks) {
            Some(left) => self.left.set(left),
            None => {
                debug_assert!(
                    false,
                    "{blocks} blocks are taken, and {} were set aside",
                    self.left.get()
                );
                if !self.allocator.offer.0.take(blocks, 0) {
                    return Err(Errno::ENOSPC.into());
                }
            }
        }
        Ok(())
    }
}

impl Drop for BlockReservation<'_> {
    fn drop(&mut self) {
        if self.left.get() > 0 {
            self.allocator.offer.0.give(self.left.get());
        }
    }
}

impl BlockAllocator {
    /// Releases blocks for allocation, once the transaction that freed them is durable.
    pub(crate) fn release_freed(&self, freed: &[Range<u64>]) {
        let mut offered = 0;
        for blocks in freed {
            for (group, bits) in self.split(blocks.clone()) {
                if let Some(mut group) = self.lock_known(group) {
                    // A group may have been set aside since.
                    if group.blocks == Trust::Sound {
                        offered += u64::from(bits.end - bits.start);
                    }
                    group.free.release(bits);
                }
            }
        }
        let released = freed.iter().map(|blocks| blocks.end - blocks.start).sum();
        if released == 0 {
            return;
        }
        self.offer.0.give(offered);
        // Release: pairs with the Acquire in `commit_helps`.
        self.released.fetch_add(released, Ordering::Release);
    }

    /// Stores the descriptors of the groups that the closing transaction has changed, with the
    /// checksums of their bitmaps.
    pub(crate) fn store_groups(&self, sb: &Superblock, closing: &Closing<'_>) {
        let groups =
            std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner));
        for number in groups {
            if let Some(mut group) = self.lock_known(number) {
                group.store(number, sb, closing);
            }
        }
    }

    /// Returns the parts of a range in each group, as bits of its bitmap.
    pub(crate) fn split(&self, blocks: Range<u64>) -> Vec<(u32, Range<u32>)> {
        let mut parts = Vec::new();
        let per_group = u64::from(self.blocks_per_group);
        let mut at = blocks.start.saturating_sub(self.first_data_block);
        let end = blocks.end.saturating_sub(self.first_data_block);
        while at < end {
            let group = at / per_group;
            let bit = at % per_group;
            let len = (end - at).min(per_group - bit);
            // OK: a volume has fewer than 2^32 groups, and a group fewer than 2^32 blocks.
            parts.push((group as u32, bit as u32..(bit + len) as u32));
            at += len;
        }
        parts
    }
}

impl Group {
    fn new(descriptor: GroupDescriptor) -> Self {
        let generation = RandomState::new().hash_one(()) as u32;
        let blocks = Trust::Unexamined;
        let inodes = Trust::Unexamined;
        let (free, first_free_inode, dirty) = Default::default();
        Self {
            descriptor,
            free,
            blocks,
            inodes,
            first_free_inode,
            generation,
            dirty,
        }
    }

    /// Returns the state of a group whose descriptor is wrong: nothing of it is free.
    fn set_aside(sb: &Superblock) -> Self {
        let group = Self::new(GroupDescriptor::new(0, 0, 0, sb));
        Self {
            blocks: Trust::SetAside,
            inodes: Trust::SetAside,
            ..group
        }
    }

    /// Returns a generation that no inode of the group has got since the volume was opened, except
    /// after 2^32 calls.
    pub(crate) fn next_generation(&mut self) -> u32 {
        // An odd step goes through all numbers, and generations do not grow by one from inode to
        // inode.
        self.generation = self.generation.wrapping_add(0x9e37_79b9);
        self.generation
    }

    fn store(&mut self, number: u32, sb: &Superblock, closing: &Closing<'_>) {
        let Some(dirty) = self.dirty.take() else {
            return;
        };
        let geometry = sb.geometry();
        // OK: a bitmap that is shorter than that could not be read.
        let sum =
            |pin: Pin, len| bitmap::compute_checksum(&pin.snapshot(), len, sb.metadata_seed()?);
        if let Some(it) = dirty
            .blocks
            .and_then(|pin| sum(pin, geometry.clusters_per_group()))
        {
            self.descriptor.set_block_bitmap_checksum(it);
        }
        if let Some(it) = dirty
            .inodes
            .and_then(|pin| sum(pin, geometry.inodes_per_group()))
        {
            self.descriptor.set_inode_bitmap_checksum(it);
        }
        closing.change(&mut dirty.descriptors.buffer(), |bytes| {
            self.descriptor
                .encode(&mut bytes[dirty.offset..], number, sb);
        });
    }
}

impl Volume {
    /// Returns the block bitmap of a group that has one.
    pub(crate) fn read_block_bitmap(
        &self,
        number: u32,
        descriptor: &GroupDescriptor,
    ) -> Result<Buffer> {
        let block = descriptor.block_bitmap();
        self.verified(
            block,
            crate::volume::buffer::Verified::BlockBitmap,
            |bytes| {
                let place = Place::new(Structure::BlockBitmap)
                    .group(number)
                    .block(block);
                Bitmap::decode_blocks(bytes, number, descriptor, self.superblock(), place).map(drop)
            },
        )
    }

    /// Returns the inode bitmap of a group that has one.
    pub(crate) fn read_inode_bitmap(
        &self,
        number: u32,
        descriptor: &GroupDescriptor,
    ) -> Result<Buffer> {
        let block = descriptor.inode_bitmap();
        self.verified(
            block,
            crate::volume::buffer::Verified::InodeBitmap,
            |bytes| {
                let place = Place::new(Structure::InodeBitmap)
                    .group(number)
                    .block(block);
                Bitmap::decode_inodes(bytes, number, descriptor, self.superblock(), place).map(drop)
            },
        )
    }

    /// Returns the first run of a group that can be allocated, between blocks `from` and `end` and
    /// at most `want` blocks long; `None` if there is none. Held blocks and windows are not part of
    /// it. Locks: the group's, held.
    pub(crate) fn free_run(
        &self,
        number: u32,
        group: &Group,
        (from, end): (u32, u32),
        want: u32,
    ) -> Result<Option<Range<u32>>> {
        let (read, made);
        let bytes = if group.descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
            made = bitmap::initial_block_bitmap(
                number,
                &group.descriptor,
                self.superblock().geometry(),
            );
            made.as_deref()
        } else {
            read = self.read_block_bitmap(number, &group.descriptor)?;
            Some(&*read)
        };
        let bitmap = bytes.and_then(|bytes| Bitmap::new(bytes, end));
        let bitmap = bitmap.ok_or_else(|| bad_bitmap(BitmapKind::Blocks, number))?;
        Ok(group.free.run_at(&bitmap, from, want))
    }
}

/// Returns a sum of the threads' counters, or 0 if it is negative. A sum that missed a thread's
/// addition may be.
fn non_negative(sum: u64) -> u64 {
    u64::try_from(sum.cast_signed()).unwrap_or(0)
}

pub(crate) fn bad_bitmap(which: BitmapKind, group: u32) -> crate::Error {
    let structure = match which {
        BitmapKind::Blocks => Structure::BlockBitmap,
        BitmapKind::Inodes => Structure::InodeBitmap,
    };
    let what = "the bitmap disagrees with the use of the group";
    Place::new(structure)
        .group(group)
        .corrupt(CorruptKind::Mismatch { what })
        .into()
}
