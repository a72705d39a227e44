//! The buffer cache: blocks of one volume, kept in memory.
//!
//! Invariants: a block has at most one live buffer, and that is the one in the table. A miss puts an empty
//! placeholder into the table first, so that one thread reads the device and the others wait for it; nothing is
//! allocated, initialised or read under a lock. A failed read removes its placeholder before it wakes the waiters
//! with the error, so a later lookup tries again. A block outside the volume is refused before the table is touched.

use std::collections::HashMap;
use std::fmt;
use std::io::IoSliceMut;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{BlockDevice, Error, Result};

const SHARDS: usize = 64;
/// Blocks that one device read fetches at most.
const MAX_BATCH: u64 = 256;

/// What a [`BufferCache`] caches and how much of it.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Bytes in a block: a power of two from 512 to 65536.
    pub block_size: u32,
    /// Blocks in the volume; any block from this on is refused.
    pub block_count: u64,
    /// Bytes of block contents to keep at most.
    pub memory_bytes: usize,
}

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups answered from memory.
    pub hits: u64,
    /// Lookups that had to read the device.
    pub misses: u64,
    /// Lookups that waited for another thread's read.
    pub waits: u64,
    /// Buffers allocated.
    pub allocations: u64,
    /// Buffers given up to stay inside the memory bound.
    pub evictions: u64,
    /// Reads sent to the device; one may fetch several blocks.
    pub device_reads: u64,
}

/// One block in memory; derefs to its bytes, which never change.
pub struct Block {
    number: u64,
    flags: AtomicU32,
    image: OnceLock<Result<Box<[u8]>>>,
}

impl Block {
    /// The block's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bits that belong to the caller and live as long as the buffer does: all clear after a load. A user that
    /// verified the block's checksum notes it here, so that it does so once a load.
    pub fn flags(&self) -> &AtomicU32 {
        &self.flags
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.image.get() {
            Some(Ok(image)) => image,
            _ => unreachable!("block {} was handed out without contents", self.number),
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("number", &self.number).field("len", &self.len()).finish()
    }
}

/// A block held in memory for as long as this lives. Cheap to clone; derefs to the [`Block`] and so to its bytes.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<Block>);

impl Deref for Buffer {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.0
    }
}

/// A cache of the blocks of one volume.
pub struct BufferCache {
    device: Arc<dyn BlockDevice>,
    options: CacheOptions,
    shards: Box<[Mutex<HashMap<u64, Arc<Block>>>]>,
    counters: [AtomicU64; 6],
}

