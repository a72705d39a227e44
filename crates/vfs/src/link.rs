//! Adding and removing names: `link`, `unlink`, `rmdir`.
//!
//! These methods of `Session` check the caller's rights and call the file system under the name's
//! lock. A name that a call has removed is found by no later lookup; on an error it stays as it
//! was. A removed file that is still open keeps its inode until its last user closes it. The FUSE
//! server and the `extern4` crate call them; `rename` shares the rule for deletion.

use std::ptr;

use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::RcuArc;

use crate::attr::FileType;
use crate::clock;
use crate::cred::Caps;
use crate::dcache::{Expect, LockedName};
use crate::dentry::Dentry;
use crate::errno::{Errno, Result};
use crate::fs::NameRef;
use crate::inode::Inode;
use crate::lookup::LookupFlags;
use crate::lookup::path::{Component, InodeRef, ParentRef, PathRef};
use crate::mount::WriteGuard;
use crate::permission::{Access, owner_or_capable};
use crate::session::Session;
use crate::superblock::{SuperBlock, keep_inode, two_names};

impl Session {
    /// Gives a file one more name (`linkat(2)`; `LookupFlags::FOLLOW` is `AT_SYMLINK_FOLLOW`).
    /// Directories cannot have one: `EPERM`. A file made with `O_TMPFILE` gets its first name so.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EEXIST`, `EXDEV`, `EMLINK`, `EPERM`,
    /// `ENOSPC`, `EROFS`.
    pub fn link(
        &self,
        from: impl AsRef<[u8]>,
        how: LookupFlags,
        to: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.link_to(from, how, self, to)
    }

    /// Like [`link`](Self::link), with the new path taken from the working directory of `to_base`.
    ///
    /// # Errors
    /// The errors of [`link`](Self::link).
    pub fn link_to(
        &self,
        from: impl AsRef<[u8]>,
        how: LookupFlags,
        to_base: &Self,
        to: impl AsRef<[u8]>,
    ) -> Result<()> {
        let from = from.as_ref();
        let to = to.as_ref();
        let from_lookup = self.lookup();
        let to_lookup = to_base.lookup();
        let (source, parent) = {
            let guard = pin();
            let source = from_lookup.rcu(from, how, &guard);
            // An error of the source comes first.
            let seen = if source.is_ok() {
                to_lookup.rcu_parent(to, &guard)?
            } else {
                None
            };
            if let Some(parent) = &seen {
                parent.check(Expect::Negative, &guard)?;
            }
            (
                from_lookup.hold_inode(source)?,
                to_lookup.hold_parent(to, seen),
            )
        };
        let source = from_lookup.inode_or_walk(source, from, how)?;
        let inode = source.inode();
        let parent = to_lookup.parent_or_walk(parent, to)?;
        to_base.with_new_name(parent, false, |parent, name, locked| {
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
            let to = NameRef {
                dir: parent.inode(),
                name,
            };
            sb.fs()
                .link(inode, to, sb.context_at(clock::now(), &self.cred))?;
            sb.links_changed(&kept);
            kept.clear_linkable();
            sb.bind_made(locked, name, kept)?;
            Ok(())
        })
    }

    /// Returns whether the caller may link to a file where links are protected. It may link to its
    /// own files, and to regular files that it may read and write and that give no privileges.
    fn may_keep(&self, source: &InodeRef<'_>) -> bool {
        let inode = source.inode();
        let mode = inode.perm().mode();
        let plain =
            inode.kind() == FileType::Regular && mode & 0o4000 == 0 && mode & 0o2010 != 0o2010;
        owner_or_capable(&self.cred, inode)
            || plain
                && self
                    .permission(&source.mount, source.inode(), Access::READ | Access::WRITE)
                    .is_ok()
    }

