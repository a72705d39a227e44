//! A device whose changes stay in memory.
//!
//! Reads see the device below with the changes laid over it. Nothing is ever written below. Journal
//! recovery uses this on a volume that is open for reading only. The device keeps changes block by
//! block, in as much memory as the written blocks need.
//!
//! Fuzzing and the rewrite of checksums use it too: it shows the result of changes before any is
//! made.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::{BlockDevice, check_range, check_span, total_len};
use crate::{Error, Op, Result};

/// Changed blocks by their number. The last block is short if the device does not end with a whole
/// block.
type Changes = BTreeMap<u64, Box<[u8]>>;

/// A device over another one, which it never changes.
pub struct OverlayDevice {
    base: Arc<dyn BlockDevice>,
    block_size: u64,
    changes: RwLock<Changes>,
}

impl OverlayDevice {
    /// Returns a device that reads as `base` does until it is written. It keeps changes in units of
    /// `block_size` bytes: a power of two from 512 to 65536, best the unit of the writes.
    ///
    /// # Errors
    /// [`Error::BlockSize`] for another block size.
    pub fn new(base: Arc<dyn BlockDevice>, block_size: u32) -> Result<Self> {
        if !block_size.is_power_of_two() || !(512..=65536).contains(&block_size) {
            return Err(Error::BlockSize(block_size));
        }
        Ok(Self {
            base,
            block_size: u64::from(block_size),
            changes: RwLock::default(),
        })
    }

    /// Returns the number of blocks that were written.
    pub fn changed_blocks(&self) -> usize {
        self.changes().len()
    }

    /// Returns the device below.
    pub fn base(&self) -> &Arc<dyn BlockDevice> {
        &self.base
    }

    fn changes(&self) -> RwLockReadGuard<'_, Changes> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the numbers of the blocks that hold a byte of `range`, which is not empty.
    fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block_size..(range.end - 1) / self.block_size + 1
    }

    /// Puts `bytes`, which lie at `offset` inside block `block`, into `changes`.
    fn change(&self, changes: &mut Changes, block: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let start = block * self.block_size;
        let len = self.block_size.min(self.size_bytes() - start);
        let image = match changes.entry(block) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let mut image = vec![0; len as usize];
                if (bytes.len() as u64) < len {
                    self.base.read_at(&mut image, start)?;
                }
                entry.insert(image.into())
            }
        };
        let at = (offset - start) as usize;
        image[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn patch(&self, changes: &Changes, buf: &mut [u8], offset: u64) {
        let end = offset + buf.len() as u64;
        for (&block, image) in changes.range(self.blocks_of(&(offset..end))) {
            let start = block * self.block_size;
            let from = start.max(offset);
            let to = (start + image.len() as u64).min(end);
            let target = &mut buf[(from - offset) as usize..(to - offset) as usize];
            target.copy_from_slice(&image[(from - start) as usize..(to - start) as usize]);
        }
    }
}

impl fmt::Debug for OverlayDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("OverlayDevice");
        out.field("base", &self.base)
            .field("changed_blocks", &self.changed_blocks())
            .finish()
    }
}

impl BlockDevice for OverlayDevice {
    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.base.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = check_range(Op::Read, offset, buf.len() as u64, self.size_bytes())?;
        if buf.is_empty() {
            return Ok(());
        }
        let blocks = self.blocks_of(&(offset..end));
        let covered = {
            let changes = self.changes();
            let changed = changes.range(blocks.clone()).count() as u64;
            let covered = changed == blocks.end - blocks.start;
            if covered {
                self.patch(&changes, buf, offset);
            }
            covered
        };
        if !covered {
            // This thread reads the device below without the lock, because that device never
            // changes. It then lays over it the blocks that were changed meanwhile.
            self.base.read_at(buf, offset)?;
            self.patch(&self.changes(), buf, offset);
        }
        Ok(())
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        check_range(Op::Read, offset, total_len(bufs), self.size_bytes())?;
        self.base.read_vectored_at(bufs, offset)?;
        let changes = self.changes();
        let mut at = offset;
        for buf in bufs.iter_mut().filter(|buf| !buf.is_empty()) {
            self.patch(&changes, buf, at);
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let end = check_range(Op::Write, offset, buf.len() as u64, self.size_bytes())?;
        let mut changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
        let mut buf = buf;
        let mut at = offset;
        while at < end {
            let block = at / self.block_size;
            let room = (block + 1) * self.block_size - at;
            let (head, rest) = buf.split_at(room.min(end - at) as usize);
            self.change(&mut changes, block, at, head)?;
            at += head.len() as u64;
            buf = rest;
        }
        Ok(())
    }

