//! The directory that the suite works in: the copy, and where it is mounted. It goes with this, by the names of what is in it: what is
//! still mounted there is never looked into.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::app::host_reason;
use crate::text::escape;

/// A directory of its own, for its owner only.
pub(super) struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// Makes one in `parent`, or where temporary files are if that cannot be written to.
    pub(super) fn new(parent: &Path) -> io::Result<Self> {
        let make = |parent: &Path| -> io::Result<Self> {
            // What is mounted has no other name in the mount table.
            let dir = parent.canonicalize()?.join(format!(".extern4-bench.{}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&dir)?;
            let scratch = Self { dir };
            fs::create_dir(scratch.mountpoint())?;
            Ok(scratch)
        };
        make(parent).or_else(|error| make(&std::env::temp_dir()).map_err(|_| error))
    }

    /// Where it is.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the copy is.
    pub(super) fn copy(&self) -> PathBuf {
        self.dir.join("copy.img")
    }

    /// Where it is mounted.
    pub(super) fn mountpoint(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// What whoever serves it has to say.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// How many bytes may be written where it is.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Makes the file of the copy.
    pub(super) fn create_copy(&self) -> io::Result<File> {
        File::options().read(true).write(true).create_new(true).open(self.copy())
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
