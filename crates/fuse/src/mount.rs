//! Making a mount and taking it away: the calls of `mount(2)` and `umount2(2)` and what goes with
//! them.
//!
//! The command calls it. Root mounts directly, other users through `fusermount`. If [`mount`]
//! fails, nothing is mounted. [`unmount`] returns only after the process that serves the mount has
//! ended, so the volume is then complete and closed.

use std::ffi::{CString, OsString};
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags, getegid, geteuid, pidfd_open};

use crate::init::MAX_READ_BYTES;
use crate::{fusermount, loop_device};

/// The type that the mount table shows for a mount of this program.
const TYPE: &str = "fuse.extern4";
/// The type that the mount table shows for a mount of a block device.
const BLOCK_TYPE: &str = "fuseblk.extern4";

/// An attribute of the root that holds the id of the process that serves it, in digits. It is never
/// listed.
pub(crate) const DAEMON: &str = "extern4.daemon";

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source that the mount table shows: the image.
    pub source: OsString,
    /// The flags of mount(2). The kernel enforces them, apart from those about times: the mount
    /// table shows these, and the server has to implement them. A mount that root does not make has
    /// `NOSUID` and `NODEV` in any case, and cannot have `NODIRATIME` and `LAZYTIME`.
    pub flags: MountFlags,
    /// Other users may use it, too. A mount that root makes serves them in any case, unless it is
    /// `private`.
    pub allow_other: bool,
    /// Only the user that mounts may use it.
    pub private: bool,
    /// The kernel leaves permissions to the server ([`Config::fakeroot`](crate::Config::fakeroot)).
    pub unchecked: bool,
    /// The image, and the bytes of it that are the volume, for a mount as one of a block device.
    /// `mount` makes a loop device for it, where it can; see [`Mounted::not_blk`]. The kernel then
    /// reports `sync(2)` and the end of the mount to the server.
    pub blk: Option<(PathBuf, Range<u64>)>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: OsString::new(),
            flags: MountFlags::empty(),
            allow_other: false,
            private: false,
            unchecked: false,
            blk: None,
        }
    }
}

/// A mount, identified by its directory and device number.
#[derive(Debug)]
pub struct Mounted {
    dir: PathBuf,
    /// The device number as "major:minor"; `None` if it is not known.
    device: Option<String>,
    not_blk: Option<io::Error>,
}

/// Mounts on directory `dir`; returns the device through which the kernel sends requests. A caller
/// other than root needs `fusermount3`; then set-id bits and device nodes count for nothing.
///
/// # Errors
/// The system's error, or the message of `fusermount3`; `NotFound` if that is not installed.
pub fn mount(dir: &Path, options: &MountOptions) -> io::Result<(OwnedFd, Mounted)> {
    let dir = dir.canonicalize()?;
    if !geteuid().is_root() {
        let device = fusermount::mount(&dir, &words(options))?;
        let not_blk = options.blk.as_ref().map(|_| Errno::PERM.into());
        return Ok((device, Mounted::new(dir, not_blk)));
    }
    let device = open_device()?;
    let mut data = format!("fd={},rootmode=40000", device.as_raw_fd());
    let uid = geteuid().as_raw();
    let gid = getegid().as_raw();
    write!(data, ",user_id={uid},group_id={gid}").expect("memory");
    data.push_str(if options.unchecked {
        ""
    } else {
        ",default_permissions"
    });
    data.push_str(if options.private { "" } else { ",allow_other" });
    write!(data, ",max_read={MAX_READ_BYTES}").expect("memory");
    // A mount can only be writable if its device is. A mount that is read-only may become writable
    // later.
    let attach = |(image, bytes): &(PathBuf, _)| match loop_device::attach(image, bytes, true) {
        Err(_) if options.flags.contains(MountFlags::RDONLY) => {
            loop_device::attach(image, bytes, false)
        }
        attached => attached,
    };
    let not_blk = match options.blk.as_ref().map(attach) {
        Some(Ok((_attached, path))) => {
            let data = CString::new(format!("{data},blksize={BLOCK_BYTES}")).expect("no zero byte");
            match rustix::mount::mount(&path, &dir, BLOCK_TYPE, options.flags, &*data) {
                Ok(()) => {
                    read_far_ahead(&dir);
                    return Ok((device, Mounted::new(dir, None)));
                }
                // A kernel without block-device mounts of FUSE.
                Err(error @ Errno::NODEV) => Some(error.into()),
                Err(error) => return Err(error.into()),
            }
        }
        Some(Err(error)) => Some(error),
        None => None,
    };
    let data = CString::new(data).expect("no zero byte");
    rustix::mount::mount(&options.source, &dir, TYPE, options.flags, &*data)?;
    read_far_ahead(&dir);
    Ok((device, Mounted::new(dir, not_blk)))
}

