//! Finds which mount a directory is in without asking the process that serves it: the question may
//! be about that process.
//!
//! The clients in this module and the subcommands that take a directory call it. So it never waits
//! for a mount that hangs.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};

/// The end of the types of this program's mounts; any text may be before it.
const TYPE: &str = ".extern4";

/// The number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
}

/// A mount of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device number of all files in it.
    pub device: Device,
    /// The user who serves it.
    pub owner: u32,
}

/// Returns whether `path` is a directory of this machine, also in a mount that only another user
/// may use.
pub fn is_dir(path: &Path) -> bool {
    open(
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .is_ok()
}

/// Returns the device number of a file. A statx(2) that asks for nothing else succeeds in every
/// mount, also one of another user, and at once.
///
/// # Errors
/// There is no such file.
pub fn device_of(file: &Path) -> io::Result<Device> {
    let found = statx(CWD, file, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    Ok(Device {
        major: found.stx_dev_major,
        minor: found.stx_dev_minor,
    })
}

/// Returns the mount that a directory is in, or `None` if it is in no mount of this program.
///
/// # Errors
/// There is no such directory, or the mount table cannot be read.
pub fn mount_of(dir: &Path) -> io::Result<Option<Mount>> {
    let device = device_of(dir)?;
    Ok(find(
        &String::from_utf8_lossy(&std::fs::read("/proc/self/mountinfo")?),
        device,
    ))
}

/// Finds a device in the mount table. Source: proc_pid_mountinfo(5).
fn find(table: &str, device: Device) -> Option<Mount> {
    let number = format!("{}:{}", device.major, device.minor);
    table
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some(&number))
        .find_map(|line| {
            let mut behind = line.split_once(" - ")?.1.split(' ');
            let kind = behind.next()?;
            let options = behind.nth(1)?;
            let owner = options
                .split(',')
                .find_map(|option| option.strip_prefix("user_id="))?;
            kind.ends_with(TYPE).then_some(Mount {
                device,
                owner: owner.parse().ok()?,
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read() {
        let table = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:51 / /mnt/a\\040b rw,nosuid - fuse.extern4 /disk.img rw,user_id=1000,group_id=100,default_permissions
41 22 0:52 / /mnt/c rw - fuse.sshfs host: rw,user_id=0,group_id=0
42 22 7:1 / /mnt/d rw - fuseblk.extern4 /dev/loop1 rw,user_id=0,group_id=0
";
        let check = |major, minor, owner: Option<u32>| {
            let device = Device { major, minor };
            assert_eq!(
                find(table, device),
                owner.map(|owner| Mount { device, owner })
            );
        };
        check(0, 51, Some(1000));
        check(7, 1, Some(0));
        check(0, 52, None);
        check(254, 0, None);
        check(0, 5, None);
    }

    #[test]
    fn directories_have_a_device() {
        assert!(is_dir(Path::new("/proc")) && !is_dir(Path::new("/proc/self/stat")));
        assert_eq!(mount_of(Path::new("/proc")).expect("a device"), None);
        assert!(device_of(Path::new("/proc/no such file")).is_err());
    }
}
