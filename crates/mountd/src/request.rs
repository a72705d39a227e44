//! A request to mount a volume: its source, and the options as words and in their meaning.
//!
//! The command makes one of its arguments. The steps of a mount read it; a write-protected image
//! makes it a request for reading only.

use std::path::PathBuf;

use extern4::Backup;

use crate::error::Error;
use crate::options::{self, Options, Words};
use crate::source::Source;

/// A request to mount a volume.
pub struct Request {
    pub(crate) source: Source,
    /// The options as they were written.
    pub(crate) lists: Vec<Words>,
    pub(crate) options: Options,
    default_journal: Option<PathBuf>,
    default_superblock: Option<Backup>,
    is_write_protected: bool,
}

impl Request {
    /// Makes a request for the volume in `source`. The journal and the superblock apply where the
    /// options name none.
    ///
    /// # Errors
    /// [`Error::TwoOffsets`] if both the source and the options say where the volume starts;
    /// [`Error::NameOfBlockDevice`] if the options contradict each other.
    pub fn new(
        source: &Source,
        lists: Vec<Words>,
        journal: Option<PathBuf>,
        superblock: Option<Backup>,
    ) -> Result<Self, Error> {
        let options = Options::of(&lists);
        let source = options.source(source).ok_or(Error::TwoOffsets)?;
        let names_source = options.fsname().is_some() && !options.remount;
        if names_source && options.fuseblk == Some(true) {
            return Err(Error::NameOfBlockDevice);
        }
        let mut request = Self {
            source,
            lists,
            options,
            default_journal: journal,
            default_superblock: superblock,
            is_write_protected: false,
        };
        request.set_defaults();
        Ok(request)
    }

    /// Returns where the volume is.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns whether the options ask for a change of an existing mount, which
    /// [`remount`](crate::remount()) makes.
    pub fn is_remount(&self) -> bool {
        self.options.remount
    }

    /// Returns whether there is no image, and the options say that this is no failure.
    pub fn may_be_skipped(&self) -> bool {
        self.options.nofail && !self.source.file.exists()
    }

    /// Returns the mode of the directory, if the options say that it is to be made.
    pub fn directory_mode(&self) -> Option<u32> {
        self.options.mkdir
    }

    /// Returns whether the image is write-protected, and was opened for reading only for that
    /// reason.
    pub fn is_write_protected(&self) -> bool {
        self.is_write_protected
    }

    /// Makes it a request for reading only, because the image is write-protected.
    pub(crate) fn protect(&mut self) {
        self.lists.push(options::read_only());
        self.options = Options::of(&self.lists);
        self.set_defaults();
        self.is_write_protected = true;
    }

    fn set_defaults(&mut self) {
        let options = &mut self.options;
        options.journal = options
            .journal
            .take()
            .or_else(|| self.default_journal.clone());
        options.ext4.superblock = options.ext4.superblock.or(self.default_superblock);
    }
}
