//! Making volumes: [`Volume::create_new`].
//!
//! Programs call it; the command's `mkfs` has more options and calls `mkfs` itself. It never
//! overwrites a file that exists. If it fails, no half-made image is left.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use extern4_block::{FileDevice, FileOptions};
use extern4_mkfs::{Config, Options, Plan};

use crate::error::{Error, ErrorKind, Result};
use crate::volume::{Volume, not_opened};

impl Volume {
    /// Makes an image file of `bytes` bytes with an empty ext4 volume in it, and opens the volume
    /// for writing.
    ///
    /// The volume has the defaults of `mke2fs` and a random UUID. The module [`mkfs`](crate::mkfs)
    /// makes volumes with other options, in existing files and on devices.
    ///
    /// ```
    /// use extern4::Volume;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
    ///     volume.superuser().create_dir_all("/srv/www")?;
    ///     volume.close()?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// `EEXIST` if there is a file at `path`, and [`ErrorKind::Invalid`] for a size that no ext4
    /// volume has.
    pub fn create_new(path: impl AsRef<Path>, bytes: u64) -> Result<Self> {
        let path = path.as_ref();
        let system =
            |e: io::Error| Error::new(ErrorKind::system(e.raw_os_error()), "make").at(path);
        let options = Options::unique().map_err(system)?;
        let plan = Plan::new(&options, &Config::default(), bytes);
        let plan = plan.map_err(|e| Error::new(ErrorKind::Invalid, "make").at(path).because(e))?;
        let file = File::options()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(system)?;
        let made = file.set_len(plan.size_bytes()).map_err(system);
        let made = made
            .and_then(|()| write(&plan, path))
            .and_then(|()| Self::options().write(true).open(path));
        if made.is_err() {
            // The first error is the one that the caller has to know.
            let _ = fs::remove_file(path);
        }
        made
    }
}

/// Writes the volume to a new file, which reads as zeroes.
fn write(plan: &Plan, path: &Path) -> Result<()> {
    let writable = FileOptions {
        write: true,
        ..FileOptions::default()
    };
    let device = FileDevice::open_with(path, &writable).map_err(|e| not_opened(path, e))?;
    plan.write_on_zeroes(&device)
        .map_err(|e| Error::new(ErrorKind::Io, "make").at(path).because(e))
}
