//! Modes, owners and times, at the ends of what their fields can hold.
//!
//! Nearly all images use these plans, which only root can make. A time that the file system cannot
//! hold is stored as the kernel decides; the oracle says which.

use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::{directory, file};

/// Makes files with every special bit, and ids on both sides of 16 bits.
pub fn modes_and_owners(root: &Path) -> io::Result<()> {
    let dir = directory(root, "modes")?;
    for mode in [
        0o0, 0o1, 0o20, 0o400, 0o644, 0o777, 0o1777, 0o2755, 0o4755, 0o6711, 0o7777,
    ] {
        let path = dir.join(format!("file-{mode:04o}"));
        file(&path, 10)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))?;
        let path = dir.join(format!("dir-{mode:04o}"));
        std::fs::create_dir(&path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))?;
    }
    for id in [
        1,
        1000,
        65_534,
        65_535,
        65_536,
        100_000,
        0x1234_5678,
        0xffff_fffe,
    ] {
        let path = dir.join(format!("owner-{id}"));
        file(&path, 10)?;
        chown(&path, Some(id), Some(id ^ 1))?;
    }
    Ok(())
}

/// Makes files with times before 1970, beyond 2038 and at the ends of the four epochs of ext4.
pub fn times(root: &Path) -> io::Result<()> {
    let dir = directory(root, "times")?;
    let moments = [
        (-0x8000_0000, 0),
        (-0x8000_0000, 0),
        (-0x7fff_ffff, 123_456_789),
        (-1, 999_999_999),
        (0, 0),
        (0, 1),
        (1_000_000_000, 500_000_000),
        (0x7fff_ffff, 999_999_999),
        (0x8000_0000, 0),
        (0xffff_ffff, 2),
        (0x1_0000_0000, 3),
        (0x1_7fff_ffff, 4),
        (0x1_8000_0000, 5),
        (0x2_7fff_ffff, 6),
        (0x2_8000_0000, 7),
        (0x3_7fff_ffff, 0),
    ];
    for (at, (tv_sec, tv_nsec)) in moments.into_iter().enumerate() {
        let path = dir.join(format!("{at:02}"));
        file(&path, 1)?;
        let other = moments[(at + 5) % moments.len()];
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: other.0,
                tv_nsec: other.1,
            },
            last_modification: Timespec { tv_sec, tv_nsec },
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}
