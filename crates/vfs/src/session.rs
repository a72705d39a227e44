//! Sessions: the callers of the VFS.
//!
//! The FUSE server keeps sessions for the callers of requests, and `extern4::Session` is one with
//! paths and errors added. A session has only the rights of its credentials, whatever the process
//! may do.
//!
//! A [`Session`] is what a process is to the kernel: credentials, a root, a working directory, a
//! umask. Its methods are the system calls. It is cheap to clone, and a change of one clone leaves
//! the others as they are. So each thread may have its own, and all may act at the same time.
//!
//! Calls of the `...at` family start from a given directory: [`Session::at`] returns the same
//! session with that as its working directory.

use std::sync::Arc;

use extern4_acl::{Acl, AclKind};
use extern4_sync::rcu::pin;

use crate::attr::{Attr, FileType, StatFs};
use crate::cred::{Caps, Cred};
use crate::errno::{Errno, Result};
use crate::inode::Inode;
use crate::inode_attrs::Copied;
use crate::lookup::path::ResumePoint;
use crate::lookup::{Lookup, LookupFlags};
use crate::mount::{Location, MountRef, Namespace};
use crate::permission::{Access, Verdict};
use crate::xattr;

/// The rest of a call of [`Session::stat_cached`] for [`Session::stat_uncached`]: an error, or the
/// place on the path up to which the caches had the answer.
pub struct Uncached<'s>(Result<Option<ResumePoint<'s>>>);

impl Default for Uncached<'_> {
    fn default() -> Self {
        Self(Ok(None))
    }
}

/// A caller of the VFS. Any thread may use it.
///
/// # Errors
/// A walk to a path fails as on Linux: `ENOENT`, `ENOTDIR`, `EACCES` without the right to search,
/// `ELOOP`, `ENAMETOOLONG`, `EXDEV` or `EAGAIN` by its [flags](LookupFlags), and `EIO` or `EUCLEAN`
/// of the file system.
#[derive(Clone)]
pub struct Session {
    id: u64,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) cred: Arc<Cred>,
    pub(crate) root: Location,
    pub(crate) cwd: Location,
    pub(crate) umask: u16,
}

impl Session {
    /// Returns a session at the root of a namespace, with umask 022.
    pub fn new(namespace: &Arc<Namespace>, cred: Cred) -> Self {
        let root = namespace.root();
        let id = namespace.next_session();
        Self {
            id,
            namespace: Arc::clone(namespace),
            cred: Arc::new(cred),
            cwd: root.clone(),
            root,
            umask: 0o022,
        }
    }

    /// Returns the number of the session in its namespace. A session that was made from another has
    /// the same number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the credentials.
    pub fn cred(&self) -> &Cred {
        &self.cred
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// Returns the root directory.
    pub fn root(&self) -> &Location {
        &self.root
    }

    /// Returns the working directory.
    pub fn cwd(&self) -> &Location {
        &self.cwd
    }

    /// Returns this session with other credentials.
    pub fn with_cred(&self, cred: Cred) -> Self {
        Self {
            cred: Arc::new(cred),
            ..self.clone()
        }
    }

    /// Returns the umask.
    pub fn umask(&self) -> u16 {
        self.umask
    }

    /// Returns this session with another umask; only its permission bits count.
    pub fn with_umask(&self, umask: u16) -> Self {
        Self {
            umask: umask & 0o777,
            ..self.clone()
        }
    }

    /// Returns this session with `base` for its working directory, as the `dirfd` of a call of the
    /// `...at` family. `base` may be any file: then only the empty path is valid.
    pub fn at(&self, base: &Location) -> Self {
        Self {
            cwd: base.clone(),
            ..self.clone()
        }
    }

    /// Sets the working directory to `base`, which may be any file. Returns the one before.
    pub fn replace_cwd(&mut self, base: Location) -> Location {
        std::mem::replace(&mut self.cwd, base)
    }

    /// Sets the umask; only its permission bits count.
    pub fn set_umask(&mut self, umask: u16) {
        self.umask = umask & 0o777;
    }

    /// Returns the path of the working directory.
    pub fn getcwd(&self) -> Vec<u8> {
        self.namespace.path_of(&self.cwd, &self.root)
    }

    /// Changes the working directory.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `ENOTDIR`.
    pub fn chdir(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        self.cwd = self.searchable_dir(path.as_ref())?;
        Ok(())
    }

    /// Changes the root directory; the working directory stays. Needs `CAP_SYS_CHROOT`.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `ENOTDIR`; `EPERM` without
    /// `CAP_SYS_CHROOT`.
    pub fn chroot(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let root = self.searchable_dir(path.as_ref())?;
        if !self.cred.has(Caps::SYS_CHROOT) {
            return Err(Errno::EPERM.into());
        }
        self.root = root;
        Ok(())
    }

    fn searchable_dir(&self, path: &[u8]) -> Result<Location> {
        let there = self.lookup().path(path, LookupFlags::FOLLOW)?;
        if !there.inode().is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.permission(&there.mount, there.inode(), Access::EXEC)?;
        Ok(there.into_location())
    }

    /// Returns a lookup from the working directory.
    #[inline]
    pub(crate) fn lookup(&self) -> Lookup<'_> {
        Lookup {
            namespace: &self.namespace,
            cred: &self.cred,
            root: &self.root,
            base: &self.cwd,
        }
    }

