//! Links, unlinks and renames: adds names to inodes and removes them, each in one transaction.
//!
//! Each operation first checks whether it can be done, then changes directories and inodes under
//! one handle, and last publishes the inodes. An inode that would lose its last name is looked at,
//! too: a damaged one keeps it. The VFS has locked all inodes that it changes, except
//! a file that is only moved. Another thread may change that file meanwhile, so the copy of it made
//! here is neither stored nor published. The names of directories are locked here
//! ([`LockedNames`]), two of them in the order of their numbers. `InodeOps` in `ops` calls these
//! functions.

use extern4_disk::dirent::{self, DirEntry};
use extern4_disk::inode::InodeFlags;
use extern4_disk::journal::Tid;
use extern4_vfs::{ChangeContext, Errno, Inode, NameRef, Rename, RenameFlags, Timespec};

use crate::alloc::reserve::Demand;
use crate::dir::insert::{blocks_for_name, check_new_name, is_empty_directory, set_parent};
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::fs::quota_accounts::Owners;
use crate::handle::Handle;
use crate::handle::publish::{publish, publish_touched};
use crate::inode::cached::{CachedInode, LockedNames};
use crate::inode::info::InodeInfo;
use crate::ops::create::{
    LINK_MAX, NAME_BLOCKS, NAME_CREDITS, NODE_BLOCKS, count_link, new_inode, store_new,
    touch_ctime, touch_names, uncount_link,
};
use crate::ops::delete::{check_removable, free_with_name};
use crate::time::timestamp;
use crate::xattr::acl::set::{init_attributes, room_for_acls};
use crate::xattr::list::Need;

/// Returns a copy of the current inode, to be changed.
fn copy(inode: &Inode) -> InodeInfo {
    inode.private::<CachedInode>().info()
}

/// Returns the type for a directory entry.
fn kind_of(info: &InodeInfo) -> dirent::FileType {
    dirent::FileType::from_mode(info.fields().mode())
}

/// Returns `EXDEV` if files in `dir` belong to its project, and this one to another.
fn check_project(dir: &InodeInfo, info: &InodeInfo) -> Result<()> {
    let one_project = dir.fields().flags().contains(InodeFlags::PROJINHERIT);
    if one_project && dir.fields().project() != info.fields().project() {
        Err(Errno::EXDEV.into())
    } else {
        Ok(())
    }
}

/// Adds a name to a file.
pub(crate) fn link_name(
    fs: &Ext4,
    inode: &Inode,
    to: NameRef<'_>,
    context: ChangeContext,
) -> Result<()> {
    let ChangeContext { now, rights } = context;
    let mut info = copy(inode);
    if info.fields().links() >= LINK_MAX {
        return Err(Errno::EMLINK.into());
    }
    check_project(&to.dir.private::<CachedInode>().info(), &info)?;
    let exactly = || {
        let dir = Box::new(LockedNames::lock(to.dir));
        let blocks = blocks_for_name(fs, &dir.info, to.name)?;
        Ok((dir, blocks))
    };
    let demand = Demand::new(NAME_BLOCKS, rights);
    let tid = fs.with_exact_demand(NAME_CREDITS, demand, exactly, |handle, dir| {
        let add = |dir: &mut LockedNames<'_>| {
            check_new_name(fs, &dir.info, to.name)?;
            handle.admit_blocks(&dir.info, rights, || {
                blocks_for_name(fs, &dir.info, to.name)
            })?;
            dir.add(handle, to.name, info.ino(), kind_of(&info))?;
            touch_names(handle, &mut dir.info, now)?;
            dir.publish(fs, handle.tid());
            Ok::<_, Error>(())
        };
        match dir {
            Some(mut dir) => add(&mut dir)?,
            None => add(&mut LockedNames::lock(to.dir))?,
        }
        if info.fields().links() == 0 {
            handle.writer.orphans.orphan_remove(handle, &mut info)?;
        }
        let links = info.fields().links() + 1;
        info.fields_mut().set_links(links);
        info.fields_mut().set_ctime(timestamp(now));
        handle.store(&info)?;
        Ok(handle.tid())
    })?;
    publish_touched(fs, inode, &info, tid);
    Ok(())
}

