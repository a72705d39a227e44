//! Parts of a block, each under a lock of its own.
//!
//! Some blocks are tables of things that have nothing to do with each other, such as the records of inodes. Threads that change different
//! records of one would wait for each other, and write lines that the others need. So where threads change such a block by turns its parts
//! are taken *out*: the newest bytes of a part that is out stand here, under its own lock, until somebody wants all of the block. He puts
//! the parts back first. A block that one thread changes stays whole, for that takes less.
//!
//! # Locks
//! That of the block, then those of its parts. Who finds a part that is not out gives up its lock before he takes the block's. A part goes
//! out, and comes back, with both held. So with the block's lock held, and every part back, the block is what stands under that lock; and
//! as long as a part is out, its bytes there are nobody's.

use std::ops::Range;
use std::sync::PoisonError;

use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{Latch, LatchGuard};

use super::changed::{Newest, Unsealed};

/// Parts begin at multiples of this in memory: two lines, as CPUs fetch them.
const ALIGN: usize = 128;

/// The parts of a block.
#[derive(Debug)]
pub(super) struct Parts {
    /// Bytes in each.
    len: usize,
    parts: Box<[Padded<Latch<Part>>]>,
}

/// One of them.
#[derive(Debug, Default)]
pub(super) struct Part {
    is_out: bool,
    unsealed: Unsealed,
    /// Empty until it goes out for the first time.
    memory: Box<[u8]>,
    /// Where in it the part begins.
    start: usize,
}

impl Parts {
    /// Parts of `len` bytes of a block of `block_len` bytes, none of them out. Both are powers of two.
    pub(super) fn new(block_len: usize, len: usize) -> Self {
        let parts = std::iter::repeat_with(|| Padded(Latch::new(Part::default())));
        Self { len, parts: parts.take(block_len / len).collect() }
    }

    /// The part that is these bytes of the block; `None` if none is.
    #[inline]
    pub(super) fn lock(&self, range: &Range<usize>) -> Option<LatchGuard<'_, Part>> {
        let is_one = range.len() == self.len && range.start & (self.len - 1) == 0;
        let part = self.parts.get(range.start >> self.len.trailing_zeros()).filter(|_| is_one)?;
        // Whatever has panicked, as with the block's lock.
        Some(part.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts back what is out. Locks: the block's.
    pub(super) fn put_back(&self, newest: &mut Newest) {
        for (at, part) in self.parts.iter().enumerate() {
            let mut part = part.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((ours, put_off)) = part.out(self.len) {
                newest.edit(|bytes, unsealed| {
                    bytes[at * self.len..][..self.len].copy_from_slice(ours);
                    // Each says of itself what it has put off, and no more of others than is so.
                    unsealed.iter_mut().zip(put_off).for_each(|(all, said)| *all |= *said);
                });
            }
            part.is_out = false;
        }
    }
}

impl Part {
    /// Its bytes and what it has put off, if it is out.
    #[inline]
    pub(super) fn out(&mut self, len: usize) -> Option<(&mut [u8], &mut Unsealed)> {
        self.is_out.then(|| (&mut self.memory[self.start..][..len], &mut self.unsealed))
    }

    /// Takes it out of the block, where it holds `bytes`. Locks: the block's, too.
    pub(super) fn take_out(&mut self, bytes: &[u8], unsealed: Unsealed) {
        if self.memory.is_empty() {
            self.memory = vec![0; bytes.len() + ALIGN].into();
            self.start = self.memory.as_ptr().align_offset(ALIGN);
        }
        self.memory[self.start..][..bytes.len()].copy_from_slice(bytes);
        (self.unsealed, self.is_out) = (unsealed, true);
    }
}
