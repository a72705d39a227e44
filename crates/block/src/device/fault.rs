//! A device that fails on purpose, for tests of the layers above.
//!
//! A test injects rules ([`Fault`]) that say which requests fail, stop short or wait, and how; all
//! others go to the device below. A flush that failed makes all later flushes fail, until the test
//! heals the device; fsync(2) on a file does the same. Tests of `block`, `jbd2`, `ext4` and the lab
//! use it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::flush::Flushes;
use super::{BlockDevice, read_each_at};
use crate::{Error, Op, Result};

/// The effect of a [`Fault`] on a request that it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The request fails with this error number of the operating system, and does nothing.
    Error(i32),
    /// Only this many bytes, the first ones, are read or written; then the request fails. A read
    /// fails with [`Error::UnexpectedEnd`], any other request with `EIO`.
    Short(u64),
    /// The request succeeds, but after this time.
    Delay(Duration),
}

/// A rule that says which requests go wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The operation that the rule applies to.
    pub op: Op,
    /// The rule applies only to requests that touch a byte of this range. A flush has no range: the
    /// rule applies to it whatever this is.
    pub range: Range<u64>,
    /// Number of such requests that pass before the first one is struck.
    pub after: u64,
    /// Number of requests that are struck after those.
    pub times: u64,
    /// The effect on them.
    pub effect: Effect,
}

impl Fault {
    /// Strikes every `op` anywhere, from the first one on, for ever.
    pub fn every(op: Op, effect: Effect) -> Self {
        Self {
            op,
            range: 0..u64::MAX,
            after: 0,
            times: u64::MAX,
            effect,
        }
    }

    /// Strikes only the `n`-th `op` from now on, counted from 0.
    pub fn nth(op: Op, n: u64, effect: Effect) -> Self {
        Self {
            after: n,
            times: 1,
            ..Self::every(op, effect)
        }
    }

    /// Strikes every `op` that touches `range`.
    pub fn within(op: Op, range: Range<u64>, effect: Effect) -> Self {
        Self {
            range,
            ..Self::every(op, effect)
        }
    }

    /// Returns whether the rule strikes the request; counts the request if the rule applies to it.
    fn strike(&mut self, op: Op, range: &Range<u64>) -> bool {
        let touches =
            op == Op::Flush || (range.start < self.range.end && self.range.start < range.end);
        if op != self.op || !touches {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        let struck = self.times > 0;
        self.times = self.times.saturating_sub(1);
        struck
    }
}

/// A device that passes every request on, unless one of its faults strikes it.
#[derive(Debug)]
pub struct FaultDevice {
    base: Arc<dyn BlockDevice>,
    faults: Mutex<Vec<Fault>>,
    flushes: Flushes,
}

impl FaultDevice {
    /// Returns a device over `base`, without a fault.
    pub fn new(base: Arc<dyn BlockDevice>) -> Self {
        Self {
            base,
            faults: Mutex::default(),
            flushes: Flushes::default(),
        }
    }

    /// Adds a fault. If several strike one request, the earliest added has its effect, and all
    /// count the request.
    pub fn inject(&self, fault: Fault) {
        self.lock().push(fault);
    }

    /// Removes all faults and their consequences.
    pub fn heal(&self) {
        self.lock().clear();
        self.flushes.heal();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn effect(&self, op: Op, range: &Range<u64>) -> Option<Effect> {
        let mut effect = None;
        for fault in self.lock().iter_mut() {
            if fault.strike(op, range) {
                effect = effect.or(Some(fault.effect));
            }
        }
        effect
    }

    /// Runs `request` on as many of the first bytes of `range` as the faults permit: all of them if
    /// none strikes.
    fn run(
        &self,
        op: Op,
        range: Range<u64>,
        request: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        match self.effect(op, &range) {
            None => request(len),
            Some(Effect::Delay(time)) => {
                thread::sleep(time);
                request(len)
            }
            Some(Effect::Error(errno)) => Err(Error::io(
                op,
                range.start,
                len,
                io::Error::from_raw_os_error(errno),
            )),
            Some(Effect::Short(done)) => {
                let done = done.min(len);
                request(done)?;
                let offset = range.start + done;
                let missing = len - done;
                Err(match op {
                    Op::Read => Error::UnexpectedEnd { offset, missing },
                    _ => Error::io(op, offset, missing, rustix::io::Errno::IO.into()),
                })
            }
        }
    }
}

/// Returns the range of a request. A range that overflows ends early here, and the device below
/// refuses it.
fn span(offset: u64, len: usize) -> Range<u64> {
    offset..offset.saturating_add(len as u64)
}

impl BlockDevice for FaultDevice {
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
        let whole = buf.len() as u64;
        self.run(Op::Read, span(offset, buf.len()), |len| {
            let buf = if len < whole {
                &mut buf[..len as usize]
            } else {
                buf
            };
            self.base.read_at(buf, offset)
        })
    }

