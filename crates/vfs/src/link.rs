//! Giving files names and taking them: `link`, `unlink`, `rmdir`, `rename`.

use std::ptr;

use extern4_sync::biased_rwlock::{BiasedReadGuard, BiasedWriteGuard};
use extern4_sync::lock_order::Ordered;
use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::{FinalRef, RcuArc};

use crate::attr::{FileType, Rdev, Timespec};
use crate::clock;
use crate::create::Blueprint;
use crate::cred::Caps;
use crate::dcache::{Expect, IfLocked, LockedName};
use crate::dentry::{Dentry, is_ancestor};
use crate::errno::{Errno, Result};
use crate::fs::{NameRef, NewKind, Rename, RenameFlags};
use crate::inode::{AttributesGuard, Inode};
use crate::lookup::How;
use crate::lookup::path::{Component, InodeRef, LastComponent, ParentRef, PathRef};
use crate::mount::WriteGuard;
use crate::permission::{Access, owner_or_capable};
use crate::session::Session;
use crate::superblock::{SuperBlock, directory, keep_inode, two_names};

impl Session {
    /// Gives a file one more name (`linkat(2)`; `How::FOLLOW` is `AT_SYMLINK_FOLLOW`). Directories cannot have one:
    /// `EPERM`. A file made with `O_TMPFILE` gets its first name so.
    pub fn link(&self, from: impl AsRef<[u8]>, how: How, to: impl AsRef<[u8]>) -> Result<()> {
        self.link_to(from, how, self, to)
    }

    /// The same, with the new path taken from the working directory of `to_base`.
    pub fn link_to(
        &self,
        from: impl AsRef<[u8]>,
        how: How,
        to_base: &Self,
        to: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (from_lookup, to_lookup) = (self.lookup(), to_base.lookup());
        let (source, parent) = {
            let guard = pin();
            let source = from_lookup.rcu(from, how, &guard);
            // An error of the source comes first.
            let seen = if source.is_ok() { to_lookup.rcu_parent(to, &guard)? } else { None };
            seen.as_ref().map_or(Ok(()), |parent| parent.check(Expect::Negative, &guard))?;
            (from_lookup.hold_inode(source)?, to_lookup.hold_parent(to, seen))
        };
        let source = from_lookup.inode_or_walk(source, from, how)?;
        let inode = source.inode();
        let parent = to_lookup.parent_or_walk(parent, to)?;
        to_base.with_new_name(parent, false, |parent, name, mut locked| {
            if !source.mount.ptr_eq(&parent.mount) {
                return Err(Errno::EXDEV.into());
            }
            let sb = parent.sb();
            if sb.protects_hardlinks() && !self.may_keep(&source) {
                return Err(Errno::EPERM.into());
            }
            self.may_create(parent)?;
            if inode.perm().append() || inode.perm().immutable() || inode.is_dir() {
                return Err(Errno::EPERM.into());
            }
            let _change = inode.lock_attributes();
            if inode.nlink() == 0 && !inode.is_linkable() {
                return Err(Errno::ENOENT.into());
            }
            let kept = source.keep();
            kept.mark_named();
            locked.hide();
            let to = NameRef { dir: parent.inode(), name };
            sb.fs().link(inode, to, clock::now(), sb.space_rights(&self.cred))?;
            sb.links_changed(&kept);
            kept.clear_linkable();
            let mut negative = locked.take_last();
            sb.enter(locked.key(), name, kept, negative.as_mut())?;
            locked.bound();
            Ok(())
        })
    }

    /// May the caller keep a file alive by a link of its own, where links are protected? Its own files, and regular
    /// files that it may read and write and that give nobody privileges.
    fn may_keep(&self, source: &InodeRef<'_>) -> bool {
        let inode = source.inode();
        let mode = inode.perm().mode();
        let plain = inode.kind() == FileType::Regular && mode & 0o4000 == 0 && mode & 0o2010 != 0o2010;
        owner_or_capable(&self.cred, inode)
            || plain && self.permission(&source.mount, source.inode(), Access::READ | Access::WRITE).is_ok()
    }

