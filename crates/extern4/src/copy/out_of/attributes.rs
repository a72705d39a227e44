//! The attributes that a copy on the host keeps of its original, apart from its contents.
//!
//! The order matters. A change of owner takes set-id bits and capabilities away, so it comes first.
//! A mode may forbid later steps, so attributes come before it. An ACL holds the group's bits of
//! the mode, so it comes after the mode. Times come last, because every other step changes them.
//!
//! `file` and `filling` set them on each copy. An attribute that cannot be kept does not end the
//! copy; the summary has all such losses.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use extern4_vfs::{AclKind, Timespec};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags, chmod, chownat, fchmod,
    fchown, fremovexattr, fsetxattr, fstat, futimens, lsetxattr, openat, utimensat,
};
use rustix::io::Errno;

use super::super::losses::CopyLosses;
use super::super::options::{CopyOptions, NewAttributes, OldAttributes};
use super::fault::Fault;
use crate::metadata::Metadata;
use crate::session::Session;
use crate::volume::Volume;

const ACCESS: &str = AclKind::Access.xattr_name();
const DEFAULT: &str = AclKind::Default.xattr_name();

/// The attributes to keep.
#[derive(Clone, Copy)]
pub(super) struct Keep<'a> {
    pub(super) options: &'a CopyOptions,
    /// The destination gives new files an ACL, which the copy removes where the original has none.
    pub(super) inherits_acl: bool,
}

/// A file in the volume with everything that is known of it.
pub(super) struct Original<'a> {
    pub(super) volume: &'a Volume,
    /// The path in the volume, for messages.
    pub(super) path: &'a Path,
    /// A session whose working directory is the file's directory.
    pub(super) directory: &'a Session,
    /// The name in that directory. So paths of any depth can be reached.
    pub(super) name: &'a OsStr,
    pub(super) metadata: &'a Metadata,
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Original<'_> {
    /// Returns the attributes that the copy gets.
    fn new_attributes(&self, keep: Keep<'_>) -> NewAttributes {
        let metadata = self.metadata;
        let uid = metadata.uid();
        let gid = metadata.gid();
        let mode = metadata.mode();
        let old = OldAttributes {
            uid,
            gid,
            mode,
            times: (metadata.atime(), metadata.mtime()),
        };
        keep.options.new_attributes(old)
    }

    /// Gives an open copy the attributes of its original.
    pub(super) fn keep(
        &self,
        copy: impl AsFd,
        keep: Keep<'_>,
        losses: &mut CopyLosses,
    ) -> Result<(), Fault> {
        let copy = copy.as_fd();
        let new = self.new_attributes(keep);
        let mut mode = new.mode;
        if !own(losses, |uid, gid| fchown(copy, uid, gid), &new)? {
            // A set-id bit for another owner than the original's is a security hole.
            mode = mode.map(|mode| mode & !0o6000);
        }
        if keep.options.preserve.xattr {
            for name in self.xattr_names()? {
                let Some(value) = self.directory.lgetxattr(self.name, &name)? else {
                    continue;
                };
                if let Err(error) = fsetxattr(copy, &*name, &value, XattrFlags::empty()) {
                    losses.xattr(self.path, &name, error.into(), is_root());
                }
            }
        }
        if let Some(mode) = mode {
            fchmod(copy, Mode::from_raw_mode(mode)).map_err(io::Error::from)?;
            self.acl(copy, ACCESS, AclKind::Access, keep, losses)?;
            if self.metadata.is_dir() {
                self.acl(copy, DEFAULT, AclKind::Default, keep, losses)?;
            }
        }
        if let Some(times) = new.times {
            futimens(copy, &timestamps(times)).map_err(io::Error::from)?;
        }
        Ok(())
    }

    /// Gives a copy that cannot be opened, such as a link or a device node, its original's
    /// attributes.
    pub(super) fn keep_at(
        &self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        keep: Keep<'_>,
        losses: &mut CopyLosses,
    ) -> Result<(), Fault> {
        let new = self.new_attributes(keep);
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let is_owned = own(
            losses,
            |uid, gid| chownat(directory, name, uid, gid, nofollow),
            &new,
        )?;
        if keep.options.preserve.xattr {
            let path = through_proc(directory).join(name);
            for attribute in self.xattr_names()? {
                let Some(value) = self.directory.lgetxattr(self.name, &attribute)? else {
                    continue;
                };
                if let Err(error) = lsetxattr(&path, &*attribute, &value, XattrFlags::empty()) {
                    losses.xattr(self.path, &attribute, error.into(), is_root());
                }
            }
        }
        if let Some(mode) = new.mode.filter(|_| !self.metadata.is_symlink()) {
            set_mode(
                directory,
                name,
                if is_owned { mode } else { mode & !0o6000 },
            )?;
        }
        if let Some(times) = new.times {
            utimensat(directory, name, &timestamps(times), nofollow).map_err(io::Error::from)?;
        }
        Ok(())
    }

    /// Returns the names of the attributes that are not ACLs.
    fn xattr_names(&self) -> crate::Result<Vec<OsString>> {
        let mut names = self.directory.llistxattr(self.name)?;
        names.retain(|name| name != ACCESS && name != DEFAULT);
        Ok(names)
    }

    fn acl(
        &self,
        copy: BorrowedFd<'_>,
        name: &str,
        kind: AclKind,
        keep: Keep<'_>,
        losses: &mut CopyLosses,
    ) -> Result<(), Fault> {
        match self.directory.acl(self.name, kind)? {
            Some(acl) => {
                if let Err(error) = fsetxattr(copy, name, &acl.to_xattr(), XattrFlags::empty()) {
                    losses.xattr(self.path, OsStr::new(name), error.into(), is_root());
                }
            }
            None if keep.inherits_acl => {
                // There is no ACL to remove where the file system keeps none.
                let _ = fremovexattr(copy, name);
            }
            None => {}
        }
        Ok(())
    }
}

fn timestamps((access, modification): (Timespec, Timespec)) -> Timestamps {
    let time = |time: Timespec| rustix::fs::Timespec {
        tv_sec: time.sec,
        tv_nsec: time.nsec.into(),
    };
    Timestamps {
        last_access: time(access),
        last_modification: time(modification),
    }
}

/// Gives a device, pipe or socket its mode, from which the umask may have taken bits. A link has
/// none.
fn set_mode(directory: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
    let file = openat(
        directory,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let found = fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Symlink && found.st_mode & 0o7777 != mode
    {
        chmod(through_proc(file.as_fd()), Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// Returns a path to an open file, for a system call that takes no descriptor.
fn through_proc(file: BorrowedFd<'_>) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

/// Changes the owner, or at least the group, if they are set. Returns whether both are right.
fn own(
    losses: &mut CopyLosses,
    change: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    new: &NewAttributes,
) -> io::Result<bool> {
    let uid = new.uid.map(Uid::from_raw);
    let gid = new.gid.map(Gid::from_raw);
    if uid.is_none() && gid.is_none() {
        return Ok(true);
    }
    match change(uid, gid) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL) if !is_root() => {
            // A user may give a file to one of its groups.
            let _ = change(None, gid);
            losses.owner();
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
