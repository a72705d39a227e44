//! Builds volumes from trees: directories, archives, images of containers, and other volumes.
//!
//! A [`Builder`] takes sources one after the other, each over those before, plans the volume, and
//! writes it. [`source`] opens whatever is at a path of the host; [`OciSource`] reads images of
//! containers, [`VolumeSource`] a directory of a volume, and [`Entries`] entries of the caller's
//! own. [`Update`] brings a volume that is there to the state of such sources. [`TreeWalk`] visits
//! a directory of a volume for other purposes.
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//!
//! use extern4::Volume;
//! use extern4::build::{BuildOptions, Builder, Progress, source};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let (site, image) = (dir.path().join("site"), dir.path().join("site.img"));
//!     std::fs::create_dir(&site)?;
//!     std::fs::write(site.join("index.html"), "hello\n")?;
//!
//!     let mut builder = Builder::new(BuildOptions::default());
//!     builder.watch(Arc::new(|progress| {
//!         if let Progress::Writing { bytes, total } = progress {
//!             println!("{bytes} of {total} bytes");
//!         }
//!         // A break would end the build.
//!         ControlFlow::Continue(())
//!     }));
//!     builder.add(source(&site, dir.path())?, b"srv/www")?;
//!     builder.plan()?.write_file(&image, false, 2)?;
//!
//!     let session = Volume::open(&image)?.superuser();
//!     assert_eq!(session.read("/srv/www/index.html")?, b"hello\n");
//!     Ok(())
//! }
//! ```

pub(crate) mod deep_path;
mod tree_walk;
mod update;
mod volume_layout;
mod volume_source;

use std::fs::File;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};

pub use extern4_build::{
    BuildOptions, Builder, Edit, Error, Label, MemberContents, MemberId, Merged, NewFile, OldInode,
    OldLayout, Planned, Progress, Result, Size, Summary, Verity, Watch, Written,
};
pub use extern4_mkfs::{Config, Error as MakeError, JournalSize, Options, random_uuid};
pub use extern4_tree::{
    Contents, Data, DirectorySource, Entries, Entry, Error as SourceError, FileSource, Filter,
    IdMap, IdRange, Identity, ImageConfig, Kind, Manifest, OciSource, Opened, Pattern, Piece,
    Platform, ReadAt, Rule, Sink, Source, TarSource, Time, Unwanted, split_reference,
};
pub use tree_walk::{TreeFile, TreeReader, TreeWalk, Unreadable};
pub use update::{Change, Existing, Update, UpdateError, UpdateOptions, UpdateStep, UpdateSummary};
pub use volume_layout::layout_of;
pub use volume_source::VolumeSource;

use crate::volume::Volume;

/// Where the superblock is, and some of its fields: the logarithm of the block size over 1 KiB, the
/// magic number and the revision.
const SUPERBLOCK: u64 = 1024;
const LOG_BLOCK_SIZE: usize = 24;
const MAGIC: usize = 56;
const REVISION: usize = 76;
/// The largest values that the format has.
const MOST_LOG_BLOCK_SIZE: u32 = 6;
const MOST_REVISION: u32 = 1;

/// Opens what is at a path of the host: a directory, an ext2, ext3 or ext4 volume, or a tar
/// archive. Contents of an archive that can be read only once go to a file without a name in
/// `spool`.
///
/// # Errors
/// The file cannot be opened, or the volume in it.
pub fn source(
    path: impl AsRef<Path>,
    spool: impl Into<PathBuf>,
) -> std::result::Result<Box<dyn Source>, SourceError> {
    let path = path.as_ref();
    if path.is_dir() {
        return Ok(Box::new(DirectorySource::new(path)?));
    }
    if is_volume(path) {
        let volume = Volume::open(path).map_err(|error| SourceError::Source(Box::new(error)))?;
        return Ok(Box::new(VolumeSource::new(volume.superuser())));
    }
    Ok(Box::new(TarSource::open(path, spool)?))
}

/// Returns whether a file or device looks like a whole volume: it has the superblock of one.
pub fn is_volume(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let is_readable =
        |found: std::fs::Metadata| found.is_file() || found.file_type().is_block_device();
    // A FIFO would wait for its writer.
    if !std::fs::metadata(path).is_ok_and(is_readable) {
        return false;
    }
    let mut raw = [0; REVISION + 4];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut raw, SUPERBLOCK));
    let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    read.is_ok()
        && raw[MAGIC..MAGIC + 2] == extern4_disk::superblock::MAGIC.to_le_bytes()
        && word(LOG_BLOCK_SIZE) <= MOST_LOG_BLOCK_SIZE
        && word(REVISION) <= MOST_REVISION
}
