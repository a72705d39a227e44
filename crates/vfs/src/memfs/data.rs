//! Contents of a regular file: blocks where something was written, holes elsewhere.
//!
//! `MemFs` keeps one in each regular file. A write that finds too little space writes a part and
//! returns its length. Holes take no space, and read as zeroes.
//!
//! A thread that adds or removes blocks or changes the length holds the file's lock exclusive.
//! Reads, and writes over existing blocks, hold it shared, and the lock of each block while they
//! copy it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use extern4_sync::biased_rwlock::BiasedRwLock;
use extern4_sync::percpu::Padded;

use super::BLOCK;
use super::space::Space;
use crate::errno::Result;
use crate::fs::{Span, SpanKind};

const BLOCK_LEN: usize = BLOCK as usize;
const BLOCK_BYTES: u64 = BLOCK as u64;

#[derive(Default)]
pub(super) struct Data {
    len: u64,
    /// By number of the block in the file. Bytes behind the end of the file are zeroes.
    blocks: BTreeMap<u64, Box<Block>>,
}

/// A block, on no line with another one.
type Block = Padded<BiasedRwLock<[u8; BLOCK_LEN]>>;

/// A part of a range that lies in one block.
struct Part {
    block: u64,
    start: usize,
    len: usize,
}

impl Part {
    /// Its bytes within the block.
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// Cuts the range from `offset` up to `end` where blocks meet.
fn parts(offset: u64, end: u64) -> impl Iterator<Item = Part> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let left = end.checked_sub(at).filter(|&left| left > 0)?;
        let start = usize::try_from(at % BLOCK_BYTES).expect("less than a block");
        let room = BLOCK_LEN - start;
        let len = usize::try_from(left).map_or(room, |left| left.min(room));
        let part = Part {
            block: at / BLOCK_BYTES,
            start,
            len,
        };
        at += len as u64;
        Some(part)
    })
}

impl Data {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of allocated blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(super) fn read_at(&self, buf: &mut [u8], offset: u64) -> usize {
        let end = self.len.min(offset.saturating_add(buf.len() as u64));
        let mut done = 0;
        for part in parts(offset, end) {
            let to = &mut buf[done..done + part.len];
            match self.blocks.get(&part.block) {
                Some(block) => to.copy_from_slice(&block.read()[part.range()]),
                None => to.fill(0),
            }
            done += part.len;
        }
        done
    }

    /// Writes as much as there is space for; an error only if there is none at all.
    pub(super) fn write_at(&mut self, bytes: &[u8], offset: u64, space: &Space) -> Result<usize> {
        let mut done = 0;
        for part in parts(offset, offset + bytes.len() as u64) {
            if let Err(error) = self.allocate_block(part.block, space) {
                if done == 0 {
                    return Err(error);
                }
                break;
            }
            let block = self.blocks.get_mut(&part.block).expect("allocated above");
            block.0.get_mut()[part.range()].copy_from_slice(&bytes[done..done + part.len]);
            done += part.len;
        }
        self.len = self.len.max(offset + done as u64);
        Ok(done)
    }

    /// Overwrites existing blocks. Returns false, and writes nothing, if one does not exist or the
    /// file ends before the range does. One block is written whole; for more, `apart` is called
    /// before.
    pub(super) fn overwrite(&self, bytes: &[u8], offset: u64, apart: &mut dyn FnMut()) -> bool {
        let end = offset + bytes.len() as u64;
        if end > self.len || parts(offset, end).any(|part| !self.blocks.contains_key(&part.block)) {
            return false;
        }
        if offset / BLOCK_BYTES != (end - 1) / BLOCK_BYTES {
            apart();
        }
        let mut done = 0;
        for part in parts(offset, end) {
            let bytes = &bytes[done..done + part.len];
            // Bytes that are equal already are not written again, so that writers of the same bytes
            // do not slow each other down.
            if let Some(block) = self.blocks.get(&part.block)
                && block.read()[part.range()] != *bytes
            {
                block.write()[part.range()].copy_from_slice(bytes);
            }
            done += part.len;
        }
        true
    }

    fn allocate_block(&mut self, block: u64, space: &Space) -> Result<()> {
        if let Entry::Vacant(entry) = self.blocks.entry(block) {
            space.take_block()?;
            entry.insert(Box::new(Padded(BiasedRwLock::new([0; BLOCK_LEN]))));
        }
        Ok(())
    }

    pub(super) fn set_len(&mut self, len: u64, space: &Space) {
        if len < self.len {
            let gone = self.blocks.split_off(&len.div_ceil(BLOCK_BYTES));
            space.give_blocks(gone.len() as u64);
            let start = usize::try_from(len % BLOCK_BYTES).expect("less than a block");
            if let Some(last) = self.blocks.get_mut(&(len / BLOCK_BYTES)) {
                last.0.get_mut()[start..].fill(0);
            }
        }
        self.len = len;
    }

    /// Allocates the blocks of a range; blocks that were allocated before an error stay.
    pub(super) fn allocate(&mut self, offset: u64, end: u64, space: &Space) -> Result<()> {
        parts(offset, end).try_for_each(|part| self.allocate_block(part.block, space))
    }

    /// Makes a range read as zeroes, and holes of its whole blocks.
    pub(super) fn punch(&mut self, offset: u64, end: u64, space: &Space) {
        let touched: Vec<u64> = self
            .blocks
            .range(offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES))
            .map(|(&block, _)| block)
            .collect();
        for block in touched {
            let start = block * BLOCK_BYTES;
            let cut = |at: u64| {
                usize::try_from(at.saturating_sub(start).min(BLOCK_BYTES)).expect("within a block")
            };
            let from = cut(offset);
            let to = cut(end);
            if (from, to) == (0, BLOCK_LEN) {
                self.blocks.remove(&block);
                space.give_blocks(1);
            } else if let Some(bytes) = self.blocks.get_mut(&block) {
                bytes.0.get_mut()[from..to].fill(0);
            }
        }
    }

    pub(super) fn span_at(&self, offset: u64) -> Option<Span> {
        if offset >= self.len {
            return None;
        }
        let block = offset / BLOCK_BYTES;
        let data = self.blocks.contains_key(&block);
        let end = if data {
            let mut end = block;
            while self.blocks.contains_key(&end) {
                end += 1;
            }
            end * BLOCK_BYTES
        } else {
            self.blocks
                .range(block..)
                .next()
                .map_or(self.len, |(next, _)| next * BLOCK_BYTES)
        };
        let kind = if data {
            SpanKind::Inline
        } else {
            SpanKind::Hole
        };
        Some(Span {
            offset,
            len: end.min(self.len) - offset,
            kind,
        })
    }
}
