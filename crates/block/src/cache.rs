//! The buffer cache: blocks of one volume, kept in memory.
//!
//! `ext4` has one for each volume and reads and changes all metadata through it; `jbd2` pins the
//! changed blocks and writes them. File contents do not go through it.
//!
//! # Invariants
//! 1. A block has at most one live buffer. Lookups find that buffer for as long as any thread holds
//!    it.
//! 2. A miss inserts an empty placeholder into the table first. The thread that inserted it reads
//!    the device, and all other threads wait for it. No thread waits for another thread's read
//!    before it has finished its own.
//! 3. Nothing is allocated, initialised or read under a lock.
//! 4. A failed read removes its placeholder from the table before it wakes the waiters with the
//!    error. A later lookup therefore tries again.
//! 5. A block outside the volume is refused before the table is touched.
//! 6. The cache evicts buffers that no thread holds when its budget of memory is exceeded.
//! 7. The bytes of a [`Snapshot`] never change while another thread can see it. A change of a block
//!    that others look at works on a copy, which then replaces the old contents. So a [`Buffer`],
//!    and the snapshot of a [`Pin`], never change.
//! 8. A thread that changes a block keeps a [`Pin`] of it until the new contents are on the device.
//!
//! A hit takes no lock, allocates nothing, executes no locked instruction and writes nothing that
//! other CPUs read: `tests/footprint.rs` checks this. [`BufferCache::with`] and
//! [`BufferCache::peek`] look at the buffer under an RCU guard. Only [`BufferCache::read`], whose
//! caller may keep the buffer, takes a reference to it. The table and its orderings are
//! [`extern4_sync::rcu_hash_map`].
//!
//! A changed block is read and changed under its own lock, until it is evicted. There are two
//! exceptions:
//! - A block that is read again and again publishes a snapshot of its contents. Readers use that
//!   without the lock until the next change (`dirty_buffer`).
//! - A block in which different threads change different parts has a lock for each part
//!   (`split_buffer`).

mod block_table;
mod buffer;
mod dirty_buffer;
mod split_buffer;

use std::fmt;
use std::io::{self, IoSliceMut};
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use extern4_sync::percpu::PerCpu;
use extern4_sync::primitive::{AtomicU32, AtomicU64, Ordering::Relaxed, capacity};
use extern4_sync::rcu::{self, Guard};
use extern4_sync::rcu_arc::{RcuArc, RcuRef};
use extern4_sync::slab::Bytes;
use extern4_sync::thread_counter::ThreadCounter;

pub use self::buffer::{Buffer, Found, Pin};
pub use self::dirty_buffer::{Snapshot, Unsealed};
pub use extern4_sync::cache_budget::{CacheAccount, CacheBudget, Reclaim, Registration};

use self::block_table::BlockTable;
use self::buffer::Block;
use crate::{BlockDevice, Error, Op, Result};

/// The most blocks that one device read fetches.
const MAX_BATCH: usize = 256;
/// Blocks that a cache may always hold, even with less memory: enough for the blocks of one deep
/// lookup.
const MIN_BLOCKS: u64 = capacity(32, 2);
/// Bytes of a buffer besides its contents: the block with its count, and its part of the table.
const BLOCK_BYTES: u64 = RcuArc::<Block>::BYTES as u64 + 16;
/// Buffers evicted together, so that they share the cost of the handover to RCU.
const EVICT_BATCH: usize = capacity(16, 1);
/// Buffers that one miss evicts, at most.
const MAX_EVICTED: u64 = 64;
/// The size of a volume's blocks, their number, and the memory that a [`BufferCache`] may use for
/// them.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Bytes in a block: a power of two from 512 to 65536.
    pub block_size: u32,
    /// Blocks in the volume. The cache refuses any block from this number on.
    pub block_count: u64,
    /// The memory for blocks, which other caches may share. Buffers in use count, but the cache
    /// keeps them beyond the budget.
    pub budget: Arc<CacheBudget>,
}

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups answered from memory.
    pub hits: u64,
    /// Blocks that had to be read from the device, for a lookup or ahead of one.
    pub misses: u64,
    /// Lookups that waited for another thread's read.
    pub waits: u64,
    /// Buffers that the cache has allocated since it was made: at most one a miss, none a hit.
    pub allocations: u64,
    /// Buffers evicted to stay inside the memory bound.
    pub evictions: u64,
    /// Reads sent to the device. One read may fetch several blocks.
    pub device_reads: u64,
    /// Buffers in the cache now.
    pub resident: u64,
}

