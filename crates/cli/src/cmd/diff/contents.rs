//! The contents of files, and their comparison.
//!
//! The threads of `compare` call it. It ends at the first byte that differs, and skips holes that
//! both have.

use extern4::{File, Session, SpanKind};
use extern4_tree::{Contents, Data, Entry, Error, Opened, Source};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::Both;
use super::blocks::ChangedBlocks;
use super::listing::Listing;
use crate::image_path::ImagePath;
use crate::volume_tree::path_below;

/// Bytes that are compared at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Opens the files of a tree. Several threads share it.
pub(super) enum Opener<'t> {
    Volume { session: &'t Session, top: &'t ImagePath },
    Source(&'t dyn Source),
}

/// Why contents cannot be compared.
pub(super) enum Fault {
    Volume(Box<ImagePath>, extern4::Error),
    Source(Error),
}

/// An open file of a tree.
enum OpenFile<'e> {
    Volume { file: File, image_path: Box<ImagePath> },
    Source { opened: Opened, path: &'e [u8], data: &'e Data },
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

impl Opener<'_> {
    /// Lists the tree.
    pub(super) fn list(&self) -> Listing {
        match self {
            Self::Volume { session, top } => Listing::of_volume(session, &top.path),
            Self::Source(source) => Listing::of_source(*source),
        }
    }

    fn open<'e>(&self, entry: &'e Entry, contents: &'e Contents) -> Result<OpenFile<'e>, Fault> {
        match self {
            Self::Volume { session, top } => {
                let path = path_below(&top.path, &entry.path);
                let image_path = Box::new(ImagePath { path, image: top.image.clone() });
                let opened =
                    session.approach(&image_path.path).and_then(|(session, rest)| session.open(rest));
                match opened {
                    Ok(file) => Ok(OpenFile::Volume { file, image_path }),
                    Err(error) => Err(Fault::Volume(image_path, error)),
                }
            }
            Self::Source(source) => {
                let opened = source.open(&entry.path, contents).map_err(Fault::Source)?;
                Ok(OpenFile::Source { opened, path: &entry.path, data: &contents.data })
            }
        }
    }
}

/// Compares files, and has the memory for that.
#[derive(Default)]
pub(super) struct Comparer {
    buffers: Option<Both<Vec<u8>>>,
}

impl Comparer {
    /// Returns whether two regular files of the same size have the same contents. `changed` are the
    /// blocks in which the volumes differ, if both files are in volumes.
    pub(super) fn is_same(
        &mut self,
        openers: Both<&Opener<'_>>,
        entries: Both<&Entry>,
        contents: Both<&Contents>,
        changed: Option<&ChangedBlocks>,
    ) -> Result<bool, Fault> {
        let size = contents.old.size;
        let old = openers.old.open(entries.old, contents.old)?;
        let new = openers.new.open(entries.new, contents.new)?;
        let mut at = 0;
        while at < size {
            let segments = Both { old: old.segment(at, size)?, new: new.segment(at, size)? };
            let end = segments.old.end.min(segments.new.end);
            let bytes = segments.map(|segment| segment.bytes);
            if !self.is_same_segment(Both { old: &old, new: &new }, bytes, end - at, changed)? {
                return Ok(false);
            }
            at = end;
        }
        old.check_unchanged()?;
        new.check_unchanged()?;
        Ok(true)
    }

    fn is_same_segment(
        &mut self,
        files: Both<&OpenFile<'_>>,
        bytes: Both<Bytes>,
        len: u64,
        changed: Option<&ChangedBlocks>,
    ) -> Result<bool, Fault> {
        if let Both { old: Bytes::Hole, new: Bytes::Hole } = bytes {
            return Ok(true);
        }
        let buffers =
            self.buffers.get_or_insert_with(|| Both { old: vec![0; CHUNK_BYTES], new: vec![0; CHUNK_BYTES] });
        let mut done = 0;
        while done < len {
            let part = usize::try_from(len - done).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let is_known = match (bytes, changed) {
                (Both { old: Bytes::OnDevice(_, old), new: Bytes::OnDevice(_, new) }, Some(changed)) => {
                    old == new && !changed.touch(old.saturating_add(done), part as u64)
                }
                _ => false,
            };
            if !is_known {
                let (old, new) = (&mut buffers.old[..part], &mut buffers.new[..part]);
                files.old.read(bytes.old, done, old)?;
                files.new.read(bytes.new, done, new)?;
                if old != new {
                    return Ok(false);
                }
            }
            done += part as u64;
        }
        Ok(true)
    }
}

