//! EA inodes: inodes that hold the values of attributes that are too large for an inode or a block.
//!
//! Such an inode has no name. Its reference count has one for each attribute in an inode's record,
//! and one for each in an attribute block, however many inodes share that block. Equal values share
//! one EA inode. A thread that changes the count holds a lock (`Sharing::count_of`). Under it, the
//! thread that releases the last reference removes the inode from the cache of hints before it
//! frees the inode. So a lookup under the lock finds only live inodes. The value never changes, and
//! is metadata: it goes through the buffer cache and the journal.
//!
//! `xattr::set` and `xattr::block` take and release references in a handle; `xattr::get` reads
//! values, and compares them with their hash.
//!
//! # The old form
//! Lustre stored such inodes before there were counts and hashes. Each belongs to one inode, whose
//! number it has in place of the time of change of contents, and whose generation it has. It has no
//! reference count: it is freed with its attribute, and does not count for its owner. Observed:
//! Linux and e2fsck treat an inode as such only if its hash is wrong.

use std::ops::Range;

use extern4_disk::inode::{FileKind, Inode, InodeFlags};
use extern4_disk::time::Timestamp;
use extern4_disk::xattr::{VALUE_SIZE_MAX, hash};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_vfs::Errno;

use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::map::change::{allocate_for, unmap_blocks};
use crate::map::map_blocks::empty_map;
use crate::mbcache::Candidate;
use crate::mbcache::sharing::Count;
use crate::run::RunKind;
use crate::time::now_seconds;
use crate::volume::group::to_usize;

/// Returns the EA inode that an entry at `place` refers to.
pub(crate) fn ea_inode(fs: &Ext4, ino: u32, place: Place) -> Result<InodeInfo> {
    if ino == 0 || ino > fs.superblock().inodes_count() || fs.superblock().is_hidden(ino) {
        let kind = CorruptKind::InodeOutOfRange {
            field: "e_value_inum",
            ino: u64::from(ino),
        };
        return Err(place.corrupt(kind).into());
    }
    let info = fs
        .load_inode(ino)
        .map_err(|error| error.in_part("the value of an attribute"))?;
    if !info.fields().flags().contains(InodeFlags::EA_INODE) {
        let what = "the inode of a value is not marked as one";
        return Err(Place::new(Structure::Xattr)
            .ino(ino)
            .corrupt(CorruptKind::Mismatch { what })
            .into());
    }
    Ok(info)
}

/// Checks the inode that an entry of `owner` at `place` refers to, before its reference is
/// released.
pub(crate) fn check_value(fs: &Ext4, ino: u32, owner: &InodeInfo, place: Place) -> Result<()> {
    let value = ea_inode(fs, ino, place)?;
    if value.fields().ea_refcount() == 0 && !is_old_ea_inode(fs, ino, owner) {
        return Err(no_reference(ino));
    }
    if value.has_map(fs) {
        value.check_map(fs, 0)
    } else {
        Ok(())
    }
}

/// Returns the error for a value that an entry refers to, and that counts no reference.
fn no_reference(ino: u32) -> Error {
    let what = "a value has a reference, but its count is 0";
    Place::new(Structure::Xattr)
        .ino(ino)
        .corrupt(CorruptKind::Mismatch { what })
        .into()
}

/// Whether inode `ino` holds a value of `owner` in the old form. Returns false for an inode that
/// cannot be read.
pub(crate) fn is_old_ea_inode(fs: &Ext4, ino: u32, owner: &InodeInfo) -> bool {
    let Ok(value) = ea_inode(fs, ino, Place::new(Structure::Xattr).ino(owner.ino())) else {
        return false;
    };
    let mut contents =
        vec![0; usize::try_from(value.size().min(VALUE_SIZE_MAX.into())).unwrap_or(0)];
    value.fields().may_be_old_value_of(owner.fields())
        && value.read_ea_value(fs, &mut contents).is_ok()
        && !value.is_ea_hash_right(fs, &contents)
}

fn ea_blocks(fs: &Ext4, size: u64) -> Range<u64> {
    0..size.div_ceil(fs.superblock().block_size().into())
}

