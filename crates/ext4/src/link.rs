//! Giving files names and taking them.
//!
//! Each operation finds out first whether it can be done, then does it under one handle, and last shows what has changed to
//! those who have the inodes in use. The VFS holds the `rwsem` of every inode that is changed here.

use extern4_disk::dirent;
use extern4_disk::inode::InodeFlags;
use extern4_vfs::{Caps, Errno, Inode, NameRef, Rename, RenameFlags, Timespec};

use crate::change::Change;
use crate::create::{LINK_MAX, NAME_BLOCKS, NAME_CREDITS, NODE_BLOCKS, timestamp};
use crate::error::Result;
use crate::inode::InodeInfo;
use crate::mount::Ext4;
use crate::node::Node;
use crate::quota::Owners;

/// A copy of what is known of an inode, to be changed.
fn copy(inode: &Inode) -> InodeInfo {
    inode.private::<Node>().copy()
}

/// The type that a directory entry keeps.
fn kind_of(info: &InodeInfo) -> dirent::FileType {
    dirent::FileType::from_mode(info.fields().mode())
}

/// `EXDEV` if files in `dir` belong to its project, and this one to another.
fn check_project(dir: &InodeInfo, info: &InodeInfo) -> Result<()> {
    let one_project = dir.fields().flags().contains(InodeFlags::PROJINHERIT);
    match one_project && dir.fields().project() != info.fields().project() {
        true => Err(Errno::EXDEV.into()),
        false => Ok(()),
    }
}

impl Ext4 {
    /// Enters a file under one more name.
    pub(crate) fn link_name(&self, inode: &Inode, to: NameRef<'_>, now: Timespec, caps: Caps) -> Result<()> {
        let (mut dir, mut info) = (copy(to.dir), copy(inode));
        if info.fields().links() >= LINK_MAX {
            return Err(Errno::EMLINK.into());
        }
        check_project(&dir, &info)?;
        self.check_new_name(&dir, to.name)?;
        let exactly = || self.blocks_for_name(&to.dir.private::<Node>().info(), to.name);
        let tid = self.changing_sparingly(NAME_CREDITS, NAME_BLOCKS, exactly, |change| {
            change.admit_blocks(&dir, caps, || self.blocks_for_name(&dir, to.name))?;
            change.add_name(&mut dir, to.name, info.ino(), kind_of(&info))?;
            change.touch_names(&mut dir, now)?;
            if info.fields().links() == 0 {
                change.orphan_remove(&mut info)?;
            }
            let links = info.fields().links() + 1;
            info.fields_mut().set_links(links);
            info.fields_mut().set_ctime(timestamp(now));
            change.store(&info)?;
            Ok(change.tid())
        })?;
        self.publish(to.dir, dir, tid)?;
        self.publish(inode, info, tid)
    }

    /// Removes a name of a file that is no directory.
    pub(crate) fn unlink_name(&self, from: NameRef<'_>, inode: &Inode, now: Timespec) -> Result<()> {
        let (mut dir, mut info) = (copy(from.dir), copy(inode));
        let tid = self.changing(NAME_CREDITS, 0, |change| {
            change.remove_name(&mut dir, from.name)?;
            change.touch_names(&mut dir, now)?;
            change.drop_link(&mut info, now)?;
            Ok(change.tid())
        })?;
        self.publish(from.dir, dir, tid)?;
        self.publish(inode, info, tid)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, from: NameRef<'_>, inode: &Inode, now: Timespec) -> Result<()> {
        let (mut dir, mut info) = (copy(from.dir), copy(inode));
        if !self.is_empty_directory(&info)? {
            return Err(Errno::ENOTEMPTY.into());
        }
        let tid = self.changing(NAME_CREDITS, 0, |change| {
            change.remove_name(&mut dir, from.name)?;
            change.uncount_link(&mut dir);
            change.touch_names(&mut dir, now)?;
            change.drop_directory(&mut info, now)?;
            Ok(change.tid())
        })?;
        self.publish(from.dir, dir, tid)?;
        self.publish(inode, info, tid)
    }

