//! The contents of a copy in a volume.
//!
//! `file` calls it for each regular file. Only data is copied, so holes stay holes.

use super::super::failure::Failure;
use super::super::observer::CopyObserver;
use super::super::options::Sparse;
use super::super::source::Contents;
use super::super::sparse::pieces;
use super::{CHUNK_BYTES, CopyInto};
use crate::error::Result as VolumeResult;
use crate::file::File;

impl CopyInto<'_> {
    /// Writes the whole contents of a file.
    pub(super) fn whole(&self, data: &[u8], to: &File) -> VolumeResult<()> {
        self.write(to, data, 0)?;
        self.end(to, data.len() as u64)
    }

    /// Copies the data, and leaves holes unless they are to be zeroes.
    pub(super) fn contents(
        &mut self,
        from: &Contents,
        to: &File,
        observer: &mut dyn CopyObserver,
    ) -> Result<(), Failure> {
        let size = from.size()?;
        if self.options.sparse == Sparse::Never {
            self.piece(from, to, 0..u64::MAX, observer)?;
            return Ok(());
        }
        let mut end = 0;
        while let Some((start, stop)) = from.data(end, size)? {
            if !self.piece(from, to, start..stop, observer)? {
                // Another process has truncated the file.
                return Ok(());
            }
            end = stop;
        }
        if end < size {
            to.set_len(size)?;
        }
        self.end(to, size)?;
        // The file may have grown, and files of /proc do not tell their size.
        self.piece(from, to, size..u64::MAX, observer)?;
        Ok(())
    }

    /// Copies a range. Returns false if the file ends before its end.
    fn piece(
        &mut self,
        from: &Contents,
        to: &File,
        range: std::ops::Range<u64>,
        observer: &mut dyn CopyObserver,
    ) -> Result<bool, Failure> {
        let mut at = range.start;
        if self.summary.advance(0, 0, observer).is_break() {
            return Err(Failure::Stopped);
        }
        while at < range.end {
            if from
                .stream()
                .is_some_and(|stream| observer.wait(stream).is_break())
            {
                return Err(Failure::Stopped);
            }
            let left = usize::try_from(range.end - at).unwrap_or(CHUNK_BYTES);
            let len = from.read_at(&mut self.buffer[..left.min(CHUNK_BYTES)], at)?;
            if len == 0 {
                return Ok(false);
            }
            self.write(to, &self.buffer[..len], at)?;
            at += len as u64;
            if self.summary.advance(0, len as u64, observer).is_break() {
                return Err(Failure::Stopped);
            }
        }
        Ok(true)
    }

    /// Writes data, without zeroes that are to be holes.
    fn write(&self, to: &File, data: &[u8], at: u64) -> VolumeResult<()> {
        let mut pieces = pieces(data, self.options.sparse);
        pieces.try_for_each(|(start, piece)| to.write_all_at(piece, at + start as u64))
    }

    /// Sets the size of a file that may end in a hole.
    fn end(&self, to: &File, size: u64) -> VolumeResult<()> {
        if self.options.sparse == Sparse::Always {
            to.set_len(size)
        } else {
            Ok(())
        }
    }
}
