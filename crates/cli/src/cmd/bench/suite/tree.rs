//! A tree of files that is measured: the library's in this process, or a mount. Paths are relative
//! to its root, and the same for all.
//!
//! The measures call it, so that a measure is one text for all sides. An error names the operation
//! and the path.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use extern4::Session;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Result, SuiteError};
use crate::app::host_reason;

/// Bytes read or written at a time.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// The attribute that is set. It fits into an inode.
const ATTRIBUTE: &str = "user.extern4-bench";

/// The operations that can be measured in a tree.
pub(super) trait Tree: Sync {
    /// Gets the attributes of a file.
    fn stat(&self, path: &Path) -> Result<()>;
    /// Looks up a file that must be missing. A file that exists is a failure.
    fn miss(&self, path: &Path) -> Result<()>;
    /// Opens and closes a file.
    fn open(&self, path: &Path) -> Result<()>;
    /// Reads the names in a directory; returns how many there are.
    fn list(&self, path: &Path) -> Result<u64>;
    /// Gets the attributes of every file in the tree, up to `most` files, and returns their number.
    /// It skips directories that the caller may not search.
    fn walk(&self, most: u64) -> Result<u64>;
    /// Reads these bytes of a file, past any cache of the mount's own.
    fn read(&self, path: &Path, bytes: &Range<u64>) -> Result<()>;
    /// Makes an empty file and removes it.
    fn create_and_remove(&self, path: &Path) -> Result<()>;
    /// Gives a file another name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Changes a file's mode.
    fn chmod(&self, path: &Path, mode: u16) -> Result<()>;
    /// Gives a file an attribute.
    fn setxattr(&self, path: &Path, value: &[u8]) -> Result<()>;
    /// Makes a file of `bytes` bytes that is durable when this returns.
    fn write(&self, path: &Path, bytes: u64) -> Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
}

/// Returns the failure for a path that should be missing but exists. The volume is not at fault.
fn is_there(path: &Path) -> SuiteError {
    SuiteError::Because(format!("{}: it is there", path.display()))
}

/// The library, in this process.
pub(super) struct Library<'a>(pub(super) &'a Session);

impl Tree for Library<'_> {
    fn stat(&self, path: &Path) -> Result<()> {
        std::hint::black_box(self.0.metadata(path)?);
        Ok(())
    }

    fn miss(&self, path: &Path) -> Result<()> {
        if self.0.exists(path)? {
            Err(is_there(path))
        } else {
            Ok(())
        }
    }

    fn open(&self, path: &Path) -> Result<()> {
        Ok(self.0.open(path).map(drop)?)
    }

    fn list(&self, path: &Path) -> Result<u64> {
        let mut names = 0;
        for entry in self.0.read_dir(path)? {
            entry?;
            names += 1;
        }
        Ok(names)
    }

    fn walk(&self, most: u64) -> Result<u64> {
        let mut files = 0;
        for entry in self.0.walk("/").with_metadata() {
            match entry.and_then(|entry| entry.metadata()) {
                Ok(_) => files += 1,
                Err(error) if error.errno() == extern4::Errno::EACCES => {}
                Err(error) => return Err(error.into()),
            }
            if files == most {
                break;
            }
        }
        Ok(files)
    }

    fn read(&self, path: &Path, bytes: &Range<u64>) -> Result<()> {
        let file = self.0.open(path)?;
        in_chunks(bytes, |at, chunk| Ok(file.read_at(chunk, at)?))
    }

    fn create_and_remove(&self, path: &Path) -> Result<()> {
        drop(
            self.0
                .open_with(path, extern4::File::options().write(true).create_new(true))?,
        );
        self.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        Ok(self.0.rename(from, to)?)
    }

    fn chmod(&self, path: &Path, mode: u16) -> Result<()> {
        Ok(self.0.set_permissions(path, mode.into())?)
    }

    fn setxattr(&self, path: &Path, value: &[u8]) -> Result<()> {
        Ok(self
            .0
            .setxattr(path, ATTRIBUTE, value, extern4::XattrFlags::empty())?)
    }

    fn write(&self, path: &Path, bytes: u64) -> Result<()> {
        let file = self.0.open_with(
            path,
            extern4::File::options()
                .write(true)
                .create(true)
                .truncate(true),
        )?;
        in_chunks(&(0..bytes), |at, chunk| {
            file.write_all_at(chunk, at)?;
            Ok(chunk.len())
        })?;
        Ok(file.sync_all()?)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Ok(self.0.remove_file(path)?)
    }
}

/// A mount, entered as the working directory of this process, so that paths are as long as the
/// library's. Dropping it leaves the mount.
pub(super) struct Host {
    before: OwnedFd,
}

