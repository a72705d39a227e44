//! A device with a hole behind its end, as a sparse image file has it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use extern4_block::{BlockDevice, Error, Op, Result, check_range, read_each_at};

/// A device that reads as `base` does, and as zeroes behind its end.
#[derive(Debug)]
pub(crate) struct SparseDevice {
    base: Arc<dyn BlockDevice>,
    size: u64,
}

impl SparseDevice {
    /// `base`, made as long as `size` bytes if it is shorter.
    pub(crate) fn new(base: Arc<dyn BlockDevice>, size: u64) -> Self {
        let size = size.max(base.size_bytes());
        Self { base, size }
    }
}

impl BlockDevice for SparseDevice {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn sector_bytes(&self) -> u32 {
        self.base.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        check_range(Op::Read, offset, buf.len() as u64, self.size)?;
        let here = self
            .base
            .size_bytes()
            .saturating_sub(offset)
            .min(buf.len() as u64) as usize;
        let (here, hole) = buf.split_at_mut(here);
        hole.fill(0);
        if here.is_empty() {
            Ok(())
        } else {
            self.base.read_at(here, offset)
        }
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        read_each_at(self, bufs, offset)
    }

    fn write_at(&self, _: &[u8], offset: u64) -> Result<()> {
        Err(Error::ReadOnly {
            op: Op::Write,
            offset,
        })
    }

    fn writes_whole(&self) -> bool {
        self.base.writes_whole()
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        Err(Error::ReadOnly {
            op: Op::Discard,
            offset: range.start,
        })
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        Err(Error::ReadOnly {
            op: Op::WriteZeroes,
            offset: range.start,
        })
    }

    fn prefetch(&self, range: Range<u64>) {
        self.base.prefetch(range);
    }

    /// The base refuses a range that reaches into the hole.
    fn file_range(&self, range: Range<u64>) -> Option<(&File, u64)> {
        self.base.file_range(range)
    }

    fn forget(&self, range: Range<u64>) {
        self.base.forget(range);
    }

    fn name(&self) -> Option<&OsStr> {
        self.base.name()
    }
}
