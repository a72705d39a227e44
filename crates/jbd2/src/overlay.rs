//! A view of a volume as its journal would leave it.
//!
//! `ext4` mounts it where a volume with a dirty journal is opened for reading only. Reads return
//! the newer contents from the journal, and the volume's contents elsewhere. Writes and discards
//! fail, so volume and journal stay as they are.

use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::ops::Range;

use extern4_block::{BlockDevice, Error, Op, Result, check_range, read_each_at};

use crate::Recovered;

/// A device seen through its recovered journal: a read returns the journal's newer contents where
/// there are any. Nothing is ever written. The blocks are not kept in memory either; each read
/// fetches them from the journal.
///
/// `V` is the device of the volume, `J` that of the journal; for an internal journal, both are the
/// same.
#[derive(Debug)]
pub struct ReplayedDevice<V, J> {
    volume: V,
    recovered: Recovered<J>,
}

impl<V: BlockDevice, J: BlockDevice> ReplayedDevice<V, J> {
    /// Returns a view of `volume` through `recovered`.
    pub fn new(volume: V, recovered: Recovered<J>) -> Self {
        Self { volume, recovered }
    }

    /// Returns the recovered journal.
    pub fn recovered(&self) -> &Recovered<J> {
        &self.recovered
    }

    fn block_size(&self) -> u64 {
        self.recovered.journal().superblock().block_size.into()
    }

    /// Returns the blocks that a range of bytes touches and that the journal has newer contents of.
    fn newer(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let first = range.start / self.block_size();
        let last = range.end.saturating_sub(1) / self.block_size();
        let some = range.start < range.end;
        self.recovered
            .blocks_between(first, last)
            .filter(move |_| some)
    }
}

impl<V: BlockDevice, J: BlockDevice> BlockDevice for ReplayedDevice<V, J> {
    fn size_bytes(&self) -> u64 {
        self.volume.size_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.volume.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        // OK: a length in memory fits into 64 bits.
        let len = buf.len() as u64;
        let range = offset..check_range(Op::Read, offset, len, self.size_bytes())?;
        self.volume.read_at(buf, offset)?;
        let mut contents = Vec::new();
        for block in self.newer(&range) {
            contents.resize(self.recovered.journal().block_size(), 0);
            self.recovered
                .read(block, &mut contents)
                .map_err(|error| device_error(error, offset, len))?;
            // The block is inside the range, so this does not overflow.
            let start = block * self.block_size();
            let from = start.max(range.start);
            let to = (start + self.block_size()).min(range.end);
            let within = |position: u64, base: u64| {
                usize::try_from(position - base).expect("inside one buffer")
            };
            buf[within(from, range.start)..within(to, range.start)]
                .copy_from_slice(&contents[within(from, start)..within(to, start)]);
        }
        Ok(())
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        read_each_at(self, bufs, offset)
    }

    fn write_at(&self, _buf: &[u8], offset: u64) -> Result<()> {
        Err(Error::ReadOnly {
            op: Op::Write,
            offset,
        })
    }

    fn writes_whole(&self) -> bool {
        true
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
        self.volume.prefetch(range);
    }

    fn file_range(&self, range: Range<u64>) -> Option<(&std::fs::File, u64)> {
        if self.newer(&range).next().is_some() {
            None
        } else {
            self.volume.file_range(range)
        }
    }

    fn forget(&self, range: Range<u64>) {
        self.volume.forget(range);
    }

    fn name(&self) -> Option<&OsStr> {
        self.volume.name()
    }
}

/// Turns an error of the journal's device into one of this device.
fn device_error(error: crate::Error, offset: u64, len: u64) -> Error {
    match error {
        crate::Error::Device(error) => error,
        other => Error::io(Op::Read, offset, len, std::io::Error::other(other)),
    }
}