/// Opens the kernel's side of mounts.
///
/// # Errors
/// The reason and the way out, for a user that may not open it, and for a machine without it.
pub(crate) fn open_device() -> io::Result<OwnedFd> {
    let error = match rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(device) => return Ok(device),
        Err(error) => io::Error::from(error),
    };
    let text = match Errno::from_io_error(&error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            "this user may not open /dev/fuse: 'chmod 666 /dev/fuse' as root allows it, and so does a container \
             that is started with --device /dev/fuse"
        }
        Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => {
            "there is no /dev/fuse: 'modprobe fuse' as root makes it, and a container needs --device /dev/fuse"
        }
        _ => return Err(error),
    };
    Err(io::Error::new(error.kind(), text))
}

/// Returns the device number of the mount on `dir`.
fn device_on(dir: &Path) -> Option<String> {
    device_of(
        &std::fs::read("/proc/self/mountinfo").unwrap_or_default(),
        dir,
    )
}

/// Sets the kernel's read-ahead to as much as one request carries. By default it is an eighth of
/// that, and a reader waits for each part. If this cannot be set, nothing is lost.
pub(crate) fn read_far_ahead(dir: &Path) {
    const KIB: usize = MAX_READ_BYTES / 1024;
    let Some(device) = device_on(dir) else { return };
    // For the mount of a block device, a suffix distinguishes the name from the block device's own.
    for name in [format!("{device}-fuseblk"), device] {
        let path = format!("/sys/class/bdi/{name}/read_ahead_kb");
        let Some(now) = std::fs::read_to_string(&path)
            .ok()
            .and_then(|kib| kib.trim().parse().ok())
        else {
            continue;
        };
        if KIB > now {
            // Without a writable sysfs, as in a container, the value stays as it is.
            let _ = std::fs::write(path, KIB.to_string());
        }
        return;
    }
}

/// Returns the device number of the mount on `dir`, as the mount table has it: "major:minor". This
/// makes no call on the mount, which has no server yet.
fn device_of(table: &[u8], dir: &Path) -> Option<String> {
    // proc_pid_mountinfo(5).
    let device = line_of(table, dir)?.split(|byte| *byte == b' ').nth(2)?;
    Some(String::from_utf8_lossy(device).into_owned())
}

/// Returns the line of the mount table for the mount on `dir`: the last mount there has the last
/// line.
fn line_of<'a>(table: &'a [u8], dir: &Path) -> Option<&'a [u8]> {
    let dir = escaped(dir);
    let mut lines = table.rsplit(|byte| *byte == b'\n');
    lines.find(|line| line.split(|byte| *byte == b' ').nth(4) == Some(&dir))
}

/// Returns the user whose process serves the mount on `dir`, if that is of this program.
fn owner_on(dir: &Path) -> Option<u32> {
    owner_of(&std::fs::read("/proc/self/mountinfo").ok()?, dir)
}

/// Returns the user whose process serves the mount on `dir`, by this mount table. The type and the
/// options stand behind a dash.
fn owner_of(table: &[u8], dir: &Path) -> Option<u32> {
    let line = String::from_utf8_lossy(line_of(table, dir)?);
    let mut behind = line.split_once(" - ")?.1.split(' ');
    let kind = behind.next()?;
    let options = behind.nth(1)?;
    let owner = options
        .split(',')
        .find_map(|option| option.strip_prefix("user_id="))?;
    if [TYPE, BLOCK_TYPE].contains(&kind) {
        owner.parse().ok()
    } else {
        None
    }
}

