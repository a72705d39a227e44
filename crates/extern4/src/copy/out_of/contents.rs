//! Copies contents of files. Only data is copied, so holes stay holes.
//!
//! `file` calls it for each regular file. A failure says on which side it was.

use std::fs::File as HostFile;
use std::os::unix::fs::FileExt as _;

use extern4_vfs::{Span, SpanKind};

use super::super::kernel_copy::KernelCopy;
use super::super::options::Sparse;
use super::super::sparse::pieces;
use super::fault::Fault;
use crate::file::File;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A copy of the contents of one file.
pub(super) struct Contents<'a> {
    /// The file in the volume.
    pub(super) from: &'a File,
    /// The image, if the data stands in it unchanged.
    pub(super) kernel_copy: Option<&'a mut KernelCopy>,
    /// The copy, empty.
    pub(super) to: &'a HostFile,
    /// The buffer for reading.
    pub(super) buffer: &'a mut Vec<u8>,
    /// The way to copy holes.
    pub(super) sparse: Sparse,
    /// Called with the number of bytes of every piece that is copied; an error ends the copy.
    pub(super) copied: &'a mut dyn FnMut(u64) -> Result<(), Fault>,
}

impl Contents<'_> {
    /// Copies the data, and leaves holes unless they are to be zeroes.
    pub(super) fn copy(mut self) -> Result<(), Fault> {
        if self.sparse != Sparse::Auto {
            self.kernel_copy = None;
        }
        let len = self.from.metadata().len();
        let mut offset = 0;
        while offset < len {
            let Some(span) = self.from.span_at(offset)? else {
                break;
            };
            let end = end(&span, offset).ok_or_else(Fault::block_map)?.min(len);
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
    pub(super) fn stream(self) -> Result<(), Fault> {
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

    fn span(&mut self, span: &Span, mut offset: u64, end: u64) -> Result<(), Fault> {
        while let Some(kernel_copy) = self.kernel_copy.as_mut().filter(|_| offset < end) {
            let sent = kernel_copy.send(span, offset, end - offset, self.to, Some(offset));
            match sent?.min(end - offset) {
                0 => break,
                sent => {
                    offset += sent;
                    (self.copied)(sent)?;
                }
            }
        }
        self.bytes(offset, end)
    }

    fn bytes(&mut self, mut offset: u64, end: u64) -> Result<(), Fault> {
        self.buffer.resize(CHUNK_BYTES, 0);
        while offset < end {
            let wanted =
                usize::try_from(end - offset).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
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

/// Returns the end of a span; `None` if it overflows or does not go beyond `offset`.
fn end(span: &Span, offset: u64) -> Option<u64> {
    span.offset
        .checked_add(span.len)
        .filter(|end| *end > offset)
}
