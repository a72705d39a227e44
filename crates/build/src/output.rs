//! New files that get their names only when they are complete.
//!
//! The library and the commands that make images write through it. A failed or interrupted build
//! leaves nothing under the final name, and an existing file stays as it was until the new one
//! replaces it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use extern4_block::partition::{Guid, NewDisk};
use extern4_block::{BlockDevice, FileDevice, FileOptions};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::identity;
use crate::planned::Planned;
use crate::sharing::Target;
use crate::verity::{Maker, Places, Verity};

impl Planned {
    /// Writes the volume to a new file. The file gets its name when it is complete and durable, so
    /// a process that ends before leaves nothing, where the file system has files without names
    /// (`O_TMPFILE`).
    ///
    /// # Errors
    /// [`Error::Output`] if there is a file of that name and `replace` is false, or the file cannot
    /// be made; the errors of [`write`](Self::write).
    pub fn write_file(&self, path: &Path, replace: bool, threads: usize) -> Result<Written> {
        if !replace && path.symlink_metadata().is_ok() {
            return Err(output(path, io::ErrorKind::AlreadyExists.into()));
        }
        let file = NewFile::new(path).map_err(|error| output(path, error))?;
        file.file()
            .set_len(self.file_bytes())
            .map_err(|error| output(path, error))?;
        let written = self.write_parts(&file, directory_of(path), threads)?;
        file.finish(path, replace)
            .map_err(|error| output(path, error))?;
        Ok(written)
    }

    /// Bytes of the file that [`write_file`](Self::write_file) makes.
    pub fn file_bytes(&self) -> u64 {
        if self.partition {
            self.disk(self.sb.uuid()).size_bytes()
        } else {
            self.part_bytes()
        }
    }

    /// The places of the hash tree, if there is to be one.
    fn hash_tree(&self) -> Option<Places> {
        self.verity
            .then(|| Places::new(self.size_bytes(), self.sb.block_size()))
    }

    /// Bytes of the volume and its hash tree.
    pub(crate) fn part_bytes(&self) -> u64 {
        self.hash_tree()
            .map_or(self.size_bytes(), |places| places.end())
    }

    /// The disk around a volume with this UUID.
    pub(crate) fn disk(&self, uuid: [u8; 16]) -> NewDisk {
        NewDisk {
            id: Guid::of_uuid(identity::derived_uuid(b"disk", uuid)),
            partition_id: Guid::of_uuid(identity::derived_uuid(b"partition", uuid)),
            name: String::from_utf8_lossy(self.sb.label()).into_owned(),
            partition_bytes: self.part_bytes(),
        }
    }

    /// Writes the hash tree behind a volume that is complete, if there is to be one.
    pub(crate) fn write_hash_tree(
        &self,
        device: &dyn BlockDevice,
        uuid: [u8; 16],
        threads: usize,
    ) -> Result<Option<Verity>> {
        let make = |places: &Places| {
            Maker {
                device,
                places,
                uuid,
                threads,
                watch: self.watch.as_ref(),
            }
            .make()
        };
        self.hash_tree().as_ref().map(make).transpose()
    }

    /// Writes the volume, its hash tree, and the partition table around both.
    fn write_parts(&self, new: &NewFile, directory: &Path, threads: usize) -> Result<Written> {
        let path = &new.open_path();
        let mut options = FileOptions {
            write: true,
            ..FileOptions::default()
        };
        if self.partition {
            options.offset_bytes = NewDisk::PARTITION_START;
            options.len_bytes = Some(self.part_bytes());
        }
        let device = FileDevice::open_with(path, &options)?;
        let target = Target {
            file: new.file(),
            directory,
            start: options.offset_bytes,
        };
        let uuid = self.write_contents(&device, Some(target), threads)?;
        let verity = self.write_hash_tree(&device, uuid, threads)?;
        drop(device);
        if self.partition {
            let whole = FileOptions {
                write: true,
                ..FileOptions::default()
            };
            self.disk(uuid)
                .write(&FileDevice::open_with(path, &whole)?)?;
        }
        Ok(Written { uuid, verity })
    }
}

fn output(path: &Path, source: io::Error) -> Error {
    Error::Output {
        path: path.to_owned(),
        source,
    }
}

/// A volume that is in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Its hash tree, if it has one.
    pub verity: Option<Verity>,
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
    /// An error of the host.
    pub fn new(path: &Path) -> io::Result<Self> {
        let mode = Mode::from_raw_mode(0o666);
        match rustix::fs::open(
            directory_of(path),
            OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
            mode,
        ) {
            Ok(file) => Ok(Self {
                file: file.into(),
                name: None,
            }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS | Errno::INVAL) => Self::named(path),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a file with another name.
    fn named(path: &Path) -> io::Result<Self> {
        let name = partial(path);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&name)?;
        Ok(Self {
            file,
            name: Some(name),
        })
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
    /// An error of the host.
    pub fn finish(mut self, path: &Path, replace: bool) -> io::Result<()> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let target = if replace {
                    partial(path)
                } else {
                    path.to_owned()
                };
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
    File::open(directory_of(path))?.sync_all()
}

/// The directory of a file, for the calls that take no empty path.
fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::{NewFile, partial};

    #[test]
    fn a_file_with_another_name_leaves_nothing_of_that() {
        let dir = extern4_testkit::tools::temporary("extern4-build-");
        let path = dir.path().join("out.img");
        let names = || {
            let names = std::fs::read_dir(dir.path()).expect("a directory");
            names
                .map(|entry| entry.expect("a name").path())
                .collect::<Vec<_>>()
        };
        // An error ends it.
        let file = NewFile::named(&path).expect("a file");
        assert_eq!(names(), [partial(&path)]);
        drop(file);
        assert!(names().is_empty());
        // It gets its name, but replaces a file only where that is wanted.
        NewFile::named(&path)
            .expect("a file")
            .finish(&path, false)
            .expect("a name");
        assert_eq!(names(), std::slice::from_ref(&path));
        let refused = NewFile::named(&path).expect("a file").finish(&path, false);
        assert_eq!(
            refused.expect_err("a file is there").kind(),
            std::io::ErrorKind::AlreadyExists
        );
        assert_eq!(names(), std::slice::from_ref(&path));
        NewFile::named(&path)
            .expect("a file")
            .finish(&path, true)
            .expect("a name");
        assert_eq!(names(), [path]);
    }
}