    /// Removes a name of a file that is no directory.
    pub fn unlink(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let ParentRef { dir: parent, last } = self.lookup().parent(path.as_ref(), Expect::Positive)?;
        let Component::Name(name) = last.component() else {
            return Err(Errno::EISDIR.into());
        };
        let _writer = WriteGuard::take(&parent.mount)?;
        let sb = parent.sb();
        let names = parent.inode().lock_names();
        let removed = self.unlink_locked(sb, &parent, name, last.slash)?;
        // The last reference to it may go here, and its blocks with it: not under the locks.
        drop(names);
        drop(removed);
        Ok(())
    }

    /// Removes a name of a file that is no directory. Locks: the directory's `rwsem`.
    fn unlink_locked(
        &self,
        sb: &SuperBlock,
        parent: &PathRef<'_>,
        name: &[u8],
        slash: bool,
    ) -> Result<(Removed, RcuArc<Inode>)> {
        let canonical = sb.name_to_change(parent.inode(), name)?;
        let locked = sb.lock_name(sb.dcache.key(&parent.dentry, &canonical), name, Expect::Positive)?;
        let victim = locked.dentry();
        let inode = victim.inode().ok_or(Errno::ENOENT)?;
        if slash {
            return Err(if inode.is_dir() { Errno::EISDIR } else { Errno::ENOTDIR }.into());
        }
        self.may_delete(parent, inode, false)?;
        if victim.is_mountpoint() {
            return Err(Errno::EBUSY.into());
        }
        let inode = keep_inode(victim);
        let removed = remove_name(sb, NameRef { dir: parent.inode(), name }, locked, &inode)?;
        Ok((removed, inode))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let ParentRef { dir: parent, last } = self.lookup().parent(path.as_ref(), Expect::Positive)?;
        let name = match last.component() {
            Component::Name(name) => name,
            Component::None => return Err(Errno::EBUSY.into()),
            Component::Dot => return Err(Errno::EINVAL.into()),
            Component::DotDot => return Err(Errno::ENOTEMPTY.into()),
        };
        let _writer = WriteGuard::take(&parent.mount)?;
        let sb = parent.sb();
        let names = parent.inode().lock_names();
        let removed = self.rmdir_locked(sb, &parent, name)?;
        drop(names);
        drop(removed);
        Ok(())
    }

    /// Removes an empty directory, and returns its dentry. Locks: the `rwsem` of the directory above.
    fn rmdir_locked(&self, sb: &SuperBlock, parent: &PathRef<'_>, name: &[u8]) -> Result<RcuArc<Dentry>> {
        let canonical = sb.name_to_change(parent.inode(), name)?;
        let locked = sb.lock_name(sb.dcache.key(&parent.dentry, &canonical), name, Expect::Positive)?;
        let victim = locked.dentry();
        let inode = victim.inode().ok_or(Errno::ENOENT)?;
        self.may_delete(parent, inode, true)?;
        if ptr::eq(inode, parent.inode()) {
            return Err(two_names(inode));
        }
        let kept = keep_inode(victim);
        // The victim's own lock keeps names from appearing in it.
        let _change = kept.lock_exclusive();
        if victim.is_mountpoint() {
            return Err(Errno::EBUSY.into());
        }
        locked.hide();
        sb.fs().rmdir(NameRef { dir: parent.inode(), name }, &kept, clock::now())?;
        kept.mark_dead();
        let victim = victim.clone();
        victim.mark_gone();
        sb.dcache.bind_nothing(locked.key(), name, None);
        locked.bound();
        sb.links_changed(&kept);
        sb.forget_negatives(&victim);
        Ok(victim)
    }

    /// May `victim` lose its name in this directory? Locks: the directory's `rwsem`, and the name.
    fn may_delete(&self, parent: &PathRef<'_>, victim: &Inode, is_dir: bool) -> Result<()> {
        let dir = parent.inode();
        self.permission(&parent.mount, parent.inode(), Access::WRITE | Access::EXEC)?;
        if dir.perm().append() {
            return Err(Errno::EPERM.into());
        }
        let (dir_uid, _, dir_mode) = dir.owner();
        let uid = self.cred.uid();
        let owns_either = uid == victim.owner().0 || uid == dir_uid || self.cred.has(Caps::FOWNER);
        let sticky = dir_mode & 0o1000 != 0 && !owns_either;
        if sticky || victim.perm().append() || victim.perm().immutable() {
            return Err(Errno::EPERM.into());
        }
        match (is_dir, victim.is_dir()) {
            (true, false) => Err(Errno::ENOTDIR.into()),
            (false, true) => Err(Errno::EISDIR.into()),
            _ if dir.perm().dead() => Err(Errno::ENOENT.into()),
            _ => Ok(()),
        }
    }