/// One CPU's part of the counts, without the hits.
#[derive(Default)]
struct Counts {
    misses: AtomicU64,
    waits: AtomicU64,
    allocations: AtomicU64,
    evictions: AtomicU64,
    device_reads: AtomicU64,
}

/// A cache of the blocks of one volume.
pub struct BufferCache {
    device: Arc<dyn BlockDevice>,
    options: CacheOptions,
    table: BlockTable,
    account: CacheAccount,
    counts: PerCpu<Counts>,
    /// Hits, kept apart from the other counts, so that a hit executes no locked instruction.
    hits: ThreadCounter<1>,
}

impl BufferCache {
    /// Creates an empty cache over `device`.
    ///
    /// # Errors
    /// [`Error::BlockSize`] for a block size that is no power of two from 512 to 65,536.
    pub fn new(device: Arc<dyn BlockDevice>, options: CacheOptions) -> Result<Self> {
        if !options.block_size.is_power_of_two() || !(512..=65536).contains(&options.block_size) {
            return Err(Error::BlockSize(options.block_size));
        }
        Ok(Self {
            device,
            table: BlockTable::new(),
            account: CacheAccount::new(&options.budget),
            options,
            counts: PerCpu::new(),
            hits: ThreadCounter::new(),
        })
    }

    /// Returns the device below.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns the bytes in a block.
    pub fn block_size(&self) -> u32 {
        self.options.block_size
    }

    /// Returns the number of blocks in the volume.
    pub fn block_count(&self) -> u64 {
        self.options.block_count
    }

    /// Returns block `block` for as long as the guard lives, if it is in memory and readable
    /// without its lock. Never reads and never waits. A block changed since it was loaded has to be
    /// published first (`dirty_buffer`).
    #[inline]
    pub fn peek<'g>(&'g self, block: u64, guard: &'g Guard) -> Option<&'g [u8]> {
        let found = self
            .table
            .get(block, guard)
            .map(RcuRef::get)
            .filter(|found| found.is_ready())?;
        let bytes = found.published(guard)?;
        self.hits.add([1]);
        Some(bytes)
    }

    /// Calls `f` with block `block`, read from the device if need be: the cheapest way to look at a
    /// block. On a hit, `f` runs in an RCU read section, and perhaps under the lock of a changed
    /// block. So `f` must not wait for anything, nor change the block.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device; [`Error::Io`] if the device cannot read
    /// it.
    #[inline]
    pub fn with<R>(&self, block: u64, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.with_flags(block, |bytes, _| f(bytes))
    }

    /// Calls `f` with block `block` and its [flags](Buffer::flags), under the rules of
    /// [`with`](Self::with).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device; [`Error::Io`] if the device cannot read
    /// it.
    #[inline]
    pub fn with_flags<R>(&self, block: u64, f: impl FnOnce(&[u8], &AtomicU32) -> R) -> Result<R> {
        let guard = rcu::pin();
        if let Some(found) = self
            .table
            .get(block, &guard)
            .map(RcuRef::get)
            .filter(|found| found.is_ready())
        {
            self.hits.add([1]);
            return Ok(found.look(&guard, |bytes| f(bytes, &found.flags)));
        }
        drop(guard);
        let buffer = self.read(block)?;
        Ok(f(&buffer, buffer.flags()))
    }

    /// Calls `f`, under the rules of [`with`](Self::with), with bytes `range` of a block whose
    /// [parts](Self::change_part_tagged) of that length may be changed.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device; [`Error::Io`] if the device cannot read
    /// it.
    #[inline]
    pub fn with_part<R>(
        &self,
        block: u64,
        range: Range<usize>,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let guard = rcu::pin();
        if let Some(found) = self
            .table
            .get(block, &guard)
            .map(RcuRef::get)
            .filter(|found| found.is_ready())
        {
            self.hits.add([1]);
            return Ok(found.look_part(&guard, range, f));
        }
        drop(guard);
        Ok(f(&self.read(block)?[range]))
    }

