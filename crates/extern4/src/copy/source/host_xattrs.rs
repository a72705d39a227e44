//! The extended attributes of files of the host.

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{fgetxattr, flistxattr, getxattr, lgetxattr, listxattr, llistxattr};
use rustix::io::Errno;

use crate::copy::failure::CopyError;

/// Extended attributes, with ACLs in the form that the kernel gives them.
pub(in crate::copy) type Xattrs = Vec<(OsString, Vec<u8>)>;

/// Returns the extended attributes of a file of the host that cannot be opened, such as a symbolic
/// link.
pub(super) fn named(
    directory: BorrowedFd<'_>,
    name: &Path,
    follow: bool,
) -> Result<Xattrs, CopyError> {
    let path: PathBuf = if name.is_absolute() {
        name.to_owned()
    } else {
        // No system call takes a directory and a name here; the directory's entry in /proc serves
        // as well.
        Path::new("/proc/self/fd")
            .join(directory.as_raw_fd().to_string())
            .join(name)
    };
    if follow {
        return collect(
            |buffer| listxattr(&path, buffer),
            |name, buffer| getxattr(&path, name, buffer),
        );
    }
    collect(
        |buffer| llistxattr(&path, buffer),
        |name, buffer| lgetxattr(&path, name, buffer),
    )
}

/// Returns the extended attributes of an open file of the host.
pub(super) fn open(file: impl AsFd) -> Result<Xattrs, CopyError> {
    let file = file.as_fd();
    collect(
        |buffer| flistxattr(file, buffer),
        |name, buffer| fgetxattr(file, name, buffer),
    )
}

fn collect(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&CStr, &mut [u8]) -> rustix::io::Result<usize>,
) -> Result<Xattrs, CopyError> {
    let names = match sized(list) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in names
        .split_inclusive(|byte| *byte == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
    {
        match sized(|buffer| get(name, buffer)) {
            // The attribute is gone by now, or only other users may read it.
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            value => found.push((OsStr::from_bytes(name.to_bytes()).to_owned(), value?)),
        }
    }
    Ok(found)
}

/// Calls `read`, which fills a buffer, with larger buffers until it no longer fails with `ERANGE`.
fn sized(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 256];
    loop {
        match read(&mut buffer) {
            // The kernel's own limit is half of it.
            Err(Errno::RANGE) if buffer.len() < 128 << 10 => buffer.resize(buffer.len() * 4, 0),
            len => {
                buffer.truncate(len?);
                return Ok(buffer);
            }
        }
    }
}