impl Host {
    /// Enters a mount by its root. It cannot be unmounted before this is dropped.
    pub(super) fn enter(root: impl AsFd) -> Result<Self> {
        let before = open(Path::new("."), OFlags::PATH | OFlags::DIRECTORY)?;
        rustix::process::fchdir(root).map_err(|error| failed(Path::new("/"), error))?;
        Ok(Self { before })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It was the working directory before, and is still open.
        let _ = rustix::process::fchdir(&self.before);
    }
}

impl Tree for Host {
    fn stat(&self, path: &Path) -> Result<()> {
        std::hint::black_box(rustix::fs::stat(path).map_err(|error| failed(path, error))?);
        Ok(())
    }

    fn miss(&self, path: &Path) -> Result<()> {
        match rustix::fs::stat(path) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(path, error)),
            Ok(_) => Err(is_there(path)),
        }
    }

    fn open(&self, path: &Path) -> Result<()> {
        open(path, OFlags::RDONLY).map(drop)
    }

    fn list(&self, path: &Path) -> Result<u64> {
        let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = 0;
        for entry in Dir::new(dir).map_err(|error| failed(path, error))? {
            let entry = entry.map_err(|error| failed(path, error))?;
            names += u64::from(!is_dots(entry.file_name().to_bytes()));
        }
        Ok(names)
    }

    fn walk(&self, most: u64) -> Result<u64> {
        // The root is a file of the tree, too.
        let mut dirs = vec![PathBuf::from(".")];
        let mut files = 1;
        while let Some(path) = dirs.pop() {
            let dir =
                match rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
                    Ok(dir) => dir,
                    Err(Errno::ACCESS) => continue,
                    Err(error) => return Err(failed(&path, error)),
                };
            for entry in Dir::read_from(&dir).map_err(|error| failed(&path, error))? {
                let entry = entry.map_err(|error| failed(&path, error))?;
                let name = entry.file_name();
                if is_dots(name.to_bytes()) {
                    continue;
                }
                let found = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(found) => found,
                    Err(Errno::ACCESS) => continue,
                    Err(error) => return Err(failed(&path, error)),
                };
                files += 1;
                if files >= most {
                    return Ok(files);
                }
                if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                    dirs.push(path.join(std::ffi::OsStr::from_bytes(name.to_bytes())));
                }
            }
        }
        Ok(files)
    }

    fn read(&self, path: &Path, bytes: &Range<u64>) -> Result<()> {
        let file = File::from(open(path, OFlags::RDONLY)?);
        let len = std::num::NonZero::new(bytes.end - bytes.start);
        rustix::fs::fadvise(&file, bytes.start, len, rustix::fs::Advice::DontNeed)
            .map_err(|error| failed(path, error))?;
        in_chunks(bytes, |at, chunk| {
            file.read_at(chunk, at)
                .map_err(|error| host_failed(path, &error))
        })
    }

    fn create_and_remove(&self, path: &Path) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644));
        drop(made.map_err(|error| failed(path, error))?);
        self.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        rustix::fs::rename(from, to).map_err(|error| failed(from, error))
    }

    fn chmod(&self, path: &Path, mode: u16) -> Result<()> {
        let mode = Mode::from_raw_mode(mode.into());
        rustix::fs::chmod(path, mode).map_err(|error| failed(path, error))
    }

    fn setxattr(&self, path: &Path, value: &[u8]) -> Result<()> {
        rustix::fs::setxattr(path, ATTRIBUTE, value, rustix::fs::XattrFlags::empty())
            .map_err(|error| failed(path, error))
    }

    fn write(&self, path: &Path, bytes: u64) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let made = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644));
        let file = File::from(made.map_err(|error| failed(path, error))?);
        in_chunks(&(0..bytes), |at, chunk| {
            file.write_all_at(chunk, at)
                .map_err(|error| host_failed(path, &error))?;
            Ok(chunk.len())
        })?;
        file.sync_all().map_err(|error| host_failed(path, &error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        rustix::fs::unlinkat(CWD, path, AtFlags::empty()).map_err(|error| failed(path, error))
    }
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: Errno) -> SuiteError {
    host_failed(path, &error.into())
}

fn host_failed(path: &Path, error: &io::Error) -> SuiteError {
    SuiteError::Because(format!("{}: {}", path.display(), host_reason(error)))
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Calls `each` for the pieces of these bytes, with a buffer whose bytes are not all zeroes. Ends
/// early at the end of the file.
fn in_chunks(
    bytes: &Range<u64>,
    mut each: impl FnMut(u64, &mut [u8]) -> Result<usize>,
) -> Result<()> {
    let mut chunk = vec![0x5a; CHUNK_BYTES];
    let mut at = bytes.start;
    while at < bytes.end {
        let wanted =
            usize::try_from(bytes.end - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        match each(at, &mut chunk[..wanted])? {
            0 => break,
            done => at += done as u64,
        }
    }
    Ok(())
}
