//! Changes times in memory only, and stores them later (`lazytime`).
//!
//! `set_attr` and `file::write` call the functions named `note_*`, which return false if the times
//! have to be stored now. A sync of the file or the volume, the eviction of an inode and the close
//! store all times that [`LazyTimes`] keeps. Times whose storing fails at an eviction are lost and
//! reported.

use extern4_disk::inode::Inode as Fields;
use extern4_disk::{Place, Structure};
use extern4_vfs::{Inode, SetAttr, Timespec};

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::inode::lazy_times::{LazyTimes, Times};
use crate::time::timestamp;

/// Applies `set` in memory only, if it sets the access time alone. Returns false if it has to be
/// stored. Locks: the inode's `rwsem`, exclusive.
pub(crate) fn note_read_lazily(fs: &Ext4, inode: &Inode, set: &SetAttr) -> Result<bool> {
    let Some(atime) = set.atime.filter(|_| fs.lazy_times.get().is_some()) else {
        return Ok(false);
    };
    if *set
        != (SetAttr {
            atime: Some(atime),
            ..SetAttr::default()
        })
    {
        return Ok(false);
    }
    let mut info = inode.private::<CachedInode>().info();
    info.fields_mut().set_atime(timestamp(atime));
    keep_times(fs, inode, &info)
}

/// Sets the times of an overwrite in memory only. Returns false if they have to be stored. Locks:
/// the inode's `rwsem`, exclusive.
pub(crate) fn note_write_lazily(
    fs: &Ext4,
    inode: &Inode,
    info: &mut InodeInfo,
    now: Timespec,
) -> Result<bool> {
    if fs.lazy_times.get().is_none() {
        return Ok(false);
    }
    let mut changed = info.clone();
    changed.fields_mut().set_mtime(timestamp(now));
    changed.fields_mut().set_ctime(timestamp(now));
    let kept = keep_times(fs, inode, &changed)?;
    if kept {
        *info = changed;
    }
    Ok(kept)
}

fn keep_times(fs: &Ext4, inode: &Inode, info: &InodeInfo) -> Result<bool> {
    // After the journal was aborted, nothing changes in memory either.
    let aborted = fs.changer()?.transactions.error();
    if let Some(error) = aborted {
        return Err(crate::Error::from(error));
    }
    let Some(lazy) = fs.lazy_times.get() else {
        return Ok(false);
    };
    if !lazy.keep(info.ino(), Times::of(info.fields())) {
        store_all_times(fs)?;
        return Ok(false);
    }
    let attr = info.attr(fs)?;
    inode.private::<CachedInode>().set_in_memory(info);
    inode.update(|old| *old = attr);
    Ok(true)
}

/// Stores the times of an inode, if they are not stored yet.
pub(crate) fn store_times(fs: &Ext4, ino: u32) -> Result<()> {
    let Some(lazy) = fs.lazy_times.get().filter(|lazy| lazy.get(ino).is_some()) else {
        return Ok(());
    };
    if fs.changer().is_err() {
        // Damage has ended changes. Closing the volume stores the times.
        return Ok(());
    }
    let at = fs.inode_position(ino)?;
    let sb = fs.superblock();
    let place = Place::new(Structure::Inode)
        .ino(ino)
        .block(at.block)
        .offset(at.offset);
    fs.with_handle(1, 0, |handle| {
        handle.edit_record(ino, at, |record, has_checksum| {
            let Some(times) = lazy.take(ino) else {
                return Ok(());
            };
            let decode = if has_checksum {
                Fields::decode
            } else {
                Fields::decode_fields
            };
            let mut fields = decode(record, ino, sb, place)?;
            times.apply(&mut fields);
            fields.encode_fields(record);
            Ok(())
        })?
    })
}

/// Stores the times of an inode that is no longer in use. If that fails, they are lost, and the
/// loss is reported.
pub(crate) fn store_last_times(fs: &Ext4, ino: u32) {
    let has_ended = || {
        fs.writer
            .get()
            .is_none_or(|writer| writer.transactions.error().is_some())
    };
    if let Err(error) = store_times(fs, ino)
        && !has_ended()
    {
        fs.losses.report(error);
    }
}

/// Stores all times that are not stored yet.
pub(crate) fn store_all_times(fs: &Ext4) -> Result<()> {
    let inodes = fs.lazy_times.get().map_or(Vec::new(), LazyTimes::all);
    inodes.into_iter().try_for_each(|ino| store_times(fs, ino))
}