impl InodeInfo {
    /// Fills `buf` from the start of the value.
    pub(crate) fn read_ea_value(&self, fs: &Ext4, buf: &mut [u8]) -> Result<()> {
        if self.is_inline() {
            return self.read_contents(fs, buf, 0).map(drop);
        }
        let block_size = to_usize(fs.superblock().block_size());
        let mut chunks = buf.chunks_mut(block_size).zip(0u32..).peekable();
        while let Some((_, logical)) = chunks.peek() {
            let run = self.map(fs, *logical)?;
            for (chunk, logical) in chunks
                .by_ref()
                .take(usize::try_from(run.len_blocks).unwrap_or(usize::MAX))
            {
                match run.kind.skip(u64::from(logical - run.logical)) {
                    RunKind::Mapped { physical } => {
                        chunk.copy_from_slice(&fs.cache.read(physical)?[..chunk.len()])
                    }
                    RunKind::Hole | RunKind::Unwritten { .. } => chunk.fill(0),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn is_ea_hash_right(&self, fs: &Ext4, contents: &[u8]) -> bool {
        hash::ea_value(contents, fs.superblock().checksum_seed()) == self.fields().ea_hash()
    }
}

/// Returns an EA inode that holds `value`, with one reference more: an existing one, or a new one
/// near its `owner`. The caller has reserved blocks. `ENOSPC`, without a change, if no inode is
/// free.
pub(crate) fn take_ea_inode(handle: &Handle<'_>, owner: &InodeInfo, value: &[u8]) -> Result<u32> {
    let hash = hash::ea_value(value, handle.fs.superblock().checksum_seed());
    let values = &handle.writer.sharing.values;
    for found in values.candidates(hash) {
        if let Some(ino) = join_ea_inode(handle, &found, value)? {
            return Ok(ino);
        }
    }
    let ino = make_ea_inode(handle, owner, value)?;
    values.insert(hash, ino.into());
    Ok(ino)
}

/// Adds a reference to the inode that was found and returns it, if its value is equal.
fn join_ea_inode(handle: &Handle<'_>, found: &Candidate<'_>, value: &[u8]) -> Result<Option<u32>> {
    let sharing = &handle.writer.sharing;
    let Ok(ino) = u32::try_from(found.number()) else {
        return Ok(None);
    };
    let _count = sharing.count_of(ino);
    if !found.is_in() {
        return Ok(None);
    }
    let Ok(mut info) = ea_inode(handle.fs, ino, Place::new(Structure::Xattr).ino(ino)) else {
        return Ok(None);
    };
    let mut there = vec![0; value.len()];
    let count = info.fields().ea_refcount();
    let sizes_differ = info.size() != value.len() as u64;
    if count == 0
        || sizes_differ
        || info.read_ea_value(handle.fs, &mut there).is_err()
        || there != value
    {
        sharing.note(Count::Differing);
        return Ok(None);
    }
    info.fields_mut().set_ea_refcount(count.saturating_add(1));
    handle.store(&info)?;
    found.touch();
    sharing.note(Count::ValuesShared);
    Ok(Some(ino))
}

fn make_ea_inode(handle: &Handle<'_>, owner: &InodeInfo, value: &[u8]) -> Result<u32> {
    let sb = handle.fs.superblock();
    let (ino, _) = handle
        .writer
        .allocator
        .allocate_inode(handle, owner.ino(), false)?;
    handle.writer.allocator.clear_record(handle, ino)?;
    let value_hash = hash::ea_value(value, sb.checksum_seed());
    let now = now_seconds();
    // With the owner's generation, and its number as time, the inode would have the old form.
    let mut inode = Inode::new(
        ino,
        FileKind::Regular.mode_bits() | 0o600,
        now ^ value_hash,
        sb,
    );
    let time = Timestamp {
        seconds: now.into(),
        nanos: 0,
    };
    inode.set_mtime(time);
    inode.set_crtime(time);
    inode.set_ea_refcount(1);
    inode.set_ea_hash(value_hash);
    inode.set_uid(owner.fields().uid());
    inode.set_gid(owner.fields().gid());
    inode.set_links(1);
    inode.set_flags(InodeFlags::EA_INODE);
    inode.set_size(value.len() as u64);
    let mut info = InodeInfo::new(inode, handle.fs.inode_position(ino)?, sb.metadata_seed());
    empty_map(handle, &mut info);
    write_ea_value(handle, &mut info, value)?;
    handle.store(&info)?;
    Ok(ino)
}

fn write_ea_value(handle: &Handle<'_>, info: &mut InodeInfo, value: &[u8]) -> Result<()> {
    let block_size = to_usize(handle.fs.superblock().block_size());
    let mut rest = value;
    let mut logical = 0;
    while !rest.is_empty() {
        // OK: at most 64 blocks.
        let want = rest.len().div_ceil(block_size) as u32;
        let run = allocate_for(handle, info, logical, want, false)?;
        for block in run
            .mapped()
            .filter(|blocks| !blocks.is_empty())
            .ok_or(Errno::EIO)?
        {
            let (chunk, behind) = rest.split_at(rest.len().min(block_size));
            if chunk.is_empty() {
                break;
            }
            let mut buffer = handle.fresh(block)?;
            handle.edit(&mut buffer, |bytes| {
                bytes[..chunk.len()].copy_from_slice(chunk)
            });
            (rest, logical) = (behind, logical + 1);
        }
    }
    Ok(())
}

/// Adds a reference to the value in inode `ino`.
pub(crate) fn share_ea_inode(handle: &Handle<'_>, ino: u32, place: Place) -> Result<()> {
    let _count = handle.writer.sharing.count_of(ino);
    let mut info = ea_inode(handle.fs, ino, place)?;
    let count = info.fields().ea_refcount().saturating_add(1);
    info.fields_mut().set_ea_refcount(count);
    handle.store(&info)
}

/// Releases one reference to the value in inode `ino`, of an attribute of `owner` or of a block
/// that it leaves. Frees the inode with the last reference. Without an owner the value is not of
/// the old form.
pub(crate) fn release_ea_inode(
    handle: &Handle<'_>,
    ino: u32,
    owner: Option<&InodeInfo>,
) -> Result<()> {
    let _count = handle.writer.sharing.count_of(ino);
    let mut info = ea_inode(handle.fs, ino, Place::new(Structure::Xattr).ino(ino))?;
    let is_old = owner.is_some_and(|owner| is_old_ea_inode(handle.fs, ino, owner));
    let count = if is_old {
        1
    } else {
        info.fields().ea_refcount()
    };
    let count = count.checked_sub(1).ok_or_else(|| no_reference(ino))?;
    info.fields_mut().set_ea_refcount(count);
    if count > 0 {
        return handle.store(&info);
    }
    handle
        .writer
        .sharing
        .values
        .remove(info.fields().ea_hash(), ino.into());
    let mut blocks = ea_blocks(handle.fs, info.size());
    // All in this transaction: the value has few blocks.
    while !blocks.is_empty() {
        blocks = unmap_blocks(handle, &mut info, blocks, true)?;
    }
    info.fields_mut().set_size(0);
    info.fields_mut().set_links(0);
    info.fields_mut().set_dtime(now_seconds());
    handle.store(&info)?;
    handle.writer.allocator.free_inode(handle, ino, false)
}