/// Removes a name of a file that is not a directory. If it is the last one and `is_last` says that
/// the file has no user, the file is freed, too.
pub(crate) fn unlink_name(
    fs: &Ext4,
    from: NameRef<'_>,
    inode: &Inode,
    now: Timespec,
    is_last: bool,
) -> Result<()> {
    let mut info = copy(inode);
    let loses_name = info.fields().links() <= 1;
    if loses_name {
        check_removable(fs, &info)?;
    }
    let is_last = is_last && loses_name;
    let to_free = if is_last {
        info.credits_to_free_at_once(fs)?
    } else {
        None
    };
    let (tid, freed) = fs.with_handle(NAME_CREDITS + to_free.unwrap_or(0), 0, |handle| {
        {
            let mut dir = LockedNames::lock(from.dir);
            dir.remove(handle, from.name)?;
            touch_names(handle, &mut dir.info, now)?;
            dir.publish(fs, handle.tid());
        }
        if to_free.is_some() {
            // Before the number is free. The file has no user, so other fields need no update.
            inode.update(|attr| attr.nlink = 0);
            if free_with_name(handle, &mut info, now)? {
                inode.private::<CachedInode>().set_freed();
                return Ok((handle.tid(), true));
            }
        }
        drop_link(handle, &mut info, now)?;
        Ok((handle.tid(), false))
    })?;
    if !freed {
        publish_touched(fs, inode, &info, tid);
    }
    Ok(())
}

/// Removes an empty directory.
pub(crate) fn remove_directory(
    fs: &Ext4,
    from: NameRef<'_>,
    inode: &Inode,
    now: Timespec,
) -> Result<()> {
    let mut info = copy(inode);
    if !is_empty_directory(fs, &info)? {
        return Err(Errno::ENOTEMPTY.into());
    }
    check_removable(fs, &info)?;
    let tid = fs.with_handle(NAME_CREDITS, 0, |handle| {
        {
            let mut dir = LockedNames::lock(from.dir);
            dir.remove(handle, from.name)?;
            uncount_link(&mut dir.info);
            touch_names(handle, &mut dir.info, now)?;
            dir.publish(fs, handle.tid());
        }
        drop_directory(handle, &mut info, now)?;
        Ok(handle.tid())
    })?;
    publish(fs, inode, &info, tid)
}

/// Renames, or exchanges two names.
pub(crate) fn rename_name(fs: &Ext4, rename: &Rename<'_>) -> Result<()> {
    let exchange = rename.flags.contains(RenameFlags::EXCHANGE);
    if let Some(target) = rename
        .target
        .filter(|target| !exchange && (target.is_dir() || target.nlink() <= 1))
    {
        let info = copy(target);
        if info.is_directory() && !is_empty_directory(fs, &info)? {
            return Err(Errno::ENOTEMPTY.into());
        }
        check_removable(fs, &info)?;
    }
    // A whiteout has no contents, but it may have an ACL. If the new name exists already, it needs
    // no room.
    let acls = match &rename.whiteout {
        Some(new) => {
            let mode = new.kind.file_type().mode_bits() | new.mode;
            room_for_acls(fs, mode, new.acl, new.default_acl)?
        }
        None => Need::default(),
    };
    let whiteout = if rename.whiteout.is_some() {
        NODE_BLOCKS + acls.blocks
    } else {
        0
    };
    let blocks = whiteout
        + if rename.target.is_none() {
            NAME_BLOCKS
        } else {
            0
        };
    let exactly = || {
        let inodes = Box::new(RenameInodes::lock(rename));
        let for_name = match rename.target {
            None => blocks_for_name(fs, &inodes.to_dir().info, rename.to.name)?,
            Some(_) => 0,
        };
        Ok((inodes, acls.blocks + for_name))
    };
    let left = rename.whiteout.as_ref().map(|new| {
        let from = rename.from.dir.private::<CachedInode>().info();
        Owners::of_new(&from, new)
    });
    if let Some(owners) = left {
        fs.open_accounts(owners)?;
    }
    let operate = |handle: &Handle<'_>, inodes: &mut RenameInodes<'_>| {
        check_rename(fs, inodes, rename)?;
        if rename.target.is_none() {
            let dir = &inodes.to_dir().info;
            handle.admit_blocks(dir, rename.rights, || {
                blocks_for_name(fs, dir, rename.to.name)
            })?;
        }
        let amount = || Ok(handle.amount(acls.blocks, 1));
        if let Some(owners) = left {
            handle.admit(owners, rename.rights, amount)?;
        }
        if exchange {
            exchange_names(handle, inodes, rename)?
        } else {
            move_name(handle, inodes, rename)?
        }
        inodes.publish(fs, rename, handle.tid());
        Ok(())
    };
    // The inodes are not moved once they are locked, because they are large.
    let demand = Demand::new(blocks, rename.rights);
    fs.with_exact_demand(
        2 * NAME_CREDITS + acls.credits,
        demand,
        exactly,
        |handle, inodes| match inodes {
            Some(mut inodes) => operate(handle, &mut inodes),
            None => operate(handle, &mut RenameInodes::lock(rename)),
        },
    )
}