    /// Calls `f`, as [`with`](Self::with) does, with block `block` if that is in memory; `None`
    /// otherwise. A changed block stays in memory until its new contents are on the device. So a
    /// caller that does not find a block here finds its newest contents on the device.
    pub fn with_cached<R>(&self, block: u64, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.with_found(block, |found| found.look(f))
    }

    /// Calls `f` with block `block` if that is in memory; `None` otherwise. `f` runs in an RCU read
    /// section: it must not wait for anything that waits for read sections.
    #[inline]
    pub fn with_found<R>(&self, block: u64, f: impl FnOnce(Found<'_>) -> R) -> Option<R> {
        let guard = &rcu::pin();
        let block = self
            .table
            .get(block, guard)
            .map(RcuRef::get)
            .filter(|found| found.is_ready())?;
        self.hits.add([1]);
        Some(f(Found { block, guard }))
    }

    /// Reads block `block` from the device again if it is in memory, after it has been
    /// [written](Self::write) past the cache. As after a load, its flags are clear and no change is
    /// put off. The caller ensures that no change of the block waits to be written, and that no
    /// thread writes it at the same time.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device; [`Error::Io`] if the device cannot read
    /// it.
    pub fn reload(&self, block: u64) -> Result<()> {
        if self.with_cached(block, |_| ()).is_none() {
            return Ok(());
        }
        let mut contents = [self.blank()];
        self.read_run(block, &mut contents)?;
        let mut buffer = self.read(block)?;
        buffer.change(|bytes, unsealed| {
            bytes.copy_from_slice(&contents[0]);
            *unsealed = Unsealed::default();
        });
        buffer.flags().store(0, Relaxed);
        Ok(())
    }

    /// Changes block `block`, as [`Buffer::change`] does, if its [tag](Buffer::tag) is `tag`;
    /// returns `change` otherwise. The caller that set the tag keeps a [`Pin`] of the block for as
    /// long as the block has the tag. So the change takes no reference.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device; [`Error::Io`] if the device cannot read
    /// it.
    #[inline]
    pub fn change_tagged<R, F: FnOnce(&mut [u8], &mut Unsealed) -> R>(
        &self,
        block: u64,
        tag: u64,
        change: F,
    ) -> std::result::Result<R, F> {
        match self.tagged(block, tag, &rcu::pin()) {
            Some(found) => Ok(found.change(|newest| newest.edit(change))),
            None => Err(change),
        }
    }

    /// Changes bytes `range` of block `block`, as [`change_tagged`](Self::change_tagged) does for
    /// all of it. The parts of that length in the block are independent of each other, and threads
    /// may change several at the same time.
    ///
    /// Each part records its own put-off work in its own bits, and the work common to all parts
    /// in common bits. The thread that seals the block gets the bits of all parts, combined by
    /// `or`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device; [`Error::Io`] if the device cannot read
    /// it.
    #[inline]
    pub fn change_part_tagged<R, F: FnOnce(&mut [u8], &mut Unsealed) -> R>(
        &self,
        block: u64,
        tag: u64,
        range: Range<usize>,
        change: F,
    ) -> std::result::Result<R, F> {
        match self.tagged(block, tag, &rcu::pin()) {
            Some(found) => Ok(found.change_part(range, change)),
            None => Err(change),
        }
    }

    #[inline]
    fn tagged<'g>(&'g self, block: u64, tag: u64, guard: &'g Guard) -> Option<&'g Block> {
        let found = self.table.get(block, guard).map(RcuRef::get)?;
        // Relaxed: the code that sets tags defines when they count.
        (found.is_ready() && found.tag.load(Relaxed) == tag).then_some(found)
    }

    /// Returns the buffer of block `block`, read from the device if need be.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device; [`Error::Io`] if the device cannot read
    /// it.
    pub fn read(&self, block: u64) -> Result<Buffer> {
        self.check(block)?;
        let (held, mine) = self.find_or_insert(block);
        if mine {
            self.load(std::slice::from_ref(&held));
        } else {
            self.count_found(&held);
        }
        finish(held)
    }

    /// Returns a buffer of block `block` that holds zeroes, whatever the device holds: for a newly
    /// allocated block. The zeroes are a change, which the caller has to write like any other.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device.
    pub fn fresh(&self, block: u64) -> Result<Buffer> {
        self.check(block)?;
        let (held, mine) = self.find_or_insert(block);
        if mine {
            self.publish(&held, Ok(self.blank()));
        }
        let mut buffer = finish(held)?;
        buffer.reset_sharers();
        buffer.change(|bytes, unsealed| {
            bytes.fill(0);
            *unsealed = Unsealed::default();
        });
        buffer.flags().store(0, Relaxed);
        Ok(buffer)
    }

    /// Returns the buffer of block `block`, for a caller that is about to overwrite it with
    /// `bytes`. If the block is not in memory, the cache does not read it: the buffer already holds
    /// `bytes`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device.
    pub fn read_as(&self, block: u64, bytes: &[u8]) -> Result<Buffer> {
        self.check(block)?;
        let (held, mine) = self.find_or_insert(block);
        if mine {
            self.publish(&held, Ok(bytes.into()));
        }
        finish(held)
    }

    /// Writes `bytes` to the device from block `block` on, past the cache. They are contents that
    /// no thread reads through the cache, or [`Snapshot`]s of blocks that are in the cache.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] beyond the end of the device; [`Error::Io`] if the device cannot
    /// write, or refuses writing.
    pub fn write(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.write_bytes(block.saturating_mul(self.block_size().into()), bytes)
    }

    /// Writes `bytes` to the device from byte `offset` of the volume on, past the cache.
    ///
    /// Concurrent writes to common bytes take effect one after the other only if
    /// [`BlockDevice::writes_whole`] says so.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] beyond the end of the device; [`Error::Io`] if the device cannot
    /// write, or refuses writing.
    pub fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_at(bytes, offset)
    }

