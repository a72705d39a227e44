//! Symbolic links that a search follows.
//!
//! `find` and `parse` use it, and so do copies. A link that leads back to a directory above it is
//! not followed.

use std::path::Path;

use extern4::Session;

/// Which symbolic links a search follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    /// None.
    Never,
    /// Files that the command line names as paths.
    Arguments,
    /// All.
    Always,
}

/// The way that a search treats an entry as a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Nothing: it is none, or leads to no directory, or is not followed.
    Left,
    /// The search goes on in the directory that it leads to.
    Entered,
    /// It leads to a directory that it is in.
    Loop,
}

/// Returns whether a path is a symbolic link that leads to a directory.
pub(super) fn leads_to_directory(session: &Session, path: &Path) -> bool {
    session
        .symlink_metadata(path)
        .is_ok_and(|found| found.is_symlink())
        && session.metadata(path).is_ok_and(|found| found.is_dir())
}

/// Returns whether a link leads to one of the directories that its path goes through.
pub(super) fn is_loop(session: &Session, link: &Path) -> bool {
    let ino = |path: &Path| session.metadata(path).map(|found| found.ino()).ok();
    let leads_to = ino(link);
    link.ancestors()
        .skip(1)
        .any(|directory| ino(directory) == leads_to)
}
