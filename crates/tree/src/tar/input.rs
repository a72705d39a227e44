//! [`Input`]: the bytes of an archive, read forwards with a buffer.
//!
//! `read` and `sparse` take blocks and data from it. It counts the bytes for messages, and keeps
//! contents for later: in place, or in a spool. An archive that ends too early is an error with the
//! offset.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::BLOCK;
use crate::error::{Error, Result};
use crate::spool::Spool;
use crate::stores;

/// The size of the buffer: one read fetches several headers and small contents.
const BUFFER: usize = 64 << 10;

/// Bytes that are read forwards.
pub(crate) trait Bytes: Read {
    /// Skips bytes. The error is `UnexpectedEof` if there are fewer.
    fn skip(&mut self, count: u64) -> io::Result<()>;
}

/// A stream.
pub(crate) struct Forward<R>(pub(crate) R);

impl<R: Read> Read for Forward<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<R: Read> Bytes for Forward<R> {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.0.by_ref().take(count), &mut io::sink())?;
        if skipped < count {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }
}

/// A part of a file.
pub(crate) struct InPlace {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl InPlace {
    /// Returns the part of `file` from `start` on, of `len` bytes or up to the end.
    pub(crate) fn new(file: Arc<File>, start: u64, len: Option<u64>) -> io::Result<Self> {
        let end = match len {
            Some(len) => start.saturating_add(len),
            // Devices have no size in their metadata.
            None => io::Seek::seek(&mut &*file, io::SeekFrom::End(0))?,
        };
        Ok(Self {
            file,
            at: start,
            end,
        })
    }
}

impl Read for InPlace {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_sub(self.at);
        let wanted = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buf[..wanted], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Bytes for InPlace {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        if count > self.end.saturating_sub(self.at) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += count;
        Ok(())
    }
}

/// Where contents are kept for later.
pub(crate) enum Keep {
    /// In the archive, whose byte 0 has this position.
    InPlace { start: u64 },
    /// In a spool, whose byte 0 has this position.
    Spool { spool: Spool, start: u64 },
    /// They are not kept.
    Nothing,
}

/// An archive that is being read.
pub(crate) struct Input<'a> {
    /// The archive's name, for messages.
    pub(crate) name: &'a str,
    bytes: Box<dyn Bytes + 'a>,
    buf: Box<[u8]>,
    /// The start and the end of the unread part of the buffer.
    from: usize,
    to: usize,
    /// How many bytes have been taken.
    taken: u64,
    keep: Keep,
}

impl<'a> Input<'a> {
    pub(crate) fn new(name: &'a str, bytes: Box<dyn Bytes + 'a>, keep: Keep) -> Self {
        let buf = vec![0; BUFFER].into_boxed_slice();
        Self {
            name,
            bytes,
            buf,
            from: 0,
            to: 0,
            taken: 0,
            keep,
        }
    }

    /// Returns how many bytes have been taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    fn error(&self, error: io::Error) -> Error {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the archive ends in the middle".to_owned(),
            _ => crate::error::reason(&error),
        };
        Error::Archive {
            archive: self.name.to_owned(),
            position: self.taken,
            reason,
        }
    }

    /// Fills the buffer until it has `count` bytes, or until the archive ends.
    fn fill(&mut self, count: usize) -> Result<()> {
        if self.to - self.from >= count {
            return Ok(());
        }
        self.buf.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        while self.to < count {
            match self.bytes.read(&mut self.buf[self.to..]) {
                Ok(0) => break,
                Ok(read) => self.to += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok(())
    }

    /// Returns the next block without taking it; `None` at the end of the archive.
    pub(crate) fn peek(&mut self) -> Result<Option<[u8; BLOCK]>> {
        self.fill(BLOCK)?;
        match self.buf[self.from..self.to].first_chunk() {
            Some(block) => Ok(Some(*block)),
            None if self.from == self.to => Ok(None),
            None => Err(self.error(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Takes the next block; `None` at the end of the archive.
    pub(crate) fn block(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let block = self.peek()?;
        if block.is_some() {
            self.from += BLOCK;
            self.taken += BLOCK as u64;
        }
        Ok(block)
    }

    /// Skips bytes.
    pub(crate) fn skip(&mut self, count: u64) -> Result<()> {
        let buffered = count.min((self.to - self.from) as u64);
        self.from += buffered as usize;
        self.bytes
            .skip(count - buffered)
            .map_err(|error| self.error(error))?;
        self.taken += count;
        Ok(())
    }

    /// Takes bytes into memory.
    pub(crate) fn bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.pass(count, &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Passes bytes on, buffer by buffer.
    fn pass(&mut self, count: u64, to: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut left = count;
        while left > 0 {
            self.fill(1)?;
            let part = (self.to - self.from).min(usize::try_from(left).unwrap_or(usize::MAX));
            if part == 0 {
                return Err(self.error(io::ErrorKind::UnexpectedEof.into()));
            }
            to(&self.buf[self.from..self.from + part])?;
            self.from += part;
            self.taken += part as u64;
            left -= part as u64;
        }
        Ok(())
    }

    /// Keeps the next bytes for later, and returns the position of the first.
    pub(crate) fn keep(&mut self, count: u64) -> Result<u64> {
        if count > stores::LARGEST - self.taken.min(stores::LARGEST) {
            return Err(self.error(io::ErrorKind::FileTooLarge.into()));
        }
        let keep = std::mem::replace(&mut self.keep, Keep::InPlace { start: 0 });
        match keep {
            Keep::InPlace { start } => {
                self.keep = Keep::InPlace { start };
                let position = start + self.taken;
                self.skip(count).map(|()| position)
            }
            Keep::Nothing => {
                self.keep = Keep::Nothing;
                self.skip(count).map(|()| 0)
            }
            Keep::Spool { mut spool, start } => {
                let position = start + spool.len();
                let result = self.pass(count, &mut |part| {
                    spool
                        .write_all(part)
                        .map_err(|error| Error::io("the temporary file", error))
                });
                self.keep = Keep::Spool { spool, start };
                result.map(|()| position)
            }
        }
    }

    /// Reads what is left, so that checksums at the end are verified and a writer at the other end
    /// of a pipe finishes.
    pub(crate) fn drain(&mut self) -> Result<()> {
        if let Keep::InPlace { .. } = self.keep {
            return Ok(());
        }
        (self.from, self.to) = (0, 0);
        io::copy(&mut self.bytes, &mut io::sink()).map_err(|error| self.error(error))?;
        Ok(())
    }
}
