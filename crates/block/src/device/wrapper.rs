//! Devices that pass requests on to another device.
//!
//! A device of this crate that only observes, counts or refuses requests implements
//! [`DeviceWrapper`] and says what it adds. Each call goes through, also one that a later version
//! of [`BlockDevice`] adds; so no wrapper loses a feature of the device below. A request that the
//! hook refuses reaches nothing.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;

use super::{BlockDevice, total_len};
use crate::{Op, Result};

/// A device that passes every call on to another device, and may observe or refuse requests.
///
/// Its implementation of [`BlockDevice`] is the blanket one below, which forwards each method. A
/// wrapper therefore cannot lose a method. A device that changes ranges, contents or answers
/// implements [`BlockDevice`] itself, all of it.
pub trait DeviceWrapper: Send + Sync + fmt::Debug {
    /// The device below.
    type Inner: BlockDevice + ?Sized;

    /// Returns the device that requests go to now.
    fn inner(&self) -> &Self::Inner;

    /// Called before a request is passed on: a read, write, flush, discard or zeroing, not a hint.
    /// A vectored read is one request, and a flush has the range `0..0`. If this returns an error,
    /// the request fails with it.
    #[inline]
    fn before_request(&self, _op: Op, _range: Range<u64>) -> Result<()> {
        Ok(())
    }
}

/// Returns the range of `len` bytes at `offset`. The device below refuses a range whose end does
/// not fit.
fn range_at(offset: u64, len: u64) -> Range<u64> {
    offset..offset.saturating_add(len)
}

impl<W: DeviceWrapper> BlockDevice for W {
    fn size_bytes(&self) -> u64 {
        self.inner().size_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.inner().sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner().is_read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.before_request(Op::Read, range_at(offset, buf.len() as u64))?;
        self.inner().read_at(buf, offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        self.before_request(Op::Read, range_at(offset, total_len(bufs)))?;
        self.inner().read_vectored_at(bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.before_request(Op::Write, range_at(offset, buf.len() as u64))?;
        self.inner().write_at(buf, offset)
    }

    fn writes_whole(&self) -> bool {
        self.inner().writes_whole()
    }

    fn flush(&self) -> Result<()> {
        self.before_request(Op::Flush, 0..0)?;
        self.inner().flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.before_request(Op::Discard, range.clone())?;
        self.inner().discard(range)
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        self.before_request(Op::WriteZeroes, range.clone())?;
        self.inner().write_zeroes(range)
    }

    fn prefetch(&self, range: Range<u64>) {
        self.inner().prefetch(range);
    }

    fn file_range(&self, range: Range<u64>) -> Option<(&File, u64)> {
        self.inner().file_range(range)
    }

    fn forget(&self, range: Range<u64>) {
        self.inner().forget(range);
    }

    fn name(&self) -> Option<&OsStr> {
        self.inner().name()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::{check_range, read_each_at};
    use super::*;
    use crate::{
        CountedDevice, FaultDevice, OverlayDevice, RecordDevice, SliceDevice, SuccessiveDevice,
    };

    /// A device whose answers differ from the answers of a device in memory, and that keeps the
    /// hints.
    #[derive(Debug, Default)]
    struct Unusual {
        hints: Mutex<Vec<(&'static str, Range<u64>)>>,
    }

    impl BlockDevice for Unusual {
        fn size_bytes(&self) -> u64 {
            1 << 16
        }

        fn sector_bytes(&self) -> u32 {
            4096
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            check_range(Op::Read, offset, buf.len() as u64, self.size_bytes())?;
            buf.fill(7);
            Ok(())
        }

        fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
            read_each_at(self, bufs, offset)
        }

        fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
            Ok(())
        }

        fn writes_whole(&self) -> bool {
            true
        }

        fn flush(&self) -> Result<()> {
            Ok(())
        }

        fn discard(&self, _range: Range<u64>) -> Result<()> {
            Ok(())
        }

        fn write_zeroes(&self, _range: Range<u64>) -> Result<()> {
            Ok(())
        }

        fn prefetch(&self, range: Range<u64>) {
            self.hints.lock().unwrap().push(("prefetch", range));
        }

        fn file_range(&self, _range: Range<u64>) -> Option<(&File, u64)> {
            None
        }

        fn forget(&self, range: Range<u64>) {
            self.hints.lock().unwrap().push(("forget", range));
        }

        fn name(&self) -> Option<&OsStr> {
            Some(OsStr::new("unusual"))
        }
    }

    #[test]
    fn every_wrapper_answers_as_the_device_below() {
        let base = Arc::new(Unusual::default());
        let below = || Arc::clone(&base) as Arc<dyn BlockDevice>;
        let wrappers: [(&str, Box<dyn BlockDevice>); 7] = [
            ("arc", Box::new(below())),
            ("counted", Box::new(CountedDevice::new(below()))),
            ("record", Box::new(RecordDevice::new(below()))),
            ("successive", Box::new(SuccessiveDevice::new(below()))),
            (
                "slice",
                Box::new(SliceDevice::new(below(), 0, 1 << 16).unwrap()),
            ),
            (
                "overlay",
                Box::new(OverlayDevice::new(below(), 4096).unwrap()),
            ),
            ("fault", Box::new(FaultDevice::new(below()))),
        ];
        for (wrapper, device) in wrappers {
            assert_eq!(
                (device.size_bytes(), device.sector_bytes()),
                (1 << 16, 4096),
                "{wrapper}"
            );
            assert!(device.writes_whole() && !device.is_read_only(), "{wrapper}");
            assert_eq!(device.name(), Some(OsStr::new("unusual")), "{wrapper}");
            device.prefetch(1..2);
            device.forget(3..4);
            let hints = std::mem::take(&mut *base.hints.lock().unwrap());
            assert_eq!(hints, [("prefetch", 1..2), ("forget", 3..4)], "{wrapper}");
        }
    }

    #[test]
    fn an_error_of_before_request_refuses_the_request() {
        #[derive(Debug)]
        struct NoFlush(Unusual);

        impl DeviceWrapper for NoFlush {
            type Inner = Unusual;

            fn inner(&self) -> &Unusual {
                &self.0
            }

            fn before_request(&self, op: Op, _range: Range<u64>) -> Result<()> {
                if op == Op::Flush {
                    Err(crate::Error::ReadOnly { op, offset: 0 })
                } else {
                    Ok(())
                }
            }
        }

        let device = NoFlush(Unusual::default());
        assert!(device.read_at(&mut [0], 0).is_ok() && device.flush().is_err());
    }
}
