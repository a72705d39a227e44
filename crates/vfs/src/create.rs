//! Making files: open with `O_CREAT`, `mkdir`, `mknod`, `symlink`, `O_TMPFILE`.
//!
//! These methods of `Session` check the name, the rights of the caller and the state of the mount,
//! and then call the file system. A name is made under its lock. So of two threads that create it,
//! one makes the file, and the other gets `EEXIST` or opens that file. If the file system fails,
//! the name stays unbound. The FUSE server and the `extern4` crate call them; `rename` uses
//! `InodeInit` for whiteouts.

use std::sync::Arc;

use extern4_acl::{Acl, AclKind};
use extern4_sync::rcu_arc::RcuArc;

use crate::attr::{FileType, permission_bits};
use crate::clock;
use crate::cred::{Caps, Cred};
use crate::dcache::{Expect, LockedName};
use crate::dentry::Dentry;
use crate::errno::{Errno, Result};
use crate::file::{OpenFile, OpenHow};
use crate::fs::{NewKind, NewNode, SpaceRights};
use crate::inode::Inode;
use crate::lookup::PATH_MAX;
use crate::lookup::path::{Component, ParentRef, PathRef};
use crate::mount::{Location, WriteGuard};
use crate::open_flags::OpenFlags;
use crate::permission::{Access, in_group_or_capable};
use crate::session::Session;
use crate::superblock::{SuperBlock, directory};

