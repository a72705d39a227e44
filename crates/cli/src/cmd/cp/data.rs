//! Copies contents of files. Only data is copied, so holes stay holes.
//!
//! `copier` calls it for each regular file. A failure says on which side it was.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use extern4::{Span, SpanKind};

use super::options::Sparse;
use crate::kernel_copy::KernelCopy;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Zeroes of this length become a hole, if that is wanted.
const HOLE_BYTES: usize = 4096;

/// The reason why a copy of contents failed, by side.
pub(super) enum Error {
    /// Reading from the volume failed.
    Volume(extern4::Error),
    /// The volume describes an impossible file.
    Map,
    /// Writing the copy failed.
    Host(std::io::Error),
    /// A signal has asked the command to end.
    Stopped,
}

impl From<extern4::Error> for Error {
    fn from(error: extern4::Error) -> Self {
        Self::Volume(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Host(error)
    }
}

/// A copy of the contents of one file.
pub(super) struct Contents<'a> {
    /// The file in the volume.
    pub(super) from: &'a extern4::File,
    /// The image, if the data stands in it unchanged.
    pub(super) kernel_copy: Option<&'a mut KernelCopy>,
    /// The copy, empty.
    pub(super) to: &'a File,
    /// The buffer for reading.
    pub(super) buffer: &'a mut Vec<u8>,
    /// The way to copy holes.
    pub(super) sparse: Sparse,
    /// Called with the number of bytes of every piece that is copied; an error ends the copy.
    pub(super) copied: &'a mut dyn FnMut(u64) -> Result<(), Error>,
}

impl Contents<'_> {
    /// Copies the data, and leaves holes unless they are to be zeroes.
    pub(super) fn copy(mut self) -> Result<(), Error> {
        if self.sparse != Sparse::Auto {
            self.kernel_copy = None;
        }
        let len = self.from.metadata().len();
        let mut offset = 0;
        while offset < len {
            let Some(span) = self.from.span_at(offset)? else { break };
            let end = end(&span, offset).ok_or(Error::Map)?.min(len);
            match span.kind {
                SpanKind::Hole | SpanKind::Unwritten if self.sparse == Sparse::Never => {
                    self.bytes(offset, end)?;
                }
                SpanKind::Hole | SpanKind::Unwritten => {}
                SpanKind::Mapped { .. } | SpanKind::Inline => self.span(&span, offset, end)?,
            }
            offset = end;
        }
        self.to.set_len(len)?;
        Ok(())
    }

    /// Writes everything from the current position of `to` on, with holes as zeroes.
    pub(super) fn stream(self) -> Result<(), Error> {
        self.buffer.resize(CHUNK_BYTES, 0);
        let mut to = self.to;
        let mut offset = 0;
        loop {
            let len = self.from.read_at(self.buffer, offset)?;
            if len == 0 {
                return Ok(());
            }
            std::io::Write::write_all(&mut to, &self.buffer[..len])?;
            offset += len as u64;
            (self.copied)(len as u64)?;
        }
    }

    fn span(&mut self, span: &Span, mut offset: u64, end: u64) -> Result<(), Error> {
        while let Some(kernel_copy) = self.kernel_copy.as_mut().filter(|_| offset < end) {
            let sent = kernel_copy.send(span, offset, end - offset, self.to, Some(offset));
            match sent.map_err(std::io::Error::from)?.min(end - offset) {
                0 => break,
                sent => {
                    offset += sent;
                    (self.copied)(sent)?;
                }
            }
        }
        self.bytes(offset, end)
    }

    fn bytes(&mut self, mut offset: u64, end: u64) -> Result<(), Error> {
        self.buffer.resize(CHUNK_BYTES, 0);
        while offset < end {
            let wanted = usize::try_from(end - offset).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let len = self.from.read_at(&mut self.buffer[..wanted], offset)?;
            if len == 0 {
                return Ok(());
            }
            let data = &self.buffer[..len];
            for (at, piece) in pieces(data, self.sparse) {
                self.to.write_all_at(piece, offset + at as u64)?;
            }
            offset += len as u64;
            (self.copied)(len as u64)?;
        }
        Ok(())
    }
}

/// Returns the pieces of data that are written, each with its place: all, or those of blocks that
/// are not zeroes.
pub(super) fn pieces(data: &[u8], sparse: Sparse) -> impl Iterator<Item = (usize, &[u8])> {
    let step = if sparse == Sparse::Always { HOLE_BYTES } else { data.len().max(1) };
    let is_written = move |piece: &[u8]| sparse != Sparse::Always || piece.iter().any(|byte| *byte != 0);
    data.chunks(step)
        .enumerate()
        .map(move |(at, piece)| (at * step, piece))
        .filter(move |(_, piece)| is_written(piece))
}

/// Returns the end of a span; `None` if it overflows or does not go beyond `offset`.
fn end(span: &Span, offset: u64) -> Option<u64> {
    span.offset.checked_add(span.len).filter(|end| *end > offset)
}
