//! The files that a command changes, and the names that it gives them.
//!
//! Every command that changes files finds them here. A path that cannot be resolved is reported,
//! and the others go on. A walk changes a directory after its contents where the order matters.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use extern4::{Errno, Metadata, Session};

use crate::app::{App, Target};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::operands::DestinationKind;

/// Returns the file that `path` leads to, for calls that take a symbolic link itself.
pub(crate) fn followed<'a>(session: &Session, path: &'a Path) -> extern4::Result<Cow<'a, Path>> {
    if session.symlink_metadata(path)?.is_symlink() {
        return session.canonicalize(path).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(path))
}

/// Which files a command changes, and which links it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traversal {
    /// The file alone.
    Single,
    /// Everything below it.
    Physical,
    /// Everything below what it leads to.
    CommandLine,
    /// Everything below it, directories that links lead to included.
    Logical,
}

/// A file that a command changes.
pub(crate) struct FoundFile<'a> {
    /// A session in which `path` means the file.
    pub(crate) session: &'a Session,
    /// The path of the file in that session.
    pub(crate) path: &'a Path,
    /// The attributes of the file; of a symbolic link itself below a directory.
    pub(crate) metadata: &'a Metadata,
    /// The path of the file as messages name it.
    pub(crate) shown: ImagePath,
}

impl FoundFile<'_> {
    /// Returns the path of the file as lines about changes print it.
    pub(crate) fn quoted(&self) -> String {
        self.shown.quoted()
    }
}

/// Symbolic links to directories that lead on from each other, at most: as many as on a path.
pub(crate) const MAX_LINKS: usize = 40;

/// A walk over the files that a command changes.
struct Changes<'a, C> {
    target: &'a Target,
    traversal: Traversal,
    app: &'a mut App,
    change: C,
}

/// Changes the file of an image path, or everything below it. Below a directory, the change is to
/// symbolic links themselves. `change` returns a line to print. Failures are reported, and the rest
/// is done.
pub(crate) fn change_files(
    target: &Target,
    traversal: Traversal,
    app: &mut App,
    change: impl FnMut(&FoundFile<'_>) -> extern4::Result<Option<String>>,
) {
    let mut changes = Changes {
        target,
        traversal,
        app,
        change,
    };
    match traversal {
        Traversal::Single => changes.single(),
        Traversal::Physical => changes.below(target.path(), target.path(), None, &mut Vec::new()),
        Traversal::CommandLine | Traversal::Logical => {
            match target.session().canonicalize(target.path()) {
                Ok(real) => {
                    let named = Some((target.session(), target.path()));
                    changes.below(&real, target.path(), named, &mut Vec::new());
                }
                Err(error) => changes.app.error(&target.image_path, &error),
            }
        }
    }
}

impl<C: FnMut(&FoundFile<'_>) -> extern4::Result<Option<String>>> Changes<'_, C> {
    fn single(&mut self) {
        let session = self.target.session();
        let path = self.target.path();
        match session.metadata(path) {
            Ok(metadata) => self.one(session, path, &metadata, path),
            Err(error) => self.app.error(&self.target.image_path, &error),
        }
    }

    fn one(&mut self, session: &Session, path: &Path, metadata: &Metadata, shown: &Path) {
        let shown = self.target.volume.image_path(shown);
        let file = FoundFile {
            session,
            path,
            metadata,
            shown,
        };
        match (self.change)(&file) {
            Ok(line) => line.into_iter().for_each(|line| self.app.print(line)),
            Err(error) => self.app.error(&file.shown, &error),
        }
    }

    /// Changes everything below `real`, which messages call `shown`. `named` is the name that led
    /// here, if that may be a link: the change is to that. `above` holds the directories from which
    /// links led here.
    fn below(
        &mut self,
        real: &Path,
        shown: &Path,
        named: Option<(&Session, &Path)>,
        above: &mut Vec<PathBuf>,
    ) {
        for entry in self.target.session().walk(real) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let path = error.path().unwrap_or(real);
                    let path = self.target.volume.image_path(&renamed(path, real, shown));
                    self.app.error(path, &error);
                    continue;
                }
            };
            let name = renamed(entry.path(), real, shown);
            if let Some((session, path)) = named.filter(|_| entry.depth() == 0) {
                match session.symlink_metadata(path) {
                    Ok(found) => self.one(session, path, &found, &name),
                    Err(error) => self.app.error(self.target.volume.image_path(&name), &error),
                }
                continue;
            }
            // A name alone, so that paths of any length can be reached.
            match entry.metadata() {
                Ok(found) if found.is_symlink() && self.traversal == Traversal::Logical => {
                    self.link(&entry.parent(), &entry, &found, &name, above);
                }
                Ok(found) => self.one(&entry.parent(), Path::new(entry.file_name()), &found, &name),
                Err(error) => self.app.error(self.target.volume.image_path(&name), &error),
            }
        }
    }

    /// Changes a symbolic link, or everything below the directory that it leads to.
    fn link(
        &mut self,
        parent: &Session,
        entry: &extern4::DirEntry,
        found: &Metadata,
        shown: &Path,
        above: &mut Vec<PathBuf>,
    ) {
        let name = Path::new(entry.file_name());
        let is_directory = parent.metadata(name).is_ok_and(|found| found.is_dir());
        let Some(real) = is_directory
            .then(|| parent.canonicalize(name).ok())
            .flatten()
        else {
            return self.one(parent, name, found, shown);
        };
        above.push(entry.path().to_owned());
        if above.len() > MAX_LINKS || above.iter().any(|above| above.starts_with(&real)) {
            let shown = self.target.volume.image_path(shown);
            self.app.fail_at(
                ExitStatus::Failed,
                shown,
                "the link leads back to a directory above it",
            );
        } else {
            self.below(&real, shown, Some((parent, name)), above);
        }
        above.pop();
    }
}

