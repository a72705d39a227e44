//! Changes the settings of a volume as a whole, as tune2fs(8) does.
//!
//! [`Changes`] says what is to change. [`Changes::apply`] changes an open volume. Some work needs
//! the volume closed, and [`Applied::finish`] does it afterwards. [`Changes::run`] does both.
//!
//! # Order
//! A contradiction is refused before anything changes. The volume's own files, such as a new
//! journal or quota files, come before the fields of the superblock. A journal is taken away when
//! the volume is closed, since recovery could not do it in a transaction of that journal. An
//! external journal learns a new UUID as soon as the volume has it. Checksums are rewritten last,
//! and an interrupted rewriting can be completed by [`rewrite_checksums`].
//!
//! ```
//! use extern4::Volume;
//! use extern4::tune::{Changes, Fields};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let image = dir.path().join("disk.img");
//!     Volume::create_new(&image, 16 << 20)?.close()?;
//!
//!     let changes = Changes {
//!         fields: Fields { label: Some(b"backup".to_vec()), ..Fields::default() },
//!         reserved_percent: Some(1.0),
//!         ..Changes::default()
//!     };
//!     changes.run(&Volume::options(), &image)?;
//!     assert_eq!(Volume::open(&image)?.label(), "backup");
//!     Ok(())
//! }
//! ```

mod features;
mod own_files;
mod rewriting;

use std::path::Path;
use std::sync::Arc;

use extern4_block::{BlockDevice, FileDevice, FileOptions};
pub use extern4_disk::feature::{Feature, Features};
use extern4_disk::superblock::Superblock;
pub use extern4_disk::superblock::{DefaultMountOptions, ErrorPolicy};
use extern4_ext4::own_files::journal;
use extern4_ext4::tune::rename_journal_user;
pub use extern4_ext4::tune::{MountOptions, Tune as Fields};
use extern4_ext4::{checksum_rewrite, unwritable};

use crate::error::{Error, ErrorKind, Result};
use crate::volume::{Volume, VolumeOptions};
pub use features::{addable_features, removable_features};
pub use own_files::{JournalSize, NewJournal, QuotaChange};
pub use rewriting::{check_rewritable, is_rewriting_interrupted, rewrite_checksums};

/// The changes to make; the default changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Fields of the superblock. The features may be [`addable_features`] and
    /// [`removable_features`].
    pub fields: Fields,
    /// The percentage of the blocks to reserve for the superuser, up to 50. It counts only if
    /// `fields` has no number of blocks.
    pub reserved_percent: Option<f64>,
    /// The journal to add. A volume that has one is refused. The feature `has_journal` adds a
    /// journal of the default size, unless there is one.
    pub journal: Option<NewJournal>,
    /// The kinds of quota to keep from now on, and the kinds to keep no more.
    pub quotas: QuotaChange,
    /// Whether all checksums are to be computed again after a new UUID, for readers that do not
    /// know `metadata_csum_seed`. The volume has to be sound.
    pub rewrites_checksums: bool,
}

/// Changes that an open volume has, and the work that is left.
#[derive(Clone, Debug)]
#[must_use]
pub struct Applied {
    read_only_features: Vec<Feature>,
    removes_journal: bool,
    rewrites_checksums: bool,
    renaming: Option<Renaming>,
}

/// A new UUID, which an external journal has to learn.
#[derive(Clone, Debug)]
struct Renaming {
    superblock: Box<Superblock>,
    new: [u8; 16],
}

impl Changes {
    /// Opens the volume at `path`, makes the changes, closes the volume, and does the work that
    /// needs it closed. Returns the new features with which this library only reads a volume.
    ///
    /// # Errors
    /// The errors of [`VolumeOptions::open`], [`apply`](Self::apply), [`Volume::close`] and
    /// [`Applied::finish`].
    pub fn run(&self, options: &VolumeOptions, path: impl AsRef<Path>) -> Result<Vec<Feature>> {
        let path = path.as_ref();
        let mut options = options.clone();
        options.write(true);
        let volume = options.open(path)?;
        let applied = self.apply(&volume)?;
        volume.close()?;
        applied.finish(&options, path)?;
        Ok(applied.read_only_features)
    }

    /// Refuses changes that contradict each other, without a look at a volume.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a journal that is both added and taken away, for a feature that
    /// cannot be added or taken away, and for a percentage beyond 50.
    pub fn check(&self) -> Result<()> {
        if self.adds_journal() && self.removes_journal() {
            return Err(refused("a journal cannot be added and taken away at once"));
        }
        if let Some(feature) = features::unchangeable(&self.fields) {
            return Err(refused(format!("{feature} cannot be changed")));
        }
        let is_share = |percent: &f64| (0.0..=50.0).contains(percent);
        if !self.reserved_percent.iter().all(is_share) {
            return Err(refused("between 0 and 50 % can be reserved"));
        }
        Ok(())
    }

