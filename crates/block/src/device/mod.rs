//! The device trait and the devices.
//!
//! The buffer cache, the journal, `ext4` and the builders call devices through [`BlockDevice`].
//!
//! Offsets and lengths are bytes. Every operation takes `&self`, and any thread may call it.
//! Operations on ranges that do not overlap never disturb each other. A device refuses a range that
//! does not lie inside it before it reads or changes anything.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use crate::{Error, Op, Result};

pub mod counted;
pub mod crash;
pub mod fault;
pub mod file;
pub mod flush;
pub(crate) mod holder;
mod lock;
pub mod memory;
pub mod overlay;
pub mod record;
pub mod slice;
pub mod successive;
pub mod wrapper;

/// An array of bytes on some medium.
///
/// No method has a default. With a default, a device that wraps another one could answer in place
/// of the wrapped device, and the compiler would not say so. A device that only observes another
/// implements [`DeviceWrapper`](wrapper::DeviceWrapper) instead.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Returns the bytes in the device; constant while it is open.
    fn size_bytes(&self) -> u64;

    /// Returns the bytes in the sectors that the device's partition table counts in: 512 unless the
    /// medium has others.
    fn sector_bytes(&self) -> u32;

    /// Returns whether the device refuses every change with [`Error::ReadOnly`].
    fn is_read_only(&self) -> bool;

    /// Fills `buf` with the bytes at `offset`, all or none. If the data ends early, the error is
    /// [`Error::UnexpectedEnd`]. After an error the contents of `buf` are unspecified.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Fills `bufs` one after the other with the bytes from `offset` on, by one read if the device
    /// can do that. Other devices call [`read_each_at`].
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()>;

    /// Replaces the bytes at `offset`. After an error, each byte of the range holds its old or its
    /// new value.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// Returns whether concurrent [writes](Self::write_at) to common bytes take effect one after
    /// the other, each as a whole. A device that does not know returns false.
    fn writes_whole(&self) -> bool;

    /// Returns after every write that finished before the call is durable.
    ///
    /// After a failure, bytes written before may be lost, so no later flush succeeds. Flushes that
    /// were under way at the time of the failure fail, too. A device whose medium reports an error
    /// only once ensures this by [`flush::Flushes`].
    fn flush(&self) -> Result<()>;

    /// Tells the device that the contents of `range` no longer matter. They are unspecified
    /// afterwards. A device that cannot do so does nothing.
    fn discard(&self, range: Range<u64>) -> Result<()>;

    /// Makes `range` read as zeroes.
    fn write_zeroes(&self, range: Range<u64>) -> Result<()>;

    /// Hints that `range` is read soon. Does not wait, and never fails. A device without read-ahead
    /// does nothing.
    fn prefetch(&self, range: Range<u64>);

    /// Returns the file that holds `range` in one piece, and the offset of the range in it, if
    /// there is one. A caller can then copy by `copy_file_range` or `sendfile` without passing the
    /// contents through memory. The caller may only read the file. A device without a file returns
    /// `None`.
    fn file_range(&self, range: Range<u64>) -> Option<(&File, u64)>;

    /// Drops the operating system's cache of `range`, so that the next read sees the writes of
    /// another host that shares the device. The caller flushes everything before. A device without
    /// such a cache does nothing.
    fn forget(&self, range: Range<u64>);

    /// Returns the name that the host gives the device; `None` if it has no name.
    fn name(&self) -> Option<&OsStr>;
}

impl<D: BlockDevice + ?Sized> wrapper::DeviceWrapper for Arc<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        self
    }
}

/// Implements [`BlockDevice::read_vectored_at`] for devices that read one buffer at a time.
///
/// # Errors
/// The first error of a read.
pub fn read_each_at(
    device: &impl BlockDevice,
    bufs: &mut [IoSliceMut<'_>],
    offset: u64,
) -> Result<()> {
    let mut at = offset;
    for buf in bufs {
        device.read_at(buf, at)?;
        // OK: the read succeeded, so its end lies inside the device.
        at += buf.len() as u64;
    }
    Ok(())
}

/// Returns the end of the range of `len` bytes at `offset`, or [`Error::OutOfRange`] unless it lies
/// inside `size` bytes.
///
/// # Errors
/// As above.
pub fn check_range(op: Op, offset: u64, len: u64, size: u64) -> Result<u64> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(end),
        _ => Err(Error::OutOfRange {
            op,
            offset,
            len,
            size,
        }),
    }
}

/// Returns the length of `range`, or [`Error::OutOfRange`] unless it lies inside `size` bytes and
/// runs forwards.
pub(crate) fn check_span(op: Op, range: &Range<u64>, size: u64) -> Result<u64> {
    let len = range.end.checked_sub(range.start);
    match len {
        Some(len) if range.end <= size => Ok(len),
        _ => Err(Error::OutOfRange {
            op,
            offset: range.start,
            len: len.unwrap_or(0),
            size,
        }),
    }
}

/// Returns the number of bytes in all of `bufs`.
pub(crate) fn total_len(bufs: &[IoSliceMut<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}
