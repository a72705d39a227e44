//! A tree of buffers under one lock, which the baseline and the patch share.
//!
//! They look blocks up and insert them here. A block has at most one buffer, and one thread reads
//! it from the device. The tree evicts in the simplest way, so its cost is not that of a good
//! policy.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};

use extern4_block::{BlockDevice, Error, Result};
use extern4_sync::primitive::{AtomicBool, Mutex, MutexGuard, Ordering};
use extern4_sync::thread_counter::ThreadCounter;

use super::{Counts, Shape};

/// A buffer of a block. A thread that looks at it holds a reference and its lock.
pub(super) struct Buffer {
    number: u64,
    /// A thread has looked at it since it was last spared.
    used: AtomicBool,
    /// `None` until a thread has read the block.
    bytes: Mutex<Option<Box<[u8]>>>,
}

/// Buffers by number, under a lock.
pub(super) struct Tree {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    block_count: u64,
    capacity: usize,
    index: Mutex<Index>,
    /// Hits, misses, allocations.
    counts: ThreadCounter<3>,
}

/// The data that the lock protects.
#[derive(Default)]
struct Index {
    buffers: BTreeMap<u64, Arc<Buffer>>,
    /// The buffers, in the order in which they were inserted or last spared.
    queue: VecDeque<u64>,
}

impl Index {
    /// Evicts the first buffer in the queue that no thread refers to or has used since it was last
    /// spared. Buffers before it are spared: they go to the end of the queue, without their used
    /// mark. Returns `None` if a pass over the queue finds none.
    fn evict(&mut self) -> Option<Arc<Buffer>> {
        for _ in 0..self.queue.len() {
            let oldest = self.queue.pop_front()?;
            let buffer = &self.buffers[&oldest];
            // Relaxed: a hint.
            if !buffer.used.swap(false, Ordering::Relaxed) && Arc::strong_count(buffer) == 1 {
                return self.buffers.remove(&oldest);
            }
            self.queue.push_back(oldest);
        }
        None
    }
}

impl Tree {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            device: Arc::clone(&shape.device),
            block_size: shape.block_size,
            block_count: shape.block_count,
            capacity: shape.capacity,
            index: Mutex::new(Index::default()),
            counts: ThreadCounter::new(),
        }
    }

    /// Refuses a block outside the device.
    pub(super) fn check(&self, block: u64) -> Result<()> {
        let block_count = self.block_count;
        if block < block_count {
            Ok(())
        } else {
            Err(Error::BlockOutOfRange { block, block_count })
        }
    }

    /// Allocates and initialises a buffer.
    pub(super) fn allocate(&self, number: u64) -> Arc<Buffer> {
        self.counts.add([0, 0, 1]);
        Arc::new(Buffer {
            number,
            used: AtomicBool::new(false),
            bytes: Mutex::new(None),
        })
    }

    /// Returns the buffer of a block, if it is in memory.
    pub(super) fn find(&self, block: u64) -> Option<Arc<Buffer>> {
        lock(&self.index).buffers.get(&block).map(Arc::clone)
    }

    /// Returns the buffer in memory for the block of `buffer`. If there is none, inserts `buffer`
    /// and returns it.
    pub(super) fn find_or_insert(&self, buffer: Arc<Buffer>) -> Arc<Buffer> {
        let number = buffer.number;
        // The evicted buffer is freed after the lock is released.
        let mut index = lock(&self.index);
        if let Some(found) = index.buffers.get(&number) {
            return Arc::clone(found);
        }
        let evicted = if index.buffers.len() >= self.capacity {
            index.evict()
        } else {
            None
        };
        index.buffers.insert(number, Arc::clone(&buffer));
        index.queue.push_back(number);
        drop(index);
        drop(evicted);
        buffer
    }

    /// Calls `look` with the contents of a buffer. Reads the block first if no thread has yet.
    pub(super) fn look<R>(&self, buffer: &Buffer, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        // Relaxed: a hint.
        if !buffer.used.load(Ordering::Relaxed) {
            buffer.used.store(true, Ordering::Relaxed);
        }
        let mut bytes = lock(&buffer.bytes);
        let hit = bytes.is_some();
        self.counts.add([u64::from(hit), u64::from(!hit), 0]);
        if bytes.is_none() {
            *bytes = Some(self.load(buffer.number)?);
        }
        Ok(look(bytes.as_deref().expect("it was just read")))
    }

    fn load(&self, block: u64) -> Result<Box<[u8]>> {
        let mut bytes = vec![0; self.block_size as usize];
        self.device
            .read_at(&mut bytes, block * u64::from(self.block_size))?;
        Ok(bytes.into())
    }

    pub(super) fn counts(&self) -> Counts {
        let [hits, misses, allocations] = self.counts.sum();
        Counts {
            hits,
            misses,
            allocations,
        }
    }
}

/// Locks. The data stay consistent after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