    /// Checks the caller's rights on an inode that a lookup found.
    pub(crate) fn permission(&self, mount: &MountRef, inode: &Inode, want: Access) -> Result<()> {
        mount
            .superblock()
            .checker
            .permission(&self.cred, inode, want, mount.is_read_only())
    }

    /// Returns a handle on the file that a path names, as `open` with `O_PATH` does.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]).
    pub fn locate(&self, path: impl AsRef<[u8]>, how: LookupFlags) -> Result<Location> {
        Ok(self.lookup().path(path.as_ref(), how)?.into_location())
    }

    /// Returns the attributes of a file (`fstatat(2)`).
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]).
    #[inline]
    pub fn stat(&self, path: impl AsRef<[u8]>, how: LookupFlags) -> Result<Attr> {
        let path = path.as_ref();
        let mut rest = Uncached::default();
        match self.stat_cached(path, how, &mut rest) {
            Some(attr) => Ok(attr),
            None => self.stat_uncached(path, how, rest),
        }
    }

    /// Returns attributes from the caches alone, without waiting, as with `RESOLVE_CACHED`. After
    /// `None` the caller passes `rest` to [`stat_uncached`](Self::stat_uncached).
    // Always inlined, so that the attributes are written once, where the caller wants them. A copy
    // of them would take as long as a third of the walk.
    #[inline(always)]
    pub fn stat_cached<'s>(
        &'s self,
        path: &[u8],
        how: LookupFlags,
        rest: &mut Uncached<'s>,
    ) -> Option<Attr> {
        let guard = pin();
        let copied = match self.lookup().rcu(path, how, &guard) {
            Ok(found) => found.inode.attr_if_still().filter(|_| found.is_current()),
            Err(error) => {
                rest.0 = self.lookup().resume_point(error);
                None
            }
        };
        drop(guard);
        copied.map(Copied::decode)
    }

    /// Goes on where [`stat_cached`](Self::stat_cached) had no answer: with the error in `rest`, or
    /// with a walk that may wait.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]).
    #[inline(never)]
    pub fn stat_uncached<'s>(
        &'s self,
        path: &'s [u8],
        how: LookupFlags,
        rest: Uncached<'s>,
    ) -> Result<Attr> {
        let there = self.lookup().by_references(path, how, rest.0?)?;
        Ok(there.inode().attr())
    }

    /// Checks whether the session's credentials give these rights (`faccessat(2)` with
    /// `AT_EACCESS`). Empty rights only check whether the file exists.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EACCES`, `EROFS`, `EPERM` as
    /// `faccessat2(2)` has them.
    pub fn access(&self, path: impl AsRef<[u8]>, want: Access, how: LookupFlags) -> Result<()> {
        let path = path.as_ref();
        let mut from = None;
        let guard = pin();
        match self.lookup().rcu(path, how, &guard) {
            Ok(found) if !want.is_empty() => {
                let read_only = found.mount.is_read_only();
                match found.sb.checker.permission_seen(
                    &self.cred,
                    found.inode,
                    want,
                    read_only,
                    &guard,
                ) {
                    Verdict::Granted if found.is_current() => return Ok(()),
                    Verdict::Refused if found.is_current() => return Err(Errno::EACCES.into()),
                    _ => {}
                }
            }
            Ok(found) => {
                if found.is_current() {
                    return Ok(());
                }
            }
            Err(error) => from = self.lookup().resume_point(error)?,
        }
        drop(guard);
        let there = self.lookup().by_references(path, how, from)?;
        if want.is_empty() {
            Ok(())
        } else {
            self.permission(&there.mount, there.inode(), want)
        }
    }

    /// Returns the target of a symbolic link. `EINVAL` for anything else; `ENOENT` for the empty
    /// path on anything else.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EINVAL` if it is no symbolic link.
    pub fn read_link(&self, path: impl AsRef<[u8]>, how: LookupFlags) -> Result<Arc<[u8]>> {
        self.with_link(path.as_ref(), how, Arc::clone)
    }

    /// Like [`read_link`](Self::read_link), into a buffer of the caller, whose contents it
    /// replaces: no allocation if there is room.
    ///
    /// # Errors
    /// The errors of [`read_link`](Self::read_link).
    pub fn read_link_into(
        &self,
        path: impl AsRef<[u8]>,
        how: LookupFlags,
        target: &mut Vec<u8>,
    ) -> Result<()> {
        self.with_link(path.as_ref(), how, |link| {
            target.clear();
            target.extend_from_slice(link);
        })
    }

    /// Returns the result of `take` for the target of a symbolic link. It calls `take` again if
    /// names change meanwhile.
    fn with_link<R>(
        &self,
        path: &[u8],
        how: LookupFlags,
        mut take: impl FnMut(&Arc<[u8]>) -> R,
    ) -> Result<R> {
        let how = how.difference(LookupFlags::FOLLOW);
        let mut from = None;
        let guard = pin();
        match self.lookup().rcu(path, how, &guard) {
            // Other files have no target, and the walk with references then says so.
            Ok(found) => {
                if let Some(target) = found.inode.cached_link_target() {
                    let taken = take(target);
                    if found.is_current() {
                        return Ok(taken);
                    }
                }
            }
            Err(error) => from = self.lookup().resume_point(error)?,
        }
        drop(guard);
        let there = self.lookup().by_references(path, how, from)?;
        if there.inode().kind() != FileType::Symlink {
            return Err(if path.is_empty() {
                Errno::ENOENT
            } else {
                Errno::EINVAL
            }
            .into());
        }
        Ok(take(&there.inode().link_target(&**there.sb().fs())?))
    }

    /// Returns totals and free space of the file system that a path is on. In a directory whose
    /// project has limits, they are no more than these.
    ///
    /// # Errors
    /// `EIO` after a shutdown.
    pub fn statfs(&self, path: impl AsRef<[u8]>, how: LookupFlags) -> Result<StatFs> {
        let there = self.lookup().path(path.as_ref(), how)?;
        there.sb().fs().statfs_by(there.inode())
    }

    /// Returns the value of an extended attribute, ACLs (`system.posix_acl_access`,
    /// `system.posix_acl_default`) included.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `ENODATA`, `EOPNOTSUPP`, `EACCES`,
    /// `EPERM`.
    pub fn get_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        how: LookupFlags,
    ) -> Result<Vec<u8>> {
        let name = name.as_ref();
        xattr::check_name(name)?;
        let there = self.lookup().path(path.as_ref(), how)?;
        xattr::get(&self.cred, &there.mount, there.inode(), name)
    }

    /// Returns the names of all extended attributes that the session may see, ACLs included.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]).
    pub fn list_xattr(&self, path: impl AsRef<[u8]>, how: LookupFlags) -> Result<Vec<Vec<u8>>> {
        let there = self.lookup().path(path.as_ref(), how)?;
        xattr::list(&self.cred, there.sb(), there.inode())
    }

    /// Returns an ACL; `None` if the file has permission bits only. `EOPNOTSUPP` where there are no
    /// ACLs.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]).
    pub fn acl(
        &self,
        path: impl AsRef<[u8]>,
        kind: AclKind,
        how: LookupFlags,
    ) -> Result<Option<Arc<Acl>>> {
        let there = self.lookup().path(path.as_ref(), how)?;
        xattr::acl(there.sb(), there.inode(), kind)
    }

    /// Returns the mount that a path is on.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]).
    pub fn mount_of(&self, path: impl AsRef<[u8]>, how: LookupFlags) -> Result<MountRef> {
        Ok(self.locate(path, how)?.mount)
    }
}
