//! A device whose place another takes while it is in use.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::BlockDevice;
use crate::Result;

/// A device, and later one that follows it and holds the same bytes: so a volume that is open for
/// reading can be written to without opening it again.
#[derive(Debug)]
pub struct SuccessiveDevice {
    first: Arc<dyn BlockDevice>,
    /// The first stays, for a reader may be in the middle of it.
    second: OnceLock<Arc<dyn BlockDevice>>,
}

impl SuccessiveDevice {
    /// Answers as `first` does.
    pub fn new(first: Arc<dyn BlockDevice>) -> Self {
        Self { first, second: OnceLock::new() }
    }

    /// Answers as `second` does from now on. It reads as the first device does, and has its size.
    /// False if a second device is there already, which stays.
    pub fn follow(&self, second: Arc<dyn BlockDevice>) -> bool {
        self.second.set(second).is_ok()
    }

    fn now(&self) -> &Arc<dyn BlockDevice> {
        self.second.get().unwrap_or(&self.first)
    }
}

impl BlockDevice for SuccessiveDevice {
    fn size_bytes(&self) -> u64 {
        self.first.size_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.first.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.now().is_read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.now().read_at(buf, offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        self.now().read_vectored_at(bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.now().write_at(buf, offset)
    }

    fn writes_whole(&self) -> bool {
        self.now().writes_whole()
    }

    fn flush(&self) -> Result<()> {
        self.now().flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.now().discard(range)
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        self.now().write_zeroes(range)
    }

    fn prefetch(&self, range: Range<u64>) {
        self.now().prefetch(range);
    }

    fn file_range(&self, range: Range<u64>) -> Option<(&File, u64)> {
        self.now().file_range(range)
    }

    fn forget(&self, range: Range<u64>) {
        self.now().forget(range);
    }

    fn name(&self) -> Option<&OsStr> {
        self.now().name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn one_device_follows_another_once() {
        let memory = |byte| Arc::new(MemoryDevice::new(vec![byte; 512]));
        let device = SuccessiveDevice::new(Arc::new(MemoryDevice::read_only(vec![1; 512])));
        let first = || {
            let mut byte = [0];
            device.read_at(&mut byte, 0).expect("it is read");
            byte[0]
        };
        assert!(device.is_read_only() && device.write_at(&[5], 0).is_err());
        assert_eq!(first(), 1);
        let second = memory(2);
        assert!(device.follow(second.clone()) && !device.follow(memory(3)));
        assert!(!device.is_read_only());
        assert_eq!(first(), 2);
        device.write_at(&[4], 0).expect("it is written");
        assert_eq!(first(), 4);
        drop(device);
        assert_eq!(Arc::into_inner(second).expect("no other has it").into_bytes()[0], 4);
    }
}
