//! The attributes of copies in a volume: the attributes that the options ask to keep.
//!
//! `into` calls it when the contents of a copy are written. Where one call can set several, it
//! does. A failure is reported as that of the copy.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use extern4_vfs::{Acl, AclKind, Attributes, Errno, FileFlags, FileType, SetTime, XattrFlags};

use super::super::failure::{CopyError, Failure};
use super::super::observer::CopyObserver;
use super::super::options::{NewAttributes, OldAttributes};
use super::super::source::{Node, Xattrs};
use super::CopyInto;
use crate::file_flags::{FORBIDDING, SETTABLE, set_flags, set_project};
use crate::session::Session;

const ACCESS: &str = AclKind::Access.xattr_name();
const DEFAULT: &str = AclKind::Default.xattr_name();

/// A copy that gets flags that forbid changes when all files are copied.
pub(super) struct Protection {
    directory: Session,
    name: PathBuf,
    /// The path of the original.
    shown: PathBuf,
    flags: FileFlags,
}

impl CopyInto<'_> {
    /// Returns the attributes that a copy gets.
    fn new_attributes(&self, node: &Node) -> NewAttributes {
        let Node { uid, gid, mode, .. } = *node;
        self.options.new_attributes(OldAttributes {
            uid,
            gid,
            mode,
            times: (node.atime, node.mtime),
        })
    }

    /// Gives a copy the attributes of its original, in one step where nothing prevents that.
    pub(super) fn keep(
        &mut self,
        named: &Path,
        node: &Node,
        xattrs: Result<Xattrs, CopyError>,
        (directory, name): (&Session, &OsStr),
        has_acl: bool,
    ) -> Result<(), Failure> {
        let new = self.new_attributes(node);
        if !has_acl && xattrs.as_ref().is_ok_and(Vec::is_empty) {
            let times = new.times;
            let new = Attributes {
                mode: new.mode.filter(|_| node.kind != FileType::Symlink),
                uid: new.uid,
                gid: new.gid,
                atime: times.map(|(atime, _)| atime),
                mtime: times.map(|(_, mtime)| mtime),
                ctime: None,
            };
            if directory.set_attributes(name, &new).is_ok() {
                return self.keep_flags(named, node, directory, Path::new(name));
            }
        }
        self.keep_by_steps(named, node, xattrs, directory, name)
    }

    /// Gives a copy the attributes of its original, one by one. A change of owner takes set-id bits
    /// and capabilities away, so it comes first. An ACL holds the group's bits of the mode, so it
    /// comes after the mode. Every step changes the times, so they come last.
    fn keep_by_steps(
        &mut self,
        named: &Path,
        node: &Node,
        xattrs: Result<Xattrs, CopyError>,
        directory: &Session,
        name: &OsStr,
    ) -> Result<(), Failure> {
        let link = node.kind == FileType::Symlink;
        // A destination that the caller named may be a link to the file that was written.
        let leads_on = !link
            && directory
                .symlink_metadata(name)
                .is_ok_and(|found| found.is_symlink());
        let followed = if leads_on {
            directory.canonicalize(name).ok()
        } else {
            None
        };
        let name = followed.unwrap_or_else(|| name.into());
        let new = self.new_attributes(node);
        let mut mode = new.mode;
        let owned = match (new.uid, new.gid) {
            (None, None) => Ok(()),
            (uid, gid) => directory.lchown(&name, uid, gid),
        };
        match owned {
            Ok(()) => {}
            Err(error) if error.errno() == Errno::EPERM && directory.cred().uid() != 0 => {
                // A user may give a file to one of its groups.
                let _ = directory.lchown(&name, None, new.gid);
                self.summary.losses.owner();
                // A set-id bit for another owner than the original's is a security hole.
                mode = mode.map(|mode| mode & !0o6000);
            }
            Err(error) => return Err(error.into()),
        }
        let xattrs = xattrs?;
        if self.options.preserve.xattr {
            for (attribute, value) in xattrs
                .iter()
                .filter(|(name, _)| name != ACCESS && name != DEFAULT)
            {
                if let Err(error) =
                    directory.lsetxattr(&name, attribute, value, XattrFlags::empty())
                {
                    let error = std::io::Error::from_raw_os_error(i32::from(error.errno().raw()));
                    self.summary
                        .losses
                        .xattr(named, attribute, error, directory.cred().uid() == 0);
                }
            }
        }
        if let Some(mode) = mode.filter(|_| !link) {
            modes(directory, &name, mode, node.is_dir(), &xattrs)?;
        }
        if let Some((access, modification)) = new.times {
            directory.lset_times(&name, SetTime::At(access), SetTime::At(modification))?;
        }
        self.keep_flags(named, node, directory, &name)
    }

    /// Gives a copy the inode flags and the project of a file of a volume. Flags that forbid
    /// changes wait until the copy of all files ends.
    fn keep_flags(
        &mut self,
        named: &Path,
        node: &Node,
        directory: &Session,
        name: &Path,
    ) -> Result<(), Failure> {
        let Some((flags, project)) = node.flags.filter(|_| self.options.preserve.xattr) else {
            return Ok(());
        };
        let found = directory.symlink_metadata(name)?;
        if project != found.project() {
            set_project(directory, name, project)?;
        }
        let wanted = (found.flags() - SETTABLE) | flags;
        let now = wanted - FORBIDDING;
        if now != found.flags() {
            set_flags(directory, name, now)?;
        }
        if wanted != now {
            let directory = directory.clone();
            let name = name.to_owned();
            let shown = named.to_owned();
            self.protections.push(Protection {
                directory,
                name,
                shown,
                flags: wanted,
            });
        }
        Ok(())
    }

    /// Sets the flags that forbid changes.
    pub(super) fn protect(&mut self, observer: &mut dyn CopyObserver) {
        for Protection {
            directory,
            name,
            shown,
            flags,
        } in std::mem::take(&mut self.protections)
        {
            let protected = set_flags(&directory, &name, flags);
            self.summary
                .note(protected.map_err(Into::into), &shown, &name, observer);
        }
    }
}

/// Gives a copy the mode and the ACLs of its original.
fn modes(
    directory: &Session,
    name: &Path,
    mode: u32,
    is_directory: bool,
    xattrs: &Xattrs,
) -> crate::Result<()> {
    let acl = |attribute: &str| {
        let (_, value) = xattrs.iter().find(|(name, _)| name == attribute)?;
        Acl::from_xattr(value).ok().flatten()
    };
    let access = acl(ACCESS);
    // The directory may have given the copy an ACL.
    if access.is_none() && directory.acl(name, AclKind::Access)?.is_some() {
        directory.set_acl(name, AclKind::Access, None)?;
    }
    directory.set_permissions(name, mode)?;
    if let Some(acl) = access {
        directory.set_acl(name, AclKind::Access, Some(acl))?;
    }
    if is_directory {
        let default = acl(DEFAULT);
        if default.is_some() || directory.acl(name, AclKind::Default)?.is_some() {
            directory.set_acl(name, AclKind::Default, default)?;
        }
    }
    Ok(())
}
