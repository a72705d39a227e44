//! The place of one copy in a volume: a name in an open directory.

use std::ffi::OsStr;
use std::path::Path;

use extern4_vfs::{AclKind, Errno};

use super::super::failure::{Failure, Refusal};
use super::super::source::{Id, Node};
use crate::session::Session;

/// The destination of a copy.
pub(super) struct VolumeDestination<'a> {
    pub(super) directory: &'a Session,
    pub(super) name: &'a OsStr,
    /// The path in the volume.
    pub(super) path: &'a Path,
    /// The caller named this existing file: the copy writes to it and does not replace it.
    pub(super) existing: bool,
    /// The directory gives new files an ACL.
    pub(super) gives_acl: bool,
}

impl VolumeDestination<'_> {
    /// Makes something, and replaces a file that is there.
    pub(super) fn make<T>(
        &self,
        node: &Node,
        make: impl Fn(&Session, &OsStr) -> crate::Result<T>,
    ) -> Result<T, Failure> {
        match make(self.directory, self.name) {
            Err(error) if error.errno() == Errno::EEXIST => {}
            made => return Ok(made?),
        }
        let found = self.directory.symlink_metadata(self.name)?;
        if found.is_dir() {
            return Err(Failure::to(Refusal::DirectoryInPlace));
        }
        if node.id == Id::Volume(0, found.ino()) {
            return Err(Failure::from(Refusal::SameFile));
        }
        self.directory.remove_file(self.name)?;
        Ok(make(self.directory, self.name)?)
    }

    /// Removes a half copied file. One that was there before is emptied.
    pub(super) fn forget_half(&self) -> Result<(), Failure> {
        if self.existing {
            self.directory.truncate(self.name, 0)?
        } else {
            self.directory.remove_file(self.name)?
        }
        Ok(())
    }
}

/// Returns whether new files in a directory get an ACL, as far as that is known.
pub(super) fn gives_acl(directory: &Session) -> bool {
    directory
        .acl(".", AclKind::Default)
        .map_or(true, |acl| acl.is_some())
}
