//! An open file.

use std::io::{self, Read, Seek, SeekFrom};

use extern4_vfs::Span;

use crate::error::Result;
use crate::metadata::Metadata;

/// A file opened for reading. [`Read`] and [`Seek`] move a position of its own; [`read_at`](File::read_at) does not.
pub struct File {}

#[expect(unused_variables, reason = "sketch")]
impl File {
    /// The attributes of the open file.
    pub fn metadata(&self) -> Metadata {
        todo!()
    }
    /// Reads at `offset` without moving the position; short only at the end of the file.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        todo!()
    }
    /// What stands at byte `offset`: data or a hole, and how far; `None` at or behind the end.
    pub fn span_at(&self, offset: u64) -> Result<Option<Span>> {
        todo!()
    }
    /// The first byte of data at or behind `offset`, as `SEEK_DATA` finds it; `None` if only a hole is left.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        todo!()
    }
    /// The first byte of a hole at or behind `offset`, as `SEEK_HOLE` finds it: the end of the file counts as one.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        todo!()
    }
}

impl Read for File {
    fn read(&mut self, _buf: &mut [u8]) -> io::Result<usize> {
        todo!()
    }
}

impl Seek for File {
    fn seek(&mut self, _position: SeekFrom) -> io::Result<u64> {
        todo!()
    }
}
