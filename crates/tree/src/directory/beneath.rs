//! Opens a path below a directory without following a symbolic link.
//!
//! The walk reopens directories by [`open`], and sources open files by it, so a link that is put
//! into the tree meanwhile cannot lead out of it: it is the error `LOOP`. It uses `openat2`, and
//! component after component where the kernel has none. Paths may be longer than one system call
//! takes.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};

/// The longest path for one system call; the kernel's limit is 4,096 with the final NUL.
const LONGEST: usize = 4000;

/// Opens `path` below `top`. The error is `LOOP` if one of its components is a symbolic link.
pub(crate) fn open(top: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() > LONGEST {
        // A component is at most 255 bytes long.
        let cut = rest[..LONGEST]
            .iter()
            .rposition(|byte| *byte == b'/')
            .ok_or(Errno::NAMETOOLONG)?;
        at = Some(open_part(
            at.as_ref().unwrap_or(top),
            &rest[..cut],
            OFlags::PATH | OFlags::DIRECTORY,
        )?);
        rest = &rest[cut + 1..];
    }
    let rest = if rest.is_empty() { b"." } else { rest };
    open_part(at.as_ref().unwrap_or(top), rest, flags)
}

fn open_part(at: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let all = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat2(at, path, all, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Linux before 5.6, or a filter of system calls.
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(at, path, flags),
        result => result,
    }
}

fn open_by_components(at: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let mut open: Option<OwnedFd> = None;
    let (parents, last) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None => (&path[..0], path),
    };
    let step = |at: &OwnedFd, name: &[u8], flags: OFlags| {
        rustix::fs::openat(
            at.as_fd(),
            name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
    };
    for name in parents
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        open = Some(step(
            open.as_ref().unwrap_or(at),
            name,
            OFlags::PATH | OFlags::DIRECTORY,
        )?);
    }
    step(open.as_ref().unwrap_or(at), last, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn top(path: &std::path::Path) -> OwnedFd {
        std::fs::File::open(path).unwrap().into()
    }

    #[test]
    fn links_on_a_path_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/f"), "x").unwrap();
        symlink("b", dir.path().join("a/l")).unwrap();
        symlink("f", dir.path().join("a/b/g")).unwrap();
        let top = top(dir.path());
        for open in [open_part, open_by_components] {
            assert!(open(&top, b"a/b/f", OFlags::RDONLY).is_ok());
            assert!(open(&top, b"a/l/f", OFlags::RDONLY).is_err());
            assert_eq!(
                open(&top, b"a/b/g", OFlags::RDONLY).unwrap_err(),
                Errno::LOOP
            );
            assert_eq!(
                open(&top, b"a/b/h", OFlags::RDONLY).unwrap_err(),
                Errno::NOENT
            );
        }
    }

    #[test]
    fn paths_longer_than_the_kernels_limit_open() {
        let dir = tempfile::tempdir().unwrap();
        let name = [b'n'; 250];
        let mut at = top(dir.path());
        for _ in 0..40 {
            rustix::fs::mkdirat(&at, &name[..], Mode::RWXU).unwrap();
            at = open_part(&at, &name, OFlags::PATH | OFlags::DIRECTORY).unwrap();
        }
        let path = vec![&name[..]; 40].join(&b'/');
        assert!(open(&top(dir.path()), &path, OFlags::RDONLY).is_ok());
    }
}
