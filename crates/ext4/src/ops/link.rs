//! Giving files names and taking them.
//!
//! Each operation finds out first whether it can be done, then does it under one handle, and last shows what has changed to
//! those who have the inodes in use. Nobody else changes an inode that is changed here, for the VFS has it locked; but a file that is moved and
//! stays as it is may change meanwhile, so the copy that is made of it here is not stored, nor shown.

use extern4_disk::dirent::{self, DirEntry};
use extern4_disk::inode::InodeFlags;
use extern4_disk::journal::Tid;
use extern4_vfs::{Errno, Inode, NameRef, Rename, RenameFlags, SpaceRights, Timespec};

use crate::alloc::balloc::Demand;
use crate::error::{Error, Result};
use crate::inode::InodeInfo;
use crate::inode::inode_info::{Names, Node};
use crate::mount::Ext4;
use crate::ops::create::{LINK_MAX, NAME_BLOCKS, NAME_CREDITS, NODE_BLOCKS, timestamp};
use crate::quota::Owners;
use crate::volume::handle::Change;
use crate::xattr::list::Need;

/// A copy of what is known of an inode, to be changed.
fn copy(inode: &Inode) -> InodeInfo {
    inode.private::<Node>().info()
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
    pub(crate) fn link_name(
        &self,
        inode: &Inode,
        to: NameRef<'_>,
        now: Timespec,
        rights: SpaceRights,
    ) -> Result<()> {
        let mut info = copy(inode);
        if info.fields().links() >= LINK_MAX {
            return Err(Errno::EMLINK.into());
        }
        check_project(&to.dir.private::<Node>().info(), &info)?;
        let exactly = || {
            let dir = Box::new(Names::lock(to.dir));
            let blocks = self.blocks_for_name(&dir.info, to.name)?;
            Ok((dir, blocks))
        };
        let demand = Demand::new(NAME_BLOCKS, rights);
        let tid = self.changing_sparingly(NAME_CREDITS, demand, exactly, |change, dir| {
            let add = |dir: &mut Names<'_>| {
                self.check_new_name(&dir.info, to.name)?;
                change.admit_blocks(&dir.info, rights, || self.blocks_for_name(&dir.info, to.name))?;
                change.add_name(&mut dir.info, to.name, info.ino(), kind_of(&info))?;
                change.touch_names(&mut dir.info, now)?;
                dir.show(self, change.tid());
                Ok::<_, Error>(())
            };
            match dir {
                Some(mut dir) => add(&mut dir)?,
                None => add(&mut Names::lock(to.dir))?,
            }
            if info.fields().links() == 0 {
                change.orphan_remove(&mut info)?;
            }
            let links = info.fields().links() + 1;
            info.fields_mut().set_links(links);
            info.fields_mut().set_ctime(timestamp(now));
            change.store(&info)?;
            Ok(change.tid())
        })?;
        self.publish_touched(inode, &info, tid);
        Ok(())
    }

    /// Removes a name of a file that is no directory. If `is_last`, the file goes with it.
    pub(crate) fn unlink_name(
        &self,
        from: NameRef<'_>,
        inode: &Inode,
        now: Timespec,
        is_last: bool,
    ) -> Result<()> {
        let mut info = copy(inode);
        let is_last = is_last && info.fields().links() == 1;
        let to_free = if is_last { self.credits_to_free_at_once(&info)? } else { None };
        let (tid, freed) = self.changing(NAME_CREDITS + to_free.unwrap_or(0), 0, |change| {
            {
                let mut dir = Names::lock(from.dir);
                change.remove_name(&mut dir.info, from.name)?;
                change.touch_names(&mut dir.info, now)?;
                dir.show(self, change.tid());
            }
            if to_free.is_some() {
                // Before the number is free. There is nobody to look at anything else.
                inode.update(|attr| attr.nlink = 0);
                if change.free_with_name(&mut info, now)? {
                    inode.private::<Node>().set_freed();
                    return Ok((change.tid(), true));
                }
            }
            change.drop_link(&mut info, now)?;
            Ok((change.tid(), false))
        })?;
        if !freed {
            self.publish_touched(inode, &info, tid);
        }
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, from: NameRef<'_>, inode: &Inode, now: Timespec) -> Result<()> {
        let mut info = copy(inode);
        if !self.is_empty_directory(&info)? {
            return Err(Errno::ENOTEMPTY.into());
        }
        let tid = self.changing(NAME_CREDITS, 0, |change| {
            {
                let mut dir = Names::lock(from.dir);
                change.remove_name(&mut dir.info, from.name)?;
                change.uncount_link(&mut dir.info);
                change.touch_names(&mut dir.info, now)?;
                dir.show(self, change.tid());
            }
            change.drop_directory(&mut info, now)?;
            Ok(change.tid())
        })?;
        self.publish(inode, &info, tid)
    }

    /// Renames, or exchanges two names.
    pub(crate) fn rename_name(&self, rename: &Rename<'_>) -> Result<()> {
        let exchange = rename.flags.contains(RenameFlags::EXCHANGE);
        if let Some(target) = rename.target.filter(|target| !exchange && target.is_dir())
            && !self.is_empty_directory(&copy(target))?
        {
            return Err(Errno::ENOTEMPTY.into());
        }
        // A whiteout has no contents, but it may have an ACL; and what has the new name already has room for it.
        let acls = match &rename.whiteout {
            Some(new) => {
                let mode = new.kind.file_type().mode_bits() | new.mode;
                self.room_for_acls(mode, new.acl, new.default_acl)?
            }
            None => Need::default(),
        };
        let whiteout = if rename.whiteout.is_some() { NODE_BLOCKS + acls.blocks } else { 0 };
        let blocks = whiteout + if rename.target.is_none() { NAME_BLOCKS } else { 0 };
        let exactly = || {
            let moving = Box::new(Moving::lock(rename));
            let for_name = match rename.target {
                None => self.blocks_for_name(&moving.to_dir().info, rename.to.name)?,
                Some(_) => 0,
            };
            Ok((moving, acls.blocks + for_name))
        };
        let left = rename.whiteout.as_ref().map(|new| {
            let from = rename.from.dir.private::<Node>().info();
            Owners::of_new(&from, new)
        });
        left.map_or(Ok(()), |owners| self.open_accounts(owners))?;
        let operate = |change: &Change<'_>, moving: &mut Moving<'_>| {
            self.check_rename(moving, rename)?;
            if rename.target.is_none() {
                let dir = &moving.to_dir().info;
                change.admit_blocks(dir, rename.rights, || self.blocks_for_name(dir, rename.to.name))?;
            }
            let amount = || Ok(change.amount(acls.blocks, 1));
            left.map_or(Ok(()), |owners| change.admit(owners, rename.rights, amount))?;
            if exchange {
                change.exchange(moving, rename)?
            } else {
                change.move_name(moving, rename)?
            }
            moving.publish(self, rename, change.tid());
            Ok(())
        };
        // Where it is made it stays, for it is large.
        let demand = Demand::new(blocks, rename.rights);
        self.changing_sparingly(2 * NAME_CREDITS + acls.credits, demand, exactly, |change, moving| {
            match moving {
                Some(mut moving) => operate(change, &mut moving),
                None => operate(change, &mut Moving::lock(rename)),
            }
        })
    }

    /// Whether a rename can be done, before anything is changed.
    fn check_rename(&self, moving: &Moving<'_>, rename: &Rename<'_>) -> Result<()> {
        let (from, to) = (&moving.from.info, &moving.to_dir().info);
        if from.is_encrypted() || to.is_encrypted() {
            return Err(Errno::ENOKEY.into());
        }
        check_project(to, &moving.inode)?;
        match &moving.target {
            Some(target) if rename.flags.contains(RenameFlags::EXCHANGE) => check_project(from, target)?,
            Some(_) => {}
            None => self.check_new_name(to, rename.to.name)?,
        }
        let replaces_dir = moving.target.as_ref().is_some_and(InodeInfo::is_directory);
        match (&moving.to, moving.inode.is_directory(), replaces_dir) {
            (Some(to), true, false) => self.check_room_for_link(&to.info),
            // Only an exchange puts a file where a directory was, and that where the file was.
            (Some(_), false, true) => self.check_room_for_link(from),
            _ => Ok(()),
        }
    }
}

