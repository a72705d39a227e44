//! The files that a volume was opened from, and how to reopen them for writing.
//!
//! `Volume` keeps one, for a remount from reading to writing and for releasing the locks early. A
//! writer has the same files as the reader had, whatever their names mean by now. If another
//! program has one of them open, reopening fails and the volume stays as it was.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use extern4_block::{BlockDevice, FileDevice};
use extern4_disk::superblock::JournalLocation;
use extern4_vfs::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::volume::{Volume, VolumeOptions, explain, not_opened};

/// The files that a volume was opened from, and how.
pub(crate) struct Source {
    options: VolumeOptions,
    device: Arc<dyn BlockDevice>,
    /// The image and the journal's device, as far as this library has opened them.
    image: Option<Arc<FileDevice>>,
    journal: Option<Arc<FileDevice>>,
    /// The image and the journal's device, reopened for writing after the volume was opened. Locks:
    /// `make_writable` holds this one throughout.
    writable: Mutex<Vec<Arc<FileDevice>>>,
}

impl Source {
    pub(crate) fn new(
        options: &VolumeOptions,
        device: Arc<dyn BlockDevice>,
        image: Option<Arc<FileDevice>>,
        journal: Option<Arc<FileDevice>>,
    ) -> Self {
        let mut options = options.clone();
        if let Some(path) = &mut options.journal
            && let Ok(absolute) = std::path::absolute(&*path)
        {
            // The library may open it later, from another working directory.
            *path = absolute;
        }
        Self {
            options,
            device,
            image,
            journal,
            writable: Mutex::default(),
        }
    }

    /// Returns the path of the image, as far as this library has opened it.
    pub(crate) fn image_path(&self) -> Option<&Path> {
        self.image.as_ref().map(|image| image.path())
    }

    /// Releases the file locks, for other programs.
    pub(crate) fn unlock(&self) {
        let writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
        for file in self.image.iter().chain(&self.journal).chain(&*writable) {
            file.unlock();
        }
    }

    /// Opens the volume for writing, if it was opened for reading.
    pub(crate) fn make_writable(&self, volume: &Volume) -> Result<()> {
        let mut writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
        if !volume.superblock().fs().traits().read_only {
            return Ok(());
        }
        let path = self.image_path();
        let at = |error: Error| match path {
            Some(path) => error.at(path),
            None => error,
        };
        if self.options.shared {
            let why = "it was opened to be read while another program writes to it";
            return Err(at(
                Error::new(ErrorKind::Os(Errno::EROFS), "write to").because(why)
            ));
        }
        match self.reopen(volume) {
            Ok(files) => {
                *writable = files;
                Ok(())
            }
            Err(error) => {
                // That fails for a file which the volume has written to: it stays locked.
                self.image
                    .iter()
                    .chain(&self.journal)
                    .for_each(|file| file.lock_again());
                Err(at(error))
            }
        }
    }

    /// Opens the files for writing, and makes the volume use these.
    fn reopen(&self, volume: &Volume) -> Result<Vec<Arc<FileDevice>>> {
        let mut files = Vec::new();
        let mut device = Arc::clone(&self.device);
        if let Some(image) = &self.image {
            let file = Arc::new(writable(image)?);
            device = Arc::clone(&file) as _;
            files.push(file);
        }
        let mut options = self.options.ext4.clone();
        if let (Some(JournalLocation::Device { .. }), Some(path)) =
            (volume.ext4().superblock().journal(), &self.options.journal)
        {
            let for_writing = || self.options.clone().write(true).open_journal(path);
            let file = Arc::new(
                self.journal
                    .as_ref()
                    .map_or_else(for_writing, |file| writable(file))?,
            );
            options.journal_device = Some(Arc::clone(&file) as _);
            files.push(file);
        }
        let changed = volume.ext4().make_writable(Arc::clone(&device), &options);
        let ext4 = volume.ext4();
        for ino in changed.map_err(|error| explain(error, &device, None))? {
            let read = volume
                .superblock()
                .with_inode(ino.into(), |inode| ext4.reread(inode));
            read.and_then(|read| read.map_err(Into::into))
                .map_err(|e| Error::from_vfs("read", e))?;
        }
        Ok(files)
    }
}

fn writable(file: &FileDevice) -> Result<FileDevice> {
    file.open_for_writing()
        .map_err(|error| not_opened(file.path(), error))
}
