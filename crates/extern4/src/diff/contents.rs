//! The contents of files, and their comparison.
//!
//! The threads of `compare` call it. It ends at the first byte that differs, and skips holes that
//! both have.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use extern4_tree::{Contents, Data, Error as SourceError, Identity, Opened};
use extern4_vfs::SpanKind;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::Both;
use super::blocks::ChangedBlocks;
use super::fault::Error;
use crate::file::File;

/// Bytes that are compared at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// The error of one of two files.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct OneError {
    /// Whether it is the new file.
    pub is_new: bool,
    /// Why the file cannot be compared.
    #[source]
    pub error: Error,
}

impl OneError {
    /// Returns the error of the old file.
    pub fn of_old(error: impl Into<Error>) -> Self {
        Self {
            is_new: false,
            error: error.into(),
        }
    }

    /// Returns the error of the new file.
    pub fn of_new(error: impl Into<Error>) -> Self {
        Self {
            is_new: true,
            error: error.into(),
        }
    }
}

/// An open regular file, in a volume, of the host or of another source.
pub struct OpenFile<'e> {
    stored: Stored<'e>,
    len: u64,
}

/// Where an open file is.
enum Stored<'e> {
    Volume(File),
    Source {
        opened: Opened,
        path: &'e [u8],
        data: Cow<'e, Data>,
    },
}

/// A part of a file that is all data or all hole.
struct Segment {
    end: u64,
    bytes: Bytes,
}

/// Where the bytes of a segment are.
#[derive(Clone, Copy)]
enum Bytes {
    /// They are zeroes.
    Hole,
    /// At this position of the file.
    At(u64),
    /// At this position of the file, and from this byte of the device on.
    OnDevice(u64, u64),
}

/// Compares files, and has the memory for that.
#[derive(Default)]
pub(super) struct Comparer {
    buffers: Option<Both<Vec<u8>>>,
}

impl Comparer {
    /// Returns whether two files have the same contents. `changed` are the blocks in which the
    /// volumes differ, if both files are in volumes.
    pub(super) fn is_same(
        &mut self,
        files: Both<&OpenFile<'_>>,
        changed: Option<&ChangedBlocks>,
    ) -> Result<bool, OneError> {
        let size = files.old.len;
        if files.new.len != size {
            return Ok(false);
        }
        let mut at = 0;
        while at < size {
            let old = files.old.segment(at).map_err(OneError::of_old)?;
            let new = files.new.segment(at).map_err(OneError::of_new)?;
            let end = old.end.min(new.end);
            let bytes = Both {
                old: old.bytes,
                new: new.bytes,
            };
            if !self.is_same_segment(files, bytes, end - at, changed)? {
                return Ok(false);
            }
            at = end;
        }
        files.old.check_unchanged().map_err(OneError::of_old)?;
        files.new.check_unchanged().map_err(OneError::of_new)?;
        Ok(true)
    }

    fn is_same_segment(
        &mut self,
        files: Both<&OpenFile<'_>>,
        bytes: Both<Bytes>,
        len: u64,
        changed: Option<&ChangedBlocks>,
    ) -> Result<bool, OneError> {
        if let Both {
            old: Bytes::Hole,
            new: Bytes::Hole,
        } = bytes
        {
            return Ok(true);
        }
        let buffers = self.buffers.get_or_insert_with(|| Both {
            old: vec![0; CHUNK_BYTES],
            new: vec![0; CHUNK_BYTES],
        });
        let mut done = 0;
        while done < len {
            let part =
                usize::try_from(len - done).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let is_known = match (bytes, changed) {
                (
                    Both {
                        old: Bytes::OnDevice(_, old),
                        new: Bytes::OnDevice(_, new),
                    },
                    Some(changed),
                ) => old == new && !changed.touch(old.saturating_add(done), part as u64),
                _ => false,
            };
            if !is_known {
                let old = &mut buffers.old[..part];
                let new = &mut buffers.new[..part];
                files
                    .old
                    .read_segment(bytes.old, done, old)
                    .map_err(OneError::of_old)?;
                files
                    .new
                    .read_segment(bytes.new, done, new)
                    .map_err(OneError::of_new)?;
                if old != new {
                    return Ok(false);
                }
            }
            done += part as u64;
        }
        Ok(true)
    }
}

/// Returns whether two files have the same contents. It ends at the first difference, and passes
/// over holes that both have.
///
/// # Errors
/// One of the files cannot be read, or changed meanwhile.
pub fn same_contents(files: Both<&OpenFile<'_>>) -> Result<bool, OneError> {
    Comparer::default().is_same(files, None)
}

impl OpenFile<'static> {
    /// Takes an open file of a volume.
    pub fn of_volume(file: File) -> Self {
        let len = file.metadata().len();
        Self {
            stored: Stored::Volume(file),
            len,
        }
    }

    /// Takes an open regular file of the host.
    ///
    /// # Errors
    /// It is another kind of file, or the system does not tell its size.
    pub fn of_host(file: std::fs::File) -> io::Result<Self> {
        if !file.metadata()?.is_file() {
            return Err(Errno::INVAL.into());
        }
        let identity = Identity::of(&file)?;
        let opened = Opened::own(file, identity);
        let len = identity.size;
        let data = Cow::Owned(Data::HostFile {
            sparse: true,
            identity,
        });
        Ok(Self {
            stored: Stored::Source {
                opened,
                path: b"",
                data,
            },
            len,
        })
    }

    /// Takes bytes that were read before, for example from a pipe.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        let len = bytes.len() as u64;
        let opened = Opened::other(Arc::new(bytes));
        let data = Cow::Owned(Data::Stored { position: 0 });
        Self {
            stored: Stored::Source {
                opened,
                path: b"",
                data,
            },
            len,
        }
    }
}

