//! The members of an archive, from a tree of a volume.
//!
//! `export`, `layout` and `tar` call it. Members come in the order of the names' bytes, so equal
//! trees give equal archives. A file that becomes shorter meanwhile is filled with zeroes.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use extern4::File;
use extern4::build::{TreeFile, Unreadable};
use extern4_tree::{Entry, Kind, LayerWriter, ReadContents, TarWriter};

use super::{ExportError, LeftOut};
use crate::app::{App, Target};
use crate::progress::{Task, Unit};
use crate::stop::Stop;
use crate::volume_tree::walk;

/// Bytes that go to the output by one call.
const BUFFER_BYTES: usize = 1 << 20;

/// Returns `out` with a large buffer, so that each write is long.
pub(crate) fn buffered<W: Write>(out: W) -> BufWriter<W> {
    BufWriter::with_capacity(BUFFER_BYTES, out)
}

/// An archive that is being written.
pub(crate) trait Archive {
    /// Writes an entry. Returns why it is left out, if the archive cannot have it.
    fn append(
        &mut self,
        entry: &Entry,
        read: ReadContents<'_>,
    ) -> extern4_tree::Result<Option<&'static str>>;
}

impl<W: Write> Archive for TarWriter<W> {
    fn append(
        &mut self,
        entry: &Entry,
        read: ReadContents<'_>,
    ) -> extern4_tree::Result<Option<&'static str>> {
        let written = Self::append(self, entry, read)?;
        Ok((!written).then_some("an archive cannot have sockets"))
    }
}

impl<W: Write> Archive for LayerWriter<W> {
    fn append(
        &mut self,
        entry: &Entry,
        read: ReadContents<'_>,
    ) -> extern4_tree::Result<Option<&'static str>> {
        Self::append(self, entry, read)
    }
}

/// How far an archive is, and whether the command goes on with it.
pub(crate) struct Pace {
    task: Task,
    stop: Stop,
}

impl Pace {
    pub(crate) fn begin(verb: &'static str, app: &mut App) -> Self {
        Self {
            task: app.begin_task(Unit::bytes(verb), false),
            stop: app.stop_on_signals(),
        }
    }

    /// Counts bytes, and returns whether the command goes on.
    fn advance(&self, bytes: usize) -> ControlFlow<()> {
        self.task.advance(bytes as u64);
        self.stop.check()
    }

    /// Adds what is to be exported of a tree, if the progress is shown.
    pub(crate) fn expect(&self, target: &Target) {
        if self.task.is_shown()
            && let Ok(files) = walk(target.session(), target.path())
        {
            self.task.expect(
                files
                    .filter_map(Result::ok)
                    .map(|file| file.metadata.len())
                    .sum(),
            );
        }
    }
}

/// Returns whether a signal has asked the command to end.
pub(super) fn is_stopped(pace: &Pace) -> bool {
    pace.stop.check().is_break()
}

/// Writes everything below a directory, and the directory itself. Returns what is left out.
pub(super) fn append(
    target: &Target,
    archive: &mut impl Archive,
    pace: &Pace,
) -> Result<LeftOut, ExportError> {
    pace.expect(target);
    let mut left_out = LeftOut::new();
    for file in walk(target.session(), target.path())? {
        let file = file?;
        if file.is_lost_found {
            continue;
        }
        if let Some(reason) = member(&file, archive, pace)? {
            left_out.push((file.entry.path, reason));
        }
    }
    Ok(left_out)
}

/// Writes one file, and counts it. Returns why it is left out, if the archive cannot have it.
pub(crate) fn member(
    file: &TreeFile,
    archive: &mut impl Archive,
    pace: &Pace,
) -> Result<Option<&'static str>, ExportError> {
    if pace.stop.check().is_break() {
        return Err(ExportError::Stopped);
    }
    pace.task.file();
    let unreadable = |error| {
        ExportError::Volume(Unreadable {
            path: file.entry.path.clone(),
            error,
        })
    };
    let Kind::File(_) = &file.entry.kind else {
        return appended(archive.append(&file.entry, &mut |_, _| Ok(())));
    };
    let opened = file.open().map_err(unreadable)?;
    let kind = Kind::File(file.contents(&opened).map_err(unreadable)?);
    let entry = Entry {
        kind,
        ..file.entry.clone()
    };
    let mut failed = None;
    let mut read = |offset: u64, buf: &mut [u8]| {
        if pace.advance(buf.len()).is_break() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        read_exact(&opened, buf, offset).map_err(|error| {
            failed = Some(error);
            io::Error::other("the volume cannot be read")
        })
    };
    let done = archive.append(&entry, &mut read);
    match failed {
        Some(error) => Err(unreadable(error)),
        None if pace.stop.check().is_break() => Err(ExportError::Stopped),
        None => appended(done),
    }
}

fn appended<T>(done: extern4_tree::Result<T>) -> Result<T, ExportError> {
    done.map_err(|error| match error {
        extern4_tree::Error::Io { source, .. } => source.into(),
        error => ExportError::Output(error.to_string()),
    })
}

fn read_exact(file: &File, mut buf: &mut [u8], mut offset: u64) -> extern4::Result<()> {
    while !buf.is_empty() {
        let done = file.read_at(buf, offset)?;
        if done == 0 {
            // The file became shorter. The archive has its old size already, so zeroes fill the
            // rest.
            buf.fill(0);
            return Ok(());
        }
        buf = &mut buf[done..];
        offset += done as u64;
    }
    Ok(())
}
