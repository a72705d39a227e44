//! One file of a copy to the host, of any kind except a directory.

use std::ffi::OsStr;
use std::fs::File as HostFile;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use extern4_vfs::{FileType, Timespec};
use rustix::fs::{AtFlags, Mode, OFlags, linkat, mknodat, openat, symlinkat, unlinkat};

use super::super::observer::{CopyNames, CopyObserver};
use super::attributes::{Keep, Original};
use super::contents::Contents;
use super::fault::Fault;
use super::host_tree::HostTree;
use super::{CopyOut, Origin};
use crate::file::File;
use crate::metadata::Metadata;
use crate::volume::Volume;

impl CopyOut<'_> {
    /// Copies any file except a directory to `name` in the current directory of `tree`. `to` is
    /// the path of the copy.
    pub(super) fn file(
        &mut self,
        original: &Original<'_>,
        name: &OsStr,
        tree: &mut HostTree,
        keep: Keep<'_>,
        to: &Path,
        observer: &mut dyn CopyObserver,
    ) -> Result<(), Fault> {
        let metadata = original.metadata;
        if let Some(refusal) = self.options.refusal(metadata.file_type()) {
            return Err(Fault::Refused(refusal));
        }
        let id = (self.image(original.volume), metadata.ino());
        if !self.links.is_empty()
            && let Some(there) = tree.find(name)?
            && self.links.has_name(&id, &there)
        {
            return self.end_file(observer);
        }
        let Some(set_aside) = self.make_room(metadata, name, tree, to, observer)? else {
            return Ok(());
        };
        observer.copying(&CopyNames {
            from: original.path,
            to,
            set_aside: set_aside.as_deref(),
        });
        let linked = self.options.preserve.links && metadata.nlink() > 1;
        if linked && let Some(first) = self.links.first(&id) {
            let (directory, first) = first.open_parent()?;
            tree.make(name, |to, name| {
                linkat(&directory, first, to, name, AtFlags::empty())
            })?;
            return self.end_file(observer);
        }
        match metadata.file_type() {
            FileType::Regular => self.regular(original, name, tree, keep, observer)?,
            FileType::Symlink => {
                let link = original.directory.read_link(original.name)?;
                tree.make(name, |directory, name| symlinkat(&link, directory, name))?;
                original.keep_at(tree.current()?, name, keep, &mut self.summary.losses)?;
            }
            kind => {
                match self.special(kind, metadata, name, tree) {
                    Err(error) if self.options.exports && is_refused(&error) => {
                        self.summary.losses.device(original.path);
                        return Ok(());
                    }
                    made => made?,
                }
                original.keep_at(tree.current()?, name, keep, &mut self.summary.losses)?;
            }
        }
        if linked && let Some(copy) = tree.find(name)? {
            self.links.add(id, copy, tree.relative_path(name));
        }
        self.end_file(observer)
    }

    /// Counts a file. If the observer ends the copy now, the next step finds that.
    fn end_file(&mut self, observer: &mut dyn CopyObserver) -> Result<(), Fault> {
        let _ = self.summary.advance(1, 0, observer);
        Ok(())
    }

    /// Asks the observer about a file that is there, and sets it aside if that is wanted. Returns
    /// `None` if it stays, and else the path where it is now, if it was set aside.
    fn make_room(
        &self,
        metadata: &Metadata,
        name: &OsStr,
        tree: &mut HostTree,
        to: &Path,
        observer: &mut dyn CopyObserver,
    ) -> Result<Option<Option<PathBuf>>, Fault> {
        if !self.options.asks && !self.options.sets_aside {
            return Ok(Some(None));
        }
        let Some(there) = tree.modified(name)? else {
            return Ok(Some(None));
        };
        if self.options.asks && !observer.may_replace(to, metadata.mtime(), there) {
            return Ok(None);
        }
        let kept = if self.options.sets_aside {
            tree.set_aside(name, observer)?
        } else {
            None
        };
        Ok(Some(kept.map(|kept| to.with_file_name(kept))))
    }

    /// Writes to the file `path` that the caller named.
    pub(super) fn write_existing(
        &mut self,
        origin: Origin<'_>,
        found: &Metadata,
        path: &Path,
        keep: Keep<'_>,
        observer: &mut dyn CopyObserver,
    ) -> Result<(), Fault> {
        if self.options.asks && !observer.may_replace(path, found.mtime(), modified(path)?) {
            return Ok(());
        }
        let from = origin.session.open(origin.path)?;
        let truncates = !self.options.attributes_only;
        let to = std::fs::OpenOptions::new()
            .write(true)
            .truncate(truncates)
            .open(path)?;
        observer.copying(&CopyNames {
            from: origin.path,
            to: path,
            set_aside: None,
        });
        if truncates && !to.metadata()?.is_file() {
            return self.contents(origin.volume, &from, &to, observer, |contents| {
                contents.stream()
            });
        }
        if truncates {
            let copied = self.contents(origin.volume, &from, &to, observer, |contents| {
                contents.copy()
            });
            if matches!(copied, Err(Fault::Stopped)) {
                to.set_len(0)?;
            }
            copied?;
        }
        origin
            .named(found)
            .keep(&to, keep, &mut self.summary.losses)
    }

    fn regular(
        &mut self,
        original: &Original<'_>,
        name: &OsStr,
        tree: &mut HostTree,
        keep: Keep<'_>,
        observer: &mut dyn CopyObserver,
    ) -> Result<(), Fault> {
        let from = original.directory.open(original.name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = self.first_mode(original.metadata.mode(), false);
        let mode = if self.options.preserve.mode {
            mode | Mode::WUSR
        } else {
            mode
        };
        let there = if self.options.attributes_only {
            tree.open_existing(name)?
        } else {
            None
        };
        let to = match there {
            Some(there) => there,
            None => tree.make(name, |directory, name| openat(directory, name, flags, mode))?,
        };
        let to = HostFile::from(to);
        if !self.options.attributes_only {
            let copied = self.contents(original.volume, &from, &to, observer, |contents| {
                contents.copy()
            });
            let is_half = match copied {
                Err(Fault::Stopped) => true,
                Err(Fault::Host(_)) => self.options.exports,
                _ => false,
            };
            if is_half {
                unlinkat(tree.current()?, name, AtFlags::empty())?;
            }
            copied?;
        }
        original.keep(&to, keep, &mut self.summary.losses)
    }

    /// Makes a device, a pipe or a socket.
    fn special(
        &self,
        kind: FileType,
        metadata: &Metadata,
        name: &OsStr,
        tree: &mut HostTree,
    ) -> io::Result<()> {
        let kept = self
            .options
            .preserve
            .mode
            .then(|| Mode::from_raw_mode(metadata.mode() & 0o7777));
        let mode = kept.unwrap_or_else(|| self.first_mode(metadata.mode(), false));
        let device = rustix::fs::makedev(metadata.rdev().major, metadata.rdev().minor);
        let kind = match kind {
            FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
            FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
            FileType::Fifo => rustix::fs::FileType::Fifo,
            _ => rustix::fs::FileType::Socket,
        };
        tree.make(name, |directory, name| {
            mknodat(directory, name, kind, mode, device)
        })
    }

    /// Returns the mode that a new file starts with.
    pub(super) fn first_mode(&self, mode: u32, is_directory: bool) -> Mode {
        Mode::from_raw_mode(self.options.preserve.first_mode(
            mode,
            is_directory,
            self.options.umask,
        ))
    }

    /// Copies contents by `copy`.
    fn contents(
        &mut self,
        volume: &Volume,
        from: &File,
        to: &HostFile,
        observer: &mut dyn CopyObserver,
        copy: impl FnOnce(Contents<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let image = self.image(volume);
        let summary = &mut self.summary;
        let sparse = self.options.sparse;
        let buffer = &mut self.buffer;
        let kernel_copy = self.images[image].kernel_copy.as_mut();
        let copied = &mut |bytes| {
            if summary.advance(0, bytes, observer).is_break() {
                Err(Fault::Stopped)
            } else {
                Ok(())
            }
        };
        copy(Contents {
            from,
            kernel_copy,
            to,
            buffer,
            sparse,
            copied,
        })
    }
}

/// Returns the time of the last change of a file of the host.
fn modified(path: &Path) -> io::Result<Timespec> {
    let found = std::fs::metadata(path)?;
    Ok(Timespec {
        sec: found.mtime(),
        nsec: u32::try_from(found.mtime_nsec()).unwrap_or(0),
    })
}

/// Returns whether only root can do it.
fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root()
}
