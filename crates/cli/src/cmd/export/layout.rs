//! OCI layouts with an image of one layer.
//!
//! `export` calls it. A layout without its index is no image, so a failed export leaves none.

use std::io::Write as _;
use std::path::Path;

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
    std::fs::create_dir_all(&blobs)?;
    let file = NewFile::new(&blobs.join("layer"))?;
    let mut writer = LayerWriter::new(archive::buffered(file.file()), args.compression())?;
    let left_out = archive::append(target, &mut writer, pace)?;
    let (out, layer) = writer.finish()?;
    drop(out);
    file.file().sync_all()?;
    file.finish(&layout.join(layer.path()), true)?;
    let platform = args.platform.clone().unwrap_or_else(Platform::of_this_machine);
    for (path, contents) in layer.documents(tag, &platform) {
        let path = layout.join(path);
        let document = NewFile::new(&path)?;
        document.file().write_all(&contents)?;
        document.file().sync_all()?;
        document.finish(&path, true)?;
    }
    Ok(left_out)
}
