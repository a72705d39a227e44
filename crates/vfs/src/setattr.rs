//! Changing attributes: `chmod`, `chown`, `utimensat`, `truncate`, inode flags, extended attributes
//! and ACLs.
//!
//! These methods of `Session` check ownership, capabilities, inode flags and the state of the mount
//! by Linux's rules. They then call the file system, which changes its own structures first.
//! Several attributes set by one call change in one step. If the file system fails, the inode in
//! memory stays as it was. The FUSE server and the `extern4` crate call them.

use std::time::SystemTime;

use extern4_acl::{Acl, AclError, AclKind, XattrNamespace};
use extern4_sync::lock_order::Ordered;

use crate::attr::{FileFlags, FileType, Timespec, permission_bits};
use crate::clock;
use crate::cred::{Caps, Cred};
use crate::errno::{Errno, Result};
use crate::file::{drop_privileges, truncate};
use crate::fs::{SetAttr, XattrFlags};
use crate::inode::{AttributesGuard, Inode};
use crate::inode_attrs::SET_ID_BITS;
use crate::lookup::LookupFlags;
use crate::lookup::path::InodeRef;
use crate::mount::WriteGuard;
use crate::permission::{Access, in_group_or_capable, owner_or_capable, set_id_bits_lost};
use crate::permission_cache::AclState;
use crate::session::Session;
use crate::superblock::SuperBlock;
use crate::xattr;

/// The value to which `utimensat` sets a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// Nothing (`UTIME_OMIT`).
    Omit,
    /// This moment.
    At(Timespec),
}

impl From<Timespec> for SetTime {
    fn from(time: Timespec) -> Self {
        Self::At(time)
    }
}

impl From<SystemTime> for SetTime {
    fn from(time: SystemTime) -> Self {
        Self::At(time.into())
    }
}

/// Attributes to be set together; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, set-id bits and sticky bit.
    pub mode: Option<u32>,
    /// The new owner; `None` keeps it.
    pub uid: Option<u32>,
    /// The new group; `None` keeps it.
    pub gid: Option<u32>,
    /// The new access time; `None` keeps it.
    pub atime: Option<Timespec>,
    /// Last change of the contents.
    pub mtime: Option<Timespec>,
    /// Last change of anything: the present, if `None`. Setting it needs `CAP_SYS_ADMIN`; Linux has
    /// no such call. It is for callers that write changes back later.
    pub ctime: Option<Timespec>,
}

impl Session {
    /// Sets the permission bits. Owners only; `EOPNOTSUPP` on a symbolic link.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EPERM`, `EROFS`.
    pub fn chmod(&self, path: impl AsRef<[u8]>, mode: u16, how: LookupFlags) -> Result<()> {
        let file = self.lookup().inode(path.as_ref(), how)?;
        let _writer = WriteGuard::take(&file.mount)?;
        let sb = file.sb();
        let inode = file.inode();
        let _change = lock_for_mode(inode, mode);
        let ctime = Some(clock::now());
        let rights = sb.space_rights(&self.cred);
        let mut set = SetAttr {
            ctime,
            rights,
            ..SetAttr::default()
        };
        plan_mode(&self.cred, sb, inode, mode, &mut set)?;
        sb.fs().set_attr(inode, &set)
    }

    /// Sets owner and group; `None` leaves one as it is. A file that is no directory loses its
    /// set-id bits and capabilities, in any case.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EPERM`, `EDQUOT`, `EROFS`.
    pub fn chown(
        &self,
        path: impl AsRef<[u8]>,
        uid: Option<u32>,
        gid: Option<u32>,
        how: LookupFlags,
    ) -> Result<()> {
        let file = self.lookup().inode(path.as_ref(), how)?;
        let _writer = WriteGuard::take(&file.mount)?;
        let sb = file.sb();
        let inode = file.inode();
        let _change = inode.lock_exclusive();
        let ctime = Some(clock::now());
        let rights = sb.space_rights(&self.cred);
        let mut set = SetAttr {
            ctime,
            rights,
            ..SetAttr::default()
        };
        plan_owner(&self.cred, inode, uid, gid, &mut set)?;
        drop_capabilities(&self.cred, sb, inode)?;
        sb.fs().set_attr(inode, &set)
    }

