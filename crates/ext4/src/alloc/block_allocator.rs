//! Blocks: which are free, taking some, and giving them back.
//!
//! Each group has a bitmap, and counts in its descriptor. A thread that changes them holds the
//! group's lock. The descriptor, which also has the checksums of the group's bitmaps, is stored
//! once a transaction, when it closes. A freed block stays out of use until the transaction that
//! freed it is durable. After a crash before that, it would still belong to its old file, and hold
//! another's contents.
//!
//! # Locks
//! A group's lock is innermost but for those of buffers. Its holder waits for nothing but the read
//! of a bitmap. A thread locks only one group at a time.
//!
//! # What threads share
//! Threads that work in different groups write one word in common: the number of blocks that no
//! operation has reserved ([`BlockAllocator::reserve`]). Each thread counts free blocks and blocks
//! that wait to be free for itself, and readers add the counts up.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::{OnceLock, PoisonError};

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
use extern4_vfs::{Errno, SpaceRights};

use crate::alloc::free_map::FreeMap;
use crate::error::Result;
use crate::volume::Volume;
use crate::volume::group::to_usize;

/// The free blocks and inodes of a volume that can be changed.
pub(crate) struct BlockAllocator {
    groups: Box<[Slot]>,
    blocks_per_group: u32,
    first_data_block: u64,
    /// Changed only while a handle is open.
    counts: ThreadCounter<3>,
    /// Free blocks that may be taken and that no operation has reserved. On a line of its own,
    /// since each operation writes it.
    unreserved: Padded<AtomicU64>,
    block_reserve: BlockReserve,
    /// Blocks that have been freed since the volume was opened and are free for good. Written once
    /// a commit.
    settled: AtomicU64,
    /// Groups whose descriptors are to be stored when the running transaction closes. Locks:
    /// innermost.
    pub(super) unstored: Mutex<Vec<u32>>,
    hints: PerThread<Cell<GroupHint>>,
    /// The offset for the next thread that meets another.
    next_offset: AtomicU32,
}

/// The group in which a thread makes files.
#[derive(Clone, Copy, Default)]
struct GroupHint {
    /// How many groups behind that of the directory: 0 until it has met another thread there.
    offset: u32,
    /// How often it has met another.
    met: u32,
}

/// The state of a group, once it is needed. Each is on cache lines of its own, since other threads
/// use its neighbours.
type Slot = OnceLock<Box<Padded<Latch<Group>>>>;

/// Free blocks that not every change may take.
#[derive(Clone, Copy)]
pub(crate) struct BlockReserve {
    /// For changes that must not fail on a full volume, such as splitting an unwritten extent that
    /// is written to.
    pub(crate) for_metadata: u64,
    /// Those, and the ones that only the superuser may take.
    pub(crate) in_all: u64,
}

impl BlockReserve {
    /// Returns how many of `free` blocks are left after a change takes `blocks`; `None` if it may
    /// not take them.
    fn rest(self, free: u64, blocks: u64, reserve: ReserveUse) -> Option<u64> {
        free.checked_sub(blocks).filter(|&rest| rest >= self.to_leave(reserve))
    }

    /// Returns how many blocks a change must leave free.
    fn to_leave(self, reserve: ReserveUse) -> u64 {
        match reserve {
            ReserveUse::None => self.in_all,
            ReserveUse::Root => self.for_metadata,
            ReserveUse::All => 0,
        }
    }
}

/// Which of the blocks that are kept back a change may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveUse {
    /// None of them.
    None,
    /// Those that are reserved for root.
    Root,
    /// All, for changes that must not fail on a full volume. They use or free space that is
    /// allocated already, and may need a block or two to record it.
    All,
}

impl From<SpaceRights> for ReserveUse {
    fn from(rights: SpaceRights) -> Self {
        if rights.root_reserve { Self::Root } else { Self::None }
    }
}

/// The free blocks that a change sets aside.
#[derive(Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) blocks: u32,
    pub(crate) reserve: ReserveUse,
}

impl Demand {
    pub(crate) fn new(blocks: u32, reserve: impl Into<ReserveUse>) -> Self {
        Self { blocks, reserve: reserve.into() }
    }
}

