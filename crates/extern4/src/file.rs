//! An open file of a volume, with the traits and methods of `std::fs::File`.
//!
//! [`Session`](crate::Session) opens it for programs and for the command. Dropping it closes the
//! file and makes nothing durable; [`File::sync_all`] does that. Any thread may read and write at
//! offsets. The rights of a file are those with which it was opened.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use extern4_vfs::{Errno, FallocateMode, OpenFile, OpenFlags, Span};

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Metadata;
use crate::open_options::OpenOptions;

/// An open file. [`Read`], [`Write`] and [`Seek`] move its own position; [`read_at`](File::read_at)
/// and [`write_at`](File::write_at) do not. Dropping the file closes it.
pub struct File {
    open: OpenFile,
}

impl File {
    pub(crate) fn new(open: OpenFile) -> Self {
        Self { open }
    }

    /// Returns options to open a file with: [`OpenOptions::new`].
    pub const fn options() -> OpenOptions {
        OpenOptions::new()
    }

    fn path(&self) -> PathBuf {
        OsString::from_vec(self.open.path()).into()
    }

    fn failed(&self, action: &'static str, error: extern4_vfs::Error) -> Error {
        Error::vfs(action, &self.path(), error)
    }

    /// Returns the attributes of the open file.
    pub fn metadata(&self) -> Metadata {
        Metadata(self.open.stat())
    }

    /// Reads at `offset` without moving the position. A read is short only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for reading; `EIO` if the device fails or the volume was
    /// shut down; [`ErrorKind::Corrupt`] for a damaged map.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.open
            .read_at(buf, offset)
            .map_err(|e| self.failed("read", e))
    }

    /// Fills `buf` with the bytes at `offset`, without moving the position.
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] if the file ends before.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let wanted = buf.len();
        let len = self.read_at(buf, offset)?;
        if len == wanted {
            return Ok(());
        }
        let why = format!("the file ends {} bytes too early", wanted - len);
        Err(Error::new(ErrorKind::UnexpectedEof, "read")
            .at(&self.path())
            .because(why))
    }

    /// Writes at `offset` without moving the position. A write is short only if the volume is full.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for writing; `ENOSPC` or `EDQUOT` if not one byte fits;
    /// `EFBIG` beyond the format's limit; `EROFS` after an error has stopped changes; `EIO`;
    /// [`ErrorKind::Corrupt`].
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.open
            .write_at(data, offset)
            .map_err(|e| self.failed("write", e))
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// The errors of [`write_at`](Self::write_at), after a part of `data` may have been written.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut data = data;
        let mut offset = offset;
        while !data.is_empty() {
            let written = self.write_at(data, offset)?;
            data = &data[written..];
            offset += written as u64;
        }
        Ok(())
    }

    /// Makes the file `size` bytes long. Bytes that this adds read as zeroes.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for writing; `EFBIG` beyond the format's limit; `EPERM` for
    /// an append-only file; `ENOSPC`; `EIO`; [`ErrorKind::Corrupt`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.open
            .set_len(size)
            .map_err(|e| self.failed("truncate", e))
    }

    /// Changes the blocks allocated to the file (`fallocate(2)`).
    ///
    /// # Errors
    /// The errors of `fallocate(2)`: `EOPNOTSUPP` for a mode or a kind of file that cannot;
    /// `EINVAL` for a range that is not aligned or makes no sense; `EBADF`, `EFBIG`, `ENOSPC`,
    /// `EIO`.
    pub fn allocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.open
            .fallocate(mode, offset, len)
            .map_err(|e| self.failed("allocate", e))
    }

    /// Makes contents and attributes durable (`fsync(2)`).
    ///
    /// # Errors
    /// `EIO` if the device failed since the last call, here or on any write of the volume that may
    /// concern this file; the error that has stopped the journal.
    pub fn sync_all(&self) -> Result<()> {
        self.open.sync(false).map_err(|e| self.failed("sync", e))
    }

    /// Makes contents durable, and the attributes needed to read them (`fdatasync(2)`).
    ///
    /// # Errors
    /// The errors of [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        self.open.sync(true).map_err(|e| self.failed("sync", e))
    }

    /// Returns the whole contents.
    pub(crate) fn read_all(&self) -> Result<Vec<u8>> {
        // A hostile size must not end the process: if memory cannot hold the file, the read fails.
        let too_large = || self.failed("read", Errno::ENOMEM.into());
        let size = usize::try_from(self.open.size()).map_err(|_| too_large())?;
        let mut contents = Vec::new();
        contents.try_reserve_exact(size).map_err(|_| too_large())?;
        contents.resize(size, 0);
        let len = self.read_at(&mut contents, 0)?;
        contents.truncate(len);
        Ok(contents)
    }

    /// Returns the kind of bytes at `offset`, data or a hole, and where they end. `None` at or
    /// behind the end of the file.
    ///
    /// # Errors
    /// `EIO`; [`ErrorKind::Corrupt`] for a damaged map.
    pub fn span_at(&self, offset: u64) -> Result<Option<Span>> {
        self.open.span_at(offset).map_err(|e| self.failed("map", e))
    }

    /// Returns the first byte of data at or behind `offset`, as `SEEK_DATA` finds it. `None` if
    /// only a hole is left.
    ///
    /// # Errors
    /// The errors of [`span_at`](Self::span_at).
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.none_at_end(self.open.seek_data(offset))
    }

    /// Returns the first byte of a hole at or behind `offset`, as `SEEK_HOLE` finds it. The end of
    /// the file counts as a hole. `None` if `offset` is not inside the file.
    ///
    /// # Errors
    /// The errors of [`span_at`](Self::span_at).
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.none_at_end(self.open.seek_hole(offset))
    }

    fn none_at_end(&self, found: extern4_vfs::Result<u64>) -> Result<Option<u64>> {
        match found {
            Ok(offset) => Ok(Some(offset)),
            Err(error) if error == Errno::ENXIO => Ok(None),
            Err(error) => Err(self.failed("map", error)),
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path())
            .field("flags", &self.open.flags())
            .finish_non_exhaustive()
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let position = self.open.position();
        let len = self.read_at(buf, position)?;
        self.open.set_position(position + len as u64);
        Ok(len)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let position = self.open.position();
        let written = self.write_at(data, position)?;
        let appends = self.open.flags().contains(OpenFlags::APPEND);
        self.open.set_position(if appends {
            self.open.size()
        } else {
            position + written as u64
        });
        Ok(written)
    }

    /// Does nothing: [`sync_all`](File::sync_all) makes written data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, offset) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::End(offset) => (self.open.size(), offset),
            SeekFrom::Current(offset) => (self.open.position(), offset),
        };
        let position = base
            .checked_add_signed(offset)
            .ok_or_else(|| Error::new(ErrorKind::Os(Errno::EINVAL), "seek in").at(&self.path()))?;
        self.open.set_position(position);
        Ok(position)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    /// Does nothing: [`sync_all`](File::sync_all) makes written data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
