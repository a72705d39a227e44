//! Showing an inode, as a change has left it, to the VFS and to readers.

use extern4_disk::journal::Tid;
use extern4_vfs::{FileType, Inode, NamesAttr};

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::inode::inode_info::{Names, Node};
use crate::inode::read::shown_flags;
use crate::time::timespec;

/// Hands a changed inode to those who have it in use.
pub(crate) fn publish(fs: &Ext4, inode: &Inode, info: &InodeInfo, tid: Tid) -> Result<()> {
    publish_by(fs, inode, info, |node| node.set(info, tid))
}

/// The same for one of which nothing but times has changed.
pub(crate) fn publish_times(fs: &Ext4, inode: &Inode, info: &InodeInfo, tid: Tid) -> Result<()> {
    publish_by(fs, inode, info, |node| node.set_times(info, tid))
}

/// The same for one whose extended attributes have changed.
pub(crate) fn publish_attributes(fs: &Ext4, inode: &Inode, info: &InodeInfo, tid: Tid) -> Result<()> {
    publish_by(fs, inode, info, |node| node.set_attributes(info, tid))
}

fn publish_by(fs: &Ext4, inode: &Inode, info: &InodeInfo, put: impl FnOnce(&Node)) -> Result<()> {
    let attr = info.attr(fs)?;
    put(inode.private::<Node>());
    inode.set_attr(&attr);
    Ok(())
}

/// The same for one of which nothing that callers see has changed but its permission bits, its links, and when it was changed last.
pub(crate) fn publish_touched(_fs: &Ext4, inode: &Inode, info: &InodeInfo, tid: Tid) {
    if !info.is_touched() {
        return inode.private::<Node>().note(info, tid);
    }
    let fields = info.fields();
    let (mode, links, ctime) = (fields.permissions(), fields.links(), timespec(fields.ctime()));
    let node = inode.private::<Node>();
    match info.is_directory() {
        // Where `..` leads may stand in the inode.
        true => node.set(info, tid),
        false => node.set_touched(info, tid),
    }
    inode.touch(mode, u32::from(links), ctime);
}

/// The same for a directory of which nothing has changed but its names, and what they take.
pub(crate) fn publish_names(_fs: &Ext4, dir: &Inode, info: &InodeInfo, tid: Tid) {
    if !info.is_touched() {
        return dir.private::<Node>().note(info, tid);
    }
    let fields = info.fields();
    dir.touch_names(&NamesAttr {
        size: fields.size(),
        blocks: fields.sectors(),
        nlink: u32::from(fields.links()),
        mtime: timespec(fields.mtime()),
        ctime: timespec(fields.ctime()),
        flags: shown_flags(fields.flags(), FileType::Directory),
    });
    dir.private::<Node>().set(info, tid);
}

impl Names<'_> {
    /// Shows the directory as transaction `tid` has changed it to those who have it in use.
    pub(crate) fn show(&self, fs: &Ext4, tid: Tid) {
        publish_names(fs, self.dir, &self.info, tid);
    }
}
