//! Renames (`renameat2(2)`): plain ones, exchanges, and renames that leave a whiteout.
//!
//! A rename is one step for all other threads: no lookup finds the file under both names or
//! neither. A replaced file loses its name in the same step. No rename puts a directory below
//! itself. If the file system fails, both names stay as they were. The FUSE server and the
//! `extern4` crate call these methods of `Session`. `superblock` has the order of the locks that
//! they take.

use std::ptr;

use extern4_sync::biased_rwlock::{BiasedReadGuard, BiasedWriteGuard};
use extern4_sync::lock_order::Ordered;
use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::RcuArc;

use crate::attr::{Rdev, Timespec};
use crate::clock;
use crate::create::InodeInit;
use crate::dcache::{Expect, IfLocked, LockedName};
use crate::dentry::{Dentry, is_ancestor};
use crate::errno::{Errno, Result};
use crate::fs::{NameRef, NewKind, Rename, RenameFlags};
use crate::inode::{AttributesGuard, Inode};
use crate::lookup::path::{Component, LastComponent, ParentRef, PathRef};
use crate::mount::WriteGuard;
use crate::permission::Access;
use crate::session::Session;
use crate::superblock::{SuperBlock, directory, keep_inode, two_names};

impl Session {
    /// Gives a file another name and takes the old one, in one step (`renameat2(2)`).
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EEXIST`, `ENOTEMPTY`, `EISDIR`,
    /// `ENOTDIR`, `EINVAL`, `EXDEV`, `EBUSY`, `EPERM`, `ENOSPC`, `EROFS` as `renameat2(2)` has
    /// them.
    pub fn rename(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<()> {
        rename_between(self, from.as_ref(), self, to.as_ref(), flags)
    }

    /// Like [`rename`](Self::rename), with the new path taken from the working directory of
    /// `to_base`.
    ///
    /// # Errors
    /// The errors of [`rename`](Self::rename).
    pub fn rename_to(
        &self,
        from: impl AsRef<[u8]>,
        to_base: &Self,
        to: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<()> {
        rename_between(self, from.as_ref(), to_base, to.as_ref(), flags)
    }
}

fn rename_between(
    session: &Session,
    from: &[u8],
    to_base: &Session,
    to: &[u8],
    flags: RenameFlags,
) -> Result<()> {
    let leaves = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
    if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(leaves) {
        return Err(Errno::EINVAL.into());
    }
    let from_lookup = session.lookup();
    let to_lookup = to_base.lookup();
    let (from_held, to_held) = {
        let guard = pin();
        let source = from_lookup.rcu_parent(from, &guard)?;
        // Errors of the old path come first, and errors of the new path before that of an old name
        // that does not exist.
        let target = if source.is_some() {
            to_lookup.rcu_parent(to, &guard)?
        } else {
            None
        };
        if let (Some(source), Some(target)) = (&source, &target)
            && target.is_name_on_mount_of(source)
            && let Some(there) = source.see_last(&guard)
        {
            Expect::Positive.check(there.inode)?;
            // Two names of one file stay as they are.
            if flags.is_empty() && source.is_of_one_file(there, target, &guard) {
                return source.dir.sb.write_gate.check();
            }
        }
        (
            from_lookup.hold_parent(from, source),
            to_lookup.hold_parent(to, target),
        )
    };
    let ParentRef {
        dir: from_dir,
        last: from_last,
    } = from_lookup.parent_or_walk(from_held, from)?;
    let ParentRef {
        dir: to_dir,
        last: to_last,
    } = to_lookup.parent_or_walk(to_held, to)?;
    if !from_dir.mount.ptr_eq(&to_dir.mount) {
        return Err(Errno::EXDEV.into());
    }
    let Component::Name(from_name) = from_last.component() else {
        return Err(Errno::EBUSY.into());
    };
    let Component::Name(to_name) = to_last.component() else {
        let there = flags.contains(RenameFlags::NOREPLACE);
        return Err(if there { Errno::EEXIST } else { Errno::EBUSY }.into());
    };
    let _writer = WriteGuard::take(&from_dir.mount)?;
    let from = RenameEnd {
        dir: &from_dir,
        name: from_name,
        last: &from_last,
    };
    let to = RenameEnd {
        dir: &to_dir,
        name: to_name,
        last: &to_last,
    };
    let sb = from_dir.sb();
    let call = RenameCall {
        session,
        sb,
        from,
        to,
        flags,
    };
    let replaced = match call.without_mutex()? {
        Renamed::Done(replaced) => replaced,
        Renamed::NeedsMutex => {
            // Every change of a directory's parent holds it. So no directory above these two moves
            // meanwhile.
            let _renames = sb.lock_renames();
            let _names = if call.in_one_dir() {
                (Lock::Shared(from_dir.inode().lock_names()), None)
            } else {
                lock_two(&from_dir, &to_dir)?
            };
            call.locked(true)?.replaced()
        }
    };
    // This may drop the last reference to the replaced file and free its blocks, so it happens
    // without the locks.
    drop(replaced);
    Ok(())
}

/// A rename under way, with both directories in use.
struct RenameCall<'a> {
    session: &'a Session,
    sb: &'a SuperBlock,
    from: RenameEnd<'a>,
    to: RenameEnd<'a>,
    flags: RenameFlags,
}

impl RenameCall<'_> {
    /// Renames without the `rename_mutex` if it can, while other threads change other names.
    fn without_mutex(&self) -> Result<Renamed> {
        let from_dir = self.from.dir.inode();
        let to_dir = self.to.dir.inode();
        let _from = from_dir.lock_names();
        let mut _to = None;
        if !self.in_one_dir() {
            _to = if ptr::eq(from_dir, to_dir) {
                None
            } else {
                to_dir.try_lock_names()
            };
            if _to.is_none() {
                return Ok(Renamed::NeedsMutex);
            }
        }
        self.locked(false)
    }

    /// Renames. Locks: `rwsem` of the directory, or of both; with `rename_mutex`, if
    /// `has_mutex`, both exclusive.
    fn locked(&self, has_mutex: bool) -> Result<Renamed> {
        let Self {
            sb,
            from,
            to,
            flags,
            ..
        } = self;
        let in_one_dir = self.in_one_dir();
        let if_locked = if in_one_dir || has_mutex {
            IfLocked::Wait
        } else {
            IfLocked::GiveUp
        };
        let from_inode = from.dir.inode();
        let to_inode = to.dir.inode();
        if from_inode.perm().dead() || to_inode.perm().dead() {
            return Err(Errno::ENOENT.into());
        }
        let from_canonical = sb.canonical_name(from_inode, from.name)?;
        let from_key = sb.dcache.key(&from.dir.dentry, &from_canonical);
        let to_canonical = match sb.canonical_name(to_inode, to.name) {
            Ok(canonical) => canonical,
            Err(error) => {
                // The error for an old name that does not exist comes before the errors of the new
                // name.
                let first = sb.lock_name_if(from_key, from.name, Expect::Positive, if_locked)?;
                return first.map_or(Ok(Renamed::NeedsMutex), |_| Err(error));
            }
        };
        let to_key = sb.dcache.key(&to.dir.dentry, &to_canonical);
        let locked = sb.lock_names((from_key, from.name), (to_key, to.name), if_locked)?;
        let Some((from_name, to_name)) = locked else {
            return Ok(Renamed::NeedsMutex);
        };
        let source = from_name.dentry();
        let target = to_name.as_ref().unwrap_or(&from_name).dentry();
        let inode = source.inode().ok_or(Errno::ENOENT)?;
        let replaced = target.inode();
        if !has_mutex && needs_mutex(inode, replaced, in_one_dir) {
            return Ok(Renamed::NeedsMutex);
        }
        check_ends(from, to, source, target, *flags)?;
        if replaced.is_some_and(|replaced| ptr::eq(replaced, inode)) {
            return Ok(Renamed::Done(None));
        }
        self.check_permission(inode, replaced)?;
        let kept = (
            keep_inode(source),
            target.inode().map(|_| keep_inode(target)),
        );
        self.children((from_name, to_name), (&kept.0, kept.1.as_deref()))
    }

    /// Renames inodes that have passed the checks. Locks: the locks of [`locked`](Self::locked),
    /// and both names.
    fn children(
        &self,
        (from_name, to_name): (LockedName<'_>, Option<LockedName<'_>>),
        (inode, replaced): (&Inode, Option<&Inode>),
    ) -> Result<Renamed> {
        let Self {
            session,
            sb,
            ref from,
            ref to,
            flags,
        } = *self;
        let now = clock::now();
        let (_change, touches) = lock_children(from, to, (inode, replaced), now)?;
        let Some(to_name) = to_name else {
            return Err(two_names(inode));
        };
        // A thread that mounts on an inode holds its lock, which this thread holds now.
        if from_name.dentry().is_mountpoint() || to_name.dentry().is_mountpoint() {
            return Err(Errno::EBUSY.into());
        }
        let whiteout = self.whiteout()?;
        let rename = Rename {
            from: NameRef {
                dir: from.dir.inode(),
                name: from.name,
            },
            inode,
            to: NameRef {
                dir: to.dir.inode(),
                name: to.name,
            },
            target: replaced,
            flags,
            whiteout: whiteout.as_ref().map(|new| new.node(WHITEOUT)),
            now,
            touches,
            rights: sb.space_rights(&session.cred),
        };
        move_dentries(sb, from, to, (from_name, to_name), &rename)
            .map(|replaced| Renamed::Done(Some(replaced)))
    }

    /// Returns the whiteout that the rename leaves behind, if it leaves one. It inherits from its
    /// directory as any new file does.
    fn whiteout(&self) -> Result<Option<InodeInit>> {
        let dir = self.from.dir.inode();
        let session = self.session;
        let inherit =
            || InodeInit::inherit(self.sb, &session.cred, dir, WHITEOUT, 0, session.umask);
        self.flags
            .contains(RenameFlags::WHITEOUT)
            .then(inherit)
            .transpose()
    }

    /// Makes the permission checks of a rename, in Linux's order.
    fn check_permission(&self, inode: &Inode, replaced: Option<&Inode>) -> Result<()> {
        let Self {
            session,
            sb,
            ref from,
            ref to,
            flags,
        } = *self;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        session.may_delete(from.dir, inode, inode.is_dir())?;
        match replaced {
            None => session.may_create(to.dir)?,
            Some(replaced) => {
                let is_dir = if exchange {
                    replaced.is_dir()
                } else {
                    inode.is_dir()
                };
                session.may_delete(to.dir, replaced, is_dir)?;
            }
        }
        if self.in_one_dir() {
            return Ok(());
        }
        // A directory that changes its parent is itself changed: its `..`.
        let write = |inode: &Inode| {
            let read_only = from.dir.mount.is_read_only();
            sb.checker
                .permission(&session.cred, inode, Access::WRITE, read_only)
        };
        if inode.is_dir() {
            write(inode)?;
        }
        match replaced {
            Some(replaced) if exchange && replaced.is_dir() => write(replaced),
            _ => Ok(()),
        }
    }

    fn in_one_dir(&self) -> bool {
        self.from.in_one_dir(&self.to)
    }
}

/// A whiteout is a character device 0/0.
const WHITEOUT: NewKind<'_> = NewKind::CharDevice(Rdev { major: 0, minor: 0 });

/// The lock of an inode in a rename: its `rwsem`, or the lock of its attributes.
#[expect(dead_code, reason = "held until it is dropped")]
enum Lock<'a> {
    Shared(Ordered<BiasedReadGuard<'a>>),
    Attributes(Ordered<AttributesGuard<'a>>),
    Exclusive(Ordered<BiasedWriteGuard<'a>>),
}

/// The locks of one inode or two.
type Locks<'a> = (Lock<'a>, Option<Lock<'a>>);

/// The outcome of a rename that did not fail.
enum Renamed {
    /// It is done, and this is the old dentry of the new name.
    Done(Option<RcuArc<Dentry>>),
    /// Nothing is done: it takes the `rename_mutex`, because it has to lock two directories side by
    /// side or to wait for locks.
    NeedsMutex,
}

impl Renamed {
    fn replaced(self) -> Option<RcuArc<Dentry>> {
        match self {
            Self::Done(replaced) => replaced,
            Self::NeedsMutex => unreachable!("the holder of the mutex needs no more"),
        }
    }
}

/// One end of a rename: a name in a directory.
struct RenameEnd<'a> {
    dir: &'a PathRef<'a>,
    name: &'a [u8],
    last: &'a LastComponent<'a>,
}

impl RenameEnd<'_> {
    fn in_one_dir(&self, other: &Self) -> bool {
        self.dir.dentry.ptr_eq(&other.dir.dentry)
    }
}

/// Returns whether a rename of `inode` over `replaced` takes the `rename_mutex`: a directory
/// changes its parent, or another may replace it.
fn needs_mutex(inode: &Inode, replaced: Option<&Inode>, in_one_dir: bool) -> bool {
    let replaces_dir = replaced.is_some_and(Inode::is_dir);
    if in_one_dir {
        inode.is_dir() && replaces_dir
    } else {
        inode.is_dir() || replaces_dir
    }
}

/// Checks a rename against the shape of the tree and the paths.
fn check_ends(
    from: &RenameEnd<'_>,
    to: &RenameEnd<'_>,
    source: &RcuArc<Dentry>,
    target: &RcuArc<Dentry>,
    flags: RenameFlags,
) -> Result<()> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    match target.inode() {
        Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EEXIST.into()),
        Some(inode) if exchange && to.last.slash && !inode.is_dir() => {
            return Err(Errno::ENOTDIR.into());
        }
        None if exchange => return Err(Errno::ENOENT.into()),
        _ => {}
    }
    if !directory(source).is_dir() && (from.last.slash || !exchange && to.last.slash) {
        return Err(Errno::ENOTDIR.into());
    }
    // Nothing lies below a file that is no directory.
    let is_above = |dentry: &RcuArc<Dentry>, dir| {
        dentry.inode().is_some_and(Inode::is_dir) && is_ancestor(dentry, dir)
    };
    if is_above(source, &to.dir.dentry) {
        return Err(Errno::EINVAL.into());
    }
    if is_above(target, &from.dir.dentry) {
        return Err(if exchange {
            Errno::EINVAL
        } else {
            Errno::ENOTEMPTY
        }
        .into());
    }
    Ok(())
}

/// Locks two directories: an ancestor before what lies below it, others by inode number.
/// Locks: `rename_mutex` held.
fn lock_two<'a>(a: &'a PathRef<'_>, b: &'a PathRef<'_>) -> Result<Locks<'a>> {
    let inode_a = a.inode();
    let inode_b = b.inode();
    if ptr::eq(inode_a, inode_b) {
        return Err(two_names(inode_a));
    }
    let b_first = is_ancestor(&b.dentry, &a.dentry)
        || !is_ancestor(&a.dentry, &b.dentry) && inode_b.ino() < inode_a.ino();
    let (first, second) = if b_first {
        (inode_b, inode_a)
    } else {
        (inode_a, inode_b)
    };
    let first = Lock::Exclusive(first.lock_names_exclusive());
    Ok((first, Some(Lock::Exclusive(second.lock_names_exclusive()))))
}

/// Locks the moved and the replaced inode: directories first, because `link` holds the directory
/// when it locks the file; then by inode number. Contents of a file may be written meanwhile. A
/// moved file that was changed at this moment already is not changed again, so other threads may
/// change its attributes. Returns whether it is changed, too. Locks: `rename_mutex`, if both are
/// directories.
fn lock_children<'a>(
    from: &RenameEnd<'_>,
    to: &RenameEnd<'_>,
    (inode, replaced): (&'a Inode, Option<&'a Inode>),
    now: Timespec,
) -> Result<(Locks<'a>, bool)> {
    for child in [Some(inode), replaced].into_iter().flatten() {
        if [from, to].iter().any(|end| ptr::eq(end.dir.inode(), child)) {
            return Err(two_names(child));
        }
    }
    let rank = |inode: &Inode| (!inode.is_dir(), inode.ino());
    let touches = inode.is_dir() || !inode.is_changed_at(now);
    let lock_moved = || {
        if touches {
            Lock::Attributes(inode.lock_attributes())
        } else {
            Lock::Shared(inode.lock_shared())
        }
    };
    let lock_replaced = |replaced: &'a Inode| Lock::Attributes(replaced.lock_attributes());
    let locks = match replaced {
        Some(replaced) if rank(replaced) < rank(inode) => {
            let first = lock_replaced(replaced);
            (lock_moved(), Some(first))
        }
        replaced => {
            let first = lock_moved();
            (first, replaced.map(lock_replaced))
        }
    };
    Ok((locks, touches))
}

/// Renames in the file system and in the cache, and returns the old dentry of the new name. Both
/// names are hidden meanwhile, so no lookup finds both names, or neither, or attributes of one
/// moment under a name of another. Locks: `rwsem` of both directories; both inodes, as
/// [`lock_children`] does.
fn move_dentries(
    sb: &SuperBlock,
    from: &RenameEnd<'_>,
    to: &RenameEnd<'_>,
    (from_name, to_name): (LockedName<'_>, LockedName<'_>),
    rename: &Rename<'_>,
) -> Result<RcuArc<Dentry>> {
    from_name.hide();
    to_name.hide();
    sb.fs().rename(rename)?;
    if moves_dir(from, to, rename) {
        // Before anything moves, and while both names are hidden: see `count_dir_rename`.
        sb.count_dir_rename();
    }
    if rename.flags.contains(RenameFlags::EXCHANGE) {
        let target = to_name.dentry().clone();
        from_name.exchange(from.name, to_name, to.name);
        return Ok(target);
    }
    // Where a whiteout is left, the next lookup finds it.
    let target = from_name.rename(to_name, to.name, rename.whiteout.is_none());
    if let Some(replaced) = target.inode() {
        target.mark_gone();
        if replaced.is_dir() {
            replaced.mark_dead();
        }
        sb.links_changed(&keep_inode(&target));
    }
    Ok(target)
}

/// Returns whether a directory changes its parent: the renamed one, or the one that it is exchanged
/// for.
fn moves_dir(from: &RenameEnd<'_>, to: &RenameEnd<'_>, rename: &Rename<'_>) -> bool {
    let exchanged = rename
        .target
        .filter(|_| rename.flags.contains(RenameFlags::EXCHANGE));
    !from.in_one_dir(to) && (rename.inode.is_dir() || exchanged.is_some_and(Inode::is_dir))
}
