//! The attributes that copies could not keep.
//!
//! Such a loss does not end a copy. The summary has them all.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4_vfs::XattrNamespace;

/// The attributes that copies could not keep.
#[derive(Debug, Default)]
pub struct CopyLosses {
    /// The number of files whose owner is not kept.
    pub owners: u64,
    /// The devices that are left out, because only root can make them.
    pub devices: Vec<PathBuf>,
    /// The number of extended attributes and ACLs that are not kept.
    pub xattrs: u64,
    /// The first of them.
    pub first_xattr: Option<LostXattr>,
    /// An extended attribute was lost that the caller should have been able to keep. Losses that
    /// only root could have prevented count for root alone.
    pub is_failure: bool,
}

/// An extended attribute that a copy could not keep.
#[derive(Debug)]
pub struct LostXattr {
    /// The path of the original.
    pub path: PathBuf,
    /// The name of the attribute.
    pub name: OsString,
    /// Why the copy lacks it.
    pub error: io::Error,
}

impl CopyLosses {
    /// Counts a file whose owner is not kept.
    pub(super) fn owner(&mut self) {
        self.owners += 1;
    }

    /// Notes a device that is left out.
    pub(super) fn device(&mut self, path: &Path) {
        self.devices.push(path.to_owned());
    }

    /// Counts an attribute of a file that is not kept. Only `privileged` callers can set guarded
    /// ones.
    pub(super) fn xattr(&mut self, path: &Path, name: &OsStr, error: io::Error, privileged: bool) {
        self.xattrs += 1;
        // Only root may set these, as only root may give files away.
        let guarded = matches!(
            XattrNamespace::of(name.as_bytes()),
            Some(XattrNamespace::Security | XattrNamespace::Trusted)
        );
        self.is_failure |= privileged || !guarded;
        self.first_xattr.get_or_insert_with(|| LostXattr {
            path: path.to_owned(),
            name: name.to_owned(),
            error,
        });
    }
}
