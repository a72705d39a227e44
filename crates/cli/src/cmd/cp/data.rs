//! Contents of files: only what is data is copied, so that holes stay holes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use extern4::{Span, SpanKind};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Why a copy of contents failed: on which side.
pub(super) enum Error {
    /// Reading from the volume.
    Volume(extern4::Error),
    /// The volume describes a file that cannot be.
    Map,
    /// Writing the copy.
    Host(std::io::Error),
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

/// Copies the contents of `from` to the empty file `to`, and tells `copied` of every piece.
pub(super) fn copy(
    from: &extern4::File,
    to: &File,
    buffer: &mut Vec<u8>,
    mut copied: impl FnMut(u64),
) -> Result<(), Error> {
    let len = from.metadata().len();
    buffer.resize(CHUNK_BYTES, 0);
    let mut offset = 0;
    while offset < len {
        let Some(span) = from.span_at(offset)? else { break };
        let end = end(&span, offset).ok_or(Error::Map)?.min(len);
        match span.kind {
            SpanKind::Hole | SpanKind::Unwritten => {}
            SpanKind::Mapped { .. } | SpanKind::Inline => {
                span_data(from, to, offset, end, buffer, &mut copied)?
            }
        }
        offset = end;
    }
    to.set_len(len)?;
    Ok(())
}

/// Writes the contents of `from` to `to` from its position on, holes as zeroes.
pub(super) fn stream(
    from: &extern4::File,
    mut to: &File,
    buffer: &mut Vec<u8>,
    mut copied: impl FnMut(u64),
) -> Result<(), Error> {
    buffer.resize(CHUNK_BYTES, 0);
    let mut offset = 0;
    loop {
        let len = from.read_at(buffer, offset)?;
        if len == 0 {
            return Ok(());
        }
        std::io::Write::write_all(&mut to, &buffer[..len])?;
        offset += len as u64;
        copied(len as u64);
    }
}

/// Where a span ends; nothing if it leads nowhere.
fn end(span: &Span, offset: u64) -> Option<u64> {
    span.offset.checked_add(span.len).filter(|end| *end > offset)
}

fn span_data(
    from: &extern4::File,
    to: &File,
    mut offset: u64,
    end: u64,
    buffer: &mut [u8],
    copied: &mut impl FnMut(u64),
) -> Result<(), Error> {
    while offset < end {
        let wanted = usize::try_from(end - offset).map_or(buffer.len(), |left| left.min(buffer.len()));
        let len = from.read_at(&mut buffer[..wanted], offset)?;
        if len == 0 {
            return Ok(());
        }
        to.write_all_at(&buffer[..len], offset)?;
        offset += len as u64;
        copied(len as u64);
    }
    Ok(())
}
