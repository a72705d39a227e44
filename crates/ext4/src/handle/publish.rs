//! Makes a changed inode the current one, for readers and for the VFS.
//!
//! An operation calls one of these functions after it has stored the inode in its transaction,
//! while it still holds the locks for the change. The functions differ in the fields that may have
//! changed: the fewer, the less they disturb readers. [`publish`] is right for any change. Each
//! also notes the transaction, for a later `fsync`.

use extern4_disk::journal::Tid;
use extern4_vfs::{FileType, Inode, NamesAttr};

use crate::error::Result;
use crate::fs::Ext4;
use crate::fs::inode::shown_flags;
use crate::inode::cached::{CachedInode, LockedNames};
use crate::inode::info::InodeInfo;
use crate::time::timespec;

/// Publishes an inode after any change.
pub(crate) fn publish(fs: &Ext4, inode: &Inode, info: &InodeInfo, tid: Tid) -> Result<()> {
    publish_by(fs, inode, info, |cached| cached.set(info, tid))
}

/// Publishes an inode after a change of its times only.
pub(crate) fn publish_times(fs: &Ext4, inode: &Inode, info: &InodeInfo, tid: Tid) -> Result<()> {
    publish_by(fs, inode, info, |cached| cached.set_times(info, tid))
}

/// Publishes an inode after a change of its extended attributes.
pub(crate) fn publish_attributes(
    fs: &Ext4,
    inode: &Inode,
    info: &InodeInfo,
    tid: Tid,
) -> Result<()> {
    publish_by(fs, inode, info, |cached| cached.set_attributes(info, tid))
}

fn publish_by(
    fs: &Ext4,
    inode: &Inode,
    info: &InodeInfo,
    put: impl FnOnce(&CachedInode),
) -> Result<()> {
    let attr = info.attr(fs)?;
    put(inode.private::<CachedInode>());
    inode.set_attr(&attr);
    Ok(())
}

/// Publishes an inode after a change that callers see only in permission bits, number of links, and
/// time of change.
pub(crate) fn publish_touched(_fs: &Ext4, inode: &Inode, info: &InodeInfo, tid: Tid) {
    if !info.is_touched() {
        return inode.private::<CachedInode>().note(info, tid);
    }
    let fields = info.fields();
    let mode = fields.permissions();
    let links = fields.links();
    let ctime = timespec(fields.ctime());
    let cached = inode.private::<CachedInode>();
    if info.is_directory() {
        // The entry `..` may be inside the inode.
        cached.set(info, tid)
    } else {
        cached.set_touched(info, tid)
    }
    inode.touch(mode, u32::from(links), ctime);
}

/// Publishes a directory after a change of its names and their space only.
pub(crate) fn publish_names(_fs: &Ext4, dir: &Inode, info: &InodeInfo, tid: Tid) {
    if !info.is_touched() {
        return dir.private::<CachedInode>().note(info, tid);
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
    dir.private::<CachedInode>().set(info, tid);
}

impl LockedNames<'_> {
    /// Publishes the directory after a change by transaction `tid`.
    pub(crate) fn publish(&self, fs: &Ext4, tid: Tid) {
        publish_names(fs, self.dir, &self.info, tid);
    }
}