/// Checks that a rename can be done, before anything is changed.
fn check_rename(fs: &Ext4, inodes: &RenameInodes<'_>, rename: &Rename<'_>) -> Result<()> {
    let from = &inodes.from.info;
    let to = &inodes.to_dir().info;
    if from.is_encrypted() || to.is_encrypted() {
        return Err(Errno::ENOKEY.into());
    }
    check_project(to, &inodes.inode)?;
    match &inodes.target {
        Some(target) if rename.flags.contains(RenameFlags::EXCHANGE) => {
            check_project(from, target)?
        }
        Some(_) => {}
        None => check_new_name(fs, to, rename.to.name)?,
    }
    let replaces_dir = inodes.target.as_ref().is_some_and(InodeInfo::is_directory);
    match (&inodes.to, inodes.inode.is_directory(), replaces_dir) {
        (Some(to), true, false) => to.info.check_room_for_link(fs),
        // Only an exchange can replace a directory by a file; the directory moves to `from`.
        (Some(_), false, true) => from.check_room_for_link(fs),
        _ => Ok(()),
    }
}

/// The inodes of a rename.
struct RenameInodes<'d> {
    from: LockedNames<'d>,
    /// `None` if it is the same directory.
    to: Option<LockedNames<'d>>,
    inode: InodeInfo,
    target: Option<InodeInfo>,
}

impl<'d> RenameInodes<'d> {
    fn lock(rename: &Rename<'d>) -> Self {
        let from = rename.from.dir;
        let to = rename.to.dir;
        let inode = || copy(rename.inode);
        let target = || rename.target.map(copy);
        // In the order of their numbers, because another thread may rename the other way. They are
        // built in place, because they are large.
        if to.ino() < from.ino() {
            Self {
                to: Some(LockedNames::lock(to)),
                from: LockedNames::lock(from),
                inode: inode(),
                target: target(),
            }
        } else {
            let two = from.ino() != to.ino();
            Self {
                from: LockedNames::lock(from),
                to: two.then(|| LockedNames::lock(to)),
                inode: inode(),
                target: target(),
            }
        }
    }

    fn to_dir(&self) -> &LockedNames<'d> {
        self.to.as_ref().unwrap_or(&self.from)
    }

    fn destination_names(&mut self) -> &mut LockedNames<'d> {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    fn destination(&mut self) -> &mut InodeInfo {
        &mut self.destination_names().info
    }

    /// Publishes the changes to the users of the inodes.
    fn publish(&self, fs: &Ext4, rename: &Rename<'_>, tid: Tid) {
        self.from.publish(fs, tid);
        if let Some(to) = &self.to {
            to.publish(fs, tid);
        }
        publish_touched(fs, rename.inode, &self.inode, tid);
        if let (Some(inode), Some(target)) = (rename.target, &self.target) {
            publish_touched(fs, inode, target, tid);
        }
    }
}

/// Removes a link of a file, which becomes an orphan if it was the last.
fn drop_link(handle: &Handle<'_>, info: &mut InodeInfo, now: Timespec) -> Result<()> {
    let links = info.fields().links().saturating_sub(1);
    info.fields_mut().set_links(links);
    info.fields_mut().set_ctime(timestamp(now));
    if links == 0 {
        handle.writer.orphans.orphan_add(info);
    }
    handle.store(info)
}

/// Makes a directory an orphan, after its name has been removed.
fn drop_directory(handle: &Handle<'_>, info: &mut InodeInfo, now: Timespec) -> Result<()> {
    info.fields_mut().set_links(0);
    info.fields_mut().set_ctime(timestamp(now));
    handle.writer.orphans.orphan_add(info);
    handle.store(info)
}

