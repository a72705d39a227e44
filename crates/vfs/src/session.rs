//! Sessions: who calls, and from where.
//!
//! A [`Session`] is what a process is to the kernel: credentials, a root, a working directory, a umask. Its methods are
//! the system calls. It is cheap to clone and holds nothing that changes under another holder's feet, so each thread
//! may have its own and they may all act at once.
//!
//! Calls of the `...at` family start from a directory that is given: [`Session::at`] is the same session with that for
//! its working directory.

use std::sync::Arc;

use crate::acl::{Acl, AclKind};
use crate::attr::{Attr, FileType, StatFs};
use crate::cred::{Caps, Cred};
use crate::errno::{Errno, Result};
use crate::mount::{Location, Mount, Namespace};
use crate::namei::{How, Last, Resolve, Spot, Walk};
use crate::permission::Access;
use crate::xattr;

/// A caller of the VFS. Any thread may use it.
#[derive(Clone)]
pub struct Session {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) cred: Arc<Cred>,
    pub(crate) root: Location,
    pub(crate) cwd: Location,
    pub(crate) umask: u16,
}

impl Session {
    /// A session at the root of a namespace, with umask 022.
    pub fn new(namespace: &Arc<Namespace>, cred: Cred) -> Self {
        let root = namespace.root();
        Self { namespace: Arc::clone(namespace), cred: Arc::new(cred), cwd: root.clone(), root, umask: 0o022 }
    }

    /// The credentials.
    pub fn cred(&self) -> &Cred {
        &self.cred
    }

    /// The namespace.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// The root directory.
    pub fn root(&self) -> &Location {
        &self.root
    }

    /// The working directory.
    pub fn cwd(&self) -> &Location {
        &self.cwd
    }

    /// The same session with other credentials.
    pub fn with_cred(&self, cred: Cred) -> Self {
        Self { cred: Arc::new(cred), ..self.clone() }
    }

    /// The same session with another umask; only its permission bits count.
    pub fn with_umask(&self, umask: u16) -> Self {
        Self { umask: umask & 0o777, ..self.clone() }
    }

    /// The same session with `base` for its working directory, as the `dirfd` of a call of the `...at` family. `base`
    /// may be any file: then only the empty path means something.
    pub fn at(&self, base: &Location) -> Self {
        Self { cwd: base.clone(), ..self.clone() }
    }

    /// The path of the working directory.
    pub fn getcwd(&self) -> Vec<u8> {
        self.namespace.path_of(&self.cwd, &self.root)
    }

    /// Changes the working directory.
    pub fn chdir(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        self.cwd = self.searchable_dir(path.as_ref())?;
        Ok(())
    }

    /// Changes the root directory; the working directory stays. Needs `CAP_SYS_CHROOT`.
    pub fn chroot(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let root = self.searchable_dir(path.as_ref())?;
        if !self.cred.has(Caps::SYS_CHROOT) {
            return Err(Errno::EPERM.into());
        }
        self.root = root;
        Ok(())
    }

    fn searchable_dir(&self, path: &[u8]) -> Result<Location> {
        let spot = self.walk(path, How::FOLLOW)?;
        if !spot.inode().is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.permission(&spot, Access::EXEC)?;
        Ok(spot.into_location())
    }

    /// Starts a walk and goes to the directory of the last component.
    pub(crate) fn walk_to_last<'a>(
        &'a self,
        path: &'a [u8],
        resolve: Resolve,
    ) -> Result<(Walk<'a>, Last<'a>)> {
        Walk::start(&self.namespace, &self.cred, &self.root, &self.cwd, path, resolve)
    }

    /// Walks a path to its end.
    pub(crate) fn walk<'a>(&'a self, path: &'a [u8], how: How) -> Result<Spot<'a>> {
        if path.is_empty() && how.empty {
            return Ok(Spot::borrow(&self.cwd));
        }
        let (walk, last) = self.walk_to_last(path, how.resolve)?;
        walk.finish(last, how.follow)
    }

    /// The ordinary check for rights on what a walk found.
    pub(crate) fn permission(&self, spot: &Spot<'_>, want: Access) -> Result<()> {
        spot.sb().checker.permission(&self.cred, spot.inode(), want, spot.mount.is_read_only())
    }

    /// A handle on what a path stands for, as `open` with `O_PATH`.
    pub fn locate(&self, path: impl AsRef<[u8]>, how: How) -> Result<Location> {
        Ok(self.walk(path.as_ref(), how)?.into_location())
    }

    /// Attributes (`fstatat(2)`).
    pub fn stat(&self, path: impl AsRef<[u8]>, how: How) -> Result<Attr> {
        Ok(self.walk(path.as_ref(), how)?.inode().attr())
    }

    /// Whether the session's credentials give these rights (`faccessat(2)` with `AT_EACCESS`); none asks only whether
    /// the file exists.
    pub fn access(&self, path: impl AsRef<[u8]>, want: Access, how: How) -> Result<()> {
        let spot = self.walk(path.as_ref(), how)?;
        if want.is_empty() { Ok(()) } else { self.permission(&spot, want) }
    }

    /// The target of a symbolic link. `EINVAL` for anything else; `ENOENT` for the empty path on anything else.
    pub fn read_link(&self, path: impl AsRef<[u8]>, how: How) -> Result<Arc<[u8]>> {
        let path = path.as_ref();
        let spot = self.walk(path, How { follow: false, ..how })?;
        if spot.inode().kind() != FileType::Symlink {
            return Err(if path.is_empty() { Errno::ENOENT } else { Errno::EINVAL }.into());
        }
        spot.inode().link_target(&**spot.sb().fs())
    }

    /// Totals and free space of the file system that a path is on.
    pub fn statfs(&self, path: impl AsRef<[u8]>, how: How) -> Result<StatFs> {
        self.walk(path.as_ref(), how)?.sb().statfs()
    }

    /// The value of an extended attribute, ACLs (`system.posix_acl_access`, `system.posix_acl_default`) included.
    pub fn get_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>, how: How) -> Result<Vec<u8>> {
        let name = name.as_ref();
        xattr::check_name(name)?;
        let spot = self.walk(path.as_ref(), how)?;
        xattr::get(&self.cred, &spot.mount, spot.inode(), name)
    }

    /// The names of all extended attributes that the session may see, ACLs included.
    pub fn list_xattr(&self, path: impl AsRef<[u8]>, how: How) -> Result<Vec<Vec<u8>>> {
        let spot = self.walk(path.as_ref(), how)?;
        xattr::list(&self.cred, spot.sb(), spot.inode())
    }

    /// An ACL; `None` if the mode says all. `EOPNOTSUPP` where there are no ACLs.
    pub fn acl(&self, path: impl AsRef<[u8]>, kind: AclKind, how: How) -> Result<Option<Arc<Acl>>> {
        let spot = self.walk(path.as_ref(), how)?;
        xattr::acl(spot.sb(), spot.inode(), kind)
    }

    /// The mount that a path is on.
    pub fn mount_of(&self, path: impl AsRef<[u8]>, how: How) -> Result<Arc<Mount>> {
        Ok(self.locate(path, how)?.mount)
    }
}