impl Session {
    /// Makes a directory.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EEXIST` if the name exists, `ENOSPC`,
    /// `EDQUOT`, `EROFS`, `EMLINK`.
    pub fn mkdir(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<Location> {
        self.make(path.as_ref(), NewKind::Directory, mode & 0o1777)
    }

    /// Makes a symbolic link to `target`, which need not exist.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EEXIST` if the name exists, `ENOSPC`,
    /// `EDQUOT`, `EROFS`; `ENOENT` for an empty target, `ENAMETOOLONG` for one over 4,095 bytes.
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<Location> {
        let target = target.as_ref();
        match target.len() {
            0 => Err(Errno::ENOENT.into()),
            len if len > PATH_MAX => Err(Errno::ENAMETOOLONG.into()),
            _ if target.contains(&0) => Err(Errno::EINVAL.into()),
            _ => self.make(path.as_ref(), NewKind::Symlink(target), 0o777),
        }
    }

    /// Makes a regular file, device node, pipe or socket. Devices need `CAP_MKNOD`. `EPERM` for a
    /// directory, `EINVAL` for a symbolic link.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EEXIST` if the name exists, `ENOSPC`,
    /// `EDQUOT`, `EROFS`.
    pub fn mknod(&self, path: impl AsRef<[u8]>, kind: NewKind<'_>, mode: u16) -> Result<Location> {
        match kind {
            NewKind::Directory => Err(Errno::EPERM.into()),
            NewKind::Symlink(_) => Err(Errno::EINVAL.into()),
            kind => self.make(path.as_ref(), kind, mode & 0o7777),
        }
    }

    fn make(&self, path: &[u8], kind: NewKind<'_>, mode: u16) -> Result<Location> {
        let is_dir = kind == NewKind::Directory;
        let parent = self.lookup().parent(path, Expect::Negative)?;
        self.with_new_name(parent, is_dir, |parent, name, locked| {
            self.may_create(parent)?;
            // Overlay file systems mark removed names with character device 0/0, which any user may
            // make.
            let needs_mknod = match kind {
                NewKind::CharDevice(rdev) => rdev.major != 0 || rdev.minor != 0,
                NewKind::BlockDevice(_) => true,
                _ => false,
            };
            if needs_mknod && !self.cred.has(Caps::MKNOD) {
                return Err(Errno::EPERM.into());
            }
            self.create_in(parent, name, locked, kind, mode)
        })
    }

    /// Locks a name that does not exist yet, and calls `make`, which asks
    /// [`may_create`](Self::may_create). The order of errors is Linux's: `EEXIST` comes before
    /// `EROFS`, and that before `EACCES`.
    pub(crate) fn with_new_name<T>(
        &self,
        ParentRef { dir: parent, last }: ParentRef<'_>,
        is_dir: bool,
        make: impl FnOnce(&PathRef<'_>, &[u8], LockedName<'_>) -> Result<T>,
    ) -> Result<T> {
        let Component::Name(name) = last.component() else {
            return Err(Errno::EEXIST.into());
        };
        let writable = WriteGuard::take(&parent.mount);
        let _names = parent.inode().lock_names();
        let canonical = parent.sb().name_to_change(parent.inode(), name)?;
        let key = parent.sb().dcache.key(&parent.dentry, &canonical);
        let locked = parent.sb().lock_name(key, name, Expect::Negative)?;
        if last.slash && !is_dir {
            return Err(Errno::ENOENT.into());
        }
        let _writer = writable?;
        make(&parent, name, locked)
    }

    /// Checks whether the caller may make names in this directory. Locks: its `rwsem`.
    pub(crate) fn may_create(&self, parent: &PathRef<'_>) -> Result<()> {
        if parent.inode().perm().dead() {
            return Err(Errno::ENOENT.into());
        }
        self.permission(&parent.mount, parent.inode(), Access::WRITE | Access::EXEC)
    }

    /// Makes a node under a name that does not exist. Locks: `rwsem` of the directory.
    fn create_in(
        &self,
        parent: &PathRef<'_>,
        name: &[u8],
        locked: LockedName<'_>,
        kind: NewKind<'_>,
        mode: u16,
    ) -> Result<Location> {
        let sb = parent.sb();
        let dir = parent.inode();
        let new = InodeInit::inherit(sb, &self.cred, dir, kind, mode, self.umask)?;
        locked.hide();
        let new = sb.fs().create(dir, Some(name), &new.node(kind))?;
        let inode = sb.icache.insert(sb.fs(), new);
        let dentry = sb.bind_made(locked, name, inode)?;
        Ok(Location {
            mount: parent.mount.clone(),
            dentry,
        })
    }

    /// Opens a file, and makes it if it does not exist.
    pub(crate) fn open_or_create(&self, path: &[u8], how: OpenHow) -> Result<OpenFile> {
        let flags = how.flags;
        let (mut walk, mut last) = self.lookup().walk_to_last(path, how.resolve.limits())?;
        loop {
            let dir_owner = directory(&walk.at.dentry).owner();
            match last.component() {
                Component::Name(_) if last.slash => return Err(Errno::EISDIR.into()),
                Component::None | Component::Dot => {}
                Component::DotDot => walk.up()?,
                Component::Name(name) => {
                    let mut dentry = walk.child(name)?;
                    if dentry.inode().is_none() {
                        match self.create_unless_there(&walk.at, name, how.mode)? {
                            Created::New(location) => return self.open_new(location, flags, path),
                            Created::There(found) => dentry = found,
                        }
                    }
                    if flags.contains(OpenFlags::EXCL) {
                        return Err(Errno::EEXIST.into());
                    }
                    let inode = directory(&dentry);
                    if inode.kind() == FileType::Symlink && !flags.contains(OpenFlags::NOFOLLOW) {
                        last = walk.follow(inode)?;
                        continue;
                    }
                    walk.step(dentry)?;
                }
            }
            if flags.contains(OpenFlags::EXCL) {
                return Err(Errno::EEXIST.into());
            }
            let location = walk.into_parent().into_location();
            if location.inode().is_dir() {
                return Err(Errno::EISDIR.into());
            }
            self.may_reopen(dir_owner, &location)?;
            return self.open_at(
                location,
                flags - (OpenFlags::CREATE | OpenFlags::EXCL),
                path,
            );
        }
    }

    /// Checks whether `O_CREAT` may open an existing file. `EACCES` for a file of another user in a
    /// sticky directory that every user may write to. Regular files and pipes are exempt: for those
    /// Linux asks `fs.protected_regular` and `fs.protected_fifos`, which are off here.
    fn may_reopen(&self, (dir_uid, _, dir_mode): (u32, u32, u16), found: &Location) -> Result<()> {
        let uid = found.inode().owner().0;
        let open_to_all = dir_mode & 0o1002 == 0o1002;
        let others = uid != dir_uid && uid != self.cred.uid();
        let exempt = matches!(found.kind(), FileType::Regular | FileType::Fifo);
        if open_to_all && others && !exempt {
            Err(Errno::EACCES.into())
        } else {
            Ok(())
        }
    }

    fn create_unless_there(&self, parent: &PathRef<'_>, name: &[u8], mode: u16) -> Result<Created> {
        let writable = WriteGuard::take(&parent.mount);
        let _names = parent.inode().lock_names();
        let canonical = parent.sb().name_to_change(parent.inode(), name)?;
        let key = parent.sb().dcache.key(&parent.dentry, &canonical);
        let locked = parent.sb().lock_name(key, name, Expect::Any)?;
        if locked.dentry().inode().is_some() {
            return Ok(Created::There(locked.dentry().clone()));
        }
        let _writer = writable?;
        self.may_create(parent)?;
        self.create_in(parent, name, locked, NewKind::Regular, mode & 0o7777)
            .map(Created::New)
    }

    /// Opens the file that this call has made. The maker may open it whatever its mode is.
    fn open_new(&self, location: Location, flags: OpenFlags, path: &[u8]) -> Result<OpenFile> {
        let flags = flags - (OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC);
        OpenFile::new(self, location, flags, path)
    }

    /// Makes a file without a name in the directory `path`. Without `EXCL`, it may get a name
    /// later. `EPERM` if the directory has been removed.
    pub(crate) fn open_tmpfile(&self, path: &[u8], how: OpenHow) -> Result<OpenFile> {
        let follow = !how.flags.contains(OpenFlags::NOFOLLOW);
        let parent = self.lookup().path(path, how.resolve.with_follow(follow))?;
        let sb = parent.sb();
        let dir = parent.inode();
        if !dir.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let _writer = WriteGuard::take(&parent.mount)?;
        self.permission(&parent.mount, parent.inode(), Access::WRITE | Access::EXEC)?;
        let kind = NewKind::Regular;
        let new = InodeInit::inherit(sb, &self.cred, dir, kind, how.mode & 0o7777, self.umask)?;
        let new = {
            let _names = dir.lock_names();
            if dir.perm().dead() {
                // Not `ENOENT`, because this makes no name. ext4 on Linux, too, makes no inode in a
                // directory that has been removed.
                return Err(Errno::EPERM.into());
            }
            sb.fs().create(dir, None, &new.node(kind))?
        };
        let inode = sb.icache.insert(sb.fs(), new);
        inode.count_links(sb.write_gate.unlinked());
        if !how.flags.contains(OpenFlags::EXCL) {
            inode.set_linkable();
        }
        let dentry = Dentry::nameless(sb.dcache.new_id(), &parent.dentry, inode);
        let location = Location {
            mount: parent.mount.clone(),
            dentry: sb.dcache.counted(dentry),
        };
        OpenFile::new(
            self,
            location,
            how.flags - (OpenFlags::TMPFILE | OpenFlags::EXCL),
            path,
        )
    }
}

enum Created {
    New(Location),
    There(RcuArc<Dentry>),
}

/// The owner, mode and ACLs of a new inode, which it inherits from its directory and its creator.
pub(crate) struct InodeInit {
    mode: u16,
    uid: u32,
    gid: u32,
    rights: SpaceRights,
    acl: Option<Acl>,
    default_acl: Option<Arc<Acl>>,
}

impl InodeInit {
    pub(crate) fn inherit(
        sb: &SuperBlock,
        cred: &Cred,
        dir: &Inode,
        kind: NewKind<'_>,
        mode: u16,
        umask: u16,
    ) -> Result<Self> {
        let (_, dir_gid, dir_mode) = dir.owner();
        let mut mode = mode;
        let mut gid = cred.gid();
        if sb.traits().bsd_groups {
            // This is enough: without the bit, new directories pass the group on as well.
            gid = dir_gid;
        } else if dir_mode & 0o2000 != 0 {
            gid = dir_gid;
            if kind == NewKind::Directory {
                mode |= 0o2000;
            } else if mode & 0o2010 == 0o2010 && !in_group_or_capable(cred, gid) {
                mode &= !0o2000;
            }
        }
        let inherits = sb.traits().acl && kind.file_type() != FileType::Symlink;
        let default = if inherits {
            sb.acl(dir, AclKind::Default)?
        } else {
            None
        };
        let uid = cred.uid();
        let rights = sb.space_rights(cred);
        let new = Self {
            mode,
            uid,
            gid,
            rights,
            acl: None,
            default_acl: None,
        };
        Ok(match default {
            Some(default) => {
                let (acl, mode) = default.for_new_file(mode.into());
                let default_acl = (kind == NewKind::Directory).then_some(default);
                Self {
                    mode: permission_bits(mode),
                    acl,
                    default_acl,
                    ..new
                }
            }
            None if kind.file_type() == FileType::Symlink => new,
            None => Self {
                mode: mode & !umask,
                ..new
            },
        })
    }

    pub(crate) fn node<'a>(&'a self, kind: NewKind<'a>) -> NewNode<'a> {
        NewNode {
            kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            acl: self.acl.as_ref(),
            default_acl: self.default_acl.as_deref(),
            now: clock::now(),
            rights: self.rights,
        }
    }
}