    /// Does in one step what [`chown`](Self::chown), [`chmod`](Self::chmod) and
    /// [`utimens`](Self::utimens) do one after the other. If one of them would fail, nothing
    /// changes.
    ///
    /// # Errors
    /// The errors of the calls that it replaces.
    pub fn set_attributes(
        &self,
        path: impl AsRef<[u8]>,
        new: &Attributes,
        how: LookupFlags,
    ) -> Result<()> {
        if [new.atime, new.mtime, new.ctime]
            .into_iter()
            .flatten()
            .any(|time| time.nsec > 999_999_999)
        {
            return Err(Errno::EINVAL.into());
        }
        if new.ctime.is_some() && !self.cred.has(Caps::SYS_ADMIN) {
            return Err(Errno::EPERM.into());
        }
        let file = self.lookup().inode(path.as_ref(), how)?;
        let _writer = WriteGuard::take(&file.mount)?;
        let sb = file.sb();
        let inode = file.inode();
        let mode = new.mode.map(permission_bits);
        let _change = match (mode, new) {
            (
                Some(mode),
                Attributes {
                    uid: None,
                    gid: None,
                    atime: None,
                    mtime: None,
                    ctime: None,
                    ..
                },
            ) => lock_for_mode(inode, mode),
            _ => inode.lock_all_attributes(),
        };
        let atime = new.atime;
        let mtime = new.mtime;
        let rights = sb.space_rights(&self.cred);
        let ctime = Some(new.ctime.unwrap_or_else(clock::now));
        let mut set = SetAttr {
            atime,
            mtime,
            ctime,
            rights,
            ..SetAttr::default()
        };
        if new.uid.is_some() || new.gid.is_some() {
            plan_owner(&self.cred, inode, new.uid, new.gid, &mut set)?;
        }
        if let Some(mode) = mode {
            plan_mode(&self.cred, sb, inode, mode, &mut set)?;
        }
        if new.atime.is_some() || new.mtime.is_some() {
            check_owner_change(inode)?;
            owns(&self.cred, set.uid.unwrap_or(inode.owner().0))?;
        }
        if new.uid.is_some() || new.gid.is_some() {
            drop_capabilities(&self.cred, sb, inode)?;
        }
        sb.fs().set_attr(inode, &set)
    }

    /// Sets the times of last reading and last change. Users with write permission may set the
    /// present; only owners may set other times.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EPERM`, `EACCES`, `EROFS`.
    pub fn utimens(
        &self,
        path: impl AsRef<[u8]>,
        atime: SetTime,
        mtime: SetTime,
        how: LookupFlags,
    ) -> Result<()> {
        if atime == SetTime::Omit && mtime == SetTime::Omit {
            return Ok(());
        }
        for time in [atime, mtime] {
            if matches!(time, SetTime::At(time) if time.nsec > 999_999_999) {
                return Err(Errno::EINVAL.into());
            }
        }
        let file = self.lookup().inode(path.as_ref(), how)?;
        let _writer = WriteGuard::take(&file.mount)?;
        let sb = file.sb();
        let inode = file.inode();
        let _change = inode.lock_exclusive();
        if atime == SetTime::Now && mtime == SetTime::Now {
            if inode.perm().immutable() {
                return Err(Errno::EPERM.into());
            }
            if !owner_or_capable(&self.cred, inode) {
                self.permission(&file.mount, inode, Access::WRITE)?;
            }
        } else {
            check_owner_change(inode)?;
            if !owner_or_capable(&self.cred, inode) {
                return Err(Errno::EPERM.into());
            }
        }
        let now = clock::now();
        let moment = |time| match time {
            SetTime::Now => Some(now),
            SetTime::Omit => None,
            SetTime::At(time) => Some(time),
        };
        let atime = moment(atime);
        let mtime = moment(mtime);
        let rights = sb.space_rights(&self.cred);
        sb.fs().set_attr(
            inode,
            &SetAttr {
                atime,
                mtime,
                ctime: Some(now),
                rights,
                ..SetAttr::default()
            },
        )
    }