    /// Returns the buffers of a run of blocks, in order. One device read fetches adjacent missing
    /// blocks. All buffers are held at once, so the caller bounds the run.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a block beyond the device; [`Error::Io`] if the device cannot read
    /// it.
    pub fn read_many(&self, blocks: Range<u64>) -> Result<Vec<Buffer>> {
        if let Some(last) = blocks.end.checked_sub(1) {
            self.check(last)?;
        }
        let mut all = Vec::new();
        let mut missing = Vec::new();
        for block in blocks {
            let (held, mine) = self.find_or_insert(block);
            if mine {
                missing.push(held.clone());
            } else {
                self.count_found(&held);
            }
            all.push(held);
        }
        self.load(&missing);
        all.into_iter().map(finish).collect()
    }

    /// Reads the `blocks` that are not in memory, in as few device reads as possible. Reads at
    /// most a quarter of the cache. Skips blocks outside the volume and ignores failed reads: a
    /// later lookup of such a block reports the error.
    pub fn read_ahead(&self, blocks: Range<u64>) {
        let end = blocks.end.min(self.options.block_count);
        let missing: Vec<_> = (blocks.start..end)
            .take(
                usize::try_from(self.options.budget.limit() / self.buffer_bytes() / 4)
                    .unwrap_or(usize::MAX),
            )
            .filter(|&block| self.table.get(block, &rcu::pin()).is_none())
            .map(|block| self.find_or_insert(block))
            .filter_map(|(held, mine)| mine.then_some(held))
            .collect();
        self.load(&missing);
    }

    /// Returns the counts since the cache was made. They may or may not include lookups that run at
    /// the same time.
    pub fn stats(&self) -> CacheStats {
        let sum = |count: fn(&Counts) -> &AtomicU64| {
            self.counts.iter().map(|cpu| count(cpu).load(Relaxed)).sum()
        };
        let [hits] = self.hits.sum();
        CacheStats {
            hits,
            misses: sum(|counts| &counts.misses),
            waits: sum(|counts| &counts.waits),
            allocations: sum(|counts| &counts.allocations),
            evictions: sum(|counts| &counts.evictions),
            device_reads: sum(|counts| &counts.device_reads),
            resident: self.table.len() as u64,
        }
    }

