//! The attributes that a copy keeps of a file, apart from its contents.
//!
//! The order matters. A change of owner takes set-id bits and capabilities away, so it comes first.
//! A mode may forbid later steps, so attributes come before it. An ACL holds the group's bits of
//! the mode, so it comes after the mode. Times come last, because every other step changes them.
//!
//! `copier` sets them on each copy. An attribute that cannot be kept does not end the copy; the
//! losses are reported once at the end.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{AclKind, Metadata, Session, Timespec, XattrNamespace};
use rustix::fs::{
    AtFlags, Gid, Mode, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fremovexattr, fsetxattr,
    futimens, lsetxattr, utimensat,
};
use rustix::io::Errno;

use crate::app::{App, Opened, host_reason};
use crate::exit_status::ExitStatus;
use crate::owner::OwnerIds;
use crate::text::{counted, quoted};

use super::options::{Kept, NewAttributes, OldAttributes};

const ACCESS: &str = AclKind::Access.xattr_name();
const DEFAULT: &str = AclKind::Default.xattr_name();

/// The attributes to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keep {
    /// Those of the original.
    pub(super) kept: Kept,
    /// The owner that the command line says.
    pub(super) owner: OwnerIds,
    /// The destination gives new files an ACL, which the copy removes where the original has none.
    pub(super) inherits_acl: bool,
}

/// The attributes that could not be kept, for one message at the end.
#[derive(Default)]
pub(super) struct Lost {
    owners: u64,
    devices: Vec<PathBuf>,
    xattrs: u64,
    first_xattr: Option<(PathBuf, OsString, io::Error)>,
    /// An attribute was lost that this user should have been able to keep. Losses that only root
    /// could have prevented count for root alone.
    failed: bool,
}

/// A file in the volume with everything that is known of it.
pub(super) struct Original<'a> {
    pub(super) volume: &'a Opened,
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

impl Lost {
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
        self.failed |= privileged || !guarded;
        self.first_xattr.get_or_insert_with(|| (path.to_owned(), name.to_owned(), error));
    }

    /// Reports the losses, with one message for each kind.
    pub(super) fn report(&self, app: &mut App) {
        if self.owners > 0 {
            app.note(format_args!(
                "warning: the owners of {} are not kept: only root can do that",
                counted(self.owners, "file", "files")
            ));
        }
        for path in &self.devices {
            let path = crate::text::escape(path.as_os_str().as_bytes());
            app.note_at(path, "warning: only root can make devices; left out");
        }
        if let Some((path, name, error)) = &self.first_xattr {
            let message = format!(
                "cannot keep {}, such as {} of {}: {}",
                counted(self.xattrs, "extended attribute", "extended attributes"),
                crate::text::escape(name.as_bytes()),
                quoted(crate::text::escape(path.as_os_str().as_bytes())),
                host_reason(error),
            );
            if self.failed {
                app.fail(ExitStatus::Failed, message);
            } else {
                app.note(format_args!("warning: {message}"));
            }
        }
    }
}

impl Original<'_> {
    /// Returns the attributes that the copy gets.
    fn new_attributes(&self, keep: Keep) -> NewAttributes {
        let metadata = self.metadata;
        let (uid, gid, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
        OldAttributes { uid, gid, mode, times: (metadata.atime(), metadata.mtime()) }
            .kept_by(keep.kept, &keep.owner)
    }

    /// Gives an open copy the attributes of its original.
    pub(super) fn keep(
        &self,
        copy: impl AsFd,
        keep: Keep,
        lost: &mut Lost,
    ) -> Result<(), super::data::Error> {
        let copy = copy.as_fd();
        let new = self.new_attributes(keep);
        let mut mode = new.mode;
        if !own(lost, |uid, gid| fchown(copy, uid, gid), &new)? {
            // A set-id bit for another owner than the original's is a security hole.
            mode = mode.map(|mode| mode & !0o6000);
        }
        if keep.kept.xattr {
            for name in self.xattr_names()? {
                let Some(value) = self.directory.lgetxattr(self.name, &name)? else { continue };
                if let Err(error) = fsetxattr(copy, &*name, &value, XattrFlags::empty()) {
                    lost.xattr(self.path, &name, error.into(), is_root());
                }
            }
        }
        if let Some(mode) = mode {
            fchmod(copy, Mode::from_raw_mode(mode)).map_err(io::Error::from)?;
            self.acl(copy, ACCESS, AclKind::Access, keep, lost)?;
            if self.metadata.is_dir() {
                self.acl(copy, DEFAULT, AclKind::Default, keep, lost)?;
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
        keep: Keep,
        lost: &mut Lost,
    ) -> Result<(), super::data::Error> {
        let new = self.new_attributes(keep);
        own(lost, |uid, gid| chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW), &new)?;
        if keep.kept.xattr {
            // No system call takes a directory and a name here; the directory's entry in /proc
            // serves as well.
            let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
            for attribute in self.xattr_names()? {
                let Some(value) = self.directory.lgetxattr(self.name, &attribute)? else { continue };
                if let Err(error) = lsetxattr(&path, &*attribute, &value, XattrFlags::empty()) {
                    lost.xattr(self.path, &attribute, error.into(), is_root());
                }
            }
        }
        if let Some(times) = new.times {
            let nofollow = AtFlags::SYMLINK_NOFOLLOW;
            utimensat(directory, name, &timestamps(times), nofollow).map_err(io::Error::from)?;
        }
        Ok(())
    }

    /// Returns the names of the attributes that are not ACLs.
    fn xattr_names(&self) -> extern4::Result<Vec<OsString>> {
        let mut names = self.directory.llistxattr(self.name)?;
        names.retain(|name| name != ACCESS && name != DEFAULT);
        Ok(names)
    }

    fn acl(
        &self,
        copy: BorrowedFd<'_>,
        name: &str,
        kind: AclKind,
        keep: Keep,
        lost: &mut Lost,
    ) -> Result<(), super::data::Error> {
        match self.directory.acl(self.name, kind)? {
            Some(acl) => {
                if let Err(error) = fsetxattr(copy, name, &acl.to_xattr(), XattrFlags::empty()) {
                    lost.xattr(self.path, OsStr::new(name), error.into(), is_root());
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
    let time = |time: Timespec| rustix::fs::Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
    Timestamps { last_access: time(access), last_modification: time(modification) }
}

/// Changes the owner, or at least the group, if they are set. Returns whether both are right.
fn own(
    lost: &mut Lost,
    change: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    new: &NewAttributes,
) -> io::Result<bool> {
    let (uid, gid) = (new.uid.map(Uid::from_raw), new.gid.map(Gid::from_raw));
    if uid.is_none() && gid.is_none() {
        return Ok(true);
    }
    match change(uid, gid) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL) if !is_root() => {
            // A user may give a file to one of its own groups.
            let _ = change(None, gid);
            lost.owner();
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