    /// Makes a regular file `size` bytes long.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EISDIR`, `EINVAL`, `EFBIG`, `EPERM`,
    /// `ENOSPC`, `EROFS`.
    pub fn truncate(&self, path: impl AsRef<[u8]>, size: u64, how: LookupFlags) -> Result<()> {
        let file = self.lookup().inode(path.as_ref(), how)?;
        let inode = file.inode();
        match inode.kind() {
            FileType::Regular => {}
            FileType::Directory => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::EINVAL.into()),
        }
        let _writer = WriteGuard::take(&file.mount)?;
        self.permission(&file.mount, inode, Access::WRITE)?;
        if inode.perm().append() {
            return Err(Errno::EPERM.into());
        }
        truncate(&self.cred, file.sb(), inode, size)
    }

    /// Takes the set-id bits off a regular file, unless the caller has `CAP_FSETID`, and
    /// capabilities, as a change of its contents does.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EROFS`, `EIO`.
    pub fn drop_set_id_bits(&self, path: impl AsRef<[u8]>, how: LookupFlags) -> Result<()> {
        let file = self.lookup().inode(path.as_ref(), how)?;
        let _writer = WriteGuard::take(&file.mount)?;
        let _change = file.inode().lock_exclusive();
        drop_privileges(&self.cred, file.sb(), file.inode(), clock::now())
    }

    /// Sets the inode flags (`FS_IOC_SETFLAGS`). Owners only; immutable and append-only need
    /// `CAP_LINUX_IMMUTABLE`. Flags that the file system sets itself stay as they are.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EPERM`, `EOPNOTSUPP`, `EROFS`.
    pub fn set_flags(
        &self,
        path: impl AsRef<[u8]>,
        flags: FileFlags,
        how: LookupFlags,
    ) -> Result<()> {
        self.set_flags_and_project(path, flags, None, how)
    }

    /// Like [`set_flags`](Self::set_flags), and sets the project to which the file is charged
    /// (`FS_IOC_FSSETXATTR`). `EDQUOT` if that exceeds the project's limits.
    ///
    /// # Errors
    /// The errors of [`set_flags`](Self::set_flags); `EDQUOT`.
    pub fn set_flags_and_project(
        &self,
        path: impl AsRef<[u8]>,
        flags: FileFlags,
        project: Option<u32>,
        how: LookupFlags,
    ) -> Result<()> {
        let file = self.lookup().inode(path.as_ref(), how)?;
        let _writer = WriteGuard::take(&file.mount)?;
        let sb = file.sb();
        let inode = file.inode();
        let _change = inode.lock_exclusive();
        if !owner_or_capable(&self.cred, inode) {
            return Err(Errno::EPERM.into());
        }
        let guarded = FileFlags::IMMUTABLE | FileFlags::APPEND;
        if (inode.attr().flags ^ flags).intersects(guarded) && !self.cred.has(Caps::LINUX_IMMUTABLE)
        {
            return Err(Errno::EPERM.into());
        }
        let flags = Some(flags);
        let ctime = Some(clock::now());
        let rights = sb.space_rights(&self.cred);
        let set = SetAttr {
            flags,
            project,
            ctime,
            rights,
            ..SetAttr::default()
        };
        sb.fs().set_attr(inode, &set)
    }

    /// Sets an extended attribute, ACLs included.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EEXIST`, `ENODATA`, `ERANGE`, `E2BIG`,
    /// `EOPNOTSUPP`, `EPERM`, `ENOSPC`, `EROFS`.
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        flags: XattrFlags,
        how: LookupFlags,
    ) -> Result<()> {
        let name = name.as_ref();
        xattr::check_name(name)?;
        if value.len() > xattr::XATTR_SIZE_MAX {
            return Err(Errno::E2BIG.into());
        }
        let file = self.lookup().inode(path.as_ref(), how)?;
        let _writer = WriteGuard::take(&file.mount)?;
        let _change = lock_for_xattr(file.inode(), name);
        if let Some(kind) = AclKind::from_xattr_name(name) {
            let acl = if value.is_empty() {
                Ok(None)
            } else {
                Acl::from_xattr(value)
            };
            return match acl {
                Err(AclError::Encoding) => Err(Errno::EINVAL.into()),
                Err(AclError::Version) => Err(Errno::EOPNOTSUPP.into()),
                acl => change_acl(&self.cred, &file, kind, acl),
            };
        }
        change_xattr(&self.cred, &file, name, Some(value), flags)
    }

    /// Removes an extended attribute: `ENODATA` if it is not there.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `ENODATA`, `EOPNOTSUPP`, `EPERM`,
    /// `EROFS`.
    pub fn remove_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        how: LookupFlags,
    ) -> Result<()> {
        let name = name.as_ref();
        xattr::check_name(name)?;
        let file = self.lookup().inode(path.as_ref(), how)?;
        let _writer = WriteGuard::take(&file.mount)?;
        let _change = lock_for_xattr(file.inode(), name);
        match AclKind::from_xattr_name(name) {
            Some(kind) => change_acl(&self.cred, &file, kind, Ok(None)),
            None => change_xattr(&self.cred, &file, name, None, XattrFlags::empty()),
        }
    }

    /// Sets an ACL, or without one removes it. Owners only. An access ACL that says no more than
    /// permission bits becomes just those.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EOPNOTSUPP`, `EINVAL`, `EACCES`,
    /// `EPERM`, `ENOSPC`, `EROFS`.
    pub fn set_acl(
        &self,
        path: impl AsRef<[u8]>,
        kind: AclKind,
        acl: Option<Acl>,
        how: LookupFlags,
    ) -> Result<()> {
        let file = self.lookup().inode(path.as_ref(), how)?;
        let _writer = WriteGuard::take(&file.mount)?;
        let _change = file.inode().lock_attributes();
        change_acl(&self.cred, &file, kind, Ok(acl))
    }
}

