//! Exports to one tar archive.

use std::io::{IntoInnerError, Write};
use std::path::Path;

use extern4_build::NewFile;
use extern4_tree::{Compression, TarWriter};

use super::error::ExportError;
use super::member::{append_tree, buffered};
use super::observer::ExportObserver;
use crate::session::Session;

/// Writes the directory in which the session stands, and everything below it, as a PAX archive.
/// Returns the output, which is flushed.
///
/// The archive keeps owners, modes, times, hard links, devices, holes, extended attributes, ACLs,
/// inode flags and projects. It has no sockets, and the observer is told of each.
///
/// # Errors
/// The first file that cannot be read, or the output cannot be written, or the observer stops the
/// export. The output then has a part of the archive.
pub fn export_archive<W: Write>(
    top: &Session,
    out: W,
    compression: Option<Compression>,
    observer: &mut dyn ExportObserver,
) -> Result<W, ExportError> {
    let out = buffered(out);
    let mut archive = match compression {
        Some(compression) => TarWriter::compressed(out, compression)?,
        None => TarWriter::new(out),
    };
    append_tree(top, &mut archive, observer)?;
    let mut out = archive.finish()?;
    out.flush()?;
    Ok(out.into_inner().map_err(IntoInnerError::into_error)?)
}

/// Writes the archive of [`export_archive`] to a file of the host. The file gets its name when it
/// is complete and durable. With `replace`, it replaces a file that is there.
///
/// # Errors
/// [`ExportError::Exists`] if there is a file and `replace` is false, and the errors of
/// [`export_archive`]. A file that was there stays as it was.
pub fn export_archive_file(
    top: &Session,
    path: impl AsRef<Path>,
    compression: Option<Compression>,
    replace: bool,
    observer: &mut dyn ExportObserver,
) -> Result<(), ExportError> {
    let path = path.as_ref();
    if !replace && path.symlink_metadata().is_ok() {
        return Err(ExportError::Exists);
    }
    let file = NewFile::new(path)?;
    export_archive(top, file.file(), compression, observer)?;
    file.file().sync_all()?;
    file.finish(path, replace)?;
    Ok(())
}
