//! The kernel's own mount of a volume, detached from the tree of directories. Only a file
//! descriptor refers to it, so it ends with that descriptor, and with this process, however that
//! ends.
//!
//! `side` opens it where the user is root. Where the kernel cannot mount the volume, the report has
//! the reason in place of figures.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use rustix::process::geteuid;

use super::side::Source;
use super::{Result, SuiteError};
use crate::app::host_reason;

/// How long the kernel may take to release the image.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A mount by the kernel.
pub(super) struct KernelMount {
    /// The root of the mount, which is closed before the mount.
    root: OwnedFd,
    mount: OwnedFd,
    /// The file of sysfs that names the loop device's backing file, as long as it has one.
    backing: std::path::PathBuf,
}

/// Returns the reason why there can be no such mount, as far as that is known beforehand.
pub(super) fn lacks() -> Option<String> {
    if !geteuid().is_root() {
        return Some("only root can mount by the kernel".to_owned());
    }
    let control = Path::new("/dev/loop-control");
    (!control.exists()).then(|| "there are no loop devices".to_owned())
}

impl KernelMount {
    /// Mounts the volume. Its files give no rights, and damage ends in an error whatever the volume
    /// says.
    pub(super) fn new(source: &Source) -> Result<Self> {
        let (device, path) =
            extern4_mountd::attach_loop_device(&source.image.file, &source.bytes, source.writing)
                .map_err(|error| because("no loop device", &error))?;
        let mounted = (|| {
            let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_set_string(&context, "source", &*path)?;
            fsconfig_set_string(&context, "errors", "remount-ro")?;
            // The kernel's lazy initialization would use the volume during the measurement.
            fsconfig_set_flag(&context, "noinit_itable")?;
            if !source.writing {
                fsconfig_set_flag(&context, "ro")?;
            }
            fsconfig_create(&context)?;
            let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
            let root = openat(
                &mount,
                ".",
                OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            Ok((root, mount))
        })();
        let (root, mount) = mounted
            .map_err(|error: rustix::io::Errno| because("cannot mount it", &error.into()))?;
        // From now on the mount keeps the device.
        drop(device);
        let name = path.file_name().unwrap_or_default();
        Ok(Self {
            root,
            mount,
            backing: Path::new("/sys/block").join(name).join("loop/backing_file"),
        })
    }

    /// Returns the root of the mount.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Unmounts the volume, and waits until everything is in the image.
    pub(super) fn end(self) -> Result<()> {
        rustix::fs::syncfs(&self.root)
            .map_err(|error| because("cannot be synced", &error.into()))?;
        drop((self.root, self.mount));
        let start = Instant::now();
        while self.backing.exists() {
            if start.elapsed() > TIMEOUT {
                return Err(SuiteError::Because(
                    "its loop device does not end".to_owned(),
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn because(what: &str, error: &std::io::Error) -> SuiteError {
    SuiteError::Because(format!("{what}: {}", host_reason(error)))
}