/// The inodes of a rename.
struct Moving<'d> {
    from: Names<'d>,
    /// None if it is the same directory.
    to: Option<Names<'d>>,
    inode: InodeInfo,
    target: Option<InodeInfo>,
}

impl<'d> Moving<'d> {
    fn lock(rename: &Rename<'d>) -> Self {
        let (from, to) = (rename.from.dir, rename.to.dir);
        let (inode, target) = (|| copy(rename.inode), || rename.target.map(copy));
        // By number, for others may move names the other way. Where they are locked they stay, for they are large.
        if to.ino() < from.ino() {
            Self { to: Some(Names::lock(to)), from: Names::lock(from), inode: inode(), target: target() }
        } else {
            let two = from.ino() != to.ino();
            Self {
                from: Names::lock(from),
                to: two.then(|| Names::lock(to)),
                inode: inode(),
                target: target(),
            }
        }
    }

    fn to_dir(&self) -> &Names<'d> {
        self.to.as_ref().unwrap_or(&self.from)
    }

    fn destination(&mut self) -> &mut InodeInfo {
        &mut self.to.as_mut().unwrap_or(&mut self.from).info
    }

    /// Shows what has changed to those who have the inodes in use.
    fn publish(&self, fs: &Ext4, rename: &Rename<'_>, tid: Tid) {
        self.from.show(fs, tid);
        if let Some(to) = &self.to {
            to.show(fs, tid);
        }
        fs.publish_touched(rename.inode, &self.inode, tid);
        if let (Some(inode), Some(target)) = (rename.target, &self.target) {
            fs.publish_touched(inode, target, tid);
        }
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

    fn move_name(&self, moving: &mut Moving<'_>, rename: &Rename<'_>) -> Result<()> {
        let is_dir = moving.inode.is_directory();
        let replaces_dir = moving.target.as_ref().is_some_and(InodeInfo::is_directory);
        self.move_entry(moving, rename)?;
        if replaces_dir {
            self.uncount_link(moving.destination());
        }
        if is_dir && moving.to.is_some() {
            let parent = moving.destination().ino();
            self.set_parent(&mut moving.inode, parent)?;
            self.uncount_link(&mut moving.from.info);
            self.count_link(moving.destination());
        }
        self.touch_dirs(moving, rename.now)?;
        match &mut moving.target {
            Some(target) if replaces_dir => self.drop_directory(target, rename.now)?,
            Some(target) => self.drop_link(target, rename.now)?,
            None => {}
        }
        self.touch_moved(moving, rename)
    }

    /// Stores when an inode has been moved, if that changes: of a file in one step where it stands, and not in the copy.
    fn touch_moved(&self, moving: &mut Moving<'_>, rename: &Rename<'_>) -> Result<()> {
        let info = &mut moving.inode;
        if info.is_directory() {
            return self.touch_ctime(info, rename.now);
        }
        if rename.touches {
            return self.touch(rename.inode, |fields, _| fields.set_ctime(timestamp(rename.now)));
        }
        self.note_sync(info.fields());
        Ok(())
    }

    /// Takes the entry from one name to the other.
    fn move_entry(&self, moving: &mut Moving<'_>, rename: &Rename<'_>) -> Result<()> {
        let (ino, kind) = (moving.inode.ino(), kind_of(&moving.inode));
        if moving.to.is_none() && moving.target.is_none() && rename.whiteout.is_none() {
            let entry = DirEntry { ino, kind, name: rename.to.name, offset: 0, hash: None };
            if self.rename_in_place(&mut moving.from.info, rename.from.name, &entry)? {
                return Ok(());
            }
        }
        // First of all: there may be no inode for it.
        let mut whiteout =
            rename.whiteout.as_ref().map(|new| self.new_inode(&moving.from.info, new)).transpose()?;
        if let (Some(whiteout), Some(new)) = (&mut whiteout, &rename.whiteout) {
            self.init_attributes(whiteout, new.acl, new.default_acl)?;
            self.store_new(whiteout, new)?;
        }
        if moving.target.is_some() {
            self.replace_name(moving.destination(), rename.to.name, ino, kind)?;
        } else {
            self.add_name(moving.destination(), rename.to.name, ino, kind)?;
        }
        match whiteout {
            Some(whiteout) => {
                self.replace_name(
                    &mut moving.from.info,
                    rename.from.name,
                    whiteout.ino(),
                    kind_of(&whiteout),
                )?;
            }
            None => drop(self.remove_name(&mut moving.from.info, rename.from.name)?),
        }
        Ok(())
    }

    fn exchange(&self, moving: &mut Moving<'_>, rename: &Rename<'_>) -> Result<()> {
        let Some(mut target) = moving.target.take() else { return Err(Errno::ENOENT.into()) };
        let (ino, kind) = (moving.inode.ino(), kind_of(&moving.inode));
        self.replace_name(moving.destination(), rename.to.name, ino, kind)?;
        self.replace_name(&mut moving.from.info, rename.from.name, target.ino(), kind_of(&target))?;
        if moving.to.is_some() {
            let (from_ino, to_ino) = (moving.from.info.ino(), moving.destination().ino());
            if moving.inode.is_directory() {
                self.set_parent(&mut moving.inode, to_ino)?;
            }
            if target.is_directory() {
                self.set_parent(&mut target, from_ino)?;
            }
            match (moving.inode.is_directory(), target.is_directory()) {
                (true, false) => {
                    self.uncount_link(&mut moving.from.info);
                    self.count_link(moving.destination());
                }
                (false, true) => {
                    self.count_link(&mut moving.from.info);
                    self.uncount_link(moving.destination());
                }
                _ => {}
            }
        }
        self.touch_dirs(moving, rename.now)?;
        self.touch_moved(moving, rename)?;
        target.fields_mut().set_ctime(timestamp(rename.now));
        self.store(&target)?;
        moving.target = Some(target);
        Ok(())
    }

    fn touch_dirs(&self, moving: &mut Moving<'_>, now: Timespec) -> Result<()> {
        self.touch_names(&mut moving.from.info, now)?;
        moving.to.as_mut().map_or(Ok(()), |to| self.touch_names(&mut to.info, now))
    }
}
