//! Reads the extended attributes of the host's files.
//!
//! The walk calls [`Reader::read`] for each file. Attributes are sorted by name. Attributes that
//! mean nothing on another file system are left out with one warning each. Attributes that the host
//! lists and does not give are left out with a warning that names file and attribute, as `cp -a`
//! does. A file system without attributes is warned about once. All other errors end the walk.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use extern4_acl::{AclKind, XattrNamespace};
use rustix::io::Errno;

use super::DirectorySource;
use crate::error::{Result, reason};
use crate::source::Sink;

/// The kernel's limit for the list of names and for a value.
const LARGEST: usize = 65536;

/// How to read the attributes of a name in an open directory. Before Linux 6.13 the kernel has no
/// call for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// By the thread's own current directory, which is that directory.
    CurrentDirectory,
    /// By the directory's descriptor in `/proc`, which takes twice as long.
    Proc,
    /// By the whole path.
    Path,
}

impl By {
    /// Gives this thread its own current directory, if possible. It needs no privileges, but a
    /// filter of system calls may forbid it.
    #[expect(deprecated, reason = "the safe form; descriptors stay shared")]
    pub(super) fn of_this_thread() -> Self {
        if rustix::thread::unshare(rustix::thread::UnshareFlags::FS).is_ok() {
            return Self::CurrentDirectory;
        }
        let proc = std::fs::symlink_metadata("/proc/self/fd").is_ok();
        if proc { Self::Proc } else { Self::Path }
    }
}

/// A reader of extended attributes that gives each warning once.
pub(super) struct Reader {
    names: Vec<u8>,
    value: Vec<u8>,
    path: Vec<u8>,
    pub(super) by: By,
    devices_without: BTreeSet<u64>,
    left_out: BTreeSet<Vec<u8>>,
}

impl Reader {
    pub(super) fn new(by: By) -> Self {
        Self {
            names: vec![0; LARGEST],
            value: vec![0; LARGEST],
            path: Vec::new(),
            by,
            devices_without: BTreeSet::new(),
            left_out: BTreeSet::new(),
        }
    }

    /// Reads the attributes of `name` in the open directory `at`, which is on the device `dev`.
    pub(super) fn read(
        &mut self,
        source: &DirectorySource,
        (at, name): (BorrowedFd<'_>, &[u8]),
        (path, dev): (&[u8], u64),
        sink: &mut dyn Sink,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if self.devices_without.contains(&dev) {
            return Ok(Vec::new());
        }
        self.set_path(source, (at, name), path);
        let length = match rustix::fs::llistxattr(&self.path[..], &mut self.names[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => {
                let name = source.name(path);
                sink.warn(format!(
                    "'{name}': the file system has no extended attributes"
                ));
                self.devices_without.insert(dev);
                0
            }
            Err(error) => return Err(source.error(path, error)),
        };
        let mut found = Vec::new();
        let names = self.names[..length].to_vec();
        for name in names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            if let Some(value) = self.value(source, path, name, sink)? {
                found.push((name.to_vec(), value));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Reads the access ACL alone, if there is one that can be read. The mode depends on it.
    pub(super) fn acl(
        &mut self,
        source: &DirectorySource,
        (at, name): (BorrowedFd<'_>, &[u8]),
        path: &[u8],
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.set_path(source, (at, name), path);
        let name = AclKind::Access.xattr_name();
        let read = rustix::fs::lgetxattr(&self.path[..], name, &mut self.value[..]);
        read.map_or(Vec::new(), |length| {
            vec![(name.into(), self.value[..length].to_vec())]
        })
    }

    /// Sets the path by which the attributes are read.
    fn set_path(
        &mut self,
        source: &DirectorySource,
        (at, name): (BorrowedFd<'_>, &[u8]),
        path: &[u8],
    ) {
        self.path.clear();
        match self.by {
            By::CurrentDirectory => self.path.extend_from_slice(name),
            By::Proc => {
                self.path
                    .extend(format!("/proc/self/fd/{}/", at.as_raw_fd()).bytes());
                self.path.extend_from_slice(name);
            }
            By::Path => {
                self.path
                    .extend_from_slice(source.root.as_os_str().as_bytes());
                self.path.push(b'/');
                self.path.extend_from_slice(path);
            }
        }
    }

    fn value(
        &mut self,
        source: &DirectorySource,
        path: &[u8],
        name: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<Option<Vec<u8>>> {
        if !is_kept(name) {
            if self.left_out.insert(name.to_vec()) {
                let file = source.name(path);
                let name = String::from_utf8_lossy(name);
                sink.warn(format!(
                    "'{file}': the extended attribute '{name}' is left out"
                ));
            }
            return Ok(None);
        }
        match rustix::fs::lgetxattr(&self.path[..], name, &mut self.value[..]) {
            Ok(length) => Ok(Some(self.value[..length].to_vec())),
            Err(error) if is_refusal(error) => {
                let file = source.name(path);
                let name = String::from_utf8_lossy(name);
                sink.warn(format!(
                    "'{file}': the extended attribute '{name}' is listed but cannot be read ({}), and is left \
                     out",
                    reason(&error.into())
                ));
                Ok(None)
            }
            Err(error) => Err(source.error(path, error)),
        }
    }
}

/// Whether the host lists an attribute and does not give it: the caller may not read it, the file
/// system has no value, or the attribute was removed since.
///
/// Source: getxattr(2); security modules of sandboxes answer `EOPNOTSUPP`.
fn is_refusal(error: Errno) -> bool {
    matches!(
        error,
        Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP | Errno::NODATA
    )
}

/// Whether another file system can have this attribute.
fn is_kept(name: &[u8]) -> bool {
    match XattrNamespace::of(name) {
        Some(XattrNamespace::System) => AclKind::from_xattr_name(name).is_some(),
        namespace => namespace.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_attribute_can_be_refused() {
        for refusal in [Errno::ACCESS, Errno::PERM, Errno::OPNOTSUPP, Errno::NODATA] {
            assert!(is_refusal(refusal), "{refusal}");
        }
        for failure in [Errno::IO, Errno::NOENT, Errno::STALE, Errno::RANGE] {
            assert!(!is_refusal(failure), "{failure}");
        }
    }
}
