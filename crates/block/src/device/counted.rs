//! A device that counts what is written to it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use extern4_sync::tally::Tally;

use super::BlockDevice;
use crate::Result;

/// A device, and how many bytes have been written to it. Counting writes no memory that threads share.
#[derive(Debug)]
pub struct CountedDevice {
    base: Arc<dyn BlockDevice>,
    written: Tally<1>,
}

impl CountedDevice {
    /// Counts from now on.
    pub fn new(base: Arc<dyn BlockDevice>) -> Self {
        Self { base, written: Tally::new() }
    }

    /// The bytes that have been written, zeroes included.
    pub fn bytes_written(&self) -> u64 {
        let [bytes] = self.written.sum();
        bytes
    }
}

impl BlockDevice for CountedDevice {
    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.base.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.base.read_at(buf, offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        self.base.read_vectored_at(bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.written.add([buf.len() as u64]);
        self.base.write_at(buf, offset)
    }

    fn writes_whole(&self) -> bool {
        self.base.writes_whole()
    }

    fn flush(&self) -> Result<()> {
        self.base.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.base.discard(range)
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        self.written.add([range.end.saturating_sub(range.start)]);
        self.base.write_zeroes(range)
    }

    fn prefetch(&self, range: Range<u64>) {
        self.base.prefetch(range);
    }

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
