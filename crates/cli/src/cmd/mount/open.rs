//! Opens the volume to mount, and waits for an earlier mount of it that is just ending.
//!
//! `mount` calls it. An image that another program keeps open is an error, with the name of that
//! process where it is known.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use extern4::{Atime, Errno, Volume};
use extern4_fuse::{Claim, MountFlags};
use rustix::io::Errno as OsErrno;
use rustix::process::geteuid;
use tracing::{error, warn};

use super::options::{self, Options, Words};
use crate::app::{App, host_reason, part};
use crate::exit_status::ExitStatus;
use crate::holder::{Waiting, pids};
use crate::image_path::{Image, Part};
use crate::mount_table::MountEntry;
use crate::text::quoted;

/// The process name (comm) that the daemon takes once its mount has ended and it closes the volume.
/// At most 15 bytes.
const ENDING: &str = "extern4-ending";
/// How long a mount waits for a process without that name: it may not know yet that its mount has
/// ended.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time that a process needs to exit after it has unlocked the volume.
const MOMENT: Duration = Duration::from_secs(2);

/// An open volume, and its block device where the kernel holds it.
pub(super) struct Opened {
    pub(super) volume: Volume,
    pub(super) claim: Option<Claim>,
}

/// The reason why the volume could not be opened.
enum OpenError {
    Claim(io::Error),
    Volume(extern4::Error),
}

impl OpenError {
    fn is(&self, errno: Errno) -> bool {
        match self {
            Self::Claim(error) => error.raw_os_error() == Some(errno.raw().into()),
            Self::Volume(error) => error.errno() == errno,
        }
    }
}

/// Opens the volume. It opens a write-protected image for reading only, as mount(8) does, and sets
/// that in the options. It reports a failure.
pub(super) fn open(
    image: &Image,
    options: &mut Options,
    lists: &mut Vec<Words>,
    app: &mut App,
) -> Option<Opened> {
    let opened = match open_when_free(image, options, app) {
        Err(error) if error.is(Errno::EROFS) && !options.is_read_only() => {
            lists.push(options::read_only());
            let journal = options.journal.take();
            let superblock = options.ext4.superblock;
            *options = Options::of(lists);
            (options.journal, options.ext4.superblock) = (journal, superblock);
            let opened = open_when_free(image, options, app);
            if opened.is_ok() {
                app.note_at(image, "it is write-protected, and mounted for reading only");
            }
            opened
        }
        opened => opened,
    };
    opened
        .map_err(|error| report(image, &error, options, app))
        .ok()
}

/// Reports why the volume could not be opened; for a mounted volume, where it is mounted.
fn report(image: &Image, failure: &OpenError, options: &Options, app: &mut App) {
    let mounts = MountEntry::of(image).unwrap_or_default();
    let mount = mounts.last().filter(|_| failure.is(Errno::EBUSY));
    match (mount, failure) {
        (Some(mount), _) if mount.is_dead() => app.fail_at(ExitStatus::Failed, image, dead(mount)),
        (Some(mount), OpenError::Claim(_)) => {
            app.fail_at(
                ExitStatus::Failed,
                image,
                format_args!("it is mounted on {} already", quoted(mount.dir.display())),
            );
        }
        (_, OpenError::Claim(error)) => {
            app.fail_at(
                ExitStatus::Failed,
                image,
                format_args!("cannot mount: {}", host_reason(error)),
            );
        }
        (_, OpenError::Volume(error)) => {
            app.refused(image, error);
            let may_help = !options.is_read_only() && !failure.is(Errno::EBUSY);
            if may_help && open_volume(image, options, false, false).is_ok() {
                app.note_at(image, "use -o ro to mount it for reading");
            }
        }
    }
}

/// Returns the message about a mount that no process serves any more.
pub(super) fn dead(mount: &MountEntry) -> String {
    let dir = mount.dir.display();
    format!(
        "the process that served the mount on {dir} has ended; take it away first: extern4 umount {dir}"
    )
}

/// Opens the volume; waits for it as the command line says.
fn open_when_free(image: &Image, options: &Options, app: &App) -> Result<Opened, OpenError> {
    let say = |message: &str| app.note_at(image, message);
    let waiting = Waiting {
        limit: app.opening().wait,
        command: "mount",
        stop: app.stop(),
        say: &say,
    };
    let is_busy = |error: &OpenError| error.is(Errno::EBUSY);
    waiting.until_free(image, is_busy, || open_when_ended(image, options, app))
}

/// Opens the volume; waits while a process whose mount is ending still has it open.
fn open_when_ended(image: &Image, options: &Options, app: &App) -> Result<Opened, OpenError> {
    let start = Instant::now();
    let mut is_said = false;
    // A process that ends unlocks the volume a moment before it closes its device.
    let mut free_by = start;
    loop {
        let error = match try_open(image, options) {
            Err(error) if error.is(Errno::EBUSY) => error,
            done => return done,
        };
        let late = start.elapsed() >= TIMEOUT;
        match ending(image, late) {
            Some(pid) if late && !is_said => {
                app.note_at(
                    image,
                    format_args!("waits for process {pid}, which closes the volume"),
                );
                is_said = true;
            }
            Some(_) => free_by = Instant::now() + MOMENT,
            None if Instant::now() < free_by => {}
            None => return try_open(image, options).map_err(|_| error),
        }
        sleep(Duration::from_millis(10));
    }
}

/// Returns the process that has the image locked, if it is ours and its mount is ending or may be.
/// With `certainly`, it must be ending for certain.
fn ending(image: &Image, certainly: bool) -> Option<u32> {
    let pid = *pids(&image.file).first()?;
    let process = Path::new("/proc").join(pid.to_string());
    // Of other users' processes, only root's are believed.
    let user = fs::metadata(&process).ok()?.uid();
    let name = fs::read_to_string(process.join("comm")).ok()?;
    let is_ours = [0, geteuid().as_raw()].contains(&user) && name.starts_with("extern4");
    let is_mounted = || MountEntry::of(image).is_ok_and(|mounts| !mounts.is_empty());
    let ends = name.trim_end() == ENDING || (!certainly && !is_mounted());
    (is_ours && ends).then_some(pid)
}

/// Tells mounts that wait for the volume that this process closes it.
pub(super) fn say_ending() {
    // Without this they wait for a shorter time.
    let _ = fs::write("/proc/self/comm", ENDING);
}

fn try_open(image: &Image, options: &Options) -> Result<Opened, OpenError> {
    let claim = claim(image, options)?;
    let volume = open_volume(image, options, !options.is_read_only(), claim.is_some());
    let volume = volume.map_err(OpenError::Volume)?;
    Ok(Opened { volume, claim })
}

/// Has the kernel hold a block device that is mounted as a whole, where it can.
fn claim(image: &Image, options: &Options) -> Result<Option<Claim>, OpenError> {
    let is_device =
        fs::metadata(&image.file).is_ok_and(|found| found.file_type().is_block_device());
    let can = geteuid().is_root() && is_device && image.part == Part::Whole;
    if !can || options.fuseblk == Some(false) || options.fsname().is_some() {
        return Ok(None);
    }
    match Claim::take(&image.file, &options.mount).map_err(|error| (error.raw_os_error(), error)) {
        Ok(claim) => Ok(Some(claim)),
        Err((Some(errno), _)) if errno == OsErrno::ACCESS.raw_os_error() => {
            Err(OpenError::Claim(OsErrno::ROFS.into()))
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
        Err((_, error)) => Err(OpenError::Claim(error)),
    }
}

fn open_volume(
    image: &Image,
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
    part(&mut open, image);
    open.open(&image.file)
}
