//! Devices, pipes, sockets, and the flags of chattr(1).
//!
//! The images use these plans, which only root can make. The encrypted one adds a key to the
//! mount's keyring.

use std::io;
use std::path::Path;

use rustix::fs::{CWD, FileType, IFlags, Mode, makedev, mknodat};

use super::{directory, file};
use crate::tools;

/// Makes devices with numbers of the old and the new encoding, pipes and sockets.
pub fn devices(root: &Path) -> io::Result<()> {
    let dir = directory(root, "devices")?;
    let mode = Mode::from_raw_mode(0o640);
    for (major, minor) in [
        (0, 0),
        (1, 3),
        (8, 255),
        (8, 256),
        (255, 255),
        (256, 0),
        (259, 1_048_575),
        (4095, 1),
    ] {
        for (kind, letter) in [
            (FileType::CharacterDevice, 'c'),
            (FileType::BlockDevice, 'b'),
        ] {
            mknodat(
                CWD,
                dir.join(format!("{letter}-{major}-{minor}")),
                kind,
                mode,
                makedev(major, minor),
            )?;
        }
    }
    mknodat(CWD, dir.join("pipe"), FileType::Fifo, mode, 0)?;
    mknodat(CWD, dir.join("socket"), FileType::Socket, mode, 0)?;
    Ok(())
}

/// Makes files and directories with each flag a user can set.
pub fn inode_flags(root: &Path) -> io::Result<()> {
    let dir = directory(root, "flags")?;
    let flags = [
        ("append", IFlags::APPEND),
        ("immutable", IFlags::IMMUTABLE),
        ("nodump", IFlags::NODUMP),
        ("noatime", IFlags::NOATIME),
        ("sync", IFlags::SYNC),
        ("secure", IFlags::SECURE_REMOVAL),
        ("undelete", IFlags::UNRM),
        ("all", IFlags::NODUMP | IFlags::SYNC),
    ];
    for (name, flag) in flags {
        let path = dir.join(name);
        file(&path, 100)?;
        set_flags(&path, flag)?;
    }
    for (name, flag) in [
        ("dirsync", IFlags::DIRSYNC),
        ("topdir", IFlags::TOPDIR),
        ("fixed", IFlags::IMMUTABLE),
    ] {
        let path = dir.join(name);
        std::fs::create_dir(&path)?;
        file(&path.join("inside"), 5)?;
        set_flags(&path, flag)?;
    }
    Ok(())
}

/// Adds `flags` to those an object has.
fn set_flags(path: &Path, flags: IFlags) -> io::Result<()> {
    let file = std::fs::File::open(path)?;
    let before = rustix::fs::ioctl_getflags(&file)?;
    Ok(rustix::fs::ioctl_setflags(&file, before | flags)?)
}

/// Makes a directory with an encryption policy, with each kind of file in it.
pub fn encrypted(root: &Path) -> io::Result<()> {
    let dir = directory(root, "secret")?;
    // FS_IOC_ADD_ENCRYPTION_KEY with a raw key, then FS_IOC_SET_ENCRYPTION_POLICY of version 2 with
    // AES-256-XTS for contents and AES-256-CTS for names: linux/fscrypt.h.
    let script = r#"
        open(F, "<", $ARGV[0]) or die $!;
        my $key = pack("LLx32", 2, 0) . pack("LLLx28", 64, 0, 0) . join("", map { chr } 0..63);
        ioctl(F, 0xc0506617, $key) or die "add the key: $!";
        my $policy = pack("CCCCCx3", 2, 1, 4, 3, 0) . substr($key, 8, 16);
        ioctl(F, 0x800c6613, $policy) or die "set the policy: $!";
    "#;
    tools::perl(script, [&dir]);
    for len in [0, 10, 5000, 100_000] {
        file(&dir.join(format!("{len}")), len)?;
    }
    file(&dir.join("n".repeat(200)), 10)?;
    for len in [1, 20, 50, 100, 146, 200, 1000, 4000] {
        std::os::unix::fs::symlink("t".repeat(len), dir.join(format!("link-{len}")))?;
    }
    let inner = directory(&dir, "inner")?;
    (0..300).try_for_each(|at| file(&inner.join(format!("number-{at}")), 1))
}