/// Returns the name of `path`, which is below `real`, for a user that calls that `shown`.
pub(crate) fn renamed(path: &Path, real: &Path, shown: &Path) -> PathBuf {
    match path.strip_prefix(real) {
        Ok(rest) if rest.as_os_str().is_empty() => shown.to_owned(),
        Ok(rest) => shown.join(rest),
        Err(_) => path.to_owned(),
    }
}

/// The destination of a command's sources: a directory, where they keep their own names, or a new
/// name.
pub(crate) struct Destination {
    path: PathBuf,
    is_directory: bool,
}

impl Destination {
    /// Returns the destination of `sources` files. More than one can go into a directory only.
    /// Reports a failure.
    pub(crate) fn new(
        target: &Target,
        kind: DestinationKind,
        sources: usize,
        app: &mut App,
    ) -> Option<Self> {
        let is_directory = kind != DestinationKind::Name
            && target
                .session()
                .metadata(target.path())
                .is_ok_and(|found| found.is_dir());
        if (sources > 1 || kind == DestinationKind::Directory) && !is_directory {
            app.fail_at(ExitStatus::Failed, &target.image_path, "not a directory");
            return None;
        }
        Some(Self {
            path: target.path().to_owned(),
            is_directory,
        })
    }

    /// Returns the path that a file called `name` gets, or `None` if it needs another name and
    /// has none.
    pub(crate) fn of(&self, name: Option<OsString>) -> Option<PathBuf> {
        if self.is_directory {
            name.map(|name| self.path.join(name))
        } else {
            Some(self.path.clone())
        }
    }
}

/// Reports why a file could not be given another name, with the name that the error is about: the
/// new one or the old one.
pub(crate) fn report_naming(
    target: &Target,
    old: &ImagePath,
    new: &Path,
    error: &extern4::Error,
    app: &mut App,
) {
    let session = target.session();
    let is_new = match error.errno() {
        Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG => {
            session.symlink_metadata(&old.path).is_ok()
        }
        Errno::EEXIST | Errno::ENOTEMPTY | Errno::EISDIR | Errno::ENOSPC | Errno::EDQUOT => true,
        Errno::EINVAL if new.starts_with(&old.path) => {
            return app.fail_at(
                ExitStatus::Failed,
                old,
                "a directory is not moved into itself",
            );
        }
        _ => false,
    };
    let image_path = if is_new {
        target.volume.image_path(new)
    } else {
        old.clone()
    };
    app.error(image_path, error);
}

/// How two names are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRelation {
    /// One name.
    SameName,
    /// Two names of one file.
    SameFile,
    /// Names of two files. Also two names in one directory that differ only in case: they may be
    /// one entry of a case-insensitive directory, which a rename respells.
    TwoFiles,
}

/// Returns how two names of files are related. Links are not followed.
pub(crate) fn name_relation(session: &Session, one: &Path, other: &Path) -> NameRelation {
    let look = |path: &Path| {
        session
            .symlink_metadata(path)
            .ok()
            .filter(|found| !found.is_dir())
    };
    let (Some(found), Some(there)) = (look(one), look(other)) else {
        return NameRelation::TwoFiles;
    };
    if found.ino() != there.ino() {
        return NameRelation::TwoFiles;
    }
    let directory = |path: &Path| {
        session
            .metadata(path.parent().unwrap_or(path))
            .map(|found| found.ino())
            .ok()
    };
    if directory(one) != directory(other) {
        return NameRelation::SameFile;
    }
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().to_lowercase())
    };
    match (
        one.file_name() == other.file_name(),
        name(one) == name(other),
    ) {
        (true, _) => NameRelation::SameName,
        (false, true) => NameRelation::TwoFiles,
        (false, false) => NameRelation::SameFile,
    }
}

/// Returns the image paths of a command that changes each by itself, all announced as written to.
pub(crate) fn written_paths(texts: &[OsString], app: &mut App) -> Vec<ImagePath> {
    texts.iter().map(|text| app.written_path(text)).collect()
}