/// Returns a path as the mount table has it: space, tab, newline and backslash as three octal
/// digits behind a backslash.
fn escaped(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes().iter();
    let escape = |&byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        _ => vec![byte],
    };
    bytes.flat_map(escape).collect()
}

/// The block size of the device as the kernel sees it. The kernel reads nothing from the device.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Changes how `dir` is mounted: whether anything may be changed, and what set-id bits, devices and
/// programs count for. Earlier changes are durable on return. For root only.
///
/// # Errors
/// `EINVAL` if no mount of this server is there. `EBUSY` if the mount is to become read-only while
/// files are open for writing.
pub fn remount(dir: &Path, options: &MountOptions) -> io::Result<()> {
    let dir = dir.canonicalize()?;
    rustix::fs::getxattr(&dir, DAEMON, &mut [0; 16]).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount_remount(&dir, options.flags, "")?;
    Ok(rustix::fs::fsync(rustix::fs::open(
        &dir,
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)?)
}

/// Returns the options as words for `fusermount3`.
fn words(options: &MountOptions) -> String {
    let mut words = format!("subtype=extern4,max_read={MAX_READ_BYTES},fsname=");
    for char in options.source.to_string_lossy().chars() {
        if matches!(char, ',' | '\\') {
            words.push('\\');
        }
        words.push(char);
    }
    let has = |flag| options.flags.contains(flag);
    let more = [
        (!options.unchecked, ",default_permissions"),
        (has(MountFlags::RDONLY), ",ro"),
        (has(MountFlags::NOEXEC), ",noexec"),
        (has(MountFlags::NOATIME), ",noatime"),
        (has(MountFlags::NOSYMFOLLOW), ",nosymfollow"),
        (has(MountFlags::SYNCHRONOUS), ",sync"),
        (has(MountFlags::DIRSYNC), ",dirsync"),
        (options.allow_other && !options.private, ",allow_other"),
    ];
    words.extend(
        more.into_iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, word)| word),
    );
    words
}

impl Mounted {
    pub(crate) fn new(dir: PathBuf, not_blk: Option<io::Error>) -> Self {
        let device = device_on(&dir);
        Self {
            dir,
            device,
            not_blk,
        }
    }

    /// Returns whether the directory has another mount by now, or none. Without `/proc`, which
    /// would tell, this returns false.
    fn has_gone(&self) -> bool {
        self.device.is_some() && device_on(&self.dir) != self.device
    }

    /// Removes the mount, which has no server any more, if it is still there.
    pub fn clear(&self) {
        if !self.has_gone() {
            // A dead mount fails every call, and does no more harm if it stays.
            let _ = detach(&self.dir);
        }
    }

    /// Returns why this is not the mount of a block device, where the caller wanted one.
    pub fn not_blk(&self) -> Option<&io::Error> {
        self.not_blk.as_ref()
    }

    /// Removes the mount, even while it is in use: for its users, every call fails from then on.
    /// The server first handles their earlier writes.
    ///
    /// # Errors
    /// `EBUSY` if another mount covers it and has to go first, or if it is in no directory any
    /// more. In the second case it ends with its last user.
    pub fn end(&self) -> io::Result<()> {
        if self.has_gone() {
            return Err(Errno::BUSY.into());
        }
        match unmount_dir(&self.dir, false) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {}
            result => return result,
        }
        // Changed pages of mapped files have not reached the server yet.
        let dir = rustix::fs::open(
            &self.dir,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let synced = rustix::fs::syncfs(&dir);
        let connection = rustix::fs::minor(rustix::fs::fstat(&dir)?.st_dev);
        drop(dir);
        if geteuid().is_root() {
            let unmount = |flags| rustix::mount::unmount(&self.dir, UnmountFlags::NOFOLLOW | flags);
            match unmount(UnmountFlags::FORCE) {
                Err(Errno::BUSY) => unmount(UnmountFlags::DETACH)?,
                result => result?,
            }
        } else {
            fusermount::unmount(&self.dir, true)?;
            // Where that file is not there, the mount ends with its last user.
            let _ = std::fs::write(format!("/sys/fs/fuse/connections/{connection}/abort"), "1");
        }
        Ok(synced?)
    }
}