    /// Renames, or exchanges two names.
    pub(crate) fn rename_name(&self, rename: &Rename<'_>) -> Result<()> {
        let mut moving = Moving::new(rename);
        let exchange = rename.flags.contains(RenameFlags::EXCHANGE);
        if !exchange
            && let Some(target) = &moving.target
            && target.is_directory()
            && !self.is_empty_directory(target)?
        {
            return Err(Errno::ENOTEMPTY.into());
        }
        if moving.dirs().any(InodeInfo::is_encrypted) {
            return Err(Errno::ENOKEY.into());
        }
        check_project(moving.to.as_ref().unwrap_or(&moving.from), &moving.inode)?;
        if let Some(target) = moving.target.as_ref().filter(|_| exchange) {
            check_project(&moving.from, target)?;
        }
        if moving.target.is_none() {
            self.check_new_name(moving.to.as_ref().unwrap_or(&moving.from), rename.to.name)?;
        }
        let replaces_dir = moving.target.as_ref().is_some_and(InodeInfo::is_directory);
        match (&moving.to, moving.inode.is_directory(), replaces_dir) {
            (Some(to), true, false) => self.check_room_for_link(to)?,
            // Only an exchange puts a file where a directory was, and that where the file was.
            (Some(_), false, true) => self.check_room_for_link(&moving.from)?,
            _ => {}
        }
        // A whiteout has no contents, and what has the new name already has room for it.
        let grows = moving.target.is_none().then(|| rename.to.dir.private::<Node>().info());
        let whiteout = if rename.whiteout.is_some() { NODE_BLOCKS } else { 0 };
        let blocks = whiteout + if grows.is_some() { NAME_BLOCKS } else { 0 };
        let exactly = || grows.map_or(Ok(0), |dir| self.blocks_for_name(&dir, rename.to.name));
        let left = rename.whiteout.as_ref().map(|new| Owners::of_new(&moving.from, new));
        left.map_or(Ok(()), |owners| self.open_accounts(owners))?;
        let tid = self.changing_sparingly(2 * NAME_CREDITS, blocks, exactly, |change| {
            if moving.target.is_none() {
                let dir = moving.to.as_ref().unwrap_or(&moving.from);
                change.admit_blocks(dir, rename.caps, || self.blocks_for_name(dir, rename.to.name))?;
            }
            left.map_or(Ok(()), |owners| change.admit(owners, rename.caps, || Ok(change.amount(0, 1))))?;
            if exchange {
                change.exchange(&mut moving, rename)?
            } else {
                change.move_name(&mut moving, rename)?
            }
            Ok(change.tid())
        })?;
        let Moving { from, to, inode, target } = moving;
        self.publish(rename.from.dir, from, tid)?;
        if let Some(to) = to {
            self.publish(rename.to.dir, to, tid)?;
        }
        self.publish(rename.inode, inode, tid)?;
        match (rename.target, target) {
            (Some(inode), Some(target)) => self.publish(inode, target, tid),
            _ => Ok(()),
        }
    }
}

/// The inodes of a rename.
struct Moving {
    from: InodeInfo,
    /// None if it is the same directory.
    to: Option<InodeInfo>,
    inode: InodeInfo,
    target: Option<InodeInfo>,
}

impl Moving {
    fn new(rename: &Rename<'_>) -> Self {
        let two = rename.from.dir.ino() != rename.to.dir.ino();
        Self {
            from: copy(rename.from.dir),
            to: two.then(|| copy(rename.to.dir)),
            inode: copy(rename.inode),
            target: rename.target.map(copy),
        }
    }

    fn destination(&mut self) -> &mut InodeInfo {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    fn dirs(&self) -> impl Iterator<Item = &InodeInfo> {
        std::iter::once(&self.from).chain(&self.to)
    }
}

impl Change<'_> {
    /// Takes a link off a file, which becomes an orphan if it was the last.
    fn drop_link(&self, info: &mut InodeInfo, now: Timespec) -> Result<()> {
        let links = info.fields().links().saturating_sub(1);
        info.fields_mut().set_links(links);
        info.fields_mut().set_ctime(timestamp(now));
        if links == 0 {
            self.orphan_add(info)?;
        }
        self.store(info)
    }