    /// Gives a file another name and takes the old one, in one step (`renameat2(2)`).
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, flags: RenameFlags) -> Result<()> {
        self.rename_between(from.as_ref(), self, to.as_ref(), flags)
    }

    /// The same, with the new path taken from the working directory of `to_base`.
    pub fn rename_to(
        &self,
        from: impl AsRef<[u8]>,
        to_base: &Self,
        to: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.rename_between(from.as_ref(), to_base, to.as_ref(), flags)
    }

    fn rename_between(&self, from: &[u8], to_base: &Self, to: &[u8], flags: RenameFlags) -> Result<()> {
        let leaves = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
        if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(leaves) {
            return Err(Errno::EINVAL.into());
        }
        let (from_lookup, to_lookup) = (self.lookup(), to_base.lookup());
        let (from_held, to_held) = {
            let guard = pin();
            let source = from_lookup.rcu_parent(from, &guard)?;
            // Errors of the old path come first, and errors of the new path before that of an old name that does not exist.
            let target = if source.is_some() { to_lookup.rcu_parent(to, &guard)? } else { None };
            if let (Some(source), Some(target)) = (&source, &target)
                && target.is_name_on_mount_of(source)
                && let Some(there) = source.see_last(&guard)
            {
                Expect::Positive.check(there.get().inode())?;
                // Two names of one file stay as they are.
                if flags.is_empty() && source.is_of_one_file(there, target, &guard) {
                    return source.dir.sb.gate.check();
                }
            }
            (from_lookup.hold_parent(from, source), to_lookup.hold_parent(to, target))
        };
        let ParentRef { dir: from_dir, last: from_last } = from_lookup.parent_or_walk(from_held, from)?;
        let ParentRef { dir: to_dir, last: to_last } = to_lookup.parent_or_walk(to_held, to)?;
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
        let from = RenameEnd { dir: &from_dir, name: from_name, last: &from_last };
        let to = RenameEnd { dir: &to_dir, name: to_name, last: &to_last };
        let sb = from_dir.sb();
        let replaced = match self.rename_beside(sb, &from, &to, flags)? {
            Renamed::Done(replaced) => replaced,
            Renamed::NeedsMutex => {
                // Held by whoever changes a directory's parent, so that who lies above whom stays as it is.
                let _renames = sb.lock_renames();
                let _names = match from.in_one_dir(&to) {
                    true => (Lock::Shared(from_dir.inode().lock_names()), None),
                    false => lock_two(&from_dir, &to_dir)?,
                };
                self.rename_locked(sb, &from, &to, flags, true)?.replaced()
            }
        };
        // The last reference to what was replaced may go here, and its blocks with it: not under the locks.
        drop(replaced);
        Ok(())
    }

    /// Renames without the `rename_mutex`, beside those who change other names, if that can be.
    fn rename_beside(
        &self,
        sb: &SuperBlock,
        from: &RenameEnd<'_>,
        to: &RenameEnd<'_>,
        flags: RenameFlags,
    ) -> Result<Renamed> {
        let (from_dir, to_dir) = (from.dir.inode(), to.dir.inode());
        let _from = from_dir.lock_names();
        let mut _to = None;
        if !from.in_one_dir(to) {
            _to = if ptr::eq(from_dir, to_dir) { None } else { to_dir.try_lock_names() };
            if _to.is_none() {
                return Ok(Renamed::NeedsMutex);
            }
        }
        self.rename_locked(sb, from, to, flags, false)
    }

    /// Renames. Locks: `rwsem` of the directory, or those of both; with `rename_mutex`, if `has_mutex`, those of both exclusive.
    fn rename_locked(
        &self,
        sb: &SuperBlock,
        from: &RenameEnd<'_>,
        to: &RenameEnd<'_>,
        flags: RenameFlags,
        has_mutex: bool,
    ) -> Result<Renamed> {
        let in_one_dir = from.in_one_dir(to);
        let if_locked = if in_one_dir || has_mutex { IfLocked::Wait } else { IfLocked::GiveUp };
        let (from_inode, to_inode) = (from.dir.inode(), to.dir.inode());
        if from_inode.perm().dead() || to_inode.perm().dead() {
            return Err(Errno::ENOENT.into());
        }
        let from_canonical = sb.canonical_name(from_inode, from.name)?;
        let from_key = sb.dcache.key(&from.dir.dentry, &from_canonical);
        let to_canonical = match sb.canonical_name(to_inode, to.name) {
            Ok(canonical) => canonical,
            Err(error) => {
                // That the old name does not exist comes before that the new name cannot.
                let first = sb.lock_name_if(from_key, from.name, Expect::Positive, if_locked)?;
                return first.map_or(Ok(Renamed::NeedsMutex), |_| Err(error));
            }
        };
        let to_key = sb.dcache.key(&to.dir.dentry, &to_canonical);
        let locked = sb.lock_names((from_key, from.name), (to_key, to.name), if_locked)?;
        let Some((from_name, to_name)) = locked else { return Ok(Renamed::NeedsMutex) };
        let source = from_name.dentry();
        let target = to_name.as_ref().unwrap_or(&from_name).dentry();
        let inode = source.inode().ok_or(Errno::ENOENT)?;
        let replaced = target.inode();
        if !has_mutex && needs_mutex(inode, replaced, in_one_dir) {
            return Ok(Renamed::NeedsMutex);
        }
        check_ends(from, to, source, target, flags)?;
        if replaced.is_some_and(|replaced| ptr::eq(replaced, inode)) {
            return Ok(Renamed::Done(None));
        }
        self.may_rename(from, to, inode, replaced, flags.contains(RenameFlags::EXCHANGE))?;
        let kept = (keep_inode(source), target.inode().map(|_| keep_inode(target)));
        self.rename_children(sb, from, to, (from_name, to_name), (&kept.0, kept.1.as_deref()), flags)
    }

    /// Renames what has passed the checks. Locks: those of [`rename_locked`](Self::rename_locked), and both names.
    fn rename_children(
        &self,
        sb: &SuperBlock,
        from: &RenameEnd<'_>,
        to: &RenameEnd<'_>,
        (from_name, to_name): (LockedName<'_>, Option<LockedName<'_>>),
        (inode, replaced): (&Inode, Option<&Inode>),
        flags: RenameFlags,
    ) -> Result<Renamed> {
        let now = clock::now();
        let (_change, touches) = lock_children(from, to, (inode, replaced), now)?;
        let Some(to_name) = to_name else { return Err(two_names(inode)) };
        // Mounted is under the lock of what is mounted on.
        if from_name.dentry().is_mountpoint() || to_name.dentry().is_mountpoint() {
            return Err(Errno::EBUSY.into());
        }
        let whiteout = self.draw_whiteout(sb, from.dir.inode(), flags)?;
        let rename = Rename {
            from: NameRef { dir: from.dir.inode(), name: from.name },
            inode,
            to: NameRef { dir: to.dir.inode(), name: to.name },
            target: replaced,
            flags,
            whiteout: whiteout.as_ref().map(|new| new.node(WHITEOUT)),
            now,
            touches,
            rights: sb.space_rights(&self.cred),
        };
        move_dentries(sb, from, to, (from_name, to_name), &rename)
            .map(|replaced| Renamed::Done(Some(replaced)))
    }

    /// What a rename leaves behind where it is to leave something: it inherits from its directory, as any new file does.
    fn draw_whiteout(&self, sb: &SuperBlock, dir: &Inode, flags: RenameFlags) -> Result<Option<Blueprint>> {
        let draw = || Blueprint::draw(sb, &self.cred, dir, WHITEOUT, 0, self.umask);
        flags.contains(RenameFlags::WHITEOUT).then(draw).transpose()
    }

    /// The permission checks of a rename, in Linux's order.
    fn may_rename(
        &self,
        from: &RenameEnd<'_>,
        to: &RenameEnd<'_>,
        inode: &Inode,
        replaced: Option<&Inode>,
        exchange: bool,
    ) -> Result<()> {
        self.may_delete(from.dir, inode, inode.is_dir())?;
        match replaced {
            None => self.may_create(to.dir)?,
            Some(replaced) => {
                self.may_delete(to.dir, replaced, if exchange { replaced.is_dir() } else { inode.is_dir() })?;
            }
        }
        if from.in_one_dir(to) {
            return Ok(());
        }
        // A directory that changes its parent is itself changed: its `..`.
        let write = |inode: &Inode| {
            let read_only = from.dir.mount.is_read_only();
            from.dir.sb().checker.permission(&self.cred, inode, Access::WRITE, read_only)
        };
        if inode.is_dir() {
            write(inode)?;
        }
        match replaced {
            Some(replaced) if exchange && replaced.is_dir() => write(replaced),
            _ => Ok(()),
        }
    }
}

