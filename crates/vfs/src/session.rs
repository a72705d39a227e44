//! Sessions: who calls, and from where.
//!
//! A [`Session`] is what a process is to the kernel: credentials, a root, a working directory, a umask. Its methods are
//! the system calls. It is cheap to clone and holds nothing that changes under another holder's feet, so each thread
//! may have its own and they may all act at once.
//!
//! Calls of the `...at` family start from a directory that is given: [`Session::at`] is the same session with that for
//! its working directory.

use std::sync::Arc;

use extern4_sync::rcu::{Guard, pin};

use crate::acl::{Acl, AclKind};
use crate::attr::{Attr, FileType, StatFs};
use crate::attr_cell::Copied;
use crate::cred::{Caps, Cred};
use crate::dcache::Wanted;
use crate::errno::{Errno, Error, Result};
use crate::inode::Inode;
use crate::mount::{Location, MountRef, Namespace};
use crate::namei::{How, Last, Place, Resolve, Spot, Subject, Walk};
use crate::permission::{Access, Verdict};
use crate::rcu_walk::{self, End, Parent, Start, Stop};
use crate::xattr;

/// A caller of the VFS. Any thread may use it.
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
    /// A session at the root of a namespace, with umask 022.
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

    /// Tells the sessions of a namespace apart. One that was made from another has the number of that.
    pub fn id(&self) -> u64 {
        self.id
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

    /// Has `base` for its working directory from now on, whatever it is; gives the one before.
    pub fn replace_cwd(&mut self, base: Location) -> Location {
        std::mem::replace(&mut self.cwd, base)
    }

    /// Has another umask from now on; only its permission bits count.
    pub fn set_umask(&mut self, umask: u16) {
        self.umask = umask & 0o777;
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
        self.permission(&spot.mount, spot.inode(), Access::EXEC)?;
        Ok(spot.into_location())
    }

    /// Starts a walk and goes to the directory of the last component.
    pub(crate) fn walk_to_last<'a>(
        &'a self,
        path: &'a [u8],
        resolve: Resolve,
    ) -> Result<(Walk<'a>, Last<'a>)> {
        Walk::start(&self.namespace, self.start(), path, resolve)
    }

    /// Walks a path to the directory of its last component. Nothing is taken into use where it is known that the last name does not stand
    /// for what is wanted.
    pub(crate) fn walk_to_parent<'a>(&'a self, path: &'a [u8], wanted: impl Wanted) -> Result<Place<'a>> {
        let there = {
            let guard = pin();
            let seen = self.see_parent(path, &guard)?;
            seen.as_ref().map_or(Ok(()), |parent| parent.check(wanted, &guard))?;
            self.hold_parent(path, seen)
        };
        self.or_walk_to_parent(there, path)
    }

    /// The same inside a read section, with nothing taken into use. `None` if that has to be done with references.
    #[inline]
    pub(crate) fn see_parent<'g>(&'g self, path: &'g [u8], guard: &'g Guard) -> Result<Option<Parent<'g>>> {
        rcu_walk::see_parent(self.start(), path, Resolve::empty(), guard)
    }

    /// Takes into use what was seen. `None` if that has gone out of use, or could not be seen.
    #[inline]
    pub(crate) fn hold_parent<'a>(&'a self, path: &'a [u8], seen: Option<Parent<'_>>) -> Option<Place<'a>> {
        let seen = seen?;
        Some((seen.dir.hold(&self.root, &self.cwd)?, Last::of(path, &seen)))
    }

    /// What is in use already, or what a walk with references comes to.
    #[inline]
    pub(crate) fn or_walk_to_parent<'a>(
        &'a self,
        there: Option<Place<'a>>,
        path: &'a [u8],
    ) -> Result<Place<'a>> {
        match there {
            Some(there) => Ok(there),
            None => self.ref_walk_to_parent(path),
        }
    }

    #[cold]
    fn ref_walk_to_parent<'a>(&'a self, path: &'a [u8]) -> Result<Place<'a>> {
        let (walk, last) = Walk::start_held(&self.namespace, self.start(), path, Resolve::empty())?;
        Ok((walk.into_parent(), last))
    }

    /// Walks a path to its end, and takes what it comes to into use.
    pub(crate) fn walk<'a>(&'a self, path: &'a [u8], how: How) -> Result<Spot<'a>> {
        let there = {
            let guard = pin();
            Self::hold_seen(self.see(path, how, &guard), |end| end.hold(&self.root, &self.cwd))?
        };
        there.map_or_else(|| self.ref_walk(path, how), Ok)
    }

    /// Walks a path to its end, and takes the file into use, but not its name.
    pub(crate) fn walk_to_subject<'a>(&'a self, path: &'a [u8], how: How) -> Result<Subject<'a>> {
        let there = {
            let guard = pin();
            self.hold_subject(self.see(path, how, &guard))?
        };
        self.or_walk_to_subject(there, path, how)
    }

    /// Takes into use what was seen, but not its name. `None` if that has gone out of use, or could not be seen.
    #[inline]
    pub(crate) fn hold_subject(&self, seen: Result<End<'_>, Stop>) -> Result<Option<Subject<'_>>> {
        Self::hold_seen(seen, |end| end.hold_subject(&self.root, &self.cwd))
    }

    /// What is in use already, or what a walk with references comes to.
    #[inline]
    pub(crate) fn or_walk_to_subject<'a>(
        &'a self,
        there: Option<Subject<'a>>,
        path: &'a [u8],
        how: How,
    ) -> Result<Subject<'a>> {
        there.map_or_else(|| Ok(self.ref_walk(path, how)?.into()), Ok)
    }

    /// Takes something into use of what was seen. `None` if that has gone out of use, or could not be seen.
    #[inline]
    fn hold_seen<T>(
        seen: Result<End<'_>, Stop>,
        hold: impl FnOnce(&End<'_>) -> Option<T>,
    ) -> Result<Option<T>> {
        match seen {
            Ok(end) => Ok(hold(&end).filter(|_| Self::is_current(&end))),
            Err(stop) => stop.or_fall_back().map(|()| None),
        }
    }

    /// The same with references, for where [`see`](Self::see) could not say.
    pub(crate) fn ref_walk<'a>(&'a self, path: &'a [u8], how: How) -> Result<Spot<'a>> {
        if path.is_empty() && how.empty {
            return Ok(Spot::borrow(&self.cwd));
        }
        let (walk, last) = self.walk_to_last(path, how.resolve)?;
        walk.finish(last, how.follow)
    }

    /// Walks a path to its end inside a read section, with nothing taken into use. Whoever reads something there asks afterwards
    /// whether it [`is_current`](Self::is_current): then it belongs to the file that the path stood for at that moment.
    #[inline(always)]
    pub(crate) fn see<'g>(&'g self, path: &'g [u8], how: How, guard: &'g Guard) -> Result<End<'g>, Stop> {
        rcu_walk::walk(self.start(), path, how, guard)
    }

    #[inline]
    fn start(&self) -> Start<'_> {
        Start { cred: &self.cred, root: &self.root, base: &self.cwd }
    }

    /// The name that led here still stands for what it led to. If not, the caller walks again, with references.
    #[inline(always)]
    fn is_current(end: &End<'_>) -> bool {
        let current = end.is_current();
        if !current {
            end.sb.count_restart();
        }
        current
    }

    /// The ordinary check for rights on what a walk found.
    pub(crate) fn permission(&self, mount: &MountRef, inode: &Inode, want: Access) -> Result<()> {
        mount.superblock().checker.permission(&self.cred, inode, want, mount.is_read_only())
    }

    /// A handle on what a path stands for, as `open` with `O_PATH`.
    pub fn locate(&self, path: impl AsRef<[u8]>, how: How) -> Result<Location> {
        Ok(self.walk(path.as_ref(), how)?.into_location())
    }

    /// Attributes (`fstatat(2)`).
    #[inline]
    pub fn stat(&self, path: impl AsRef<[u8]>, how: How) -> Result<Attr> {
        let (path, mut error) = (path.as_ref(), None);
        match self.stat_cached(path, how, &mut error) {
            Some(attr) => Ok(attr),
            None => self.stat_uncached(path, how, error),
        }
    }

    /// Attributes, if they can be had from what is cached: without waiting, as `RESOLVE_CACHED` has it. `None` is an error
    /// where one is left in `error`; otherwise it says nothing, and it takes [`stat_uncached`](Self::stat_uncached).
    // Always inlined, so that the attributes are written once, where the caller wants them: to copy what has just been written
    // takes as long as a third of the walk.
    #[inline(always)]
    pub fn stat_cached(&self, path: &[u8], how: How, error: &mut Option<Error>) -> Option<Attr> {
        let guard = pin();
        let copied = match self.see(path, how, &guard) {
            Ok(end) => end.inode.attr_if_still().filter(|_| Self::is_current(&end)),
            Err(stop) => {
                *error = stop.or_fall_back().err();
                None
            }
        };
        drop(guard);
        copied.map(Copied::decode)
    }

    /// Goes on where [`stat_cached`](Self::stat_cached) had no answer: with the `error` it left, or with a walk that may wait.
    #[inline(never)]
    pub fn stat_uncached(&self, path: &[u8], how: How, error: Option<Error>) -> Result<Attr> {
        match error {
            Some(error) => Err(error),
            None => Ok(self.ref_walk(path, how)?.inode().attr()),
        }
    }

    /// Whether the session's credentials give these rights (`faccessat(2)` with `AT_EACCESS`); none asks only whether
    /// the file exists.
    pub fn access(&self, path: impl AsRef<[u8]>, want: Access, how: How) -> Result<()> {
        let path = path.as_ref();
        let guard = pin();
        match self.see(path, how, &guard) {
            Ok(end) if !want.is_empty() => {
                let read_only = end.mount.is_read_only();
                match end.sb.checker.permission_seen(&self.cred, end.inode, want, read_only, &guard) {
                    Verdict::Granted if Self::is_current(&end) => return Ok(()),
                    Verdict::Refused if Self::is_current(&end) => return Err(Errno::EACCES.into()),
                    _ => {}
                }
            }
            Ok(end) => {
                if Self::is_current(&end) {
                    return Ok(());
                }
            }
            Err(stop) => stop.or_fall_back()?,
        }
        drop(guard);
        let spot = self.ref_walk(path, how)?;
        if want.is_empty() { Ok(()) } else { self.permission(&spot.mount, spot.inode(), want) }
    }

    /// The target of a symbolic link. `EINVAL` for anything else; `ENOENT` for the empty path on anything else.
    pub fn read_link(&self, path: impl AsRef<[u8]>, how: How) -> Result<Arc<[u8]>> {
        self.with_link(path.as_ref(), how, Arc::clone)
    }

    /// The same into a buffer of the caller's, in place of what was there: no allocation where there is room.
    pub fn read_link_into(&self, path: impl AsRef<[u8]>, how: How, target: &mut Vec<u8>) -> Result<()> {
        self.with_link(path.as_ref(), how, |link| {
            target.clear();
            target.extend_from_slice(link);
        })
    }

    /// What `take` makes of the target of a symbolic link; it is called again if names change meanwhile.
    fn with_link<R>(&self, path: &[u8], how: How, mut take: impl FnMut(&Arc<[u8]>) -> R) -> Result<R> {
        let how = How { follow: false, ..how };
        let guard = pin();
        match self.see(path, how, &guard) {
            // Other files have no target, and the walk with references then says so.
            Ok(end) => {
                if let Some(target) = end.inode.cached_link_target() {
                    let taken = take(target);
                    if Self::is_current(&end) {
                        return Ok(taken);
                    }
                }
            }
            Err(stop) => stop.or_fall_back()?,
        }
        drop(guard);
        let spot = self.ref_walk(path, how)?;
        if spot.inode().kind() != FileType::Symlink {
            return Err(if path.is_empty() { Errno::ENOENT } else { Errno::EINVAL }.into());
        }
        Ok(take(&spot.inode().link_target(&**spot.sb().fs())?))
    }

    /// Totals and free space of the file system that a path is on; of a directory whose project has limits, no more than what is in it may
    /// take.
    pub fn statfs(&self, path: impl AsRef<[u8]>, how: How) -> Result<StatFs> {
        let there = self.walk(path.as_ref(), how)?;
        there.sb().fs().statfs_by(there.inode())
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
    pub fn mount_of(&self, path: impl AsRef<[u8]>, how: How) -> Result<MountRef> {
        Ok(self.locate(path, how)?.mount)
    }
}