/// Enters a change of the mode into `set`, whose change of the owner comes before it. Locks: the
/// inode's attributes.
fn plan_mode(
    cred: &Cred,
    sb: &SuperBlock,
    inode: &Inode,
    mode: u16,
    set: &mut SetAttr,
) -> Result<()> {
    if inode.kind() == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    check_owner_change(inode)?;
    let (uid, gid, _) = inode.owner();
    owns(cred, set.uid.unwrap_or(uid))?;
    let mut mode = mode & 0o7777;
    if !in_group_or_capable(cred, set.gid.unwrap_or(gid)) {
        mode &= !0o2000;
    }
    // The ACL's owner, mask and other entries are the mode's bits.
    if inode.perm().acl() != AclState::None
        && sb.traits().acl
        && let Some(acl) = sb.acl(inode, AclKind::Access)?
    {
        set.acl = Some(sb.checker.intern(acl.with_mode(mode.into())));
    }
    set.mode = Some(mode);
    Ok(())
}

/// Fails with `EPERM` unless the caller is `owner`, or has `CAP_FOWNER`.
fn owns(cred: &Cred, owner: u32) -> Result<()> {
    if owner == cred.uid() || cred.has(Caps::FOWNER) {
        Ok(())
    } else {
        Err(Errno::EPERM.into())
    }
}

/// Enters a change of owner and group into `set`. Locks: `rwsem` exclusive.
fn plan_owner(
    cred: &Cred,
    inode: &Inode,
    uid: Option<u32>,
    gid: Option<u32>,
    set: &mut SetAttr,
) -> Result<()> {
    if uid.is_some() || gid.is_some() {
        check_owner_change(inode)?;
    } else if inode.perm().immutable() {
        // Even without a new owner or group, the call would change the time of the last change.
        return Err(Errno::EPERM.into());
    }
    let (owner, group, mode) = inode.owner();
    let is_owner = cred.uid() == owner;
    let capable = cred.has(Caps::CHOWN);
    let uid_allowed = uid.is_none_or(|uid| is_owner && uid == owner || capable);
    let gid_allowed =
        gid.is_none_or(|gid| is_owner && (gid == group || cred.in_group(gid)) || capable);
    if !uid_allowed || !gid_allowed {
        return Err(Errno::EPERM.into());
    }
    if !inode.is_dir() {
        let lost = set_id_bits_lost(cred, inode);
        if lost != 0 {
            // Taking the bits off is a chmod, and needs the right to one.
            check_owner_change(inode)?;
            if !owner_or_capable(cred, inode) {
                return Err(Errno::EPERM.into());
            }
            let mut mode = mode & 0o7777 & !lost;
            if !in_group_or_capable(cred, gid.unwrap_or(group)) {
                mode &= !0o2000;
            }
            set.mode = Some(mode);
        }
    }
    (set.uid, set.gid) = (uid, gid);
    Ok(())
}

