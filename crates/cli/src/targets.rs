//! The files that a command changes, and the names that it gives them.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{Errno, Metadata, Session};

use crate::app::{App, Target};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;

/// Returns the file that `path` leads to, for calls that take a symbolic link itself.
pub(crate) fn followed<'a>(session: &Session, path: &'a Path) -> extern4::Result<Cow<'a, Path>> {
    if session.symlink_metadata(path)?.is_symlink() {
        return session.canonicalize(path).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(path))
}

/// Changes the file of an image path, or with `recursive` everything below it. The change is to
/// symbolic links themselves, not to their targets. `change` gets a session in which the path means
/// the file. Failures are reported, and the rest is done.
pub(crate) fn change(
    target: &Target,
    recursive: bool,
    app: &mut App,
    mut change: impl FnMut(&Session, &Path, &Metadata) -> extern4::Result<()>,
) {
    if !recursive {
        let (session, path) = (target.session(), target.path());
        let changed = session.metadata(path).and_then(|found| change(session, path, &found));
        if let Err(error) = changed {
            app.error(&target.image_path, &error);
        }
        return;
    }
    for entry in target.session().walk(target.path()) {
        let changed = entry.and_then(|entry| {
            // A name alone, so that paths of any length can be reached.
            let changed = entry
                .metadata()
                .and_then(|found| change(&entry.parent(), Path::new(entry.file_name()), &found));
            changed.map_err(|error| (entry.into_path(), error)).or_else(|(path, error)| {
                app.error(target.volume.image_path(&path), &error);
                Ok(())
            })
        });
        if let Err(error) = changed {
            let path = error.path().unwrap_or(target.path()).to_owned();
            app.error(target.volume.image_path(&path), &error);
        }
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
    pub(crate) fn new(target: &Target, sources: usize, app: &mut App) -> Option<Self> {
        let is_directory = target.session().metadata(target.path()).is_ok_and(|found| found.is_dir());
        if sources > 1 && !is_directory {
            app.fail_at(ExitStatus::Failed, &target.image_path, "not a directory");
            return None;
        }
        Some(Self { path: target.path().to_owned(), is_directory })
    }

    /// Returns the path that a file called `name` gets, or `None` if it needs a name of its own and
    /// has none.
    pub(crate) fn of(&self, name: Option<OsString>) -> Option<PathBuf> {
        if self.is_directory { name.map(|name| self.path.join(name)) } else { Some(self.path.clone()) }
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
            return app.fail_at(ExitStatus::Failed, old, "a directory is not moved into itself");
        }
        _ => false,
    };
    let image_path = if is_new { target.volume.image_path(new) } else { old.clone() };
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
    let look = |path: &Path| session.symlink_metadata(path).ok().filter(|found| !found.is_dir());
    let (Some(found), Some(there)) = (look(one), look(other)) else { return NameRelation::TwoFiles };
    if found.ino() != there.ino() {
        return NameRelation::TwoFiles;
    }
    let directory =
        |path: &Path| session.metadata(path.parent().unwrap_or(path)).map(|found| found.ino()).ok();
    if directory(one) != directory(other) {
        return NameRelation::SameFile;
    }
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    match (one.file_name() == other.file_name(), name(one) == name(other)) {
        (true, _) => NameRelation::SameName,
        (false, true) => NameRelation::TwoFiles,
        (false, false) => NameRelation::SameFile,
    }
}

/// Returns the name at the end of a path, or `None` for a root or a directory named by its dots.
pub(crate) fn own_name(path: &Path) -> Option<OsString> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.ends_with(b"/.") || bytes.ends_with(b"/./") {
        return None;
    }
    path.file_name().map(ToOwned::to_owned)
}

/// Returns the image paths of a command that changes each by itself, all announced as written to.
pub(crate) fn written_paths(texts: &[OsString], app: &mut App) -> Vec<ImagePath> {
    texts.iter().map(|text| app.written_path(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::own_name;
    use std::path::Path;

    #[test]
    fn paths_have_names() {
        let check = |path: &str, name: Option<&str>| {
            assert_eq!(own_name(Path::new(path)).as_deref().and_then(|name| name.to_str()), name, "{path}");
        };
        check("/etc/passwd", Some("passwd"));
        check("/etc/", Some("etc"));
        check("/", None);
        check("/etc/.", None);
        check("/etc/..", None);
    }
}