impl BufferCache {
    /// An empty cache over `device`.
    pub fn new(device: Arc<dyn BlockDevice>, options: CacheOptions) -> Result<Self> {
        if !options.block_size.is_power_of_two() || !(512..=65536).contains(&options.block_size) {
            return Err(Error::BlockSize(options.block_size));
        }
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Ok(Self { device, options, shards, counters: Default::default() })
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> u32 {
        self.options.block_size
    }

    /// Blocks in the volume.
    pub fn block_count(&self) -> u64 {
        self.options.block_count
    }

    /// The buffer of `block`, read from the device if need be.
    pub fn read(&self, block: u64) -> Result<Buffer> {
        let next = block.checked_add(1).ok_or(self.out_of_range(block))?;
        let mut buffers = self.read_many(block..next)?;
        Ok(buffers.swap_remove(0))
    }

    /// Calls `f` with `block`. The cheapest way to look at a block: a hit takes no reference.
    pub fn with<R>(&self, block: u64, f: impl FnOnce(&Block) -> R) -> Result<R> {
        let buffer = self.read(block)?;
        Ok(f(&buffer))
    }

    /// The buffers of a run of blocks, in order. Adjacent blocks that are missing are read together.
    pub fn read_many(&self, blocks: Range<u64>) -> Result<Vec<Buffer>> {
        if blocks.end > self.options.block_count {
            return Err(self.out_of_range(blocks.end - 1));
        }
        let mut slots = Vec::new();
        let mut missing = Vec::new();
        for block in blocks {
            let (slot, mine) = self.find_or_insert(block);
            if mine {
                missing.push(slot.clone());
            } else {
                let counter = if slot.image.get().is_some() { 0 } else { 2 };
                self.counters[counter].fetch_add(1, Relaxed);
            }
            slots.push(slot);
        }
        self.load(&missing);
        slots
            .into_iter()
            .map(|slot| match slot.image.wait() {
                Ok(_) => Ok(Buffer(slot)),
                Err(error) => Err(error.clone()),
            })
            .collect()
    }

    /// Reads those of `blocks` that are not in memory, in as few device reads as it takes. Blocks outside the volume
    /// and failing reads are passed over: who needs the block learns of it.
    pub fn read_ahead(&self, blocks: Range<u64>) {
        let end = blocks.end.min(self.options.block_count);
        let missing: Vec<_> = (blocks.start..end)
            .map(|block| self.find_or_insert(block))
            .filter_map(|(slot, mine)| mine.then_some(slot))
            .collect();
        self.load(&missing);
    }

    /// Counts since the cache was made.
    pub fn stats(&self) -> CacheStats {
        let [hits, misses, waits, allocations, evictions, device_reads] =
            std::array::from_fn(|i| self.counters[i].load(Relaxed));
        CacheStats { hits, misses, waits, allocations, evictions, device_reads }
    }

    fn out_of_range(&self, block: u64) -> Error {
        Error::BlockOutOfRange { block, block_count: self.options.block_count }
    }

    fn shard(&self, block: u64) -> MutexGuard<'_, HashMap<u64, Arc<Block>>> {
        let shard = &self.shards[block as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of `block`, and whether the caller has just made it and has to load it.
    fn find_or_insert(&self, block: u64) -> (Arc<Block>, bool) {
        if let Some(slot) = self.shard(block).get(&block) {
            return (slot.clone(), false);
        }
        let new = Arc::new(Block { number: block, flags: AtomicU32::new(0), image: OnceLock::new() });
        self.counters[3].fetch_add(1, Relaxed);
        let mut shard = self.shard(block);
        let slot = shard.entry(block).or_insert_with(|| new.clone()).clone();
        let mine = Arc::ptr_eq(&slot, &new);
        (slot, mine)
    }

    /// Fills the placeholders `slots`, which the caller made and which are in rising order.
    fn load(&self, slots: &[Arc<Block>]) {
        self.counters[1].fetch_add(slots.len() as u64, Relaxed);
        let adjacent = |a: &Arc<Block>, b: &Arc<Block>| a.number + 1 == b.number;
        for run in slots.chunk_by(adjacent).flat_map(|run| run.chunks(MAX_BATCH as usize)) {
            let size = self.options.block_size as usize;
            let mut images: Vec<Box<[u8]>> = run.iter().map(|_| vec![0; size].into()).collect();
            match self.read_run(run[0].number, &mut images) {
                Ok(()) => run.iter().zip(images).for_each(|(slot, image)| self.publish(slot, Ok(image))),
                // One bad block must not fail its neighbours: each is read alone.
                Err(_) if run.len() > 1 => {
                    for (slot, image) in run.iter().zip(&mut images) {
                        let image = std::slice::from_mut(image);
                        let result =
                            self.read_run(slot.number, image).map(|()| std::mem::take(&mut image[0]));
                        self.publish(slot, result);
                    }
                }
                Err(error) => self.publish(&run[0], Err(error)),
            }
        }
    }

    fn read_run(&self, block: u64, images: &mut [Box<[u8]>]) -> Result<()> {
        self.counters[5].fetch_add(1, Relaxed);
        let offset = block.checked_mul(u64::from(self.options.block_size)).ok_or(self.out_of_range(block))?;
        let mut slices: Vec<_> = images.iter_mut().map(|image| IoSliceMut::new(image)).collect();
        self.device.read_vectored_at(&mut slices, offset)
    }

    fn publish(&self, slot: &Arc<Block>, result: Result<Box<[u8]>>) {
        if result.is_err() {
            self.shard(slot.number).remove(&slot.number);
        }
        // OK: only the thread that made the placeholder publishes, and once.
        let _ = slot.image.set(result);
    }
}

impl fmt::Debug for BufferCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferCache").field("options", &self.options).field("stats", &self.stats()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn cache(blocks: u64) -> BufferCache {
        let bytes = (0..blocks).flat_map(|block| [block as u8; 1024]).collect();
        let options = CacheOptions { block_size: 1024, block_count: blocks, memory_bytes: 1 << 20 };
        BufferCache::new(Arc::new(MemoryDevice::new(bytes)), options).unwrap()
    }

    #[test]
    fn a_second_read_hits() {
        let cache = cache(8);
        assert_eq!(cache.read(3).unwrap()[..], [3; 1024]);
        assert_eq!(cache.with(3, |block| block[0]).unwrap(), 3);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.device_reads), (1, 1, 1));
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
        assert_eq!(cache.stats().device_reads, 4);
    }

    #[test]
    fn a_block_outside_the_volume_is_refused() {
        let cache = cache(8);
        for block in [8, u64::MAX] {
            assert!(matches!(cache.read(block), Err(Error::BlockOutOfRange { block_count: 8, .. })));
        }
        assert!(matches!(cache.read_many(7..9), Err(Error::BlockOutOfRange { block: 8, .. })));
    }
}
