//! The members of an archive, from a tree of a volume.
//!
//! The modules next to it and `tar` write members with it. A file that becomes shorter meanwhile is
//! filled with zeroes, since the archive has its old size already.

use std::io::{self, BufWriter, Write};

use extern4_tree::{Entry, Kind, LayerWriter, ReadContents, Result as TreeResult, TarWriter};

use super::error::ExportError;
use super::observer::ExportObserver;
use crate::build::{TreeFile, TreeWalk, Unreadable};
use crate::error::Result;
use crate::file::File;
use crate::session::Session;

/// Bytes that go to the output by one call.
const BUFFER_BYTES: usize = 1 << 20;

/// Returns `out` with a large buffer, so that each write is long.
pub(crate) fn buffered<W: Write>(out: W) -> BufWriter<W> {
    BufWriter::with_capacity(BUFFER_BYTES, out)
}

/// An archive that is being written.
pub(crate) trait Archive {
    /// Writes an entry. Returns why it is left out, if the archive cannot have it.
    fn append(&mut self, entry: &Entry, read: ReadContents<'_>)
    -> TreeResult<Option<&'static str>>;
}

impl<W: Write> Archive for TarWriter<W> {
    fn append(
        &mut self,
        entry: &Entry,
        read: ReadContents<'_>,
    ) -> TreeResult<Option<&'static str>> {
        let written = Self::append(self, entry, read)?;
        Ok((!written).then_some("an archive cannot have sockets"))
    }
}

impl<W: Write> Archive for LayerWriter<W> {
    fn append(
        &mut self,
        entry: &Entry,
        read: ReadContents<'_>,
    ) -> TreeResult<Option<&'static str>> {
        Self::append(self, entry, read)
    }
}

/// Writes the directory in which a session stands, and everything below it. An empty `lost+found`
/// of the volume is no part of the tree.
pub(super) fn append_tree(
    top: &Session,
    archive: &mut impl Archive,
    observer: &mut dyn ExportObserver,
) -> std::result::Result<(), ExportError> {
    if observer.wants_total()
        && let Ok(walk) = TreeWalk::new(top)
    {
        observer.expect(total(walk));
    }
    for file in TreeWalk::new(top)? {
        let file = file?;
        if file.is_lost_found {
            continue;
        }
        if let Some(reason) = append(&file, &mut file.entry.clone(), archive, observer)? {
            observer.left_out(&file.entry.path, reason);
        }
    }
    Ok(())
}

/// Returns the sum of all sizes in a tree.
pub(crate) fn total(walk: TreeWalk) -> u64 {
    walk.filter_map(std::result::Result::ok)
        .map(|file| file.metadata.len())
        .sum()
}

/// Writes one file as `entry`, which gets the places of its holes. Returns why the file is left
/// out, if the archive cannot have it.
pub(crate) fn append(
    file: &TreeFile,
    entry: &mut Entry,
    archive: &mut impl Archive,
    observer: &mut dyn ExportObserver,
) -> std::result::Result<Option<&'static str>, ExportError> {
    go_on(observer, 1, 0)?;
    if !matches!(entry.kind, Kind::File(_)) {
        return Ok(archive.append(entry, &mut |_, _| Ok(()))?);
    }
    let unreadable = |error| Unreadable {
        path: file.entry.path.clone(),
        error,
    };
    let opened = file.open().map_err(unreadable)?;
    entry.kind = Kind::File(file.contents(&opened).map_err(unreadable)?);
    let mut failed = None;
    let mut read = |offset: u64, buf: &mut [u8]| {
        if observer.advance(0, buf.len() as u64).is_break() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        read_exact(&opened, buf, offset).map_err(|error| {
            failed = Some(error);
            io::Error::other("the volume cannot be read")
        })
    };
    let appended = archive.append(entry, &mut read);
    if let Some(error) = failed {
        return Err(unreadable(error).into());
    }
    go_on(observer, 0, 0)?;
    Ok(appended?)
}

/// Counts files and bytes. The error says that the observer stops the export.
pub(super) fn go_on(
    observer: &mut dyn ExportObserver,
    files: u64,
    bytes: u64,
) -> std::result::Result<(), ExportError> {
    if observer.advance(files, bytes).is_break() {
        return Err(ExportError::Interrupted);
    }
    Ok(())
}

fn read_exact(file: &File, mut buf: &mut [u8], mut offset: u64) -> Result<()> {
    while !buf.is_empty() {
        let done = file.read_at(buf, offset)?;
        if done == 0 {
            buf.fill(0);
            return Ok(());
        }
        buf = &mut buf[done..];
        offset += done as u64;
    }
    Ok(())
}
