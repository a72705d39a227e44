//! Attribute blocks, as far as caches have to do with them.

use std::sync::{Mutex, PoisonError};

use extern4_sync::primitive::{AtomicU32, Latch, Ordering};
use extern4_sync::shares::Shares;

/// Files that may have a block: as many as ext4 lets.
pub const MOST: u32 = 1024;

/// Blocks by number, from 1 on.
pub struct Blocks {
    blocks: Box<[Block]>,
    free: Mutex<Vec<u32>>,
}

/// A block, alone on its cache line. How many files have it stands where the side looks that uses it.
#[repr(align(64))]
struct Block {
    value: AtomicU32,
    /// New's.
    shares: Shares,
    /// The lock of the buffer, and the count in the header under it: Before's and Seed's.
    count: Latch<u32>,
}

impl Blocks {
    /// So many, all free.
    pub fn new(len: usize) -> Self {
        let block = || Block { value: AtomicU32::new(0), shares: Shares::new(), count: Latch::new(0) };
        let last = u32::try_from(len).expect("few");
        Self { blocks: (0..=len).map(|_| block()).collect(), free: Mutex::new((1..=last).rev().collect()) }
    }

    /// Takes up to so many that are free.
    pub fn take(&self, most: usize) -> Vec<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let from = free.len().saturating_sub(most);
        free.split_off(from)
    }

    /// Gives some back.
    pub fn give(&self, blocks: impl IntoIterator<Item = u32>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(blocks);
    }

    /// What a block holds.
    pub fn value(&self, block: u32) -> u32 {
        // Relaxed: whoever has the block has joined it since it was written, or wrote it. Others look again when they have joined.
        self.blocks[block as usize].value.load(Ordering::Relaxed)
    }

    /// Writes a block that is free.
    pub fn write(&self, block: u32, value: u32) {
        self.blocks[block as usize].value.store(value, Ordering::Relaxed);
    }

    /// How many share it.
    pub fn shares(&self, block: u32) -> &Shares {
        &self.blocks[block as usize].shares
    }

    /// Does something with the count in its header, under the lock of its buffer.
    pub fn locked<R>(&self, block: u32, act: impl FnOnce(&mut u32) -> R) -> R {
        act(&mut self.blocks[block as usize].count.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Joins a block under its lock, if it holds this and more may. How many it has then; zero if not, and if it is full, that.
    pub fn join_locked(&self, block: u32, value: u32) -> Result<u32, u32> {
        self.locked(block, |count| {
            if *count == 0 || *count >= MOST || self.value(block) != value {
                return Err(*count);
            }
            *count += 1;
            Ok(*count)
        })
    }
}
