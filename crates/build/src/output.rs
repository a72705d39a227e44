//! New files that get their names only when they are complete.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use extern4_block::{FileDevice, FileOptions};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::planned::Planned;

impl Planned {
    /// Writes the volume to a new file. The file gets its name when it is complete and durable, so
    /// a process that ends before leaves nothing, where the file system has files without names
    /// (`O_TMPFILE`).
    ///
    /// # Errors
    /// [`Error::Output`] if there is a file of that name and `replace` is false, or the file cannot
    /// be made; those of [`write`](Self::write).
    pub fn write_file(&self, path: &Path, replace: bool, threads: usize) -> Result<()> {
        if !replace && path.symlink_metadata().is_ok() {
            return Err(output(path, io::ErrorKind::AlreadyExists.into()));
        }
        let file = NewFile::new(path).map_err(|error| output(path, error))?;
        file.file().set_len(self.size_bytes()).map_err(|error| output(path, error))?;
        let options = FileOptions { write: true, ..FileOptions::default() };
        let device = FileDevice::open_with(file.open_path(), &options)?;
        self.write_on_zeroes(&device, threads)?;
        drop(device);
        file.finish(path, replace).map_err(|error| output(path, error))
    }
}

fn output(path: &Path, source: io::Error) -> Error {
    Error::Output { path: path.to_owned(), source }
}

/// A file that is not complete yet. It has no name until [`finish`](Self::finish) gives it one,
/// where the file system has such files; elsewhere it has another name, and is removed when it is
/// dropped.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    /// Its name for the time being, if it has one.
    name: Option<PathBuf>,
}

impl NewFile {
    /// Makes a file that is to become `path`.
    ///
    /// # Errors
    /// Those of the host.
    pub fn new(path: &Path) -> io::Result<Self> {
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mode = Mode::from_raw_mode(0o666);
        match rustix::fs::open(directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
            Ok(file) => Ok(Self { file: file.into(), name: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS | Errno::INVAL) => {
                let name = partial(path);
                let file = File::create_new(&name)?;
                Ok(Self { file, name: Some(name) })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The name that the file of a process that is to become `path` has before it is complete,
    /// where it has one. A process that ends without dropping the file removes it.
    pub fn unfinished_name(path: &Path) -> PathBuf {
        partial(path)
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A path that opens it.
    fn open_path(&self) -> PathBuf {
        match &self.name {
            Some(name) => name.clone(),
            None => format!("/proc/self/fd/{}", self.file.as_raw_fd()).into(),
        }
    }

    /// Gives it its name, and makes that durable. Without `replace`, a file that has the name is an
    /// error.
    ///
    /// # Errors
    /// Those of the host.
    pub fn finish(mut self, path: &Path, replace: bool) -> io::Result<()> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let target = if replace { partial(path) } else { path.to_owned() };
                let from = format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd());
                rustix::fs::linkat(CWD, from, CWD, &target, AtFlags::SYMLINK_FOLLOW)?;
                if !replace {
                    return sync_directory(path);
                }
                self.name = Some(target.clone());
                target
            }
        };
        if replace {
            std::fs::rename(&name, path)?;
        } else {
            rustix::fs::renameat_with(CWD, &name, CWD, path, rustix::fs::RenameFlags::NOREPLACE)?;
        }
        self.name = None;
        sync_directory(path)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = std::fs::remove_file(name);
        }
    }
}

/// The name of a file that is to become `path`.
fn partial(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

/// Makes a new name in a directory durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
