//! The destination of a copy on the host: a name in an open directory, or that directory itself.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::super::failure::{Failure, Refusal};
use super::super::paths::{is_slashed, own_name};
use super::Origin;
use crate::metadata::Metadata;

/// The destination of a copy.
pub(super) struct HostDestination {
    pub(super) base: Rc<OwnedFd>,
    /// The name of the copy there; `None` if the directory itself takes the place of the directory
    /// that is copied.
    pub(super) name: Option<OsString>,
    /// The path of the base, for messages.
    pub(super) path: PathBuf,
    /// The existing file that the caller named: the copy writes to it and does not replace it.
    pub(super) existing: Option<PathBuf>,
    /// The kinds of files that may go there.
    pub(super) only: Only,
}

/// The kinds of files that may go to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Only {
    Anything,
    /// The name ends in a slash, and nothing is there.
    Directories,
    /// A dangling link is there. A copy replaces the link, and makes no file where the link points.
    NoContents,
}

impl Only {
    /// Returns the reason why a file must not go there.
    pub(super) fn refusal(self, found: &Metadata) -> Option<Refusal> {
        match self {
            Self::Directories if !found.is_dir() => Some(Refusal::NoDirectory),
            Self::NoContents if found.is_file() => Some(Refusal::DanglingLink),
            _ => None,
        }
    }
}

impl HostDestination {
    /// Returns where the copy of `origin` goes: into the directory `to` under its own name, or in
    /// the stead of `to`, as it does in any case with `is_name`.
    pub(super) fn of(origin: Origin<'_>, to: &Path, is_name: bool) -> Result<Self, Failure> {
        if origin
            .volume
            .image_file()
            .is_some_and(|image| is_same(image, to))
        {
            return Err(Failure::to(Refusal::OwnImage));
        }
        Self::found(origin.path, to, is_name).map_err(|error| Failure::To(error.into()))
    }

    fn found(path: &Path, to: &Path, is_name: bool) -> io::Result<Self> {
        if to.is_dir() && !is_name {
            return match own_name(path) {
                Some(name) => Self::inside(to, name),
                None => Self::itself(to),
            };
        }
        let name = to.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        let destination = Self::inside(parent.unwrap_or(Path::new(".")), name.to_owned())?;
        if to.exists() {
            return Ok(Self {
                existing: Some(to.to_owned()),
                ..destination
            });
        }
        let only = if is_slashed(to) {
            Only::Directories
        } else if to.is_symlink() {
            Only::NoContents
        } else {
            Only::Anything
        };
        Ok(Self {
            only,
            ..destination
        })
    }

    /// Returns the destination `name` in `directory`.
    pub(super) fn inside(directory: &Path, name: OsString) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = openat(CWD, directory, flags, Mode::empty())?;
        // Messages name files as the user does.
        let shown = if directory == Path::new(".") {
            Path::new("")
        } else {
            directory
        };
        let path = shown.to_owned();
        let only = Only::Anything;
        Ok(Self {
            base: Rc::new(base),
            name: Some(name),
            path,
            existing: None,
            only,
        })
    }

    /// Returns the destination for the contents of a directory: `directory` itself.
    pub(super) fn itself(directory: &Path) -> io::Result<Self> {
        let path = directory.to_owned();
        Ok(Self {
            name: None,
            path,
            ..Self::inside(directory, OsString::new())?
        })
    }

    /// Returns the path of the copy.
    pub(super) fn shown(&self) -> PathBuf {
        match (&self.existing, &self.name) {
            (Some(path), _) => path.clone(),
            (None, Some(name)) => self.path.join(name),
            (None, None) => self.path.clone(),
        }
    }
}

/// Returns whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| {
        std::fs::metadata(path)
            .map(|found| (found.dev(), found.ino()))
            .ok()
    };
    id(one).is_some_and(|one| Some(one) == id(other))
}
