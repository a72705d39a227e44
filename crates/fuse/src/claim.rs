//! A block device that the kernel holds for a mount which is in no directory yet.
//!
//! The kernel opens the device of a mount exclusively, as for its own file systems. If a daemon
//! held the device itself, the kernel would refuse the daemon's own mount. If it released the
//! device first, another program could take it. So the kernel takes the device first
//! (`fsconfig(2)`), the daemon then opens the volume, and only then the mount gets its directory
//! (`move_mount(2)`).
//!
//! Where an earlier mount of the device is just ending, the kernel waits until that mount has let
//! go of it.
//!
//! The command's `mount` takes a [`Claim`] before it opens the volume. While it lives, no other
//! program can open the device exclusively. A claim that is dropped releases the device.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use rustix::process::{getegid, geteuid};

use crate::init::MAX_READ_BYTES;
use crate::mount::{BLOCK_BYTES, MountOptions, Mounted, open_device, read_far_ahead};

/// A block device that the kernel holds until this is dropped. If the claim becomes a mount, the
/// kernel holds the device as long as that lasts.
#[derive(Debug)]
pub struct Claim {
    context: OwnedFd,
    device: OwnedFd,
}

impl Claim {
    /// Makes the kernel hold a block device. For root only.
    ///
    /// # Errors
    /// `EBUSY` if the device is mounted, or another program holds it; `EACCES` if it is
    /// write-protected and not for reading only; `ENOSYS` or `EPERM` where the kernel or a
    /// container lacks these calls.
    pub fn take(path: &Path, options: &MountOptions) -> io::Result<Self> {
        let device = open_device()?;
        let context = fsopen("fuseblk", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key: &str, value: &str| fsconfig_set_string(&context, key, value);
        fsconfig_set_string(&context, "source", &*source(path))?;
        set("subtype", "extern4")?;
        set("fd", &device.as_raw_fd().to_string())?;
        set("rootmode", "40000")?;
        set("user_id", &geteuid().as_raw().to_string())?;
        set("group_id", &getegid().as_raw().to_string())?;
        set("max_read", &MAX_READ_BYTES.to_string())?;
        set("blksize", &BLOCK_BYTES.to_string())?;
        let has = |flag| options.flags.contains(flag);
        let flags = [
            (true, "default_permissions"),
            (true, "allow_other"),
            (has(MountFlags::RDONLY), "ro"),
            (has(MountFlags::SYNCHRONOUS), "sync"),
            (has(MountFlags::DIRSYNC), "dirsync"),
            (has(MountFlags::LAZYTIME), "lazytime"),
        ];
        for (_, flag) in flags.into_iter().filter(|(wanted, _)| *wanted) {
            fsconfig_set_flag(&context, flag)?;
        }
        fsconfig_create(&context)?;
        let claim = Self { context, device };
        // If the device is mounted already, the kernel returns that mount, and sends no request
        // through this file.
        if claim.is_new()? {
            Ok(claim)
        } else {
            Err(Errno::BUSY.into())
        }
    }

    /// Returns whether the kernel sends requests through this file: the first one comes at once.
    fn is_new(&self) -> io::Result<bool> {
        let mut asked = [PollFd::new(&self.device, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec::default()))?;
        Ok(!asked[0]
            .revents()
            .intersects(PollFlags::ERR | PollFlags::HUP))
    }

    /// Mounts it on directory `dir`; returns the file through which the kernel sends requests.
    ///
    /// # Errors
    /// The system's error: `EPERM` without the rights to mount, `ENOENT` or `ENOTDIR` for the
    /// directory, `EBUSY` for a device in use.
    pub fn attach(self, dir: &Path, options: &MountOptions) -> io::Result<(OwnedFd, Mounted)> {
        let dir = dir.canonicalize()?;
        let mount = fsmount(
            &self.context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            attributes(options),
        )?;
        move_mount(
            &mount,
            "",
            CWD,
            &dir,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )?;
        drop(mount);
        read_far_ahead(&dir);
        Ok((self.device, Mounted::new(dir, None)))
    }
}

/// Returns the flags of the mount itself. [`Claim::take`] gives the volume's flags to the kernel.
fn attributes(options: &MountOptions) -> MountAttrFlags {
    use MountAttrFlags as Attr;
    let wanted = [
        (MountFlags::RDONLY, Attr::MOUNT_ATTR_RDONLY),
        (MountFlags::NOSUID, Attr::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, Attr::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, Attr::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOATIME, Attr::MOUNT_ATTR_NOATIME),
        (MountFlags::NODIRATIME, Attr::MOUNT_ATTR_NODIRATIME),
        (MountFlags::NOSYMFOLLOW, Attr::MOUNT_ATTR_NOSYMFOLLOW),
    ];
    wanted
        .into_iter()
        .filter(|(flag, _)| options.flags.contains(*flag))
        .map(|(_, flag)| flag)
        .collect()
}

/// Returns the name of a block device that the mount table shows. Devices of the device mapper have
/// their mapper name, as in all mounts.
pub fn source(path: &Path) -> PathBuf {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let number = path
        .file_name()
        .filter(|name| name.to_string_lossy().starts_with("dm-"));
    let named = number.and_then(|number| {
        std::fs::read_to_string(Path::new("/sys/block").join(number).join("dm/name")).ok()
    });
    named
        .map(|name| Path::new("/dev/mapper").join(name.trim_end()))
        .filter(|name| name.exists())
        .unwrap_or(path)
}
