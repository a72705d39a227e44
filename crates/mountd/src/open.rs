//! Opens the volume to mount, and waits for an earlier mount of it that is just ending.
//!
//! The command calls [`Request::open`], and asks [`Request::why_not`] for the reason of a failure.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use extern4::block::lock_holders;
use extern4::part::Part;
use extern4::{Atime, Errno, Volume};
use extern4_fuse::{Claim, MountFlags};
use rustix::io::Errno as OsErrno;
use rustix::process::geteuid;
use tracing::{error, warn};

use crate::error::{Error, Notice, Observer};
use crate::mount_table::MountEntry;
use crate::options::Options;
use crate::request::Request;
use crate::source::Source;

/// The process name (comm) that the daemon takes once its mount has ended and it closes the volume.
/// At most 15 bytes.
const ENDING: &str = "extern4-ending";
/// How long a mount waits for a process without that name: it may not know yet that its mount has
/// ended.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time that a process needs to exit after it has unlocked the volume.
const MOMENT: Duration = Duration::from_secs(2);

/// An open volume, and its block device where the kernel holds it.
pub struct Opened {
    pub(crate) volume: Volume,
    pub(crate) claim: Option<Claim>,
}

impl Opened {
    /// Returns the faults of the volume that did not prevent it from being opened.
    pub fn warnings(&self) -> Vec<String> {
        self.volume.warnings()
    }
}

/// The reason why the volume could not be opened, as far as the attempt knows.
#[derive(Debug)]
pub struct OpenError(Attempt);

#[derive(Debug)]
enum Attempt {
    Claim(io::Error),
    Volume(extern4::Error),
}

impl OpenError {
    /// Returns whether the volume is in use.
    pub fn is_busy(&self) -> bool {
        self.is(Errno::EBUSY)
    }

    fn is(&self, errno: Errno) -> bool {
        match &self.0 {
            Attempt::Claim(error) => error.raw_os_error() == Some(errno.raw().into()),
            Attempt::Volume(error) => error.errno() == errno,
        }
    }
}

impl Request {
    /// Opens the volume; waits while a process whose mount is ending still has it open. It opens a
    /// write-protected image for reading only, as mount(8) does, and the request says so from then
    /// on.
    ///
    /// # Errors
    /// See [`why_not`](Self::why_not). A volume that is in use may be tried again.
    pub fn open(&mut self, observer: &dyn Observer) -> Result<Opened, OpenError> {
        match self.open_when_ended(observer) {
            Err(error) if error.is(Errno::EROFS) && !self.options.is_read_only() => {
                self.protect();
                self.open_when_ended(observer)
            }
            opened => opened,
        }
    }

    /// Returns why the volume could not be opened; for a mounted volume, where it is mounted.
    pub fn why_not(&self, error: OpenError) -> Error {
        let mounts = MountEntry::of(&self.source).unwrap_or_default();
        let mount = mounts.into_iter().last().filter(|_| error.is_busy());
        let may_help = !self.options.is_read_only() && !error.is_busy();
        match (mount, error.0) {
            (Some(mount), _) if mount.is_dead() => Error::DeadMountOfImage(mount.dir),
            (Some(mount), Attempt::Claim(_)) => Error::Mounted(mount.dir),
            (_, Attempt::Claim(error)) => Error::Claim(error),
            (_, Attempt::Volume(error)) => Error::Volume {
                error,
                is_readable: may_help
                    && open_volume(&self.source, &self.options, false, false).is_ok(),
            },
        }
    }

    fn open_when_ended(&self, observer: &dyn Observer) -> Result<Opened, OpenError> {
        let start = Instant::now();
        let mut is_said = false;
        // A process that ends unlocks the volume a moment before it closes its device.
        let mut free_by = start;
        loop {
            let error = match self.try_open() {
                Err(error) if error.is_busy() => error,
                done => return done,
            };
            let late = start.elapsed() >= TIMEOUT;
            match ending(&self.source, late) {
                Some(pid) if late && !is_said => {
                    observer.notice(&Notice::Waits(pid));
                    is_said = true;
                }
                Some(_) => free_by = Instant::now() + MOMENT,
                None if Instant::now() < free_by => {}
                None => return self.try_open().map_err(|_| error),
            }
            sleep(Duration::from_millis(10));
        }
    }

    fn try_open(&self) -> Result<Opened, OpenError> {
        let options = &self.options;
        let claim =
            claim(&self.source, options).map_err(|error| OpenError(Attempt::Claim(error)))?;
        let write = !options.is_read_only();
        let volume = open_volume(&self.source, options, write, claim.is_some());
        let volume = volume.map_err(|error| OpenError(Attempt::Volume(error)))?;
        Ok(Opened { volume, claim })
    }
}

/// Returns the process that has the image locked, if it is ours and its mount is ending or may be.
/// With `certainly`, it must be ending for certain.
fn ending(source: &Source, certainly: bool) -> Option<u32> {
    let pid = *lock_holders(&source.file).first()?;
    let process = Path::new("/proc").join(pid.to_string());
    // Of other users' processes, only root's are believed.
    let user = fs::metadata(&process).ok()?.uid();
    let name = fs::read_to_string(process.join("comm")).ok()?;
    let is_ours = [0, geteuid().as_raw()].contains(&user) && name.starts_with("extern4");
    let is_mounted = || MountEntry::of(source).is_ok_and(|mounts| !mounts.is_empty());
    let ends = name.trim_end() == ENDING || (!certainly && !is_mounted());
    (is_ours && ends).then_some(pid)
}

/// Tells mounts that wait for the volume that this process closes it.
pub(crate) fn say_ending() {
    // Without this they wait for a shorter time.
    let _ = fs::write("/proc/self/comm", ENDING);
}

/// Has the kernel hold a block device that is mounted as a whole, where it can.
fn claim(source: &Source, options: &Options) -> io::Result<Option<Claim>> {
    let is_device =
        fs::metadata(&source.file).is_ok_and(|found| found.file_type().is_block_device());
    let can = geteuid().is_root() && is_device && source.part == Part::Whole;
    if !can || options.fuseblk == Some(false) || options.fsname().is_some() {
        return Ok(None);
    }
    match Claim::take(&source.file, &options.mount).map_err(|error| (error.raw_os_error(), error)) {
        Ok(claim) => Ok(Some(claim)),
        Err((Some(errno), _)) if errno == OsErrno::ACCESS.raw_os_error() => {
            Err(OsErrno::ROFS.into())
        }
        // A kernel or a container without these calls: the mount works like an ordinary user's.
        Err((Some(errno), _))
            if [OsErrno::NOSYS, OsErrno::PERM, OsErrno::NODEV]
                .map(OsErrno::raw_os_error)
                .contains(&errno)
                && options.fuseblk.is_none() =>
        {
            Ok(None)
        }
        Err((_, error)) => Err(error),
    }
}

fn open_volume(
    source: &Source,
    options: &Options,
    write: bool,
    claimed: bool,
) -> extern4::Result<Volume> {
    let mut open = Volume::options();
    let atime = if options.has(MountFlags::NOATIME) {
        Atime::Never
    } else {
        Atime::Relative
    };
    open.ext4(options.ext4.clone())
        .write(write)
        .claimed(claimed)
        .atime(atime);
    open.dir_atime(!options.has(MountFlags::NODIRATIME))
        .lazytime(options.has(MountFlags::LAZYTIME));
    open.on_loss(|why| error!("nothing is changed any more: {why}"));
    open.on_warning(|warning| warn!("{warning}"));
    if let Some(journal) = &options.journal {
        open.journal(journal);
    }
    open.part(source.part).open(&source.file)
}
