//! A device that keeps a log of what it was asked, for tests and benchmarks that count I/O.

use std::fs::File;
use std::io::IoSliceMut;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{BlockDevice, total_len};
use crate::{Op, Result};

/// One operation that a device was asked for, whether it succeeded or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What was asked.
    pub op: Op,
    /// First byte of the range; 0 for a flush.
    pub offset: u64,
    /// Bytes in the range; 0 for a flush.
    pub len: u64,
}

/// Requests of a log, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Read requests; a vectored read is one.
    pub reads: u64,
    /// Bytes asked for by reads.
    pub bytes_read: u64,
    /// Write requests, those that write zeroes included.
    pub writes: u64,
    /// Bytes given by writes.
    pub bytes_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
}

/// A device that passes everything on and writes it down. Hints and [`BlockDevice::file_range`] are passed on
/// without a note.
#[derive(Debug)]
pub struct RecordDevice {
    base: Arc<dyn BlockDevice>,
    log: Mutex<Vec<Request>>,
}

impl RecordDevice {
    /// A device that records what is asked of `base`.
    pub fn new(base: Arc<dyn BlockDevice>) -> Self {
        Self { base, log: Mutex::default() }
    }

    /// Everything asked so far, in the order in which it was begun.
    pub fn log(&self) -> Vec<Request> {
        self.lock().clone()
    }

    /// Everything asked so far; the log starts anew.
    pub fn take_log(&self) -> Vec<Request> {
        mem::take(&mut *self.lock())
    }

    /// The requests so far, added up.
    pub fn counts(&self) -> RequestCounts {
        let mut counts = RequestCounts::default();
        for request in self.lock().iter() {
            match request.op {
                Op::Read => {
                    counts.reads += 1;
                    counts.bytes_read += request.len;
                }
                Op::Write | Op::WriteZeroes => {
                    counts.writes += 1;
                    counts.bytes_written += request.len;
                }
                Op::Flush => counts.flushes += 1,
                Op::Discard => counts.discards += 1,
            }
        }
        counts
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Request>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, op: Op, offset: u64, len: u64) {
        self.lock().push(Request { op, offset, len });
    }
}

impl BlockDevice for RecordDevice {
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
        self.note(Op::Read, offset, buf.len() as u64);
        self.base.read_at(buf, offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        self.note(Op::Read, offset, total_len(bufs));
        self.base.read_vectored_at(bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.note(Op::Write, offset, buf.len() as u64);
        self.base.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.note(Op::Flush, 0, 0);
        self.base.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.note(Op::Discard, range.start, range.end.saturating_sub(range.start));
        self.base.discard(range)
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        self.note(Op::WriteZeroes, range.start, range.end.saturating_sub(range.start));
        self.base.write_zeroes(range)
    }

    fn prefetch(&self, range: Range<u64>) {
        self.base.prefetch(range);
    }

    fn file_range(&self, range: Range<u64>) -> Option<(&File, u64)> {
        self.base.file_range(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn every_request_is_counted_once() {
        let device = RecordDevice::new(Arc::new(MemoryDevice::zeroed(100)));
        device.read_at(&mut [0; 10], 0).unwrap();
        let (mut a, mut b) = ([0; 3], [0; 4]);
        device.read_vectored_at(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 9).unwrap();
        device.read_at(&mut [0; 10], 95).unwrap_err();
        device.write_at(&[0; 5], 1).unwrap();
        device.write_zeroes(0..50).unwrap();
        device.discard(3..4).unwrap();
        device.flush().unwrap();
        let counts = device.counts();
        assert_eq!((counts.reads, counts.bytes_read, counts.writes, counts.bytes_written), (3, 27, 2, 55));
        assert_eq!((counts.flushes, counts.discards), (1, 1));
        assert_eq!(device.take_log()[1], Request { op: Op::Read, offset: 9, len: 7 });
        assert_eq!(device.counts(), RequestCounts::default());
    }
}
