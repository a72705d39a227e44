//! A device in memory.
//!
//! One lock guards the bytes: readers share it, and a writer excludes them. Tests use this device,
//! and so do small volumes made in memory. It is not a cache.
//!
//! Requests outside of it fail, as on any device. A flush does nothing, since nothing here is
//! durable.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{BlockDevice, check_range, check_span, read_each_at};
use crate::{Error, Op, Result};

/// A device whose bytes are a vector.
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
    size: u64,
    read_only: bool,
}

impl MemoryDevice {
    /// Returns a writable device of `size` zero bytes.
    pub fn zeroed(size: usize) -> Self {
        Self::new(vec![0; size])
    }

    /// Returns a writable device with these contents.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            size: bytes.len() as u64,
            bytes: RwLock::new(bytes),
            read_only: false,
        }
    }

    /// Returns a device with these contents that refuses changes.
    pub fn read_only(bytes: Vec<u8>) -> Self {
        Self {
            read_only: true,
            ..Self::new(bytes)
        }
    }

    /// Returns the contents.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    // A panic can leave the bytes half changed, but that is no worse than a torn write. So a
    // poisoned lock is used as it is.
    fn bytes(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes_mut(&self) -> RwLockWriteGuard<'_, Vec<u8>> {
        self.bytes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_writable(&self, op: Op, offset: u64) -> Result<()> {
        if self.read_only {
            Err(Error::ReadOnly { op, offset })
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("size", &self.size)
            .field("read_only", &self.read_only)
            .finish()
    }
}

/// Returns a checked range of the device as indices. It lies inside a `Vec`, so it fits `usize`.
fn indices(start: u64, end: u64) -> Range<usize> {
    start as usize..end as usize
}

impl BlockDevice for MemoryDevice {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn sector_bytes(&self) -> u32 {
        512
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = check_range(Op::Read, offset, buf.len() as u64, self.size)?;
        buf.copy_from_slice(&self.bytes()[indices(offset, end)]);
        Ok(())
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        read_each_at(self, bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_writable(Op::Write, offset)?;
        let end = check_range(Op::Write, offset, buf.len() as u64, self.size)?;
        self.bytes_mut()[indices(offset, end)].copy_from_slice(buf);
        Ok(())
    }

    fn writes_whole(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.check_writable(Op::Discard, range.start)?;
        check_span(Op::Discard, &range, self.size)?;
        Ok(())
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        self.check_writable(Op::WriteZeroes, range.start)?;
        check_span(Op::WriteZeroes, &range, self.size)?;
        self.bytes_mut()[indices(range.start, range.end)].fill(0);
        Ok(())
    }

    fn prefetch(&self, _range: Range<u64>) {}

    fn file_range(&self, _range: Range<u64>) -> Option<(&File, u64)> {
        None
    }

    fn forget(&self, _range: Range<u64>) {}

    fn name(&self) -> Option<&OsStr> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written() {
        let device = MemoryDevice::zeroed(64);
        device.write_at(b"abc", 10).unwrap();
        device.write_zeroes(11..12).unwrap();
        let mut buf = [9; 5];
        device.read_at(&mut buf, 9).unwrap();
        assert_eq!(&buf, b"\0a\0c\0");
    }

    #[test]
    fn ranges_outside_are_refused_whole() {
        let device = MemoryDevice::zeroed(64);
        for offset in [62, 64, u64::MAX - 1, u64::MAX] {
            assert!(matches!(
                device.read_at(&mut [0; 4], offset),
                Err(Error::OutOfRange { size: 64, .. })
            ));
            assert!(matches!(
                device.write_at(&[1; 4], offset),
                Err(Error::OutOfRange { .. })
            ));
        }
        let backwards = Range { start: 5, end: 4 };
        assert!(matches!(
            device.write_zeroes(backwards),
            Err(Error::OutOfRange { .. })
        ));
        assert_eq!(device.into_bytes(), [0; 64]);
    }

    #[test]
    fn a_read_only_device_refuses_changes() {
        let device = MemoryDevice::read_only(vec![7; 8]);
        assert!(matches!(
            device.write_at(&[1], 0),
            Err(Error::ReadOnly { op: Op::Write, .. })
        ));
        assert!(matches!(
            device.discard(0..1),
            Err(Error::ReadOnly {
                op: Op::Discard,
                ..
            })
        ));
        assert!(matches!(
            device.write_zeroes(0..1),
            Err(Error::ReadOnly {
                op: Op::WriteZeroes,
                ..
            })
        ));
        assert_eq!(device.into_bytes(), [7; 8]);
    }
}
