//! A device that logs its requests, for tests and benchmarks that count I/O.
//!
//! They wrap a device in one, run an operation, and compare the log with the requests that they
//! expect. Every request is in the log, also one that failed, in the order in which they began. The
//! device below behaves as without it.

use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::BlockDevice;
use super::wrapper::DeviceWrapper;
use crate::{Op, Result};

/// One request to a device, whether it succeeded or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kind of request; its range is in the other fields.
    pub op: Op,
    /// First byte of the range; 0 for a flush.
    pub offset: u64,
    /// Bytes in the range; 0 for a flush.
    pub len: u64,
}

/// The sums of the requests of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Read requests; a vectored read is one.
    pub reads: u64,
    /// Bytes requested by reads.
    pub bytes_read: u64,
    /// Write requests, including requests that write zeroes.
    pub writes: u64,
    /// Bytes given by writes.
    pub bytes_written: u64,
    /// Flush requests, failed ones included.
    pub flushes: u64,
    /// Discard requests, failed ones included.
    pub discards: u64,
}

/// A device that passes everything on and records each request. It does not record hints and calls
/// of [`BlockDevice::file_range`].
#[derive(Debug)]
pub struct RecordDevice {
    base: Arc<dyn BlockDevice>,
    log: Mutex<Vec<Request>>,
}

impl RecordDevice {
    /// Returns a device that records the requests to `base`.
    pub fn new(base: Arc<dyn BlockDevice>) -> Self {
        Self {
            base,
            log: Mutex::default(),
        }
    }

    /// Returns all requests so far, in the order in which they began.
    pub fn log(&self) -> Vec<Request> {
        self.lock().clone()
    }

    /// Returns all requests so far, and empties the log.
    pub fn take_log(&self) -> Vec<Request> {
        mem::take(&mut *self.lock())
    }

    /// Returns the sums of the requests so far.
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
}

impl DeviceWrapper for RecordDevice {
    type Inner = dyn BlockDevice;

    fn inner(&self) -> &Self::Inner {
        &*self.base
    }

    fn before_request(&self, op: Op, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        self.lock().push(Request {
            op,
            offset: range.start,
            len,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn every_request_is_counted_once() {
        let device = RecordDevice::new(Arc::new(MemoryDevice::zeroed(100)));
        device.read_at(&mut [0; 10], 0).unwrap();
        let mut a = [0; 3];
        let mut b = [0; 4];
        device
            .read_vectored_at(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 9)
            .unwrap();
        device.read_at(&mut [0; 10], 95).unwrap_err();
        device.write_at(&[0; 5], 1).unwrap();
        device.write_zeroes(0..50).unwrap();
        device.discard(3..4).unwrap();
        device.flush().unwrap();
        let counts = device.counts();
        assert_eq!(
            (
                counts.reads,
                counts.bytes_read,
                counts.writes,
                counts.bytes_written
            ),
            (3, 27, 2, 55)
        );
        assert_eq!((counts.flushes, counts.discards), (1, 1));
        assert_eq!(
            device.take_log()[1],
            Request {
                op: Op::Read,
                offset: 9,
                len: 7
            }
        );
        assert_eq!(device.counts(), RequestCounts::default());
    }
}
