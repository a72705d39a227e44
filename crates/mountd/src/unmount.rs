//! Unmounts a volume, and asks the process that serves it how the mount ended.
//!
//! The command's `umount` calls it.

use std::io;
use std::path::{Path, PathBuf};

pub use extern4_fuse::Patience;

use crate::control::waiting::Listener;
use crate::mount_table::MountEntry;
use crate::source::Source;

/// The end of a mount on a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The volume is closed, and everything is on it.
    Ended,
    /// The volume is closed, but not everything is on it, for this reason.
    Lost(String),
    /// The volume is mounted on other directories, too, and still served.
    Elsewhere,
    /// The volume is still served when the wait is over. These processes have it mounted in other
    /// namespaces, as far as that is known.
    Served(Vec<u32>),
}

/// Unmounts the mount on `dir`, and waits for its end with `patience`. Calls `still_there` once if
/// that takes long, with the processes that have it mounted in other namespaces.
///
/// # Errors
/// `InvalidInput` if `dir` is not the directory of a mount of this program, or the kernel's reason.
pub fn unmount(
    dir: &Path,
    patience: Patience,
    still_there: impl FnOnce(&[u32]),
) -> io::Result<Unmounted> {
    let listener = Listener::of(dir).filter(|_| patience != Patience::Lazy);
    let unmounted = extern4_fuse::unmount(dir, patience, still_there)?;
    Ok(match unmounted {
        extern4_fuse::Unmounted::Ended => listener
            .and_then(Listener::lost)
            .map_or(Unmounted::Ended, Unmounted::Lost),
        extern4_fuse::Unmounted::Elsewhere => Unmounted::Elsewhere,
        extern4_fuse::Unmounted::Served(others) => Unmounted::Served(others),
    })
}

/// Returns the directories on which the volume is mounted, the last mount first.
///
/// # Errors
/// The image has no resolved path, or the mount table cannot be read.
pub fn directories(source: &Source) -> io::Result<Vec<PathBuf>> {
    let mut dirs: Vec<_> = MountEntry::of(source)?
        .into_iter()
        .map(|entry| entry.dir)
        .collect();
    dirs.reverse();
    Ok(dirs)
}
