//! A buffer split into parts, each under its own lock.
//!
//! `dirty_buffer` splits a block by itself; `ext4` only says which bytes are a part. No change is
//! lost, and a thread that needs the whole block sees all of them.
//!
//! Some blocks are tables of independent records, such as inode tables. Threads that change
//! different records of one block would wait for each other, and write cache lines that the others
//! need. So when threads alternate in changing such a block, its parts are taken *out*. The newest
//! bytes of a part that is out are here, under the part's own lock, until a thread needs the whole
//! block. That thread puts the parts back first. A block that only one thread changes stays whole,
//! because that costs less.
//!
//! # Locks
//! The block's lock ranks before the locks of its parts. A thread that finds a part not out gives
//! up the part's lock before it takes the block's. It takes a part out, or puts it back, with both
//! locks held. So a thread that holds the block's lock and has put every part back sees the whole
//! block under that lock. While a part is out, its bytes in the block are stale and no thread uses
//! them.

use std::ops::Range;
use std::sync::PoisonError;

use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{Latch, LatchGuard};

use super::dirty_buffer::{DirtyContents, Unsealed};

/// Parts begin at multiples of this in memory: two lines, as CPUs fetch them.
const ALIGN: usize = 128;

/// The parts of a block in which threads change different parts.
#[derive(Debug)]
pub(super) struct SplitBuffer {
    /// Bytes in each.
    len: usize,
    parts: Box<[Padded<Latch<BufferPart>>]>,
}

/// One part of a block.
#[derive(Debug, Default)]
pub(super) struct BufferPart {
    is_out: bool,
    unsealed: Unsealed,
    /// Its bytes while it is out, aligned. Empty until it is taken out for the first time.
    memory: Box<[u8]>,
    /// Where in it the part begins.
    start: usize,
}

impl SplitBuffer {
    /// Returns the parts, of `len` bytes each, of a block of `block_len` bytes, none of them out.
    /// Both lengths are powers of two.
    pub(super) fn new(block_len: usize, len: usize) -> Self {
        let parts = std::iter::repeat_with(|| Padded(Latch::new(BufferPart::default())));
        Self {
            len,
            parts: parts.take(block_len / len).collect(),
        }
    }

    /// Returns the part that is bytes `range` of the block, locked; `None` if no part is.
    #[inline]
    pub(super) fn lock(&self, range: &Range<usize>) -> Option<LatchGuard<'_, BufferPart>> {
        let is_one = range.len() == self.len && range.start & (self.len - 1) == 0;
        let part = self
            .parts
            .get(range.start >> self.len.trailing_zeros())
            .filter(|_| is_one)?;
        // A poisoned lock is used as it is, like the block's.
        Some(part.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts back the parts that are out. Locks: the caller holds the block's.
    pub(super) fn put_back(&self, newest: &mut DirtyContents) {
        for (at, part) in self.parts.iter().enumerate() {
            let mut part = part.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((ours, put_off)) = part.out(self.len) {
                newest.edit(|bytes, unsealed| {
                    bytes[at * self.len..][..self.len].copy_from_slice(ours);
                    // Each part records its own put-off work in its own bits, and keeps the bits
                    // that it took along when it went out. So `or` adds nothing that is not so.
                    unsealed
                        .iter_mut()
                        .zip(put_off)
                        .for_each(|(all, said)| *all |= *said);
                });
            }
            part.is_out = false;
        }
    }
}

impl BufferPart {
    /// Returns its bytes and the work it has put off, if it is out.
    #[inline]
    pub(super) fn out(&mut self, len: usize) -> Option<(&mut [u8], &mut Unsealed)> {
        self.is_out
            .then(|| (&mut self.memory[self.start..][..len], &mut self.unsealed))
    }

    /// Takes it out of the block, where it holds `bytes`. Locks: the caller holds the block's and
    /// this part's.
    pub(super) fn take_out(&mut self, bytes: &[u8], unsealed: Unsealed) {
        if self.memory.is_empty() {
            self.memory = vec![0; bytes.len() + ALIGN].into();
            self.start = self.memory.as_ptr().align_offset(ALIGN);
        }
        self.memory[self.start..][..bytes.len()].copy_from_slice(bytes);
        (self.unsealed, self.is_out) = (unsealed, true);
    }
}
