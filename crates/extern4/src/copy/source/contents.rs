//! The contents of an open file to copy, on the host or in a volume.

use std::fs::File as HostFile;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;

use extern4_vfs::SpanKind;
use rustix::buffer::spare_capacity;
use rustix::fs::SeekFrom;
use rustix::io::{Errno, pread};

use crate::copy::failure::CopyError;
use crate::file::File;

/// The largest file, in bytes, that is read ahead.
const AHEAD_BYTES: u64 = 4 << 20;

/// An open file.
pub(in crate::copy) enum Contents {
    Host(HostFile),
    /// A pipe or a device of the host, which is read from its current position.
    Stream(HostFile),
    Volume(File),
}

impl Contents {
    /// Returns the current size in bytes, and the identity of the file where the host knows it.
    pub(in crate::copy) fn size(&self) -> Result<u64, CopyError> {
        Ok(match self {
            Self::Host(file) => file.metadata()?.len(),
            Self::Stream(_) => 0,
            Self::Volume(file) => file.metadata().len(),
        })
    }

    /// Returns the next range of data at or behind `offset`, as start and end; `None` if only a
    /// hole is left.
    pub(in crate::copy) fn data(
        &self,
        offset: u64,
        size: u64,
    ) -> Result<Option<(u64, u64)>, CopyError> {
        if offset >= size {
            return Ok(None);
        }
        let (start, end) = match self {
            Self::Host(file) | Self::Stream(file) => {
                let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                    Err(Errno::NXIO) => return Ok(None),
                    // The host knows nothing about holes there.
                    Err(Errno::INVAL | Errno::NOTSUP) => return Ok(Some((offset, size))),
                    start => start?,
                };
                (
                    start,
                    rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size),
                )
            }
            Self::Volume(file) => {
                let mut at = offset;
                loop {
                    let Some(span) = file.span_at(at)? else {
                        return Ok(None);
                    };
                    let end = span
                        .offset
                        .saturating_add(span.len)
                        .max(at.saturating_add(1));
                    match span.kind {
                        SpanKind::Hole | SpanKind::Unwritten if end < size => at = end,
                        SpanKind::Hole | SpanKind::Unwritten => return Ok(None),
                        SpanKind::Mapped { .. } | SpanKind::Inline => break (at, end),
                    }
                }
            }
        };
        Ok((start < size).then(|| (start, end.clamp(start + 1, size))))
    }

    /// Returns the pipe or device, whose reads may wait.
    pub(in crate::copy) fn stream(&self) -> Option<BorrowedFd<'_>> {
        if let Self::Stream(file) = self {
            Some(file.as_fd())
        } else {
            None
        }
    }

    /// Reads at `offset`; returns 0 at the end.
    pub(in crate::copy) fn read_at(
        &self,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize, CopyError> {
        loop {
            let read = match self {
                Self::Host(file) => file.read_at(buffer, offset),
                Self::Stream(file) => (&*file).read(buffer),
                Self::Volume(file) => return Ok(file.read_at(buffer, offset)?),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return Ok(read?),
            }
        }
    }
}

/// Appends a short file without holes to `bytes`. Returns `None` if it is another kind of file by
/// now, or cannot be read. The caller then reads it again piece by piece, which shows why.
pub(super) fn read_whole(file: &HostFile, size: u64, bytes: &mut Vec<u8>) -> Option<Range<usize>> {
    if size > AHEAD_BYTES || size > 0 && rustix::fs::seek(file, SeekFrom::Hole(0)).ok()? < size {
        return None;
    }
    let len = usize::try_from(size).ok()?;
    let start = bytes.len();
    // One byte more, which is filled only if the file has grown.
    bytes.reserve(len + 1);
    let read = pread(file, spare_capacity(bytes), 0);
    if read != Ok(len) {
        bytes.truncate(start);
        return None;
    }
    Some(start..start + len)
}