    /// Makes an orphan of a directory that is in no other any more.
    fn drop_directory(&self, info: &mut InodeInfo, now: Timespec) -> Result<()> {
        info.fields_mut().set_links(0);
        info.fields_mut().set_ctime(timestamp(now));
        self.orphan_add(info)?;
        self.store(info)
    }

    fn move_name(&self, moving: &mut Moving, rename: &Rename<'_>) -> Result<()> {
        let (ino, kind, is_dir) = (moving.inode.ino(), kind_of(&moving.inode), moving.inode.is_directory());
        let replaces_dir = moving.target.as_ref().is_some_and(InodeInfo::is_directory);
        // First of all: there may be no inode for it.
        let whiteout = rename.whiteout.as_ref().map(|new| self.new_inode(&moving.from, new)).transpose()?;
        if let (Some(whiteout), Some(new)) = (&whiteout, &rename.whiteout) {
            self.store_new(whiteout, new)?;
        }
        if moving.target.is_some() {
            self.replace_name(moving.destination(), rename.to.name, ino, kind)?;
        } else {
            self.add_name(moving.destination(), rename.to.name, ino, kind)?;
        }
        match whiteout {
            Some(whiteout) => {
                self.replace_name(&mut moving.from, rename.from.name, whiteout.ino(), kind_of(&whiteout))?;
            }
            None => drop(self.remove_name(&mut moving.from, rename.from.name)?),
        }
        if replaces_dir {
            self.uncount_link(moving.destination());
        }
        if is_dir && moving.to.is_some() {
            let parent = moving.destination().ino();
            self.set_parent(&mut moving.inode, parent)?;
            self.uncount_link(&mut moving.from);
            self.count_link(moving.destination());
        }
        self.touch_dirs(moving, rename.now)?;
        moving.inode.fields_mut().set_ctime(timestamp(rename.now));
        self.store(&moving.inode)?;
        match &mut moving.target {
            Some(target) if replaces_dir => self.drop_directory(target, rename.now),
            Some(target) => self.drop_link(target, rename.now),
            None => Ok(()),
        }
    }

    fn exchange(&self, moving: &mut Moving, rename: &Rename<'_>) -> Result<()> {
        let Some(mut target) = moving.target.take() else { return Err(Errno::ENOENT.into()) };
        let (ino, kind) = (moving.inode.ino(), kind_of(&moving.inode));
        self.replace_name(moving.destination(), rename.to.name, ino, kind)?;
        self.replace_name(&mut moving.from, rename.from.name, target.ino(), kind_of(&target))?;
        if moving.to.is_some() {
            let (from_ino, to_ino) = (moving.from.ino(), moving.destination().ino());
            if moving.inode.is_directory() {
                self.set_parent(&mut moving.inode, to_ino)?;
            }
            if target.is_directory() {
                self.set_parent(&mut target, from_ino)?;
            }
            match (moving.inode.is_directory(), target.is_directory()) {
                (true, false) => {
                    self.uncount_link(&mut moving.from);
                    self.count_link(moving.destination());
                }
                (false, true) => {
                    self.count_link(&mut moving.from);
                    self.uncount_link(moving.destination());
                }
                _ => {}
            }
        }
        self.touch_dirs(moving, rename.now)?;
        for info in [&mut moving.inode, &mut target] {
            info.fields_mut().set_ctime(timestamp(rename.now));
            self.store(info)?;
        }
        moving.target = Some(target);
        Ok(())
    }

    fn touch_dirs(&self, moving: &mut Moving, now: Timespec) -> Result<()> {
        self.touch_names(&mut moving.from, now)?;
        moving.to.as_mut().map_or(Ok(()), |to| self.touch_names(to, now))
    }
}