impl OpenFile<'_> {
    /// Returns the segment of a file at `at`, which is before its end.
    fn segment(&self, at: u64, size: u64) -> Result<Segment, Fault> {
        let segment = match self {
            Self::Volume { file, image_path } => {
                volume_segment(file, at).map_err(|error| Fault::Volume(image_path.clone(), error))?
            }
            Self::Source { opened, path, data } => match data {
                Data::HostFile { sparse: true, .. } => {
                    host_segment(opened, at).map_err(|error| source_fault(path, error))?
                }
                Data::HostFile { .. } => Segment { end: size, bytes: Bytes::At(at) },
                Data::Stored { position } => {
                    Segment { end: size, bytes: Bytes::At(position.wrapping_add(at)) }
                }
                Data::Pieces(pieces) => {
                    let next = pieces.partition_point(|piece| piece.offset + piece.len <= at);
                    match pieces.get(next) {
                        Some(piece) if piece.offset <= at => {
                            let position = piece.position.wrapping_add(at - piece.offset);
                            Segment { end: piece.offset + piece.len, bytes: Bytes::At(position) }
                        }
                        Some(piece) => Segment { end: piece.offset, bytes: Bytes::Hole },
                        None => Segment { end: size, bytes: Bytes::Hole },
                    }
                }
            },
        };
        Ok(Segment { end: segment.end.clamp(at + 1, size), ..segment })
    }

    /// Fills a buffer from the byte `done` of a segment on.
    fn read(&self, bytes: Bytes, done: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let position = match bytes {
            Bytes::Hole => {
                buf.fill(0);
                return Ok(());
            }
            Bytes::At(position) | Bytes::OnDevice(position, _) => position.wrapping_add(done),
        };
        match self {
            Self::Volume { file, image_path } => {
                let mut read = 0;
                while read < buf.len() {
                    match file.read_at(&mut buf[read..], position + read as u64) {
                        Ok(0) => {
                            buf[read..].fill(0);
                            break;
                        }
                        Ok(len) => read += len,
                        Err(error) => return Err(Fault::Volume(image_path.clone(), error)),
                    }
                }
                Ok(())
            }
            Self::Source { opened, path, .. } => match opened.read_exact_at(buf, position) {
                Ok(()) => Ok(()),
                Err(error) => {
                    // A file that became shorter has changed.
                    self.check_unchanged()?;
                    Err(source_fault(path, error))
                }
            },
        }
    }

    /// Fails if a file of the host changed while it was compared.
    fn check_unchanged(&self) -> Result<(), Fault> {
        match self {
            Self::Volume { .. } => Ok(()),
            Self::Source { opened, path, .. } => opened.check_unchanged(path).map_err(Fault::Source),
        }
    }
}

fn source_fault(path: &[u8], source: std::io::Error) -> Fault {
    Fault::Source(Error::Io { name: String::from_utf8_lossy(path).into_owned(), source })
}

fn volume_segment(file: &File, at: u64) -> extern4::Result<Segment> {
    let Some(span) = file.span_at(at)? else { return Ok(Segment { end: u64::MAX, bytes: Bytes::Hole }) };
    let bytes = match span.kind {
        SpanKind::Hole | SpanKind::Unwritten => Bytes::Hole,
        SpanKind::Inline => Bytes::At(at),
        SpanKind::Mapped { device_offset } => {
            Bytes::OnDevice(at, device_offset.saturating_add(at.saturating_sub(span.offset)))
        }
    };
    Ok(Segment { end: span.offset.saturating_add(span.len), bytes })
}

fn host_segment(opened: &Opened, at: u64) -> std::io::Result<Segment> {
    // Only the host knows holes.
    let Some(file) = opened.file() else { return Ok(Segment { end: u64::MAX, bytes: Bytes::At(at) }) };
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) if start > at => Ok(Segment { end: start, bytes: Bytes::Hole }),
        Ok(_) => {
            let end = rustix::fs::seek(file, SeekFrom::Hole(at)).unwrap_or(u64::MAX);
            Ok(Segment { end, bytes: Bytes::At(at) })
        }
        Err(Errno::NXIO) => Ok(Segment { end: u64::MAX, bytes: Bytes::Hole }),
        // The file system does not know holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Segment { end: u64::MAX, bytes: Bytes::At(at) }),
        Err(error) => Err(error.into()),
    }
}
