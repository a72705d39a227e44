//! A tree of buffers under a lock, which the baseline and the patch have in common.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use extern4_block::{BlockDevice, Error, Result};
use extern4_sync::primitive::{AtomicBool, AtomicU64, Mutex, Ordering};
use extern4_sync::thread_counter::ThreadCounter;

use super::{Counts, Shape};

/// A buffer: counted by who looks at it, and locked meanwhile.
pub(super) struct Buffer {
    number: u64,
    /// It has been looked at since it was last spared.
    used: AtomicBool,
    /// None until somebody has read the block.
    bytes: Mutex<Option<Box<[u8]>>>,
}

/// Buffers by number, under a lock. Where `TIMED`, a clock runs while a lock is held.
pub(super) struct Tree<const TIMED: bool> {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    block_count: u64,
    capacity: usize,
    index: Mutex<Index>,
    /// Hits, misses, allocations.
    counts: ThreadCounter<3>,
    held_nanos: AtomicU64,
}

/// What the lock protects.
#[derive(Default)]
struct Index {
    buffers: BTreeMap<u64, Arc<Buffer>>,
    /// In the order in which they came, or were last spared.
    queue: VecDeque<u64>,
}

impl Index {
    /// Gives up one buffer that nobody looks at or has looked at lately, if there is one among the
    /// oldest.
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

impl<const TIMED: bool> Tree<TIMED> {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            device: Arc::clone(&shape.device),
            block_size: shape.block_size,
            block_count: shape.block_count,
            capacity: shape.capacity,
            index: Mutex::new(Index::default()),
            counts: ThreadCounter::new(),
            held_nanos: AtomicU64::new(0),
        }
    }

    /// A block outside the device is refused.
    pub(super) fn check(&self, block: u64) -> Result<()> {
        let block_count = self.block_count;
        if block < block_count { Ok(()) } else { Err(Error::BlockOutOfRange { block, block_count }) }
    }

    /// Allocates and initialises a buffer.
    pub(super) fn allocate(&self, number: u64) -> Arc<Buffer> {
        self.counts.add([0, 0, 1]);
        Arc::new(Buffer { number, used: AtomicBool::new(false), bytes: Mutex::new(None) })
    }

    /// The buffer of a block, if it is in memory.
    pub(super) fn find(&self, block: u64) -> Option<Arc<Buffer>> {
        self.locked(&self.index, |index| index.buffers.get(&block).map(Arc::clone))
    }

    /// The buffer of its block that is in memory; itself, from now on, if there is none.
    pub(super) fn find_or_insert(&self, buffer: Arc<Buffer>) -> Arc<Buffer> {
        let number = buffer.number;
        // What is given up is freed when the lock is free.
        let (found, _evicted) = self.locked(&self.index, |index| {
            if let Some(found) = index.buffers.get(&number) {
                return (Arc::clone(found), None);
            }
            let evicted = if index.buffers.len() >= self.capacity { index.evict() } else { None };
            index.buffers.insert(number, Arc::clone(&buffer));
            index.queue.push_back(number);
            (Arc::clone(&buffer), evicted)
        });
        found
    }

    /// Looks at a buffer, having read its block if nobody has yet.
    pub(super) fn look<R>(&self, buffer: &Buffer, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        // Relaxed: a hint.
        if !buffer.used.load(Ordering::Relaxed) {
            buffer.used.store(true, Ordering::Relaxed);
        }
        self.locked(&buffer.bytes, |bytes| {
            let hit = bytes.is_some();
            self.counts.add([u64::from(hit), u64::from(!hit), 0]);
            let bytes = match bytes {
                Some(bytes) => bytes,
                None => bytes.insert(self.load(buffer.number)?),
            };
            Ok(look(bytes))
        })
    }

    fn load(&self, block: u64) -> Result<Box<[u8]>> {
        let mut bytes = vec![0; self.block_size as usize];
        self.device.read_at(&mut bytes, block * u64::from(self.block_size))?;
        Ok(bytes.into())
    }

    /// Does something under a lock.
    fn locked<T, R>(&self, lock: &Mutex<T>, act: impl FnOnce(&mut T) -> R) -> R {
        // A panic leaves what is here whole.
        let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let start = TIMED.then(Instant::now);
        let result = act(&mut guard);
        if let Some(start) = start {
            // Relaxed: a sum.
            self.held_nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        result
    }

    pub(super) fn counts(&self) -> Counts {
        let [hits, misses, allocations] = self.counts.sum();
        Counts { hits, misses, allocations, held_nanos: self.held_nanos.load(Ordering::Relaxed) }
    }
}