    /// Removes a name of a file that is no directory.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EISDIR`, `EBUSY`, `EPERM`, `EROFS`;
    /// `EUCLEAN` for a file that is too damaged to be freed.
    pub fn unlink(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let ParentRef { dir: parent, last } =
            self.lookup().parent(path.as_ref(), Expect::Positive)?;
        let Component::Name(name) = last.component() else {
            return Err(Errno::EISDIR.into());
        };
        let _writer = WriteGuard::take(&parent.mount)?;
        let sb = parent.sb();
        let names = parent.inode().lock_names();
        let removed = self.unlink_locked(sb, &parent, name, last.slash)?;
        // This may drop the last reference to the file and free its blocks, so it happens without
        // the locks.
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
    ) -> Result<(Option<RcuArc<Dentry>>, RcuArc<Inode>)> {
        let canonical = sb.name_to_change(parent.inode(), name)?;
        let locked = sb.lock_name(
            sb.dcache.key(&parent.dentry, &canonical),
            name,
            Expect::Positive,
        )?;
        let victim = locked.dentry();
        let inode = victim.inode().ok_or(Errno::ENOENT)?;
        if slash {
            return Err(if inode.is_dir() {
                Errno::EISDIR
            } else {
                Errno::ENOTDIR
            }
            .into());
        }
        self.may_delete(parent, inode, false)?;
        if victim.is_mountpoint() {
            return Err(Errno::EBUSY.into());
        }
        let inode = keep_inode(victim);
        let removed = remove_name(
            sb,
            NameRef {
                dir: parent.inode(),
                name,
            },
            locked,
            &inode,
        )?;
        Ok((removed, inode))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `ENOTDIR`, `ENOTEMPTY`, `EBUSY`,
    /// `EPERM`, `EROFS`.
    pub fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let ParentRef { dir: parent, last } =
            self.lookup().parent(path.as_ref(), Expect::Positive)?;
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

    /// Removes an empty directory, and returns its dentry. Locks: the `rwsem` of the directory
    /// above.
    fn rmdir_locked(
        &self,
        sb: &SuperBlock,
        parent: &PathRef<'_>,
        name: &[u8],
    ) -> Result<Option<RcuArc<Dentry>>> {
        let canonical = sb.name_to_change(parent.inode(), name)?;
        let locked = sb.lock_name(
            sb.dcache.key(&parent.dentry, &canonical),
            name,
            Expect::Positive,
        )?;
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
        sb.fs().rmdir(
            NameRef {
                dir: parent.inode(),
                name,
            },
            &kept,
            clock::now(),
        )?;
        kept.mark_dead();
        let victim = locked.bind_nothing();
        sb.links_changed(&kept);
        Ok(victim)
    }

    /// Checks whether `victim` may lose its name in this directory. Locks: the directory's `rwsem`,
    /// and the name.
    pub(crate) fn may_delete(
        &self,
        parent: &PathRef<'_>,
        victim: &Inode,
        is_dir: bool,
    ) -> Result<()> {
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
}

/// Removes a name of a file that is no directory. Returns its dentry if that is still in use.
/// Locks: `rwsem` of the directory.
fn remove_name(
    sb: &SuperBlock,
    from: NameRef<'_>,
    locked: LockedName<'_>,
    inode: &RcuArc<Inode>,
) -> Result<Option<RcuArc<Dentry>>> {
    let _change = inode.lock_attributes();
    locked.hide();
    // The references of the dentry, the cache and the caller. A thread that gets another by the
    // dentry sees that the name is hidden, and drops it. No thread can get one by the number, which
    // threads find by names, or while changes are paused (`handle`). A walk that saw the name
    // before it was hidden may still take a reference to the inode (`Lookup::hold_inode`). If it
    // did so before this check, the count is higher; if it does so later, it sees that the name is
    // hidden, and drops the reference.
    let is_last =
        inode.nlink() == 1 && Dentry::is_unshared(locked.dentry()) && inode.has_references(3);
    sb.fs().unlink(from, inode, clock::now(), is_last)?;
    let dentry = locked.bind_nothing();
    if is_last {
        // The inode is freed within this change, and need not be counted.
        sb.icache.links_changed(inode);
    } else {
        sb.links_changed(inode);
    }
    Ok(dentry)
}
