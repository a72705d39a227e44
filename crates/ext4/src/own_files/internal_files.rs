//! Makes and clears the volume's own files: the files of reserved inodes, such as the journal's.
//!
//! `journal` and `quota_files` call it. The superblock names such a file only when it is whole, and
//! no longer before it is cleared. So a crash leaves at most a file in a reserved inode that the
//! superblock does not name, which `e2fsck -p` clears without a question, and the next call of
//! [`clear_reserved`] as well.

use extern4_disk::inode::Inode;
use extern4_disk::time::Timestamp;

use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::map::map_blocks::empty_map;
use crate::ops::delete::free_contents;
use crate::time::now_seconds;

/// The mode of an internal file.
const MODE: u16 = 0o100_600;

/// Returns a new internal file without blocks, with one link.
pub(super) fn new_file(handle: &Handle<'_>, ino: u32, generation: u32) -> Result<InodeInfo> {
    let sb = handle.fs.superblock();
    let mut inode = Inode::new(ino, MODE, generation, sb);
    let now = Timestamp {
        seconds: now_seconds().into(),
        nanos: 0,
    };
    inode.set_atime(now);
    inode.set_ctime(now);
    inode.set_mtime(now);
    inode.set_crtime(now);
    inode.set_links(1);
    let mut info = InodeInfo::new(inode, handle.fs.inode_position(ino)?, sb.metadata_seed());
    empty_map(handle, &mut info);
    Ok(info)
}

/// Stores the record of a reserved inode that is not in use.
pub(super) fn store_blank(handle: &Handle<'_>, ino: u32) -> Result<()> {
    let sb = handle.fs.superblock();
    let blank = Inode::new(ino, 0, 0, sb);
    handle.store_whole(&InodeInfo::new(
        blank,
        handle.fs.inode_position(ino)?,
        sb.metadata_seed(),
    ))
}

/// Frees what a reserved inode holds, which the superblock does not name. `metadata` says that the
/// journal may have copies of its blocks.
pub(super) fn clear_reserved(fs: &Ext4, ino: u32, metadata: bool) -> Result<()> {
    let mut info = match fs.load_inode(ino) {
        Err(Error::Stale { .. }) => return Ok(()),
        info => info?,
    };
    if info.fields().mode() == 0 && info.fields().sectors() == 0 {
        return Ok(());
    }
    if info.has_map(fs) {
        free_contents(fs, &mut info, 0, metadata)?;
    }
    fs.with_handle(1, 0, |handle| store_blank(handle, ino))
}