    /// Reads each buffer by its own request, so that a fault can strike single blocks of a vectored
    /// read.
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        read_each_at(self, bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.run(Op::Write, span(offset, buf.len()), |len| {
            self.base
                .write_at(&buf[..buf.len().min(len as usize)], offset)
        })
    }

    fn writes_whole(&self) -> bool {
        self.base.writes_whole()
    }

    fn flush(&self) -> Result<()> {
        self.flushes
            .flush(|| self.run(Op::Flush, 0..0, |_| self.base.flush()))
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.run(Op::Discard, range.clone(), |len| {
            self.base.discard(range.start..range.start + len)
        })
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        self.run(Op::WriteZeroes, range.clone(), |len| {
            self.base.write_zeroes(range.start..range.start + len)
        })
    }

    fn prefetch(&self, range: Range<u64>) {
        self.base.prefetch(range);
    }

    /// Returns `None`: bytes read past the device would escape its faults.
    fn file_range(&self, _range: Range<u64>) -> Option<(&File, u64)> {
        None
    }

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

    const EIO: i32 = 5;

    fn device() -> FaultDevice {
        FaultDevice::new(Arc::new(MemoryDevice::new(vec![1; 100])))
    }

    #[test]
    fn only_the_nth_request_is_struck() {
        let device = device();
        device.inject(Fault::nth(Op::Read, 1, Effect::Error(EIO)));
        let results: Vec<bool> = (0..3)
            .map(|_| device.read_at(&mut [0; 4], 0).is_ok())
            .collect();
        assert_eq!(results, [true, false, true]);
        device.write_at(&[0; 4], 0).unwrap();
    }

    #[test]
    fn a_bad_range_strikes_until_healed() {
        let device = device();
        device.inject(Fault::within(Op::Read, 50..51, Effect::Error(EIO)));
        for _ in 0..2 {
            device.read_at(&mut [0; 50], 0).unwrap();
            device.read_at(&mut [0; 40], 51).unwrap();
            let error = device.read_at(&mut [0; 2], 49).unwrap_err();
            assert!(matches!(
                error,
                Error::Io {
                    op: Op::Read,
                    offset: 49,
                    len: 2,
                    ..
                }
            ));
            assert_eq!(error.io_source().unwrap().raw_os_error(), Some(EIO));
        }
        device.heal();
        device.read_at(&mut [0; 2], 49).unwrap();
    }

    #[test]
    fn a_short_write_is_torn_and_a_short_read_ends_early() {
        let device = device();
        device.inject(Fault::nth(Op::Write, 0, Effect::Short(3)));
        device.inject(Fault::nth(Op::Read, 0, Effect::Short(3)));
        let error = device.write_at(&[7; 8], 10).unwrap_err();
        assert!(matches!(
            error,
            Error::Io {
                op: Op::Write,
                offset: 13,
                len: 5,
                ..
            }
        ));
        let error = device.read_at(&mut [0; 8], 10).unwrap_err();
        assert!(matches!(
            error,
            Error::UnexpectedEnd {
                offset: 13,
                missing: 5
            }
        ));
        let mut buf = [0; 5];
        device.read_at(&mut buf, 10).unwrap();
        assert_eq!(buf, [7, 7, 7, 1, 1]);
    }

    #[test]
    fn flushes_can_fail_and_requests_can_take_long() {
        let device = device();
        device.inject(Fault::every(Op::Flush, Effect::Error(EIO)));
        assert!(device.flush().is_err());
        device.inject(Fault::every(
            Op::Discard,
            Effect::Delay(Duration::from_millis(5)),
        ));
        let start = std::time::Instant::now();
        device.discard(0..10).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(5));
    }
}
