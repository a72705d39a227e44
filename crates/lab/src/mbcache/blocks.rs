//! Attribute blocks, with the parts of them that caches use.
//!
//! The three sides join, leave and write these blocks, so that they differ only in how they find
//! one. A block is shared by at most [`MOST`] files, and a free one is given to one thread at a
//! time.

use std::sync::{Mutex, PoisonError};

use extern4_sync::closable_refcount::ClosableRefcount;
use extern4_sync::primitive::{AtomicBool, AtomicU32, Latch, Ordering};

/// The most files that may share a block, as in ext4.
pub const MOST: u32 = 1024;

/// Blocks by number, from 1 on.
pub struct Blocks {
    contents: Box<[Contents]>,
    /// The number of files that have each block, in extern4.
    sharers: Box<[ClosableRefcount]>,
    /// The number of files that have each block, in the baseline and the patch.
    counts: Box<[Count]>,
    free: Mutex<Vec<u32>>,
}

/// The contents of a block, which many threads read and few write. They are alone on a cache line,
/// separate from the count in the block's buffer.
#[repr(align(64))]
struct Contents {
    value: AtomicU32,
    /// Several files have had the block at the same time. In extern4 this is a flag of the buffer,
    /// on a line like this one.
    is_shared: AtomicBool,
}

/// The lock of a buffer, and the count in the header that it protects. It is alone on its cache
/// line, as a [`ClosableRefcount`] is.
#[repr(align(64))]
struct Count(Latch<u32>);

impl Blocks {
    /// Creates `len` blocks, all free.
    pub fn new(len: usize) -> Self {
        let contents = || Contents {
            value: AtomicU32::new(0),
            is_shared: AtomicBool::new(false),
        };
        let last = u32::try_from(len).expect("few");
        Self {
            contents: (0..=len).map(|_| contents()).collect(),
            sharers: (0..=len).map(|_| ClosableRefcount::new()).collect(),
            counts: (0..=len).map(|_| Count(Latch::new(0))).collect(),
            free: Mutex::new((1..=last).rev().collect()),
        }
    }

    /// Takes up to `most` free blocks.
    pub fn take(&self, most: usize) -> Vec<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let from = free.len().saturating_sub(most);
        free.split_off(from)
    }

    /// Gives free blocks back.
    pub fn give(&self, blocks: impl IntoIterator<Item = u32>) {
        self.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(blocks);
    }

    /// Returns the value that a block holds.
    pub fn value(&self, block: u32) -> u32 {
        // Relaxed: a thread that has the block joined it after the write, or wrote it. Other
        // threads look again after they have joined.
        self.contents[block as usize].value.load(Ordering::Relaxed)
    }

    /// Writes a free block.
    pub fn write(&self, block: u32, value: u32) {
        self.contents[block as usize]
            .value
            .store(value, Ordering::Relaxed);
    }

    /// Returns whether several files have had the block at the same time.
    pub fn is_shared(&self, block: u32) -> bool {
        // Relaxed: a hint.
        self.contents[block as usize]
            .is_shared
            .load(Ordering::Relaxed)
    }

    /// Sets whether several files have had the block at the same time.
    pub fn set_shared(&self, block: u32, is_shared: bool) {
        let flag = &self.contents[block as usize].is_shared;
        if flag.load(Ordering::Relaxed) != is_shared {
            flag.store(is_shared, Ordering::Relaxed);
        }
    }

    /// Returns the count of files that share the block, in extern4.
    pub fn sharers(&self, block: u32) -> &ClosableRefcount {
        &self.sharers[block as usize]
    }

    /// Calls `act` with the count in the block's header, under the lock of its buffer.
    pub fn locked<R>(&self, block: u32, act: impl FnOnce(&mut u32) -> R) -> R {
        act(&mut self.counts[block as usize]
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// Joins a block under the lock of its buffer, if it holds `value` and another file may join.
    /// Returns the new count.
    ///
    /// # Errors
    /// The present count, if it is 0 or [`MOST`], or the block holds another value.
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
