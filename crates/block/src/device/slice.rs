//! A window of another device, such as a partition.
//!
//! `extern4` opens a partition through it. No request reaches bytes outside of the window.
//!
//! Errors hold offsets in the window. The exceptions are errors of the operating system, which come
//! from the device below with its offsets.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use super::{BlockDevice, check_range, check_span, total_len};
use crate::{Op, Result};

/// Part of a device, used as a device.
#[derive(Debug)]
pub struct SliceDevice {
    base: Arc<dyn BlockDevice>,
    start: u64,
    size: u64,
}

impl SliceDevice {
    /// Returns the window of `len_bytes` bytes of `base` from `start_bytes` on, which must lie
    /// inside it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the window ends after `base`.
    pub fn new(base: Arc<dyn BlockDevice>, start_bytes: u64, len_bytes: u64) -> Result<Self> {
        check_range(Op::Read, start_bytes, len_bytes, base.size_bytes())?;
        Ok(Self {
            base,
            start: start_bytes,
            size: len_bytes,
        })
    }

    /// Returns `range` as a range of the device below, if it lies inside the window.
    fn below(&self, op: Op, range: &Range<u64>) -> Result<Range<u64>> {
        check_span(op, range, self.size)?;
        Ok(self.start + range.start..self.start + range.end)
    }
}

impl BlockDevice for SliceDevice {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn sector_bytes(&self) -> u32 {
        self.base.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        check_range(Op::Read, offset, buf.len() as u64, self.size)?;
        self.base.read_at(buf, self.start + offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        check_range(Op::Read, offset, total_len(bufs), self.size)?;
        self.base.read_vectored_at(bufs, self.start + offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        check_range(Op::Write, offset, buf.len() as u64, self.size)?;
        self.base.write_at(buf, self.start + offset)
    }

    fn writes_whole(&self) -> bool {
        self.base.writes_whole()
    }

    fn flush(&self) -> Result<()> {
        self.base.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.base.discard(self.below(Op::Discard, &range)?)
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        self.base.write_zeroes(self.below(Op::WriteZeroes, &range)?)
    }

    fn prefetch(&self, range: Range<u64>) {
        if let Ok(range) = self.below(Op::Read, &range) {
            self.base.prefetch(range);
        }
    }

    fn file_range(&self, range: Range<u64>) -> Option<(&File, u64)> {
        self.base.file_range(self.below(Op::Read, &range).ok()?)
    }

    fn forget(&self, range: Range<u64>) {
        if let Ok(below) = self.below(Op::Read, &range) {
            self.base.forget(below);
        }
    }

    fn name(&self) -> Option<&OsStr> {
        self.base.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, MemoryDevice};

    #[test]
    fn nothing_outside_the_window_is_reached() {
        let base = Arc::new(MemoryDevice::new((0..16).collect()));
        let slice = SliceDevice::new(base.clone(), 4, 8).unwrap();
        let mut buf = [0; 3];
        slice.read_at(&mut buf, 5).unwrap();
        assert_eq!(buf, [9, 10, 11]);
        assert!(matches!(
            slice.read_at(&mut buf, 6),
            Err(Error::OutOfRange {
                offset: 6,
                size: 8,
                ..
            })
        ));
        assert!(matches!(
            slice.read_at(&mut buf, u64::MAX),
            Err(Error::OutOfRange { .. })
        ));
        assert!(matches!(
            slice.write_zeroes(7..9),
            Err(Error::OutOfRange { .. })
        ));
        slice.write_zeroes(0..8).unwrap();
        let mut all = [9; 16];
        base.read_at(&mut all, 0).unwrap();
        assert_eq!(all, [0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 12, 13, 14, 15]);
        for (start, len) in [(9, 8), (17, 0), (u64::MAX, 2), (1, u64::MAX)] {
            assert!(SliceDevice::new(base.clone(), start, len).is_err());
        }
    }
}
