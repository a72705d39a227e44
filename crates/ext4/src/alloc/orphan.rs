//! Orphans on the volume: recording them, and freeing those that an earlier use of the volume left.
//!
//! `ops` and `file` put an inode on the list before its last name goes or it is truncated, and
//! remove it afterwards, in their own transactions. Opening a volume for writing calls
//! [`find_leftover_orphans`], which changes nothing, and then [`free_leftover_orphans`]. A fault
//! ends the list but is no error of the open, as with Linux: orphans after the fault stay
//! allocated, and the fault is reported. Only an orphan file that is no such file is an error.
//! [`Ext4::orphans`] lists orphans for readers.

use extern4_disk::feature::RoCompat;
use extern4_disk::inode::{FileKind, Inode};
use extern4_disk::orphan::OrphanBlock;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

use crate::alloc::ialloc::is_inode_taken;
use crate::alloc::orphan_list::Orphans;
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::map::run::RunKind;
use crate::ops::create::NAME_CREDITS;
use crate::ops::delete::{delete_inode, free_contents};
use crate::volume::handle::Handle;

/// The orphans of a volume that is being opened for writing.
pub(crate) struct LeftoverOrphans {
    listed: Vec<u32>,
    in_file: Vec<u32>,
    /// The orphan file, if it may name orphans.
    file: Option<u32>,
    /// Faults of the list or the file. Orphans after a fault are unknown and stay allocated.
    pub(crate) faults: Vec<Corrupt>,
}

impl LeftoverOrphans {
    fn all(&self) -> impl Iterator<Item = u32> {
        self.listed.iter().chain(&self.in_file).copied()
    }
}

/// Returns the error for a free inode that the volume lists as an orphan.
fn free_orphan_found(ino: u32) -> Error {
    let what = "an inode that is not in use is said to be an orphan";
    Place::new(Structure::Orphan).ino(ino).corrupt(CorruptKind::Mismatch { what }).into()
}

impl Orphans {
    /// Adds an inode to the list of orphans. The caller stores the inode.
    pub(crate) fn orphan_add(&self, _change: &Handle<'_>, info: &mut InodeInfo) -> Result<()> {
        self.add(info.ino());
        info.set_orphan(true);
        Ok(())
    }

    /// Removes an inode from the list of orphans, if it is there. The caller stores the inode.
    pub(crate) fn orphan_remove(&self, handle: &Handle<'_>, info: &mut InodeInfo) -> Result<()> {
        if !info.is_orphan() {
            return Ok(());
        }
        info.set_orphan(false);
        let Some(neighbours) = self.remove(info.ino()) else { return Ok(()) };
        info.fields_mut().set_dtime(0);
        // The record of the next newer orphan must name the successor of this one.
        if neighbours.newer == 0 {
            Ok(())
        } else {
            handle.writer.orphans.renew_next_orphan(handle, neighbours.newer)
        }
    }

    /// Stores the successor of orphan `ino` in its record. Does nothing if the inode is no orphan
    /// any more.
    fn renew_next_orphan(&self, handle: &Handle<'_>, ino: u32) -> Result<()> {
        let at = handle.fs.inode_position(ino)?;
        let sb = handle.fs.superblock();
        let place = Place::new(Structure::Orphan).ino(ino).block(at.block);
        handle.edit_record(ino, at, |record, has_checksum| {
            let Some(next) = self.next_of_listed(ino) else { return Ok(()) };
            let decode = if has_checksum { Inode::decode } else { Inode::decode_fields };
            let mut inode = decode(record, ino, sb, place)?;
            inode.set_dtime(next);
            inode.encode_fields(record);
            Ok(())
        })?
    }
}

