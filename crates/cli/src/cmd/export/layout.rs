//! OCI layouts with an image of one layer.
//!
//! `export` calls it. A failed or interrupted export leaves nothing that it has made, and what the
//! directory had before stays.

use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use extern4_build::NewFile;
use extern4_tree::{LayerWriter, Platform};

use super::archive::{self, Pace};
use super::{Args, ExportError, LeftOut, exists};
use crate::app::Target;

/// The file that makes a layout complete.
const INDEX: &str = "index.json";

/// Writes a tree as an image. It writes the index last, when all else is durable.
pub(super) fn write(
    args: &Args,
    target: &Target,
    layout: &Path,
    tag: &str,
    pace: &Pace,
) -> Result<LeftOut, ExportError> {
    if !args.force && layout.join(INDEX).symlink_metadata().is_ok() {
        return Err(exists());
    }
    let blobs = layout.join("blobs/sha256");
    let mut made = Made::default();
    made.directories(&blobs)?;
    let file = NewFile::new(&blobs.join("layer"))?;
    let mut writer = LayerWriter::new(archive::buffered(file.file()), args.compression())?;
    let left_out = archive::append(target, &mut writer, pace)?;
    let (out, layer) = writer.finish()?;
    drop(out);
    file.file().sync_all()?;
    made.finish(file, &layout.join(layer.path()))?;
    let platform = args
        .platform
        .clone()
        .unwrap_or_else(Platform::of_this_machine);
    for (path, contents) in layer.documents(tag, &platform) {
        let path = layout.join(path);
        let document = NewFile::new(&path)?;
        document.file().write_all(&contents)?;
        document.file().sync_all()?;
        made.finish(document, &path)?;
    }
    if archive::is_stopped(pace) {
        return Err(ExportError::Stopped);
    }
    made.0.clear();
    Ok(left_out)
}

/// The files and directories that an export has made. They go when it is dropped, the latest first.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    /// Makes a directory, and those above it that are not there.
    fn directories(&mut self, path: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|path| is_new(path)).collect();
        for directory in missing
            .into_iter()
            .rev()
            .filter(|path| !path.as_os_str().is_empty())
        {
            match std::fs::create_dir(directory) {
                Ok(()) => self.0.push(directory.to_owned()),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives a complete file its name.
    fn finish(&mut self, file: NewFile, path: &Path) -> io::Result<()> {
        let is_new = is_new(path);
        file.finish(path, true)?;
        if is_new {
            self.0.push(path.to_owned());
        }
        Ok(())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.0.drain(..).rev() {
            // A directory into which another process has written stays.
            let _ = if path.is_dir() {
                std::fs::remove_dir(&path)
            } else {
                std::fs::remove_file(&path)
            };
        }
    }
}

fn is_new(path: &Path) -> bool {
    path.symlink_metadata().is_err()
}