fn move_name(
    handle: &Handle<'_>,
    inodes: &mut RenameInodes<'_>,
    rename: &Rename<'_>,
) -> Result<()> {
    let is_dir = inodes.inode.is_directory();
    let replaces_dir = inodes.target.as_ref().is_some_and(InodeInfo::is_directory);
    move_entry(handle, inodes, rename)?;
    if replaces_dir {
        uncount_link(inodes.destination());
    }
    if is_dir && inodes.to.is_some() {
        let parent = inodes.destination().ino();
        set_parent(handle, &mut inodes.inode, parent)?;
        uncount_link(&mut inodes.from.info);
        count_link(inodes.destination());
    }
    touch_dirs(handle, inodes, rename.now)?;
    match &mut inodes.target {
        Some(target) if replaces_dir => drop_directory(handle, target, rename.now)?,
        Some(target) => drop_link(handle, target, rename.now)?,
        None => {}
    }
    touch_moved(handle, inodes, rename)
}

/// Stores the time of change of a moved inode, if that changes. The copy of a file may be out of
/// date, so its time is changed in place.
fn touch_moved(
    handle: &Handle<'_>,
    inodes: &mut RenameInodes<'_>,
    rename: &Rename<'_>,
) -> Result<()> {
    let info = &mut inodes.inode;
    if info.is_directory() {
        return touch_ctime(handle, info, rename.now);
    }
    if rename.touches {
        return handle.touch(rename.inode, |fields, _| {
            fields.set_ctime(timestamp(rename.now))
        });
    }
    handle.note_sync(info.fields());
    Ok(())
}

/// Moves the entry from one name to the other.
fn move_entry(
    handle: &Handle<'_>,
    inodes: &mut RenameInodes<'_>,
    rename: &Rename<'_>,
) -> Result<()> {
    let ino = inodes.inode.ino();
    let kind = kind_of(&inodes.inode);
    if inodes.to.is_none() && inodes.target.is_none() && rename.whiteout.is_none() {
        let entry = DirEntry {
            ino,
            kind,
            name: rename.to.name,
            offset: 0,
            hash: None,
        };
        if inodes.from.rename(handle, rename.from.name, &entry)? {
            return Ok(());
        }
    }
    // The whiteout comes first: there may be no free inode for it.
    let mut whiteout = rename
        .whiteout
        .as_ref()
        .map(|new| new_inode(handle, &inodes.from.info, new))
        .transpose()?;
    if let (Some(whiteout), Some(new)) = (&mut whiteout, &rename.whiteout) {
        init_attributes(handle, whiteout, new.acl, new.default_acl)?;
        store_new(handle, whiteout, new)?;
    }
    if inodes.target.is_some() {
        inodes
            .destination_names()
            .replace(handle, rename.to.name, ino, kind)?;
    } else {
        inodes
            .destination_names()
            .add(handle, rename.to.name, ino, kind)?;
    }
    match whiteout {
        Some(whiteout) => {
            inodes
                .from
                .replace(handle, rename.from.name, whiteout.ino(), kind_of(&whiteout))
        }
        None => inodes.from.remove(handle, rename.from.name),
    }
}

fn exchange_names(
    handle: &Handle<'_>,
    inodes: &mut RenameInodes<'_>,
    rename: &Rename<'_>,
) -> Result<()> {
    let Some(mut target) = inodes.target.take() else {
        return Err(Errno::ENOENT.into());
    };
    let ino = inodes.inode.ino();
    let kind = kind_of(&inodes.inode);
    inodes
        .destination_names()
        .replace(handle, rename.to.name, ino, kind)?;
    inodes
        .from
        .replace(handle, rename.from.name, target.ino(), kind_of(&target))?;
    if inodes.to.is_some() {
        let from_ino = inodes.from.info.ino();
        let to_ino = inodes.destination().ino();
        if inodes.inode.is_directory() {
            set_parent(handle, &mut inodes.inode, to_ino)?;
        }
        if target.is_directory() {
            set_parent(handle, &mut target, from_ino)?;
        }
        match (inodes.inode.is_directory(), target.is_directory()) {
            (true, false) => {
                uncount_link(&mut inodes.from.info);
                count_link(inodes.destination());
            }
            (false, true) => {
                count_link(&mut inodes.from.info);
                uncount_link(inodes.destination());
            }
            _ => {}
        }
    }
    touch_dirs(handle, inodes, rename.now)?;
    touch_moved(handle, inodes, rename)?;
    target.fields_mut().set_ctime(timestamp(rename.now));
    handle.store(&target)?;
    inodes.target = Some(target);
    Ok(())
}

fn touch_dirs(handle: &Handle<'_>, inodes: &mut RenameInodes<'_>, now: Timespec) -> Result<()> {
    touch_names(handle, &mut inodes.from.info, now)?;
    if let Some(to) = &mut inodes.to {
        touch_names(handle, &mut to.info, now)?;
    }
    Ok(())
}