    fn check(&self, block: u64) -> Result<()> {
        let block_count = self.options.block_count;
        if block < block_count {
            Ok(())
        } else {
            Err(Error::BlockOutOfRange { block, block_count })
        }
    }

    fn count_found(&self, held: &RcuArc<Block>) {
        if held.is_ready() {
            self.hits.add([1]);
        } else {
            self.counts.local().waits.fetch_add(1, Relaxed);
        }
    }

    /// Returns the entry of `block`, and whether this call has inserted it. The caller then has to
    /// [`load`](Self::load) it.
    fn find_or_insert(&self, block: u64) -> (RcuArc<Block>, bool) {
        let found = self
            .table
            .get(block, &rcu::pin())
            .and_then(RcuRef::try_upgrade);
        if let Some(held) = found {
            return (held, false);
        }
        let (held, mine) = self.table.find_or_insert(block);
        if mine {
            self.make_room();
        }
        (held, mine)
    }

    /// Counts one more entry, and evicts others if the budget is exceeded.
    fn make_room(&self) {
        self.counts.local().allocations.fetch_add(1, Relaxed);
        let bytes = self.buffer_bytes();
        self.account.add(bytes);
        let excess = self
            .account
            .excess()
            .min(self.account.used().saturating_sub(MIN_BLOCKS * bytes));
        if excess == 0 {
            return;
        }
        self.evict(EVICT_BATCH.max((excess / bytes).min(MAX_EVICTED) as usize));
    }

    /// Evicts up to `want` buffers. Returns how many.
    fn evict(&self, want: usize) -> u64 {
        let evicted = self.table.evict(want) as u64;
        self.account.sub(evicted * self.buffer_bytes());
        self.counts.local().evictions.fetch_add(evicted, Relaxed);
        evicted
    }

    /// Returns the bytes of a budget that one buffer of `block_size` bytes takes.
    pub fn bytes_of_buffer(block_size: u32) -> u64 {
        u64::from(block_size) + BLOCK_BYTES
    }

    fn buffer_bytes(&self) -> u64 {
        Self::bytes_of_buffer(self.options.block_size)
    }

    /// Reads the blocks of `placeholders`, which the caller has inserted and which are in ascending
    /// order.
    fn load(&self, placeholders: &[RcuArc<Block>]) {
        // If the device panics, this fails the placeholders, so that the waiters do not wait for
        // ever.
        let _abandon = Abandon {
            cache: self,
            placeholders,
        };
        self.counts
            .local()
            .misses
            .fetch_add(placeholders.len() as u64, Relaxed);
        let adjacent = |a: &RcuArc<Block>, b: &RcuArc<Block>| a.number + 1 == b.number;
        for run in placeholders
            .chunk_by(adjacent)
            .flat_map(|run| run.chunks(MAX_BATCH))
        {
            self.load_run(run);
        }
    }

    fn load_run(&self, run: &[RcuArc<Block>]) {
        let mut contents: Vec<_> = iter::repeat_with(|| self.blank()).take(run.len()).collect();
        match self.read_run(run[0].number, &mut contents) {
            Ok(()) => run
                .iter()
                .zip(contents)
                .for_each(|(held, bytes)| self.publish(held, Ok(bytes))),
            Err(error) if run.len() == 1 => self.publish(&run[0], Err(error)),
            // One bad block must not fail its neighbours, so each block is read alone.
            Err(_) => run.chunks(1).for_each(|alone| self.load_run(alone)),
        }
    }

    fn blank(&self) -> Bytes {
        Bytes::zeroed(self.options.block_size as usize)
    }

    /// Fills `contents` with the blocks from `first` on.
    fn read_run(&self, first: u64, contents: &mut [Bytes]) -> Result<()> {
        let size = u64::from(self.options.block_size);
        let len = contents.len() as u64;
        let offset = first.checked_mul(size).ok_or(Error::OutOfRange {
            op: Op::Read,
            offset: u64::MAX,
            len: size * len,
            size: self.device.size_bytes(),
        })?;
        self.counts.local().device_reads.fetch_add(1, Relaxed);
        match contents {
            [bytes] => self.device.read_at(bytes, offset),
            contents => {
                let mut slices: Vec<_> = contents
                    .iter_mut()
                    .map(|bytes| IoSliceMut::new(bytes))
                    .collect();
                self.device.read_vectored_at(&mut slices, offset)
            }
        }
    }