impl Ext4 {
    /// Returns the orphans of the volume: those of the list, then those of the orphan file.
    ///
    /// # Errors
    /// A list that leads back to itself or to an impossible inode, a corrupt block of the orphan
    /// file, or a device that fails.
    pub fn orphans(&self) -> Result<Vec<u32>> {
        let (mut orphans, fault) = follow_list(self)?;
        fault.map_or(Ok(()), |fault| Err(Error::Corrupt(fault)))?;
        if let Some(ino) = self.superblock().orphan_file_inode() {
            let listed = orphans.len();
            orphan_file(self, ino, &mut orphans)?;
            orphans[listed..].iter().try_for_each(|&ino| check_orphan_number(self, ino))?;
        }
        Ok(orphans)
    }
}

/// Finds the inodes to free before the volume is changed. It changes nothing, so an error leaves
/// the volume as it was.
///
/// An inode that cannot be an orphan is no error. As with Linux, the list ends there, and the
/// orphan file goes on behind it.
pub(crate) fn find_leftover_orphans(fs: &Ext4) -> Result<LeftoverOrphans> {
    let (listed, fault) = follow_list(fs)?;
    let faults = Vec::from_iter(fault);
    let mut left = LeftoverOrphans { listed, in_file: Vec::new(), file: None, faults };
    let mut named = Vec::new();
    if let Some(file) = fs.superblock().orphan_file_inode() {
        // Like Linux, read the file even if the features say that it is empty: a file that is no
        // orphan file must not be written later.
        let read = orphan_file(fs, file, &mut named);
        read.map_err(|error| error.in_part("the orphan file"))?;
    }
    if fs.superblock().features().ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
        left.file = fs.superblock().orphan_file_inode();
        for ino in named {
            match check_orphan(fs, ino) {
                Ok(_) => left.in_file.push(ino),
                Err(Error::Corrupt(fault)) => left.faults.push(fault),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(left)
}

/// Frees the inodes that were deleted while open, and completes the truncation of the others.
/// Returns the inodes that were truncated and still have names.
pub(crate) fn free_leftover_orphans(fs: &Ext4, left: &LeftoverOrphans) -> Result<Vec<u32>> {
    let orphans = &fs.writer()?.orphans;
    left.listed.iter().rev().for_each(|&ino| orphans.add(ino));
    if !left.faults.is_empty() {
        // The list now ends before its fault. This stores its head, which perhaps no later change
        // would do.
        fs.with_handle(1, 0, |handle| handle.edit_superblock(|raw| raw.s_last_orphan.set(orphans.newest())))?;
    }
    let mut kept = Vec::new();
    for ino in left.all() {
        if free_orphan(fs, ino)? {
            kept.push(ino);
        }
    }
    left.file.map_or(Ok(()), |file| empty_orphan_file(fs, file))?;
    Ok(kept)
}

/// Loads an orphan after checking that it can be one: its number is that of an ordinary file, and
/// its group's bitmap has it in use.
fn check_orphan(fs: &Ext4, ino: u32) -> Result<InodeInfo> {
    check_orphan_number(fs, ino)?;
    let info = load_orphan(fs, ino)?;
    if is_inode_taken(fs, ino)? { Ok(info) } else { Err(free_orphan_found(ino)) }
}

fn check_orphan_number(fs: &Ext4, ino: u32) -> Result<()> {
    let sb = fs.superblock();
    if ino >= sb.first_ino() && ino <= sb.inodes_count() && !sb.is_hidden(ino) {
        return Ok(());
    }
    let kind = CorruptKind::InodeOutOfRange { field: "orphan list", ino: u64::from(ino) };
    Err(Place::new(Structure::Orphan).ino(ino).corrupt(kind).into())
}

/// Loads an inode that the volume lists as an orphan. If it is not in use, that is damage, not a
/// stale number from the caller.
fn load_orphan(fs: &Ext4, ino: u32) -> Result<InodeInfo> {
    fs.load_inode(ino).map_err(|error| match error {
        Error::Stale { .. } => free_orphan_found(ino),
        other => other,
    })
}

/// Frees an orphan without names. Truncates an orphan with names to its size, and returns true.
fn free_orphan(fs: &Ext4, ino: u32) -> Result<bool> {
    let mut info = load_orphan(fs, ino)?;
    // Orphans in the orphan file are not on the list.
    info.set_orphan(fs.writer()?.orphans.next_of_listed(ino).is_some());
    if info.fields().links() == 0 {
        return delete_inode(fs, info).map(|()| false);
    }
    if info.has_map(fs) && info.fields().kind() == FileKind::Regular {
        let keep = info.size().div_ceil(u64::from(fs.superblock().block_size()));
        free_contents(fs, &mut info, keep, false)?;
    }
    fs.with_handle(NAME_CREDITS, 0, |handle| {
        handle.writer.orphans.orphan_remove(handle, &mut info)?;
        handle.store(&info)
    })?;
    Ok(true)
}

fn empty_orphan_file(fs: &Ext4, ino: u32) -> Result<()> {
    let file = fs.load_inode(ino)?;
    let seed = file.fields().checksum_seed(fs.superblock().checksum_seed());
    let blocks = file.len_blocks(fs)?;
    fs.with_handle(blocks + 1, 0, |handle| {
        for logical in 0..blocks {
            let Some(mapped) = file.map(fs, logical)?.mapped() else { continue };
            let place = Place::new(Structure::Orphan).ino(ino).block(mapped.start);
            let mut buffer = fs.cache.read(mapped.start)?;
            let mut block = OrphanBlock::decode(&buffer, mapped.start, seed, fs.superblock(), place)?;
            block.clear();
            let bytes = block.encode(mapped.start, seed, fs.superblock());
            handle.edit(&mut buffer, |old| old.copy_from_slice(&bytes));
        }
        handle.edit_superblock(|raw| {
            let features = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
            raw.s_feature_ro_compat.set((features - RoCompat::ORPHAN_PRESENT).bits());
        })
    })
}

/// Returns the list of orphans up to its end or first fault, and that fault.
fn follow_list(fs: &Ext4) -> Result<(Vec<u32>, Option<Corrupt>)> {
    let mut orphans = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut next = fs.superblock().last_orphan();
    while let Some(ino) = next {
        if !seen.insert(ino) {
            let place = Place::new(Structure::Orphan).ino(ino);
            return Ok((orphans, Some(place.corrupt(CorruptKind::Loop { what: "the list of orphans" }))));
        }
        match check_orphan(fs, ino) {
            Ok(info) => next = info.fields().next_orphan(),
            Err(Error::Corrupt(fault)) => return Ok((orphans, Some(fault))),
            Err(error) => return Err(error),
        }
        orphans.push(ino);
    }
    Ok((orphans, None))
}

fn orphan_file(fs: &Ext4, ino: u32, orphans: &mut Vec<u32>) -> Result<()> {
    let none = || {
        let what = "the orphan file is not a file that is in use";
        Error::from(Place::new(Structure::Orphan).ino(ino).corrupt(CorruptKind::Mismatch { what }))
    };
    let file = match fs.load_inode(ino) {
        Err(Error::Stale { .. }) => return Err(none()),
        file => file?,
    };
    if file.fields().kind() != FileKind::Regular || file.fields().links() != 1 {
        return Err(none());
    }
    let seed = file.fields().checksum_seed(fs.superblock().checksum_seed());
    for logical in 0..file.len_blocks(fs)? {
        let RunKind::Mapped { physical } = file.map(fs, logical)?.kind else {
            let place = Place::new(Structure::Orphan).ino(ino);
            return Err(place.corrupt(CorruptKind::Mismatch { what: "the orphan file has a hole" }).into());
        };
        let place = Place::new(Structure::Orphan).ino(ino).block(physical);
        let block = fs.cache.read(physical)?;
        let decoded = OrphanBlock::decode(&block, physical, seed, fs.superblock(), place)?;
        orphans.extend(decoded.inodes());
    }
    Ok(())
}