/// Removes the capabilities of a file that gets another owner or group, after the permission
/// checks. They are gone even if the volume then has no room for the change of the owner. Locks:
/// `rwsem` exclusive.
fn drop_capabilities(cred: &Cred, sb: &SuperBlock, inode: &Inode) -> Result<()> {
    if inode.is_dir() {
        Ok(())
    } else {
        xattr::drop_capabilities(cred, sb, inode, clock::now())
    }
}

/// Sets an extended attribute, or removes it. Locks: the inode's attributes, for capabilities all
/// of them.
fn change_xattr(
    cred: &Cred,
    file: &InodeRef<'_>,
    name: &[u8],
    value: Option<&[u8]>,
    flags: XattrFlags,
) -> Result<()> {
    let sb = file.sb();
    let inode = file.inode();
    // This error comes before those about the caller's rights, as in Linux.
    if name == xattr::CAPABILITY && value.is_some_and(|value| !xattr::is_capability(value)) {
        return Err(Errno::EINVAL.into());
    }
    let space = xattr::permission(cred, &file.mount, inode, name, Access::WRITE)?;
    if space == XattrNamespace::Security {
        let need = if name == xattr::CAPABILITY {
            Caps::SETFCAP
        } else {
            Caps::SYS_ADMIN
        };
        if !cred.has(need) {
            return Err(Errno::EPERM.into());
        }
    }
    if name == xattr::CAPABILITY {
        inode.set_no_caps(false);
    }
    let context = sb.context_at(clock::now(), cred);
    sb.fs().set_xattr(inode, name, value, flags, context)
}

/// Sets or removes an ACL. An invalid ACL is refused only after the check that the caller is the
/// owner. Locks: the inode's attributes.
fn change_acl(
    cred: &Cred,
    file: &InodeRef<'_>,
    kind: AclKind,
    acl: Result<Option<Acl>, AclError>,
) -> Result<()> {
    let sb = file.sb();
    let inode = file.inode();
    check_owner_change(inode)?;
    if !xattr::has_acls(sb, inode) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if kind == AclKind::Default && !inode.is_dir() {
        return if acl == Ok(None) {
            Ok(())
        } else {
            Err(Errno::EACCES.into())
        };
    }
    if !owner_or_capable(cred, inode) {
        return Err(Errno::EPERM.into());
    }
    store_acl(cred, sb, inode, kind, acl.map_err(|_| Errno::EINVAL)?)
}

fn store_acl(
    cred: &Cred,
    sb: &SuperBlock,
    inode: &Inode,
    kind: AclKind,
    acl: Option<Acl>,
) -> Result<()> {
    let mut acl = acl;
    let mut mode = None;
    if kind == AclKind::Access
        && let Some(set) = &acl
    {
        let (bits, whole) = set.equiv_mode();
        let (_, gid, old) = inode.owner();
        let mut new = old & 0o7000 | permission_bits(bits);
        if !in_group_or_capable(cred, gid) {
            new &= !0o2000;
        }
        mode = Some(new);
        if whole {
            acl = None;
        }
    }
    if kind == AclKind::Access {
        // Read before it changes: a reader that asked the file system during the change would
        // combine the new ACL with the old mode. An ACL that cannot be read can still be replaced.
        let _ = sb.acl(inode, kind);
    }
    let acl = acl.map(|acl| sb.checker.intern(acl));
    let context = sb.context_at(clock::now(), cred);
    sb.fs().set_acl(inode, kind, acl, mode, context)
}

/// Locks an inode whose mode is to be set. A writer checks whether it has to remove set-id bits, so
/// none may appear while it writes.
fn lock_for_mode(inode: &Inode, mode: u16) -> Ordered<AttributesGuard<'_>> {
    if mode & SET_ID_BITS == 0 {
        inode.lock_attributes()
    } else {
        inode.lock_all_attributes()
    }
}

/// Locks an inode whose extended attribute is to be set. File capabilities exclude writers, too.
fn lock_for_xattr<'a>(inode: &'a Inode, name: &[u8]) -> Ordered<AttributesGuard<'a>> {
    if name == xattr::CAPABILITY {
        inode.lock_all_attributes()
    } else {
        inode.lock_attributes()
    }
}

/// Fails with `EPERM` for immutable and append-only files: not even the superuser may change the
/// attributes that owners may change.
fn check_owner_change(inode: &Inode) -> Result<()> {
    if inode.perm().immutable() || inode.perm().append() {
        Err(Errno::EPERM.into())
    } else {
        Ok(())
    }
}