    /// Ends a load. After an error, this removes the placeholder from the table before any waiter
    /// learns of the error.
    fn publish(&self, held: &RcuArc<Block>, result: Result<Bytes>) {
        if result.is_err() && self.table.remove(held) {
            self.account.sub(self.buffer_bytes());
        }
        // OK: only the thread that made the placeholder publishes, and once.
        let _ = held.loaded.set(result.map_err(Box::new));
    }
}

/// Waits until the read of `held` has finished, and returns its buffer or error.
fn finish(held: RcuArc<Block>) -> Result<Buffer> {
    match held.loaded.wait() {
        Ok(_) => Ok(Buffer::new(held)),
        Err(error) => Err((**error).clone()),
    }
}

/// On drop, fails the placeholders that a load left empty, which happens only by a panic.
struct Abandon<'a> {
    cache: &'a BufferCache,
    placeholders: &'a [RcuArc<Block>],
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        for held in self
            .placeholders
            .iter()
            .filter(|held| held.loaded.get().is_none())
        {
            let size = self.cache.block_size().into();
            let offset = held.number.saturating_mul(size);
            let error = io::Error::other("the thread that read it has panicked");
            self.cache
                .publish(held, Err(Error::io(Op::Read, offset, size, error)));
        }
    }
}

impl Reclaim for BufferCache {
    fn account(&self) -> &CacheAccount {
        &self.account
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        let mut evicted = 0;
        while evicted < bytes {
            match self.evict(MAX_EVICTED as usize) {
                0 => break,
                buffers => evicted += buffers * self.buffer_bytes(),
            }
        }
        evicted
    }
}

