//! An entry that a search looks at, with attributes that are read when a test first needs them.
//!
//! `find` makes one for each entry, and `eval` tests it. An attribute that cannot be read makes the
//! test false, and the error is reported once for the entry.

use std::cell::{Cell, OnceCell};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use extern4::{Access, DirEntry, Errno, FileType, Metadata};

use super::Search;
use crate::app::Opened;
use crate::text::type_letter;

/// An entry under test. A test reads attributes when it first needs them. An attribute that cannot
/// be read makes the test false and is reported.
pub(super) struct Candidate<'a> {
    pub(super) entry: &'a DirEntry,
    pub(super) path: &'a Path,
    /// Directories between the place of the command line and the entry.
    pub(super) depth: usize,
    /// Whether a symbolic link stands for its target, if it has one.
    follow: bool,
    pub(super) volume: &'a Opened,
    /// The text before the path where it is printed.
    prefix: &'a [u8],
    metadata: OnceCell<Option<Metadata>>,
    error: Cell<Option<extern4::Error>>,
}

/// The form of a path that a pattern is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathForm {
    /// The path in the volume.
    InVolume,
    /// That, or the path as it is printed, with the image.
    Either,
}

impl PathForm {
    /// Returns the form that a pattern is about. The name of the image ends in a colon, and
    /// wildcards alone do not mean a part of it.
    pub(super) fn of(pattern: &[u8]) -> Self {
        if pattern.contains(&b':') {
            Self::Either
        } else {
            Self::InVolume
        }
    }
}

impl<'a> Candidate<'a> {
    pub(super) fn new(
        entry: &'a DirEntry,
        path: &'a Path,
        depth: usize,
        follow: bool,
        search: &'a Search<'_>,
    ) -> Self {
        let volume = &*search.volume;
        let prefix = &search.prefix[..];
        let metadata = OnceCell::new();
        let error = Cell::new(None);
        Self {
            entry,
            path,
            depth,
            follow,
            volume,
            prefix,
            metadata,
            error,
        }
    }

    /// Returns whether the path matches in one of its forms.
    pub(super) fn path_matches(&self, form: PathForm, matches: impl Fn(&[u8]) -> bool) -> bool {
        let path = self.path.as_os_str().as_bytes();
        matches(path) || form == PathForm::Either && matches(&[self.prefix, path].concat())
    }

    /// Takes the error that a test met.
    pub(super) fn take_error(&self) -> Option<extern4::Error> {
        self.error.take()
    }

    /// Returns the value; on an error, keeps the error and returns `None`.
    pub(super) fn kept<T>(&self, result: extern4::Result<T>) -> Option<T> {
        result.map_err(|error| self.error.set(Some(error))).ok()
    }

    /// Returns the entry's attributes.
    pub(super) fn metadata(&self) -> Option<&Metadata> {
        self.metadata
            .get_or_init(|| match self.follow.then(|| self.target()).flatten() {
                Some(target) => Some(target),
                None => self.kept(self.entry.metadata()),
            })
            .as_ref()
    }

    /// Returns the entry's path.
    pub(super) fn path(&self) -> &Path {
        self.path
    }

    /// Returns the attributes of the file that a symbolic link leads to; of others, the attributes
    /// of the entry.
    fn target(&self) -> Option<Metadata> {
        self.entry.parent().metadata(self.entry.file_name()).ok()
    }

    /// Returns the type of the entry, or of what it leads to.
    pub(super) fn kind(&self) -> Option<FileType> {
        let kind = self.kept(self.entry.file_type())?;
        match kind {
            FileType::Symlink if self.follow => self.metadata().map(Metadata::file_type),
            kind => Some(kind),
        }
    }

    /// Returns the type as `-xtype` sees it: of the other side of a link than `-type` does.
    pub(super) fn other_kind(&self) -> Option<FileType> {
        let own = self.kept(self.entry.file_type())?;
        if own != FileType::Symlink || self.follow {
            return Some(own);
        }
        match self.entry.parent().metadata(self.entry.file_name()) {
            Ok(target) => Some(target.file_type()),
            Err(error) if error.errno() == Errno::ELOOP => self.kept(Err(error)),
            Err(_) => Some(own),
        }
    }

    /// Returns the letter of the type of what the entry leads to; `N` for a link that leads
    /// nowhere.
    pub(super) fn target_letter(&self) -> Option<String> {
        let own = self.kept(self.entry.file_type())?;
        if own != FileType::Symlink {
            return Some(letter_of(own));
        }
        match self.entry.parent().metadata(self.entry.file_name()) {
            Ok(target) => Some(letter_of(target.file_type())),
            Err(error) if error.errno() == Errno::ELOOP => Some("L".to_owned()),
            Err(error) if matches!(error.errno(), Errno::ENOENT | Errno::ENOTDIR) => {
                Some("N".to_owned())
            }
            Err(_) => Some("?".to_owned()),
        }
    }

    /// Returns the inode number of the entry, or of what it leads to.
    pub(super) fn ino(&self) -> Option<u64> {
        if self.follow {
            self.metadata().map(Metadata::ino)
        } else {
            Some(self.entry.ino())
        }
    }

    /// Returns the target of a symbolic link as it is written.
    pub(super) fn link_text(&self) -> Option<Vec<u8>> {
        self.link().map(|link| link.into_os_string().into_vec())
    }

    pub(super) fn link(&self) -> Option<std::path::PathBuf> {
        if self.kind()? != FileType::Symlink {
            return None;
        }
        self.kept(self.entry.parent().read_link(self.entry.file_name()))
    }

    /// Returns whether the caller may use the file so.
    pub(super) fn may(&self, access: Access) -> bool {
        self.entry
            .parent()
            .access(self.entry.file_name(), access)
            .is_ok()
    }

    pub(super) fn is_empty(&self) -> Option<bool> {
        Some(match self.kind()? {
            FileType::Regular => self.metadata()?.len() == 0,
            FileType::Directory => {
                match self
                    .kept(self.entry.parent().read_dir(self.entry.file_name()))?
                    .next()
                {
                    None => true,
                    Some(entry) => {
                        self.kept(entry)?;
                        false
                    }
                }
            }
            _ => false,
        })
    }

    pub(super) fn has_xattr(&self, name: &std::ffi::OsStr) -> Option<bool> {
        Some(
            self.kept(self.entry.parent().lgetxattr(self.entry.file_name(), name))?
                .is_some(),
        )
    }
}

/// Returns the letter of a type, as `-type` takes it.
pub(super) fn letter_of(kind: FileType) -> String {
    match kind {
        FileType::Regular => "f".to_owned(),
        kind => char::from(type_letter(kind)).to_string(),
    }
}