fn unmount_dir(dir: &Path, lazy: bool) -> io::Result<()> {
    if lazy {
        return detach(dir);
    }
    if geteuid().is_root() {
        return Ok(rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW)?);
    }
    fusermount::unmount(dir, false)
}

/// How long an unmount waits for the process that serves the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Until it has ended.
    UntilEnd,
    /// At most this long.
    AtMost(Duration),
    /// Not at all, and the mount goes even while it is in use: it then ends with its last user.
    Lazy,
}

/// The state after an unmount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The process that served it has ended, and every change is on the volume.
    Ended,
    /// It is mounted elsewhere, too, so the process goes on.
    Elsewhere,
    /// The process still serves it when the patience ends. It has processes in other mount
    /// namespaces, of which this is one each, as far as they can be seen.
    Served(Vec<u32>),
}

/// Removes the mount on `dir` and waits until the process that serves it has ended: then every
/// change is on the volume. A mount whose process has ended is removed even while it is in use.
///
/// Calls `still_there` if that takes longer than a user would expect: other mount namespaces may
/// have it mounted, which the mount table of this one does not show. It gets a process of each.
///
/// # Errors
/// `EINVAL` if no mount of this server is there, `EBUSY` if it is in use.
pub fn unmount(
    dir: &Path,
    patience: Patience,
    still_there: impl FnOnce(&[u32]),
) -> io::Result<Unmounted> {
    let lazy = patience == Patience::Lazy;
    // Root removes the mount of another user without asking or waiting for that user's process,
    // which may never answer.
    if let Ok(dir) = dir.canonicalize()
        && owner_on(&dir).is_some_and(|owner| owner != geteuid().as_raw())
    {
        return unmount_dir(&dir, lazy).map(|()| Unmounted::Ended);
    }
    const LONG: Duration = Duration::from_secs(10);
    let dir = dir.canonicalize()?;
    let mut pid = [0; 16];
    let len = match ask_for_daemon(&dir, &mut pid) {
        Err(Errno::NOTCONN | Errno::CONNABORTED) if owner_on(&dir).is_some() => {
            return unmount_dead(&dir).map(|()| Unmounted::Ended);
        }
        answer => answer.map_err(|_| Errno::INVAL)?,
    };
    let pid = std::str::from_utf8(&pid[..len])
        .ok()
        .and_then(|text| text.parse().ok());
    let pid = pid.and_then(Pid::from_raw).ok_or(Errno::INVAL)?;
    let daemon = pidfd_open(pid, PidfdFlags::empty())?;
    // Read while the mount is there: a later mount of another program may get the same number.
    let device = device_number(&dir)?;
    let only = mounts_of(&std::fs::read("/proc/self/mountinfo")?, &device) == 1;
    unmount_dir(&dir, lazy)?;
    let most = match patience {
        _ if !only => return Ok(Unmounted::Elsewhere),
        Patience::Lazy => return Ok(Unmounted::Served(Vec::new())),
        Patience::AtMost(most) => Some(most),
        Patience::UntilEnd => None,
    };
    let first = most.map_or(LONG, |most| most.min(LONG));
    if has_ended(&daemon, Some(first))? {
        return Ok(Unmounted::Ended);
    }
    if most.is_none_or(|most| most > first) {
        still_there(&namespaces_with(&device));
        if has_ended(&daemon, most.map(|most| most - first))? {
            return Ok(Unmounted::Ended);
        }
    }
    Ok(Unmounted::Served(namespaces_with(&device)))
}

