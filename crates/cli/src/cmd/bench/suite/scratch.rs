//! The suite's working directory, with the copy and its mount point. Dropping it removes the files
//! by their names: it never looks into a mount that is still there.
//!
//! `run` makes one before it copies or mounts.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::app::host_reason;
use crate::text::escape;

/// A new directory that only its owner may enter.
pub(super) struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// Makes a directory in `parent`, or where temporary files are if `parent` cannot be written
    /// to.
    pub(super) fn new(parent: &Path) -> io::Result<Self> {
        let make = |parent: &Path| -> io::Result<Self> {
            // The mount table shows the mount by this path.
            let dir = parent
                .canonicalize()?
                .join(format!(".extern4-bench.{}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&dir)?;
            let scratch = Self { dir };
            fs::create_dir(scratch.mountpoint())?;
            Ok(scratch)
        };
        make(parent).or_else(|error| make(&std::env::temp_dir()).map_err(|_| error))
    }

    /// Returns the path of the directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the copy.
    pub(super) fn copy(&self) -> PathBuf {
        self.dir.join("copy.img")
    }

    /// Returns the path of the mount point.
    pub(super) fn mountpoint(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// Returns the path of the server's log.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Returns how many bytes may be written there.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Creates the file of the copy.
    pub(super) fn create_copy(&self) -> io::Result<File> {
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.copy())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for file in [self.copy(), self.log()] {
            let _ = fs::remove_file(file);
        }
        let left = fs::remove_dir(self.mountpoint()).and_then(|()| fs::remove_dir(&self.dir));
        if let Err(error) = left {
            let why = host_reason(&error);
            eprintln!(
                "extern4: bench: {}: cannot be removed: {why}",
                escape(self.dir.as_os_str().as_bytes())
            );
        }
    }
}
