//! Paths without symbolic links and dots, as `realpath(1)` makes them.
//!
//! `readlink -f` and `ln -r` call it. It walks in the volume with the rights of the caller. A loop
//! of links is an error.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{Errno, Session};

/// The number of links on a way that is taken for a loop: that of Linux.
const MAX_LINKS: usize = 40;

/// Which names of a path need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// None.
    Never,
    /// The last one.
    Last,
    /// Any.
    Anywhere,
}

/// Returns the path from the root that `path` leads to, without links and dots.
pub(crate) fn real_path(
    session: &Session,
    path: &Path,
    missing: Missing,
) -> Result<PathBuf, Errno> {
    let mut real = PathBuf::from("/");
    let mut left: VecDeque<OsString> = names(path.as_os_str()).collect();
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        match session.symlink_metadata(&next) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP);
                }
                let target = session.read_link(&next).map_err(|error| error.errno())?;
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                names(target.as_os_str())
                    .rev()
                    .for_each(|name| left.push_front(name));
            }
            Ok(found) if !found.is_dir() && !left.is_empty() && missing != Missing::Anywhere => {
                return Err(Errno::ENOTDIR);
            }
            Ok(_) => real = next,
            Err(error) if may_miss(missing, error.errno(), left.is_empty()) => real = next,
            Err(error) => return Err(error.errno()),
        }
    }
    Ok(real)
}

fn may_miss(missing: Missing, error: Errno, is_last: bool) -> bool {
    match missing {
        Missing::Never => false,
        Missing::Last => error == Errno::ENOENT && is_last,
        Missing::Anywhere => matches!(error, Errno::ENOENT | Errno::ENOTDIR),
    }
}

/// Returns the names of a path, without empty ones and single dots.
fn names(path: &OsStr) -> impl DoubleEndedIterator<Item = OsString> {
    let names = path.as_bytes().split(|byte| *byte == b'/');
    names
        .filter(|name| !matches!(*name, b"" | b"."))
        .map(|name| OsStr::from_bytes(name).to_owned())
}

/// Returns the way from directory `from` to `to`, which are both without links and dots.
pub(crate) fn relative(from: &Path, to: &Path) -> PathBuf {
    let common = from
        .components()
        .zip(to.components())
        .take_while(|(from, to)| from == to)
        .count();
    let up = from.components().skip(common).map(|_| OsStr::new(".."));
    let way: PathBuf = up
        .chain(to.components().skip(common).map(|name| name.as_os_str()))
        .collect();
    if way.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        way
    }
}

#[cfg(test)]
mod tests {
    use super::relative;
    use std::path::Path;

    #[test]
    fn ways_between_directories_are_short() {
        let check = |from: &str, to: &str, way: &str| {
            assert_eq!(
                relative(Path::new(from), Path::new(to)),
                Path::new(way),
                "{from} {to}"
            );
        };
        check("/a/b", "/a/c", "../c");
        check("/", "/a", "a");
        check("/a", "/a", ".");
        check("/a/b", "/", "../..");
    }
}