/// Returns one process of each other mount namespace that has a mount of this device. Processes
/// whose mount table this process may not read are left out.
fn namespaces_with(device: &str) -> Vec<u32> {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let mut seen: Vec<PathBuf> = namespace("self").into_iter().collect();
    let mut found = Vec::new();
    let names = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    for pid in names.filter_map(|name| name.to_str()?.parse::<u32>().ok()) {
        let Some(namespace) =
            namespace(&pid.to_string()).filter(|namespace| !seen.contains(namespace))
        else {
            continue;
        };
        seen.push(namespace);
        let table = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        if mounts_of(&table, device) > 0 {
            found.push(pid);
        }
    }
    found.sort_unstable();
    found
}

/// Asks which process serves the mount on `dir`. A process that is just ending answers with all
/// kinds of errors, until it has ended.
fn ask_for_daemon(dir: &Path, pid: &mut [u8; 16]) -> rustix::io::Result<usize> {
    const TRIES: usize = 500;
    let mut answer = rustix::fs::getxattr(dir, DAEMON, &mut pid[..]);
    for _ in 0..TRIES {
        match answer {
            Ok(_) | Err(Errno::NOTCONN | Errno::CONNABORTED) => break,
            Err(_) if owner_on(dir).is_none() => break,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
        answer = rustix::fs::getxattr(dir, DAEMON, &mut pid[..]);
    }
    answer
}

/// Removes a mount that has no server any more. Calls on its open files fail anyway.
fn unmount_dead(dir: &Path) -> io::Result<()> {
    match unmount_dir(dir, false) {
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => detach(dir),
        done => done,
    }
}

/// Waits until a process has ended, at most for this long.
fn has_ended(process: &OwnedFd, most: Option<Duration>) -> io::Result<bool> {
    let most = most
        .map(|most| Timespec::try_from(most).map_err(|_| Errno::INVAL))
        .transpose()?;
    loop {
        match poll(&mut [PollFd::new(process, PollFlags::IN)], most.as_ref()) {
            Ok(ended) => return Ok(ended > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes the mount on `dir` out of the tree of directories, in use or not, with or without a
/// server.
///
/// # Errors
/// The system's error: `EINVAL` if nothing is mounted there, `EPERM` without the rights.
pub fn detach(dir: &Path) -> io::Result<()> {
    if geteuid().is_root() {
        return Ok(rustix::mount::unmount(
            dir,
            UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        )?);
    }
    fusermount::unmount(dir, true)
}

/// Returns the device number of a mount as mount tables have it.
fn device_number(dir: &Path) -> io::Result<String> {
    let device = std::fs::metadata(dir)?.dev();
    Ok(format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    ))
}

/// Returns how many entries of a mount table have this device number.
fn mounts_of(table: &[u8], device: &str) -> usize {
    // proc_pid_mountinfo(5): the third field.
    let lines = table.split(|byte| *byte == b'\n');
    lines
        .filter(|line| line.split(|byte| *byte == b' ').nth(2) == Some(device.as_bytes()))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_directory() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:51 / /mnt/a\\040b rw shared:1 - fuse.extern4 x rw
41 22 0:52 / /mnt/a\\134b rw - fuse.extern4 x rw
42 40 7:3 / /mnt/a\\040b rw - fuseblk.extern4 /dev/loop3 rw
";
        let device = |dir: &str| device_of(table, Path::new(dir));
        assert_eq!(device("/mnt/a b").as_deref(), Some("7:3"), "the last");
        assert_eq!(device("/mnt/a\\b").as_deref(), Some("0:52"));
        assert_eq!(
            (device("/").as_deref(), device("/mnt")),
            (Some("8:1"), None)
        );
    }

    #[test]
    fn the_owner_of_a_mount_stands_in_the_table() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:51 / /mnt/a\\040b rw shared:1 - fuse.extern4 x rw,user_id=1000,group_id=100
41 22 0:52 / /mnt/c rw - fuse.sshfs x rw,user_id=1000
";
        let owner = |dir: &str| owner_of(table, Path::new(dir));
        assert_eq!(
            (owner("/mnt/a b"), owner("/mnt/c"), owner("/")),
            (Some(1000), None, None)
        );
    }
}