/// Of a change by the file system itself, which may use what is reserved for root.
impl From<u32> for Demand {
    fn from(blocks: u32) -> Self {
        Self::new(blocks, ReserveUse::Root)
    }
}

/// The sums that [`BlockAllocator`] counts. They are free blocks and inodes, as the descriptors of
/// the groups have them, and blocks freed since the volume was opened. Numbers wrap, and so may go
/// down.
pub(super) struct Counts {
    pub(super) blocks: u64,
    pub(super) inodes: u64,
    pub(super) freed: u64,
}

/// A group as it stands now.
pub(crate) struct Group {
    pub(crate) descriptor: GroupDescriptor,
    /// Which of its free blocks can be taken.
    pub(super) free: FreeMap,
    /// No inode before this one is free.
    pub(crate) first_free_inode: u32,
    /// The generation of the inode that was allocated last. Where it begins is random.
    generation: u32,
    pub(super) unstored: Option<Unstored>,
}

/// The changes that the running transaction has made to a group. Their descriptor is stored when
/// the transaction closes.
pub(super) struct Unstored {
    /// The block with the descriptor, which is part of the transaction, and where in it.
    pub(super) descriptors: Pin,
    pub(super) offset: usize,
    /// The bitmaps, if they have been changed: their checksums are in the descriptor.
    pub(super) blocks: Option<Pin>,
    pub(super) inodes: Option<Pin>,
}

/// The two bitmaps of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BitmapKind {
    Blocks,
    Inodes,
}

/// Free blocks set aside for an operation. Dropping it gives back those that the operation has not
/// taken.
pub(crate) struct BlockReservation<'s> {
    allocator: &'s BlockAllocator,
    pub(super) left: Cell<u64>,
}

impl BlockAllocator {
    /// Returns the allocator of `volume`, counted from its groups.
    pub(crate) fn count(volume: &Volume, block_reserve: BlockReserve) -> Result<Self> {
        let geometry = volume.superblock().geometry();
        let (mut blocks, mut inodes) = (0, 0);
        for group in 0..geometry.group_count() {
            let descriptor = volume.group(group)?;
            let place = Place::new(Structure::GroupDescriptor).group(group);
            descriptor.check_counts(group, geometry, place)?;
            blocks += u64::from(descriptor.free_clusters());
            inodes += u64::from(descriptor.free_inodes());
        }
        let allocator = Self {
            groups: (0..geometry.group_count()).map(|_| OnceLock::new()).collect(),
            blocks_per_group: geometry.blocks_per_group(),
            first_data_block: u64::from(geometry.first_data_block()),
            counts: ThreadCounter::new(),
            unreserved: Padded(AtomicU64::new(blocks)),
            block_reserve,
            settled: AtomicU64::new(0),
            unstored: Mutex::default(),
            hints: PerThread::new(),
            next_offset: AtomicU32::new(1),
        };
        allocator.add(Counts { blocks, inodes, freed: 0 });
        Ok(allocator)
    }