impl<'e> OpenFile<'e> {
    /// Takes a file of a source.
    pub(super) fn of_source(opened: Opened, path: &'e [u8], contents: &'e Contents) -> Self {
        let stored = Stored::Source {
            opened,
            path,
            data: Cow::Borrowed(&contents.data),
        };
        Self {
            stored,
            len: contents.size,
        }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.len
    }

    /// Reads the first `len` bytes; fewer if the file ends before.
    ///
    /// # Errors
    /// The file cannot be read, or changed meanwhile.
    pub fn read(&self, len: usize) -> Result<Vec<u8>, Error> {
        let len = usize::try_from(self.len).map_or(len, |size| size.min(len));
        let mut bytes = vec![0; len];
        let mut at = 0;
        while at < len {
            let Segment { end, bytes: from } = self.segment(at as u64)?;
            let end = usize::try_from(end).map_or(len, |end| end.min(len));
            self.read_segment(from, 0, &mut bytes[at..end])?;
            at = end;
        }
        self.check_unchanged()?;
        Ok(bytes)
    }

    /// Returns the segment at `at`, which is before the end.
    fn segment(&self, at: u64) -> Result<Segment, Error> {
        let size = self.len;
        let segment = match &self.stored {
            Stored::Volume(file) => volume_segment(file, at)?,
            Stored::Source { opened, path, data } => match &**data {
                Data::HostFile { sparse: true, .. } => {
                    host_segment(opened, at).map_err(|error| source_error(path, error))?
                }
                Data::HostFile { .. } => Segment {
                    end: size,
                    bytes: Bytes::At(at),
                },
                Data::Stored { position } => Segment {
                    end: size,
                    bytes: Bytes::At(position.wrapping_add(at)),
                },
                Data::Pieces(pieces) => {
                    let next = pieces.partition_point(|piece| piece.offset + piece.len <= at);
                    match pieces.get(next) {
                        Some(piece) if piece.offset <= at => {
                            let position = piece.position.wrapping_add(at - piece.offset);
                            Segment {
                                end: piece.offset + piece.len,
                                bytes: Bytes::At(position),
                            }
                        }
                        Some(piece) => Segment {
                            end: piece.offset,
                            bytes: Bytes::Hole,
                        },
                        None => Segment {
                            end: size,
                            bytes: Bytes::Hole,
                        },
                    }
                }
            },
        };
        Ok(Segment {
            end: segment.end.clamp(at + 1, size),
            ..segment
        })
    }

    /// Fills a buffer from the byte `done` of a segment on.
    fn read_segment(&self, bytes: Bytes, done: u64, buf: &mut [u8]) -> Result<(), Error> {
        let position = match bytes {
            Bytes::Hole => {
                buf.fill(0);
                return Ok(());
            }
            Bytes::At(position) | Bytes::OnDevice(position, _) => position.wrapping_add(done),
        };
        match &self.stored {
            Stored::Volume(file) => {
                let mut read = 0;
                while read < buf.len() {
                    match file.read_at(&mut buf[read..], position + read as u64)? {
                        0 => {
                            buf[read..].fill(0);
                            break;
                        }
                        len => read += len,
                    }
                }
                Ok(())
            }
            Stored::Source { opened, path, .. } => match opened.read_exact_at(buf, position) {
                Ok(()) => Ok(()),
                Err(error) => {
                    // A file that became shorter has changed.
                    self.check_unchanged()?;
                    Err(source_error(path, error))
                }
            },
        }
    }

    /// Fails if a file of the host changed while it was compared.
    fn check_unchanged(&self) -> Result<(), Error> {
        match &self.stored {
            Stored::Volume(_) => Ok(()),
            Stored::Source { opened, path, .. } => Ok(opened.check_unchanged(path)?),
        }
    }
}

fn source_error(path: &[u8], source: std::io::Error) -> Error {
    SourceError::Io {
        name: String::from_utf8_lossy(path).into_owned(),
        source,
    }
    .into()
}

fn volume_segment(file: &File, at: u64) -> crate::Result<Segment> {
    let Some(span) = file.span_at(at)? else {
        return Ok(Segment {
            end: u64::MAX,
            bytes: Bytes::Hole,
        });
    };
    let bytes = match span.kind {
        SpanKind::Hole | SpanKind::Unwritten => Bytes::Hole,
        SpanKind::Inline => Bytes::At(at),
        SpanKind::Mapped { device_offset } => Bytes::OnDevice(
            at,
            device_offset.saturating_add(at.saturating_sub(span.offset)),
        ),
    };
    Ok(Segment {
        end: span.offset.saturating_add(span.len),
        bytes,
    })
}

fn host_segment(opened: &Opened, at: u64) -> std::io::Result<Segment> {
    // Only the host knows holes.
    let Some(file) = opened.file() else {
        return Ok(Segment {
            end: u64::MAX,
            bytes: Bytes::At(at),
        });
    };
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) if start > at => Ok(Segment {
            end: start,
            bytes: Bytes::Hole,
        }),
        Ok(_) => {
            let end = rustix::fs::seek(file, SeekFrom::Hole(at)).unwrap_or(u64::MAX);
            Ok(Segment {
                end,
                bytes: Bytes::At(at),
            })
        }
        Err(Errno::NXIO) => Ok(Segment {
            end: u64::MAX,
            bytes: Bytes::Hole,
        }),
        // The file system does not know holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Segment {
            end: u64::MAX,
            bytes: Bytes::At(at),
        }),
        Err(error) => Err(error.into()),
    }
}
