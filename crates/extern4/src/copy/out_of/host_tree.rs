//! The stack of directories that a copy out of a volume works in.
//!
//! It reaches from the directory that holds the copy down to the one that the copy is filling.
//! Every name is looked up in its directory's descriptor with `O_NOFOLLOW`. So no link, whether
//! from the volume or at the destination, can lead a copy elsewhere. Only the innermost directories
//! stay open. The copy opens one further up again by its names, in the same way, when it returns to
//! it.
//!
//! `filling` goes down and up in it, and `file` makes files in its innermost directory.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

use extern4_vfs::Timespec;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};

use super::super::observer::CopyObserver;
use super::super::open_directories::OpenDirectories;
use crate::dir::is_step;

/// A stack of directories below one that was open from the start.
pub(super) struct HostTree {
    /// The directories, each with its name.
    directories: OpenDirectories<Rc<OwnedFd>, OsString>,
}

/// A file below an open directory, by the names that lead to it.
#[derive(Clone)]
pub(super) struct RelativePath {
    base: Rc<OwnedFd>,
    names: Vec<OsString>,
}

/// The identity of a file: its device and inode number.
pub(super) type FileId = (u64, u64);

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens a directory in the one above it; not through a link.
fn open(above: impl AsFd, name: &OsStr) -> io::Result<Rc<OwnedFd>> {
    Ok(Rc::new(openat(
        above,
        name,
        directory_flags(),
        Mode::empty(),
    )?))
}

fn step(name: &OsStr) -> io::Result<&OsStr> {
    if is_step(name) {
        Ok(name)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a file name",
        ))
    }
}

impl HostTree {
    pub(super) fn new(base: Rc<OwnedFd>) -> Self {
        let directories = OpenDirectories::new(base);
        Self { directories }
    }

    /// Returns the directory that the copy is filling.
    pub(super) fn current(&mut self) -> io::Result<BorrowedFd<'_>> {
        let innermost = self.directories.innermost(|above, name| open(above, name));
        innermost.map(|fd| fd.as_fd())
    }

    /// Goes down into `name`, and makes it with `mode` if it is not there. Returns whether it was
    /// made.
    pub(super) fn enter(&mut self, name: &OsStr, mode: Mode) -> io::Result<bool> {
        let name = step(name)?;
        let directory = self.current()?;
        let made = match mkdirat(directory, name, mode) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let fd = open(directory, name)?;
        self.directories.push(fd, name.to_owned());
        Ok(made)
    }

    /// Takes the base itself as the outermost directory.
    pub(super) fn enter_base(&mut self) -> io::Result<()> {
        let name = OsStr::new(".");
        let fd = open(self.directories.base(), name)?;
        self.directories.push(fd, name.to_owned());
        Ok(())
    }

    /// Goes up one level.
    pub(super) fn leave(&mut self) {
        self.directories.pop();
    }

    /// Returns the path of `name` in the current directory, for later use.
    pub(super) fn relative_path(&self, name: &OsStr) -> RelativePath {
        let names = self
            .directories
            .iter()
            .cloned()
            .chain([name.to_owned()])
            .collect();
        RelativePath {
            base: Rc::clone(self.directories.base()),
            names,
        }
    }

    /// Returns the identity of `name` in the current directory; of a link itself.
    #[allow(
        clippy::useless_conversion,
        reason = "these fields have other types elsewhere"
    )]
    pub(super) fn find(&mut self, name: &OsStr) -> io::Result<Option<FileId>> {
        match statat(self.current()?, step(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some((found.st_dev.into(), found.st_ino.into()))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the time of the last change of file `name` in the current directory, if there is one
    /// that is no directory; of a link itself.
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "these fields have other types elsewhere"
    )]
    pub(super) fn modified(&mut self, name: &OsStr) -> io::Result<Option<Timespec>> {
        match statat(self.current()?, step(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => Ok(None),
            Ok(found) => {
                let nsec = u32::try_from(found.st_mtime_nsec as u64).unwrap_or(0);
                Ok(Some(Timespec {
                    sec: found.st_mtime,
                    nsec,
                }))
            }
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens file `name` of the current directory, if it is a regular file.
    pub(super) fn open_existing(&mut self, name: &OsStr) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let is_regular = match statat(self.current()?, step(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => FileType::from_raw_mode(found.st_mode) == FileType::RegularFile,
            Err(rustix::io::Errno::NOENT) => false,
            Err(error) => return Err(error.into()),
        };
        if !is_regular {
            return Ok(None);
        }
        Ok(Some(openat(
            self.current()?,
            step(name)?,
            flags,
            Mode::empty(),
        )?))
    }

    /// Gives file `name` of the current directory the name that the observer wants. Returns that.
    pub(super) fn set_aside(
        &mut self,
        name: &OsStr,
        observer: &mut dyn CopyObserver,
    ) -> io::Result<Option<OsString>> {
        let directory = self.current()?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            names.push(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
        }
        let Some(kept) = observer.set_aside(name, names) else {
            return Ok(None);
        };
        renameat(directory, step(name)?, directory, step(&kept)?)?;
        Ok(Some(kept))
    }

    /// Makes something called `name` in the current directory, and replaces a file that is there.
    pub(super) fn make<T>(
        &mut self,
        name: &OsStr,
        make: impl Fn(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        let name = step(name)?;
        let directory = self.current()?;
        match make(directory, name) {
            Err(rustix::io::Errno::EXIST) => {}
            made => return Ok(made?),
        }
        let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "there is a directory of this name",
            ));
        }
        unlinkat(directory, name, AtFlags::empty())?;
        Ok(make(directory, name)?)
    }
}

impl RelativePath {
    /// Opens the directory of this path, and returns it with the name there.
    pub(super) fn open_parent(&self) -> io::Result<(OwnedFd, &OsStr)> {
        let (name, above) = self.names.split_last().expect("a path has a name");
        let mut directory = self.base.try_clone()?;
        for name in above {
            directory = openat(&directory, name, directory_flags(), Mode::empty())?;
        }
        Ok((directory, name))
    }
}

#[cfg(test)]
mod tests {
    use super::HostTree;
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, symlinkat};
    use std::ffi::OsStr;
    use std::path::PathBuf;
    use std::rc::Rc;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("extern4-cp-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a scratch directory");
            Self(path)
        }

        fn tree(&self) -> HostTree {
            HostTree::new(Rc::new(
                openat(CWD, &self.0, OFlags::DIRECTORY, Mode::empty()).expect("open"),
            ))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn links_are_not_entered() {
        let scratch = Scratch::new("links");
        symlinkat("/tmp", CWD, scratch.0.join("link")).expect("symlink");
        let mut tree = scratch.tree();
        assert!(tree.enter(OsStr::new("link"), Mode::RWXU).is_err());
        assert!(tree.enter(OsStr::new(".."), Mode::RWXU).is_err());
        assert!(tree.directories.iter().next().is_none());
    }

    #[test]
    fn directories_far_above_are_opened_again() {
        let scratch = Scratch::new("deep");
        let mut tree = scratch.tree();
        for _ in 0..200 {
            tree.enter(OsStr::new("d"), Mode::RWXU).expect("enter");
        }
        for _ in 0..199 {
            tree.leave();
        }
        mkdirat(tree.current().expect("open again"), "here", Mode::RWXU).expect("mkdir");
        assert!(scratch.0.join("d/here").is_dir());
    }
}