    /// Returns true: a write changes all its blocks under one lock.
    fn writes_whole(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_span(Op::Discard, &range, self.size_bytes()).map(|_| ())
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        check_span(Op::WriteZeroes, &range, self.size_bytes())?;
        let zeroes = vec![0; self.block_size as usize];
        let mut at = range.start;
        while at < range.end {
            let len = (self.block_size - at % self.block_size).min(range.end - at);
            self.write_at(&zeroes[..len as usize], at)?;
            at += len;
        }
        Ok(())
    }

    fn prefetch(&self, range: Range<u64>) {
        self.base.prefetch(range);
    }

    /// Returns the file below, unless a block of the range was changed. A later change does not
    /// show in the file.
    fn file_range(&self, range: Range<u64>) -> Option<(&File, u64)> {
        let len = check_span(Op::Read, &range, self.size_bytes()).ok()?;
        if len > 0
            && self
                .changes()
                .range(self.blocks_of(&range))
                .next()
                .is_some()
        {
            return None;
        }
        self.base.file_range(range)
    }

    /// Drops only the cache below. The changed blocks stay, because they exist only here.
    fn forget(&self, range: Range<u64>) {
        self.base.forget(range);
    }

    fn name(&self) -> Option<&OsStr> {
        self.base.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;
    use proptest::prelude::*;

    const SIZE: usize = 2000;

    proptest! {
        #[test]
        fn reads_as_a_device_that_was_written(
            writes in prop::collection::vec((0..SIZE, 0..900usize, any::<u8>()), 0..12),
            reads in prop::collection::vec((0..SIZE, 0..1500usize), 1..6),
        ) {
            let original: Vec<u8> = (0..SIZE).map(|i| i as u8).collect();
            let base = Arc::new(MemoryDevice::read_only(original.clone()));
            let overlay = OverlayDevice::new(base.clone(), 512).unwrap();
            let model = MemoryDevice::new(original.clone());
            for (at, len, byte) in writes {
                let len = len.min(SIZE - at);
                let range = at as u64..(at + len) as u64;
                if byte == 0 {
                    overlay.write_zeroes(range.clone()).unwrap();
                    model.write_zeroes(range).unwrap();
                } else {
                    overlay.write_at(&vec![byte; len], at as u64).unwrap();
                    model.write_at(&vec![byte; len], at as u64).unwrap();
                }
            }
            for (at, len) in reads {
                let len = len.min(SIZE - at);
                let mut ours = vec![0; len];
                let mut theirs = vec![0; len];
                let mut parts = vec![0; len];
                overlay.read_at(&mut ours, at as u64).unwrap();
                model.read_at(&mut theirs, at as u64).unwrap();
                let (left, right) = parts.split_at_mut(len / 3);
                overlay.read_vectored_at(&mut [IoSliceMut::new(left), IoSliceMut::new(right)], at as u64).unwrap();
                prop_assert_eq!(&ours, &theirs);
                prop_assert_eq!(&parts, &theirs);
            }
            let mut below = vec![0; SIZE];
            base.read_at(&mut below, 0).unwrap();
            prop_assert_eq!(below, original);
        }
    }

    #[test]
    fn ranges_outside_are_refused() {
        let overlay = OverlayDevice::new(Arc::new(MemoryDevice::zeroed(1000)), 512).unwrap();
        assert!(matches!(
            overlay.write_at(&[0; 2], 999),
            Err(Error::OutOfRange { .. })
        ));
        assert!(matches!(
            overlay.write_zeroes(0..1001),
            Err(Error::OutOfRange { .. })
        ));
        assert!(matches!(
            overlay.read_at(&mut [0; 2], u64::MAX),
            Err(Error::OutOfRange { .. })
        ));
        assert_eq!(overlay.changed_blocks(), 0);
        assert!(matches!(
            OverlayDevice::new(overlay.base().clone(), 1000),
            Err(Error::BlockSize(1000))
        ));
    }
}
