//! Deletes inodes without names, and frees contents.
//!
//! An inode is deleted when its last name and its last user are gone: by the VFS's `evict_inode`,
//! by the operation that removes its name ([`free_with_name`]), or at the next open after a crash
//! (`ops::orphan`). Until then it is on the list of orphans. A large file is freed in several
//! transactions, from its end. A crash in between leaves a shorter orphan.
//!
//! # Damage
//! Removing a name cannot be taken back, so [`check_removable`] looks for damage first, and the
//! operation is refused. Damage that is only met while an inode is freed is met before the
//! transaction has changed anything. Then [`set_aside`] takes the inode off the list of orphans. It
//! stays in use, without a name, until `e2fsck` frees it. On the list it would fail each later
//! opening of the volume in the same way.

use extern4_vfs::Timespec;

use crate::error::{Error, Result};
use crate::file::symlink::is_fast;
use crate::fs::Ext4;
use crate::fs::quota_accounts::Owners;
use crate::fs::writer::Writer;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::map::change::{UNMAP_CREDITS, unmap_blocks};
use crate::ops::create::NAME_CREDITS;
use crate::run::LOGICAL_END;
use crate::time::{now_seconds, seconds, timestamp};
use crate::xattr::set::{check_attributes, free_attributes, free_values};

/// Checks, before the last name of an inode goes, that its attributes and its map can be freed.
///
/// # Errors
/// The damage, which is then noted in the superblock; a device that fails.
pub(crate) fn check_removable(fs: &Ext4, info: &InodeInfo) -> Result<()> {
    fs.note_damage(check_contents(fs, info))
}

/// Checks that an inode can be freed: the accounts of its owners, its map and its attributes.
fn check_contents(fs: &Ext4, info: &InodeInfo) -> Result<()> {
    fs.check_accounts(Owners::of(info.fields()))?;
    if info.has_map(fs) && !info.is_map_empty(fs) {
        info.check_map(fs, 0)?;
    }
    if info.has_attributes(fs)? {
        check_attributes(fs, info)
    } else {
        Ok(())
    }
}

/// Frees an inode whose last name and last user have gone. If it is damaged, it is set aside with a
/// warning, because no caller waits for it.
pub(crate) fn evict(fs: &Ext4, writer: &Writer, info: InodeInfo) {
    let ino = info.ino();
    let Err(error) = delete_inode(fs, info) else {
        return;
    };
    if matches!(error, Error::Damaged(_)) && writer.has_ended_changes() {
        // It stays an orphan for the next opening of the volume.
        return;
    }
    let is_over = writer.transactions.error().is_some();
    if !is_over {
        // If this damage has ended changes, the next opening sets it aside.
        let _ = set_aside(fs, ino);
    }
    if fs.warnings.has_listener() && !is_over {
        fs.warnings.report(unfreed(ino, &error))
    } else {
        writer.note_unfreed(error)
    }
}

/// Takes an inode that cannot be freed off the list of orphans. It stays in use.
pub(crate) fn set_aside(fs: &Ext4, ino: u32) -> Result<()> {
    // The record shows what has been freed already; the caller's copy may not.
    let mut info = fs.load_inode(ino)?;
    info.set_orphan(true);
    // The record, and that of the next newer orphan.
    fs.with_handle(2, 0, |handle| {
        handle.writer.orphans.orphan_remove(handle, &mut info)?;
        handle.store(&info)
    })
}

/// Returns the warning of an inode that has been set aside.
pub(crate) fn unfreed(ino: u32, error: &Error) -> String {
    format!(
        "inode {ino} has no name and cannot be freed: {error}; it stays in use until e2fsck frees it"
    )
}

/// Frees an inode that has no names and no users.
pub(crate) fn delete_inode(fs: &Ext4, mut info: InodeInfo) -> Result<()> {
    let metadata = info.holds_metadata();
    if info.has_map(fs) && !info.is_map_empty(fs) {
        free_contents(fs, &mut info, 0, metadata)?;
    }
    let has_attributes = info.has_attributes(fs)?;
    if has_attributes {
        free_values(fs, &mut info)?;
    }
    fs.with_handle(NAME_CREDITS, 0, |handle| {
        if has_attributes {
            free_attributes(handle, &mut info)?;
        }
        handle.writer.orphans.orphan_remove(handle, &mut info)?;
        free_record(handle, &mut info, now_seconds())
    })
}

/// Frees the blocks of a file from block `keep` on, the last first, a bounded part in each
/// transaction.
pub(crate) fn free_contents(
    fs: &Ext4,
    info: &mut InodeInfo,
    keep: u64,
    metadata: bool,
) -> Result<()> {
    let mut left = keep..LOGICAL_END;
    while !left.is_empty() {
        left = fs.with_handle(UNMAP_CREDITS + 1, 0, |handle| {
            let left = unmap_blocks(handle, info, left.clone(), metadata)?;
            handle.store(info)?;
            Ok(left)
        })?;
    }
    Ok(())
}

/// Frees an inode that has no names, no blocks and no attributes.
fn free_record(handle: &Handle<'_>, info: &mut InodeInfo, now: u32) -> Result<()> {
    info.fields_mut().set_dtime(now);
    info.fields_mut().set_size(0);
    handle.store(info)?;
    handle.count_freed(info)?;
    handle
        .writer
        .allocator
        .free_inode(handle, info.ino(), info.is_directory())
}

/// Frees a file whose only name has been removed. Returns false if the file needs more than this
/// transaction.
pub(crate) fn free_with_name(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    now: Timespec,
) -> Result<bool> {
    if info.has_map(handle.fs) && !info.is_map_empty(handle.fs) {
        let left = unmap_blocks(handle, info, 0..LOGICAL_END, info.holds_metadata())?;
        if !left.is_empty() {
            return Ok(false);
        }
    }
    info.fields_mut().set_links(0);
    info.fields_mut().set_ctime(timestamp(now));
    free_record(handle, info, seconds(now.sec))?;
    Ok(true)
}

impl InodeInfo {
    /// Returns the credits for freeing a file in the transaction that removes its last name; `None`
    /// if the file is too large for that.
    pub(crate) fn credits_to_free_at_once(&self, fs: &Ext4) -> Result<Option<u32>> {
        /// The offset of the numbers of indirect blocks.
        const INDIRECT: usize = 12 * 4;
        if self.has_attributes(fs)? {
            return Ok(None);
        }
        if !self.has_map(fs) || self.is_map_empty(fs) {
            return Ok(Some(0));
        }
        let is_flat = if self.has_extents() {
            // The depth of the root.
            self.i_block()[6..8] == [0, 0]
        } else {
            self.i_block()[INDIRECT..].iter().all(|&byte| byte == 0)
        };
        Ok(is_flat.then_some(UNMAP_CREDITS))
    }

    /// Whether `i_block` is a map.
    pub(crate) fn has_map(&self, fs: &Ext4) -> bool {
        use extern4_disk::inode::FileKind;
        if self.is_inline() {
            return false;
        }
        match self.fields().kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => !is_fast(fs, self),
            _ => false,
        }
    }

    /// Whether `i_block`, which is a map, is empty.
    fn is_map_empty(&self, _fs: &Ext4) -> bool {
        if self.has_extents() {
            // The number of entries in the root.
            self.i_block()[2..4] == [0, 0]
        } else {
            self.i_block().iter().all(|&byte| byte == 0)
        }
    }
}