    /// Changes an open volume. The changes are durable once the volume is closed or synced.
    /// [`Applied::finish`] has to follow when the volume is closed.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check); [`ErrorKind::Invalid`] for more reserved blocks than
    /// half of all, and for a size that a journal cannot have; `EROFS` for a volume that is open
    /// for reading; `EEXIST` for a second journal; `ENOSPC`; and [`ErrorKind::Unsupported`] for a
    /// feature that a file uses, or a UUID on which structures of the volume depend.
    pub fn apply(&self, volume: &Volume) -> Result<Applied> {
        self.check()?;
        let ext4 = volume.ext4();
        let before = ext4.superblock().clone();
        let fields = self.fields_for(&before)?;
        self.change_own_files(ext4)?;
        ext4.tune(&fields).map_err(failed)?;
        let added = fields.features.difference(before.features());
        let renaming = fields.uuid.map(|new| Renaming {
            superblock: Box::new(before),
            new,
        });
        Ok(Applied {
            read_only_features: unwritable(added),
            removes_journal: self.removes_journal(),
            rewrites_checksums: self.rewrites_checksums,
            renaming,
        })
    }

    /// Returns the fields to change in this superblock. Features that come with files are not
    /// among them.
    fn fields_for(&self, superblock: &Superblock) -> Result<Fields> {
        let blocks = superblock.blocks_count();
        let share = |percent: f64| (blocks as f64 * percent / 100.0) as u64;
        let reserved_blocks = self
            .fields
            .reserved_blocks
            .or(self.reserved_percent.map(share));
        let most = blocks / 2;
        if let Some(wanted) = reserved_blocks.filter(|wanted| *wanted > most) {
            return Err(refused(format!(
                "{wanted} blocks cannot be reserved; half of them can, {most}"
            )));
        }
        let of_files = features::OF_FILES;
        Ok(Fields {
            reserved_blocks,
            features: self.fields.features.difference(of_files),
            without: self.fields.without.difference(of_files),
            ..self.fields.clone()
        })
    }
}

impl Applied {
    /// Returns the new features with which this library only reads the volume from now on.
    pub fn read_only_features(&self) -> &[Feature] {
        &self.read_only_features
    }

    /// Returns whether [`finish`](Self::finish) has something to do with the volume that `options`
    /// open.
    pub fn is_unfinished(&self, options: &VolumeOptions) -> bool {
        self.changes_closed_volume() || self.renaming.is_some() && options.journal.is_some()
    }

    fn changes_closed_volume(&self) -> bool {
        self.removes_journal || self.rewrites_checksums
    }

    /// Does the work that needs the volume at `path` closed: renames the user of an external
    /// journal, takes the journal away, and rewrites checksums. `options` say where the volume is,
    /// and its external journal. If the volume is in use, nothing is done yet.
    ///
    /// # Errors
    /// A volume that is in use, or a device that fails. An error about an external journal has the
    /// path of that.
    pub fn finish(&self, options: &VolumeOptions, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let at_path = |error| failed(error).at(path);
        // Locked before the first change, and until the last.
        let device = self
            .changes_closed_volume()
            .then(|| writable_device(options, path))
            .transpose()?;
        if let (Some(renaming), Some(journal)) = (&self.renaming, &options.journal) {
            renaming.tell(journal)?;
        }
        let Some(device) = device else {
            return Ok(());
        };
        if self.removes_journal {
            let options = extern4_ext4::OpenOptions::default();
            journal::remove_journal(&device, &options).map_err(at_path)?;
        }
        if self.rewrites_checksums {
            checksum_rewrite::rewrite_checksums(&device).map_err(at_path)?;
        }
        Ok(())
    }
}

impl Renaming {
    /// Replaces the old UUID of the volume by the new one on its external journal.
    fn tell(&self, journal: &Path) -> Result<()> {
        let options = FileOptions {
            write: true,
            ..FileOptions::default()
        };
        let old = self.superblock.uuid();
        FileDevice::open_with(journal, &options)
            .map_err(extern4_ext4::Error::from)
            .and_then(|device| {
                rename_journal_user(Arc::new(device), &self.superblock, &old, &self.new)
            })
            .map_err(|error| failed(error).at(journal))
    }
}

/// Notes that a check of a volume has found nothing wrong: clears the note of errors, and sets the
/// time of the check, as e2fsck does.
///
/// # Errors
/// `EROFS` for a volume that is open for reading, or a device that fails.
pub fn note_sound(volume: &Volume) -> Result<()> {
    volume.ext4().note_sound().map_err(failed)
}

/// Returns the device of the closed volume at `path`, locked for changes.
fn writable_device(options: &VolumeOptions, path: &Path) -> Result<Arc<dyn BlockDevice>> {
    let mut options = options.clone();
    let (device, _) = options.write(true).device(path)?;
    Ok(Arc::new(device))
}

/// Returns the error for changes that no volume, or not this one, can take.
fn refused(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Invalid, ACTION).because(reason)
}

fn failed(error: extern4_ext4::Error) -> Error {
    Error::ext4(ACTION, error)
}

const ACTION: &str = "change the settings of";
