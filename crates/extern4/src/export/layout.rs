//! OCI layouts with an image of one layer.
//!
//! A failed or interrupted export leaves nothing that it has made, and what the directory had
//! before stays.

use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use extern4_build::NewFile;
use extern4_tree::{LayerCompression, LayerWriter, Platform};

use super::error::ExportError;
use super::member::{append_tree, buffered, go_on};
use super::observer::ExportObserver;
use crate::session::Session;

/// The file that makes a layout complete.
const INDEX: &str = "index.json";
/// The directory of the layer, the configuration and the manifest.
const BLOBS: &str = "blobs/sha256";

/// How an OCI layout is written.
#[derive(Clone, Debug)]
pub struct LayoutOptions {
    /// The name of the image in the layout, such as `latest` or `docker.io/library/web:1`.
    pub name: String,
    /// The platform that the image is for.
    pub platform: Platform,
    /// The compression of the layer.
    pub compression: LayerCompression,
    /// Replaces the layout that the directory has.
    pub replace: bool,
}

impl Default for LayoutOptions {
    /// An image `latest` for this machine, compressed with gzip, in a directory without a layout.
    fn default() -> Self {
        Self {
            name: "latest".to_owned(),
            platform: Platform::of_this_machine(),
            compression: LayerCompression::Gzip,
            replace: false,
        }
    }
}

/// Writes the directory in which the session stands, and everything below it, as an image of one
/// layer to an OCI layout in `directory`, which is made if it is missing. The index comes last,
/// when all else is durable.
///
/// A layer has no sockets and no names that begin with `.wh.`; the observer is told of each.
///
/// # Errors
/// [`ExportError::Exists`] if the directory has a layout that is not to be replaced, the first file
/// that cannot be read, or the output cannot be written, or the observer stops the export. Then
/// everything that the export has made is removed.
pub fn export_layout(
    top: &Session,
    directory: impl AsRef<Path>,
    options: &LayoutOptions,
    observer: &mut dyn ExportObserver,
) -> Result<(), ExportError> {
    let directory = directory.as_ref();
    if !options.replace && directory.join(INDEX).symlink_metadata().is_ok() {
        return Err(ExportError::Exists);
    }
    let blobs = directory.join(BLOBS);
    let mut made = Made::default();
    made.directories(&blobs)?;
    let file = NewFile::new(&blobs.join("layer"))?;
    let mut writer = LayerWriter::new(buffered(file.file()), options.compression)?;
    append_tree(top, &mut writer, observer)?;
    let (out, layer) = writer.finish()?;
    drop(out);
    file.file().sync_all()?;
    made.finish(file, &directory.join(layer.path()))?;
    for (path, contents) in layer.documents(&options.name, &options.platform) {
        let path = directory.join(path);
        let document = NewFile::new(&path)?;
        document.file().write_all(&contents)?;
        document.file().sync_all()?;
        made.finish(document, &path)?;
    }
    go_on(observer, 0, 0)?;
    made.0.clear();
    Ok(())
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
