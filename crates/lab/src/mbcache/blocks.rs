//! Attribute blocks, as far as caches have to do with them.

use std::sync::{Mutex, PoisonError};

use extern4_sync::closable_refcount::ClosableRefcount;
use extern4_sync::primitive::{AtomicBool, AtomicU32, Latch, Ordering};

/// Files that may have a block: as many as ext4 lets.
pub const MOST: u32 = 1024;

/// Blocks by number, from 1 on.
pub struct Blocks {
    contents: Box<[Contents]>,
    /// In extern4: how many files have it.
    sharers: Box<[ClosableRefcount]>,
    /// How many files have it, in the baseline and the patch.
    counts: Box<[Count]>,
    free: Mutex<Vec<u32>>,
}

/// What a block holds, which many look at and few write, apart from what stands in its buffer:
/// alone on its cache line.
#[repr(align(64))]
struct Contents {
    value: AtomicU32,
    /// Several files have had it at the same time. In extern4 it is a flag of the buffer, on a line
    /// like this.
    is_shared: AtomicBool,
}

/// The lock of a buffer, and the count in the header under it: alone on its cache line, as
/// [`ClosableRefcount`] are.
#[repr(align(64))]
struct Count(Latch<u32>);

impl Blocks {
    /// So many, all free.
    pub fn new(len: usize) -> Self {
        let contents = || Contents { value: AtomicU32::new(0), is_shared: AtomicBool::new(false) };
        let last = u32::try_from(len).expect("few");
        Self {
            contents: (0..=len).map(|_| contents()).collect(),
            sharers: (0..=len).map(|_| ClosableRefcount::new()).collect(),
            counts: (0..=len).map(|_| Count(Latch::new(0))).collect(),
            free: Mutex::new((1..=last).rev().collect()),
        }
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
        // Relaxed: whoever has the block has joined it since it was written, or wrote it. Others
        // look again when they have joined.
        self.contents[block as usize].value.load(Ordering::Relaxed)
    }

    /// Writes a block that is free.
    pub fn write(&self, block: u32, value: u32) {
        self.contents[block as usize].value.store(value, Ordering::Relaxed);
    }

    /// Whether several files have had it at the same time.
    pub fn is_shared(&self, block: u32) -> bool {
        // Relaxed: a hint.
        self.contents[block as usize].is_shared.load(Ordering::Relaxed)
    }

    /// Notes that.
    pub fn set_shared(&self, block: u32, is_shared: bool) {
        let flag = &self.contents[block as usize].is_shared;
        if flag.load(Ordering::Relaxed) != is_shared {
            flag.store(is_shared, Ordering::Relaxed);
        }
    }

    /// How many share it.
    pub fn sharers(&self, block: u32) -> &ClosableRefcount {
        &self.sharers[block as usize]
    }

    /// Does something with the count in its header, under the lock of its buffer.
    pub fn locked<R>(&self, block: u32, act: impl FnOnce(&mut u32) -> R) -> R {
        act(&mut self.counts[block as usize].0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Joins a block under its lock, if it holds this and more may. How many it has then; zero if
    /// not, and if it is full, that.
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