impl fmt::Debug for BufferCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferCache")
            .field("options", &self.options)
            .field("stats", &self.stats())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;
    use extern4_sync::rcu_arc::Link;

    fn cache(blocks: u64) -> BufferCache {
        let bytes = (0..blocks).flat_map(|block| [block as u8; 1024]).collect();
        let options = CacheOptions {
            block_size: 1024,
            block_count: blocks,
            budget: CacheBudget::new(1 << 20),
        };
        BufferCache::new(Arc::new(MemoryDevice::new(bytes)), options).unwrap()
    }

    #[test]
    fn a_lookup_reads_one_line() {
        let read = std::mem::offset_of!(Block, flags);
        assert_eq!(
            (size_of::<Link>() + read, RcuArc::<Block>::BYTES),
            (64, 192)
        );
    }

    #[test]
    fn with_cached_finds_only_blocks_in_memory() {
        let cache = cache(8);
        assert_eq!(cache.with_cached(3, |block| block[0]), None);
        cache.reload(3).unwrap();
        assert_eq!(cache.with_cached(3, |block| block[0]), None);
        cache.read(3).unwrap();
        assert_eq!(cache.with_cached(3, |block| block[0]), Some(3));
        cache.write(3, &[9; 1024]).unwrap();
        assert_eq!(cache.with_cached(3, |block| block[0]), Some(3));
        cache.reload(3).unwrap();
        assert_eq!(cache.with_cached(3, |block| block[0]), Some(9));
        cache.read(3).unwrap().change(|bytes, _| bytes.fill(7));
        assert_eq!(cache.with_cached(3, |block| block[0]), Some(7));
    }

    #[test]
    fn an_overwritten_block_is_not_read_before() {
        let cache = cache(8);
        cache.read(4).unwrap();
        let before = cache.stats().device_reads;
        assert_eq!(
            (
                cache.read_as(3, &[9; 1024]).unwrap()[7],
                cache.read_as(4, &[9; 1024]).unwrap()[7]
            ),
            (9, 4)
        );
        assert_eq!(cache.stats().device_reads, before);
        assert!(matches!(
            cache.read_as(8, &[9; 1024]),
            Err(Error::BlockOutOfRange { .. })
        ));
    }

    #[test]
    fn a_reloaded_block_is_as_after_a_load() {
        let cache = cache(8);
        let mut buffer = cache.read(3).unwrap();
        buffer.flags().store(5, Relaxed);
        buffer.change(|_, unsealed| *unsealed = [1; 4]);
        cache.reload(3).unwrap();
        let again = cache.read(3).unwrap();
        assert_eq!(
            (again[0], again.unsealed(), again.flags().load(Relaxed)),
            (3, Unsealed::default(), 0)
        );
    }

    #[test]
    fn a_second_read_hits() {
        let cache = cache(8);
        assert_eq!(cache.read(3).unwrap()[..], [3; 1024]);
        assert_eq!(cache.with(3, |block| block[0]).unwrap(), 3);
        let stats = cache.stats();
        assert_eq!(
            (
                stats.hits,
                stats.misses,
                stats.allocations,
                stats.device_reads
            ),
            (1, 1, 1, 1)
        );
    }

    #[test]
    fn peek_never_reads() {
        let cache = cache(8);
        let guard = rcu::pin();
        assert!(cache.peek(3, &guard).is_none() && cache.peek(u64::MAX, &guard).is_none());
        assert_eq!(cache.stats(), CacheStats::default());
        cache.read(3).unwrap();
        assert_eq!(cache.peek(3, &guard).unwrap()[5], 3);
    }

    #[test]
    fn flags_live_as_long_as_the_buffer() {
        let cache = cache(8);
        cache.read(3).unwrap().flags().store(5, Relaxed);
        assert_eq!(cache.read(3).unwrap().flags().load(Relaxed), 5);
    }

    #[test]
    fn adjacent_misses_are_one_device_read() {
        let cache = cache(8);
        cache.read(4).unwrap();
        let buffers = cache.read_many(2..8).unwrap();
        assert!(
            buffers
                .iter()
                .zip(2..)
                .all(|(buffer, block)| buffer.number() == block && buffer[9] == block as u8)
        );
        assert_eq!(cache.stats().device_reads, 3);
        cache.read_ahead(0..100);
        let stats = cache.stats();
        assert_eq!(
            (stats.device_reads, stats.misses, stats.hits, stats.resident),
            (4, 8, 1, 8)
        );
        assert!(cache.read_many(5..5).unwrap().is_empty());
    }

    #[test]
    fn a_block_outside_the_volume_is_refused() {
        let cache = cache(8);
        for block in [8, u64::MAX] {
            assert!(matches!(
                cache.read(block),
                Err(Error::BlockOutOfRange { block_count: 8, .. })
            ));
            assert!(cache.with(block, |_| ()).is_err());
        }
        assert!(matches!(
            cache.read_many(7..9),
            Err(Error::BlockOutOfRange { block: 8, .. })
        ));
        assert!(matches!(
            cache.read_many(0..u64::MAX),
            Err(Error::BlockOutOfRange { .. })
        ));
        cache.read_ahead(u64::MAX - 1..u64::MAX);
        assert_eq!(cache.stats(), CacheStats::default());
    }

    #[test]
    fn later_lookups_see_a_change() {
        let cache = cache(8);
        let mut buffer = cache.read(3).unwrap();
        let before = cache.read(3).unwrap();
        let pin = buffer.pin();
        buffer.change(|bytes, _| bytes[0] = 9);
        let first = pin.snapshot();
        buffer.change(|bytes, _| bytes[1] = 8);
        assert_eq!(
            (before[0], &first[..2], &buffer[..2]),
            (3, &[9, 3][..], &[9, 8][..])
        );
        assert_eq!(cache.read(3).unwrap()[..2], [9, 8]);
        assert_eq!(cache.with(3, |bytes| bytes[1]).unwrap(), 8);
        assert!(cache.peek(3, &rcu::pin()).is_none());
        // Nothing of it has been written.
        let mut on_device = [0; 2];
        cache.device().read_at(&mut on_device, 3 * 1024).unwrap();
        assert_eq!(on_device, [3, 3]);
        cache.write(3, &pin.snapshot()).unwrap();
        cache.device().read_at(&mut on_device, 3 * 1024).unwrap();
        assert_eq!(on_device, [9, 8]);
    }

    #[test]
    fn a_block_that_is_often_read_is_published_until_it_changes() {
        let cache = cache(8);
        let mut buffer = cache.read(3).unwrap();
        // The looks that it takes: see `shown`.
        const STREAK: u32 = 16;
        let guard = rcu::pin();
        for change in 0..3 {
            buffer.change(|bytes, _| bytes.fill(10 + change));
            for _ in 0..STREAK {
                assert!(cache.peek(3, &guard).is_none());
                assert_eq!(cache.with(3, |bytes| bytes[1]).unwrap(), 10 + change);
            }
            let shown = cache.peek(3, &guard).unwrap();
            assert_eq!(
                (shown[1], cache.with(3, |bytes| bytes[1]).unwrap()),
                (10 + change, 10 + change)
            );
            buffer.pin().seal(|_, _| panic!("nothing has been put off"));
            assert!(cache.peek(3, &guard).is_some());
            buffer.change(|bytes, unsealed| (bytes[1], unsealed[0]) = (99, 1));
            assert_eq!(
                (shown[1], cache.with(3, |bytes| bytes[1]).unwrap()),
                (10 + change, 99)
            );
            (1..STREAK).for_each(|_| cache.with(3, |_| ()).unwrap());
            assert!(cache.peek(3, &guard).is_some());
            buffer.pin().seal(|bytes, _| bytes[1] = 100);
            assert!(cache.peek(3, &guard).is_none());
            assert_eq!(
                (cache.with(3, |bytes| bytes[1]).unwrap(), shown[1]),
                (100, 10 + change)
            );
        }
    }

    #[test]
    fn put_off_work_is_done_once_and_shows_until_then() {
        let cache = cache(8);
        let mut buffer = cache.read(3).unwrap();
        let pin = buffer.pin();
        pin.seal(|_, _| panic!("nothing has been put off"));
        buffer.change(|_, unsealed| unsealed[1] = 7);
        buffer.change(|bytes, unsealed| bytes[0] = unsealed[1] as u8);
        assert_eq!(
            (buffer.unsealed(), cache.read(3).unwrap().unsealed()),
            ([0, 7, 0, 0], [0, 7, 0, 0])
        );
        pin.seal(|bytes, unsealed| bytes[1] = unsealed[1] as u8 + 1);
        pin.seal(|_, _| panic!("it has been done"));
        let sealed = cache.read(3).unwrap();
        assert_eq!(
            (&sealed[..3], sealed.unsealed()),
            (&[7, 8, 3][..], Unsealed::default())
        );
        assert_eq!(
            (buffer[1], &pin.snapshot()[..2]),
            (3, &[7, 8][..]),
            "a reader keeps its snapshot"
        );
        buffer.change(|_, unsealed| unsealed[0] = 1);
        assert_eq!(
            cache.fresh(3).unwrap().unsealed(),
            Unsealed::default(),
            "it is another's block now"
        );
    }

    #[test]
    fn a_pinned_block_is_not_evicted_and_a_fresh_one_is_not_read() {
        let cache = cache(256);
        let options = CacheOptions {
            block_size: 1024,
            block_count: 256,
            budget: CacheBudget::new(0),
        };
        let small = BufferCache::new(Arc::clone(cache.device()), options).unwrap();
        let mut fresh = small.fresh(7).unwrap();
        assert!(fresh.iter().all(|&byte| byte == 0) && small.stats().device_reads == 0);
        fresh.change(|bytes, _| bytes[5] = 1);
        let pin = fresh.pin();
        drop(fresh);
        (8..256).for_each(|block| drop(small.read(block).unwrap()));
        assert_eq!(small.read(7).unwrap()[5], 1);
        drop(pin);
        // The cache evicts the least used of a few buffers, so it takes some rounds to meet this
        // one.
        for _ in 0..100 {
            (8..256).for_each(|block| drop(small.read(block).unwrap()));
        }
        assert_eq!(small.read(7).unwrap()[5], 7, "no pin keeps it");
    }

    #[test]
    fn a_block_size_that_is_none_is_refused() {
        for block_size in [0, 256, 1000, 131072] {
            let options = CacheOptions {
                block_size,
                block_count: 1,
                budget: CacheBudget::new(0),
            };
            let cache = BufferCache::new(Arc::new(MemoryDevice::zeroed(0)), options);
            assert!(matches!(cache, Err(Error::BlockSize(size)) if size == block_size));
        }
    }
}