/// What is left behind is a character device 0/0.
const WHITEOUT: NewKind<'_> = NewKind::CharDevice(Rdev { major: 0, minor: 0 });

/// An inode's `rwsem`, or what is enough of it to change attributes.
#[expect(dead_code, reason = "held until it is dropped")]
enum Lock<'a> {
    Shared(Ordered<BiasedReadGuard<'a>>),
    Attributes(Ordered<AttributesGuard<'a>>),
    Exclusive(Ordered<BiasedWriteGuard<'a>>),
}

/// Those of one inode or two.
type Locks<'a> = (Lock<'a>, Option<Lock<'a>>);

/// How a rename ended that did not fail.
enum Renamed {
    /// It is done, and the new name stood for this before.
    Done(Option<RcuArc<Dentry>>),
    /// Nothing is done: it takes the `rename_mutex`, for directories are to be locked beside each other, or locks to be waited for.
    NeedsMutex,
}

impl Renamed {
    fn replaced(self) -> Option<RcuArc<Dentry>> {
        match self {
            Self::Done(replaced) => replaced,
            Self::NeedsMutex => unreachable!("who has the mutex needs nothing more"),
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

/// To give `inode` the name of `replaced` takes the `rename_mutex`: a directory changes its parent, or may be replaced by another.
fn needs_mutex(inode: &Inode, replaced: Option<&Inode>, in_one_dir: bool) -> bool {
    let replaces_dir = replaced.is_some_and(Inode::is_dir);
    if in_one_dir { inode.is_dir() && replaces_dir } else { inode.is_dir() || replaces_dir }
}

/// What can be said against a rename from the shape of the tree and the paths alone.
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
        Some(inode) if exchange && to.last.slash && !inode.is_dir() => return Err(Errno::ENOTDIR.into()),
        None if exchange => return Err(Errno::ENOENT.into()),
        _ => {}
    }
    if !directory(source).is_dir() && (from.last.slash || !exchange && to.last.slash) {
        return Err(Errno::ENOTDIR.into());
    }
    // Nothing lies below what is no directory.
    let is_above =
        |dentry: &RcuArc<Dentry>, dir| dentry.inode().is_some_and(Inode::is_dir) && is_ancestor(dentry, dir);
    if is_above(source, &to.dir.dentry) {
        return Err(Errno::EINVAL.into());
    }
    if is_above(target, &from.dir.dentry) {
        return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
    }
    Ok(())
}

/// Locks two directories: an ancestor before what lies below it, others by inode number.
/// Locks: `rename_mutex` held.
fn lock_two<'a>(a: &'a PathRef<'_>, b: &'a PathRef<'_>) -> Result<Locks<'a>> {
    let (inode_a, inode_b) = (a.inode(), b.inode());
    if ptr::eq(inode_a, inode_b) {
        return Err(two_names(inode_a));
    }
    let b_first = is_ancestor(&b.dentry, &a.dentry)
        || !is_ancestor(&a.dentry, &b.dentry) && inode_b.ino() < inode_a.ino();
    let (first, second) = if b_first { (inode_b, inode_a) } else { (inode_a, inode_b) };
    let first = Lock::Exclusive(first.lock_names_exclusive());
    Ok((first, Some(Lock::Exclusive(second.lock_names_exclusive()))))
}

/// Locks what moves and what is replaced: directories first, for who makes a link holds the directory when it locks the
/// file; then by inode number. Contents of a file may be written meanwhile; and if it moves, and was changed at that moment already, it
/// stays as it is, and others may change its attributes. So it is said whether it is changed, too.
/// Locks: `rename_mutex`, if both are directories.
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
    let lock_moved = || match touches {
        true => Lock::Attributes(inode.lock_attributes()),
        false => Lock::Shared(inode.lock_shared()),
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

/// What a name stood for that has been removed: in use still, or not.
type Removed = (Option<RcuArc<Dentry>>, Option<FinalRef<Dentry>>);

/// Removes a name of a file that is no directory. Locks: `rwsem` of the directory.
fn remove_name(
    sb: &SuperBlock,
    from: NameRef<'_>,
    mut locked: LockedName<'_>,
    inode: &RcuArc<Inode>,
) -> Result<Removed> {
    let _change = inode.lock_attributes();
    locked.hide();
    let mut last = if inode.nlink() == 1 { locked.take_last() } else { None };
    // The dentry's, the cache's and the caller's. Nobody comes to it by its name's dentry, which has ended, nor by its number, which is
    // found by names, or while nothing is changed (`handle`). Who has seen the name before it was hidden may still count the inode
    // (`Lookup::hold_inode`). If he did before this, there are more; if he does later, he sees that the name is hidden, and lets go.
    let is_last = last.is_some() && inode.has_references(3);
    if let Err(error) = sb.fs().unlink(from, inode, clock::now(), is_last) {
        if last.is_some() {
            sb.enter(locked.key(), from.name, inode.clone(), last.as_mut())?;
            locked.bound();
        }
        return Err(error);
    }
    if last.is_none() {
        locked.dentry().mark_gone();
    }
    sb.dcache.bind_nothing(locked.key(), from.name, last.as_mut());
    let dentry = locked.bound();
    if is_last {
        // It goes within this change, and need not be counted.
        sb.icache.links_changed(inode);
    } else {
        sb.links_changed(inode);
    }
    Ok((dentry, last))
}

/// Renames in the file system and makes the cache say so; gives back what the new name stood for. Both names are hidden meanwhile, so
/// that nobody finds both names, or neither, or attributes of one moment under a name of another.
/// Locks: `rwsem` of both directories; what the names stand for, as [`lock_children`] does.
fn move_dentries(
    sb: &SuperBlock,
    from: &RenameEnd<'_>,
    to: &RenameEnd<'_>,
    (mut from_name, mut to_name): (LockedName<'_>, LockedName<'_>),
    rename: &Rename<'_>,
) -> Result<RcuArc<Dentry>> {
    let (from_dir, to_dir) = (&from.dir.dentry, &to.dir.dentry);
    from_name.hide();
    to_name.hide();
    sb.fs().rename(rename)?;
    if moves_dir(from, to, rename) {
        // Before anything moves, and while both names are hidden: see `count_dir_rename`.
        sb.count_dir_rename();
    }
    let (source, target) = (from_name.take(), to_name.take());
    let exchange = rename.flags.contains(RenameFlags::EXCHANGE);
    source.move_to(to_dir, to.name);
    if exchange {
        target.move_to(from_dir, from.name);
    }
    // The old name first: its entry stays in the cache as long as the source is in use, and who comes to that by the new name may remove it.
    match rename.whiteout {
        _ if exchange => sb.dcache.put(from_name.key(), target.clone()),
        None => sb.dcache.bind_nothing(from_name.key(), from.name, None),
        // What was left behind is found when somebody asks for it.
        Some(_) => sb.dcache.remove(from_name.key()),
    }
    from_name.bound();
    sb.dcache.put(to_name.key(), source);
    to_name.bound();
    if let Some(replaced) = target.inode().filter(|_| !exchange) {
        target.mark_gone();
        if replaced.is_dir() {
            replaced.mark_dead();
        }
        sb.links_changed(&keep_inode(&target));
        sb.forget_negatives(&target);
    }
    Ok(target)
}

/// A directory changes its parent: what is renamed, or what it is exchanged for.
fn moves_dir(from: &RenameEnd<'_>, to: &RenameEnd<'_>, rename: &Rename<'_>) -> bool {
    let exchanged = rename.target.filter(|_| rename.flags.contains(RenameFlags::EXCHANGE));
    !from.in_one_dir(to) && (rename.inode.is_dir() || exchanged.is_some_and(Inode::is_dir))
}