    /// Sets free blocks aside; `ENOSPC` if there are too few of those that the change may use.
    pub(crate) fn reserve(&self, Demand { blocks, reserve }: Demand) -> Result<BlockReservation<'_>> {
        let blocks = u64::from(blocks);
        // Relaxed, here and where blocks are given back: the number orders no other memory.
        let take = |unreserved| self.block_reserve.rest(unreserved, blocks, reserve);
        if blocks > 0 && self.unreserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Err(Errno::ENOSPC.into());
        }
        Ok(BlockReservation { allocator: self, left: Cell::new(blocks) })
    }

    /// Whether there would be `blocks` free blocks if all freed blocks were free for good.
    pub(crate) fn commit_helps(&self, Demand { blocks, reserve }: Demand) -> bool {
        // In this order, so that no block that is settled meanwhile is missed. Acquire: pairs with
        // the Release in `settle`, so that settled blocks are among the freed ones.
        let settled = self.settled.load(Ordering::Acquire);
        let pending = self.counted().freed.wrapping_sub(settled);
        let unreserved = self.unreserved.load(Ordering::Relaxed);
        self.block_reserve.rest(unreserved.saturating_add(pending), u64::from(blocks), reserve).is_some()
    }

    /// Returns the number of free blocks. It includes blocks that operations under way have set
    /// aside, and those that become free with the transaction.
    pub(crate) fn free_blocks(&self) -> u64 {
        non_negative(self.counted().blocks)
    }

    /// Free inodes.
    pub(crate) fn free_inodes(&self) -> u64 {
        non_negative(self.counted().inodes)
    }

    pub(super) fn add(&self, counts: Counts) {
        self.counts.add([counts.blocks, counts.inodes, counts.freed]);
    }

    fn counted(&self) -> Counts {
        let [blocks, inodes, freed] = self.counts.sum();
        Counts { blocks, inodes, freed }
    }

    /// Counts an inode that has been taken.
    pub(crate) fn count_inode_taken(&self) {
        self.add(Counts { blocks: 0, inodes: 1_u64.wrapping_neg(), freed: 0 });
    }

    /// Counts an inode that has been given back.
    pub(crate) fn count_inode_freed(&self) {
        self.add(Counts { blocks: 0, inodes: 1, freed: 0 });
    }

    /// Locks a group.
    pub(crate) fn lock(&self, volume: &Volume, group: u32) -> Result<LatchGuard<'_, Group>> {
        Ok(self.group(volume, group)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the group where this thread places new objects that belong near group `home`, and
    /// returns its number too.
    ///
    /// That is `home` itself, until the thread finds it locked by another. From then on it is
    /// another group of the same flexible group, whose bitmaps and inodes lie next to those of
    /// `home`. So threads that work in one directory, or in several that are near each other,
    /// change different blocks. A thread that meets another there, too, goes on to the next group.
    /// It moves at its first, second, fourth, eighth meeting and so on, so that threads settle even
    /// where they outnumber the groups.
    pub(crate) fn lock_near(&self, volume: &Volume, home: u32) -> Result<(u32, LatchGuard<'_, Group>)> {
        let mut hint = self.hints.with(Cell::get).unwrap_or_default();
        let near = neighbour_group(volume, home, hint.offset);
        if let Ok(locked) = self.group(volume, near)?.try_lock() {
            return Ok((near, locked));
        }
        hint.met = hint.met.wrapping_add(1);
        if hint.met.is_power_of_two() {
            // Relaxed: nothing follows from it, but that two threads that meet do not go to the
            // same place.
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

    /// Locks a group, unless it has never been needed.
    fn lock_known(&self, group: u32) -> Option<LatchGuard<'_, Group>> {
        let known = self.groups[to_usize(group)].get()?;
        Some(known.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the group that stands `offset` groups behind `home` in its flexible group, counted
/// round.
fn neighbour_group(volume: &Volume, home: u32, offset: u32) -> u32 {
    let geometry = volume.superblock().geometry();
    let per_flex = geometry.groups_per_flex();
    let first = home - home % per_flex;
    let groups = per_flex.min(geometry.group_count() - first);
    first + (home - first + offset % groups) % groups
}

impl BlockReservation<'_> {
    /// Takes some of the blocks set aside. A caller that has set too few aside may find the volume
    /// full half way. Free blocks beyond those are taken while there are some.
    pub(crate) fn take(&self, blocks: u64) -> Result<()> {
        match self.left.get().checked_sub(blocks) {
            Some(left) => self.left.set(left),
            None => {
                debug_assert!(false, "{blocks} blocks are taken, and {} were set aside", self.left.get());
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                self.allocator.reserve(Demand::new(blocks, ReserveUse::All))?.left.set(0);
            }
        }
        Ok(())
    }
}

impl Drop for BlockReservation<'_> {
    fn drop(&mut self) {
        if self.left.get() > 0 {
            self.allocator.unreserved.fetch_add(self.left.get(), Ordering::Relaxed);
        }
    }
}

impl BlockAllocator {
    /// Lets blocks be used again, once the transaction that freed them is durable.
    pub(crate) fn settle(&self, freed: &[Range<u64>]) {
        for blocks in freed {
            for (group, bits) in self.split(blocks.clone()) {
                if let Some(mut group) = self.lock_known(group) {
                    group.free.settle(bits);
                }
            }
        }
        let settled = freed.iter().map(|blocks| blocks.end - blocks.start).sum();
        if settled == 0 {
            return;
        }
        self.unreserved.fetch_add(settled, Ordering::Relaxed);
        // Release: pairs with the Acquire in `commit_helps`.
        self.settled.fetch_add(settled, Ordering::Release);
    }

    /// Stores the descriptors of the groups that a transaction has changed, with the checksums of
    /// their bitmaps: once, however often it has changed them.
    pub(crate) fn store_groups(&self, sb: &Superblock, closing: &Closing<'_>) {
        let groups = std::mem::take(&mut *self.unstored.lock().unwrap_or_else(PoisonError::into_inner));
        for number in groups {
            if let Some(mut group) = self.lock_known(number) {
                group.store(number, sb, closing);
            }
        }
    }

    /// Returns the parts of a range in each group, as bits of its bitmap.
    pub(super) fn split(&self, blocks: Range<u64>) -> Vec<(u32, Range<u32>)> {
        let mut parts = Vec::new();
        let per_group = u64::from(self.blocks_per_group);
        let mut at = blocks.start.saturating_sub(self.first_data_block);
        let end = blocks.end.saturating_sub(self.first_data_block);
        while at < end {
            let (group, bit) = (at / per_group, at % per_group);
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
        Self { descriptor, free: FreeMap::default(), first_free_inode: 0, generation, unstored: None }
    }

    /// Returns a generation that no inode of the group has been given since the volume was opened,
    /// but for one of four billion.
    pub(crate) fn next_generation(&mut self) -> u32 {
        // An odd step goes through all numbers, and generations do not grow by one from inode to
        // inode.
        self.generation = self.generation.wrapping_add(0x9e37_79b9);
        self.generation
    }

    fn store(&mut self, number: u32, sb: &Superblock, closing: &Closing<'_>) {
        let Some(unstored) = self.unstored.take() else { return };
        let geometry = sb.geometry();
        // OK: a bitmap that is shorter than that could not be read.
        let sum = |pin: Pin, len| bitmap::compute_checksum(&pin.snapshot(), len, sb.metadata_seed()?);
        if let Some(it) = unstored.blocks.and_then(|pin| sum(pin, geometry.clusters_per_group())) {
            self.descriptor.set_block_bitmap_checksum(it);
        }
        if let Some(it) = unstored.inodes.and_then(|pin| sum(pin, geometry.inodes_per_group())) {
            self.descriptor.set_inode_bitmap_checksum(it);
        }
        closing.change(&mut unstored.descriptors.buffer(), |bytes| {
            self.descriptor.encode(&mut bytes[unstored.offset..], number, sb);
        });
    }
}

impl Volume {
    /// Returns the block bitmap of a group that has one.
    pub(super) fn read_block_bitmap(&self, number: u32, descriptor: &GroupDescriptor) -> Result<Buffer> {
        let block = descriptor.block_bitmap();
        self.verified(block, crate::volume::buffer::Verified::BlockBitmap, |bytes| {
            let place = Place::new(Structure::BlockBitmap).group(number).block(block);
            Bitmap::decode_blocks(bytes, number, descriptor, self.superblock(), place).map(drop)
        })
    }

    /// Returns the first free run of a group from block `from` on, up to `want` blocks and none
    /// from `end` on; `None` if there is none. Blocks that the running transaction has freed are
    /// not free yet, and windows are left alone. Locks: the group's, held.
    pub(crate) fn free_run(
        &self,
        number: u32,
        group: &Group,
        (from, end): (u32, u32),
        want: u32,
    ) -> Result<Option<Range<u32>>> {
        let (read, made);
        let bytes = if group.descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
            made = bitmap::initial_block_bitmap(number, &group.descriptor, self.superblock().geometry());
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

/// Returns a sum of the threads' counts, or 0 if it is negative, as a sum that missed some of them
/// may be.
fn non_negative(sum: u64) -> u64 {
    u64::try_from(sum.cast_signed()).unwrap_or(0)
}

pub(crate) fn bad_bitmap(which: BitmapKind, group: u32) -> crate::Error {
    let structure = match which {
        BitmapKind::Blocks => Structure::BlockBitmap,
        BitmapKind::Inodes => Structure::InodeBitmap,
    };
    let what = "the bitmap disagrees with the use of the group";
    Place::new(structure).group(group).corrupt(CorruptKind::Mismatch { what }).into()
}
