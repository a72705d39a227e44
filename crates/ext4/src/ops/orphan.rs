//! Orphans on the volume: recording them, and freeing the orphans that an earlier use of the volume
//! left.
//!
//! `ops` and `file` put an inode on the list before its last name goes or it is truncated, and
//! remove it afterwards, in their own transactions. Opening a volume for writing calls
//! [`find_leftover_orphans`], which changes nothing, and then [`free_leftover_orphans`].
//! [`Ext4::orphans`] lists orphans for readers.
//!
//! # Damage
//! Damage is no error of the open, as with Linux, but a warning:
//!
//! - A fault of the list ends it. Orphans after the fault stay allocated.
//! - A block of the orphan file that cannot be trusted is passed over, and never written. The
//!   volume keeps the feature `orphan_present` until `e2fsck` has mended the file.
//! - An orphan that cannot be freed is [set aside](set_aside).

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::feature::RoCompat;
use extern4_disk::inode::{FileKind, Inode};
use extern4_disk::orphan::OrphanBlock;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

use crate::alloc::orphan_list::Orphans;
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::fs::quota_accounts::Owners;
use crate::handle::Handle;
use crate::handle::ialloc::is_inode_taken;
use crate::inode::info::InodeInfo;
use crate::ops::create::NAME_CREDITS;
use crate::ops::delete::{check_removable, delete_inode, free_contents, set_aside, unfreed};

/// The orphans of a volume that is being opened for writing.
pub(crate) struct LeftoverOrphans {
    listed: Vec<u32>,
    in_file: Vec<u32>,
    /// The orphan file, if it may name orphans.
    file: Option<u32>,
    /// The fault that ends the list. Orphans after it are unknown and stay allocated.
    list_fault: Option<Corrupt>,
    /// Inodes that the file names and that cannot be orphans.
    impossible: Vec<Corrupt>,
    /// Faults of the file. Orphans that its damaged parts name are unknown and stay allocated.
    file_faults: Vec<Error>,
}

impl LeftoverOrphans {
    fn all(&self) -> impl Iterator<Item = u32> {
        self.listed.iter().chain(&self.in_file).copied()
    }

    /// Returns the faults as warnings.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let behind = |fault: &Corrupt| {
            format!("{fault}; orphans behind it stay allocated until e2fsck frees them")
        };
        let in_it = |fault: &Error| {
            format!("{fault}; orphans that it names stay allocated until e2fsck frees them")
        };
        let listed = self.list_fault.iter().map(behind);
        listed
            .chain(self.impossible.iter().map(ToString::to_string))
            .chain(self.file_faults.iter().map(in_it))
    }
}

/// Returns the error for a free inode that the volume lists as an orphan.
fn free_orphan_found(ino: u32) -> Error {
    let what = "an inode that is not in use is said to be an orphan";
    Place::new(Structure::Orphan)
        .ino(ino)
        .corrupt(CorruptKind::Mismatch { what })
        .into()
}

impl Orphans {
    /// Adds an inode to the list of orphans. The caller stores the inode.
    pub(crate) fn orphan_add(&self, info: &mut InodeInfo) {
        self.add(info.ino());
        info.set_orphan(true);
    }

    /// Removes an inode from the list of orphans, if it is there. The caller stores the inode.
    pub(crate) fn orphan_remove(&self, handle: &Handle<'_>, info: &mut InodeInfo) -> Result<()> {
        if !info.is_orphan() {
            return Ok(());
        }
        info.set_orphan(false);
        let Some(neighbours) = self.remove(info.ino()) else {
            return Ok(());
        };
        info.fields_mut().set_dtime(0);
        // The record of the next newer orphan must name the successor of this one.
        if neighbours.newer == 0 {
            Ok(())
        } else {
            handle
                .writer
                .orphans
                .renew_next_orphan(handle, neighbours.newer)
        }
    }

    /// Stores the successor of orphan `ino` in its record. Does nothing if the inode is no orphan
    /// any more.
    fn renew_next_orphan(&self, handle: &Handle<'_>, ino: u32) -> Result<()> {
        let at = handle.fs.inode_position(ino)?;
        let sb = handle.fs.superblock();
        let place = Place::new(Structure::Orphan).ino(ino).block(at.block);
        handle.edit_record(ino, at, |record, has_checksum| {
            let Some(next) = self.next_of_listed(ino) else {
                return Ok(());
            };
            let decode = if has_checksum {
                Inode::decode
            } else {
                Inode::decode_fields
            };
            let mut inode = decode(record, ino, sb, place)?;
            inode.set_dtime(next);
            inode.encode_fields(record);
            Ok(())
        })?
    }
}

impl Ext4 {
    /// Returns the orphans of the volume: first the list's, then the orphan file's.
    ///
    /// # Errors
    /// A list that leads back to itself or to an impossible inode, a corrupt block of the orphan
    /// file, or a device that fails.
    pub fn orphans(&self) -> Result<Vec<u32>> {
        let (mut orphans, fault) = follow_list(self)?;
        if let Some(fault) = fault {
            return Err(Error::Corrupt(fault));
        }
        if let Some(ino) = self.superblock().orphan_file_inode() {
            let listed = orphans.len();
            let faults = read_orphan_file(self, ino, &mut orphans);
            if let Some(fault) = faults.into_iter().next() {
                return Err(fault);
            }
            orphans[listed..]
                .iter()
                .try_for_each(|&ino| check_orphan_number(self, ino))?;
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
    let (listed, list_fault) = follow_list(fs)?;
    let (in_file, file, impossible, file_faults) = Default::default();
    let mut left = LeftoverOrphans {
        listed,
        in_file,
        file,
        list_fault,
        impossible,
        file_faults,
    };
    let Some(file) = fs.superblock().orphan_file_inode() else {
        return Ok(left);
    };
    let mut named = Vec::new();
    left.file_faults = read_orphan_file(fs, file, &mut named);
    if fs
        .superblock()
        .features()
        .ro_compat
        .contains(RoCompat::ORPHAN_PRESENT)
    {
        left.file = Some(file);
        for ino in named {
            match check_orphan(fs, ino) {
                Ok(_) => left.in_file.push(ino),
                Err(Error::Corrupt(fault)) => left.impossible.push(fault),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(left)
}

/// Frees the inodes that were deleted while open, and completes the truncation of the others. Those
/// for which that fails are set aside, with a warning. Returns the inodes that were truncated and
/// still have names.
pub(crate) fn free_leftover_orphans(fs: &Ext4, left: &LeftoverOrphans) -> Result<Vec<u32>> {
    let writer = fs.writer()?;
    let orphans = &writer.orphans;
    left.listed.iter().rev().for_each(|&ino| orphans.add(ino));
    if left.list_fault.is_some() {
        // The list now ends before its fault. This stores its head, which perhaps no later change
        // would do.
        fs.with_handle(1, 0, |handle| {
            handle.edit_superblock(|raw| raw.s_last_orphan.set(orphans.newest()))
        })?;
    }
    let mut kept = Vec::new();
    for ino in left.all() {
        let mut orphan = load_orphan(fs, ino)?;
        // Orphans in the orphan file are not on the list.
        orphan.set_orphan(orphans.next_of_listed(ino).is_some());
        let has_name = orphan.fields().links() > 0;
        if has_name {
            kept.push(ino);
        }
        let Err(error) = free_orphan(fs, orphan) else {
            continue;
        };
        if writer.transactions.error().is_some() {
            return Err(error);
        }
        set_aside(fs, ino)?;
        fs.warnings.report(if has_name {
            format!("inode {ino} cannot be cut to its size: {error}; e2fsck mends it")
        } else {
            unfreed(ino, &error)
        });
    }
    if let Some(file) = left.file {
        empty_orphan_file(fs, file)?;
    }
    Ok(kept)
}

/// Loads an orphan after checking that it can be one: its number is that of an ordinary file, and
/// its group's bitmap has it in use.
fn check_orphan(fs: &Ext4, ino: u32) -> Result<InodeInfo> {
    check_orphan_number(fs, ino)?;
    let info = load_orphan(fs, ino)?;
    if is_inode_taken(fs, ino)? {
        Ok(info)
    } else {
        Err(free_orphan_found(ino))
    }
}

fn check_orphan_number(fs: &Ext4, ino: u32) -> Result<()> {
    let sb = fs.superblock();
    if ino >= sb.first_ino() && ino <= sb.inodes_count() && !sb.is_hidden(ino) {
        return Ok(());
    }
    let kind = CorruptKind::InodeOutOfRange {
        field: "orphan list",
        ino: u64::from(ino),
    };
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

/// Frees an orphan without names, or truncates one with names to its size.
fn free_orphan(fs: &Ext4, mut info: InodeInfo) -> Result<()> {
    if info.fields().links() == 0 {
        check_removable(fs, &info)?;
        return delete_inode(fs, info);
    }
    fs.note_damage(fs.check_accounts(Owners::of(info.fields())))?;
    if info.has_map(fs) && info.fields().kind() == FileKind::Regular {
        let keep = info
            .size()
            .div_ceil(u64::from(fs.superblock().block_size()));
        fs.note_damage(info.check_map(fs, keep))?;
        free_contents(fs, &mut info, keep, false)?;
    }
    fs.with_handle(NAME_CREDITS, 0, |handle| {
        handle.writer.orphans.orphan_remove(handle, &mut info)?;
        handle.store(&info)
    })
}

/// Removes all orphans from the blocks of the orphan file that can be trusted.
fn empty_orphan_file(fs: &Ext4, ino: u32) -> Result<()> {
    let mut is_empty = true;
    for block in orphan_blocks(fs, ino) {
        is_empty &= fs.with_handle(1, 0, |handle| {
            let Ok((block, mut orphans)) =
                block.and_then(|block| block.read(fs).map(|read| (block, read)))
            else {
                return Ok(false);
            };
            orphans.clear();
            let bytes = orphans.encode(block.physical, block.seed, fs.superblock());
            handle.edit(&mut fs.cache.read(block.physical)?, |old| {
                old.copy_from_slice(&bytes)
            });
            Ok(true)
        })?;
    }
    if !is_empty {
        return Ok(());
    }
    fs.with_handle(1, 0, |handle| {
        handle.edit_superblock(|raw| {
            let features = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
            raw.s_feature_ro_compat
                .set((features - RoCompat::ORPHAN_PRESENT).bits());
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
            return Ok((
                orphans,
                Some(place.corrupt(CorruptKind::Loop {
                    what: "the list of orphans",
                })),
            ));
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

/// A block of the orphan file.
struct OrphanFileBlock {
    place: Place,
    physical: u64,
    seed: ChecksumSeed,
}

impl OrphanFileBlock {
    fn read(&self, fs: &Ext4) -> Result<OrphanBlock> {
        let bytes = fs.cache.read(self.physical)?;
        Ok(OrphanBlock::decode(
            &bytes,
            self.physical,
            self.seed,
            fs.superblock(),
            self.place,
        )?)
    }
}

/// Adds the inodes that the orphan file names, and returns its faults.
fn read_orphan_file(fs: &Ext4, ino: u32, orphans: &mut Vec<u32>) -> Vec<Error> {
    let mut faults = Vec::new();
    for block in orphan_blocks(fs, ino) {
        match block.and_then(|block| block.read(fs)) {
            Ok(block) => orphans.extend(block.inodes()),
            Err(fault) => faults.push(fault.in_part("the orphan file")),
        }
    }
    faults
}

/// Returns the blocks of the orphan file. A part that has none, or that cannot be read, is an
/// error.
fn orphan_blocks(fs: &Ext4, ino: u32) -> Vec<Result<OrphanFileBlock>> {
    let place = Place::new(Structure::Orphan).ino(ino);
    let fault = |what| Error::from(place.corrupt(CorruptKind::Mismatch { what }));
    let file = match fs
        .load_inode(ino)
        .and_then(|file| Ok((file.len_blocks(fs)?, file)))
    {
        Ok((end, file))
            if file.fields().kind() == FileKind::Regular && file.fields().links() == 1 =>
        {
            (end, file)
        }
        Ok(_) | Err(Error::Stale { .. }) => {
            return vec![Err(fault("the orphan file is not a file that is in use"))];
        }
        Err(error) => return vec![Err(error)],
    };
    let (end, file) = file;
    let seed = file.fields().checksum_seed(fs.superblock().checksum_seed());
    let mut blocks = Vec::new();
    let mut at = 0;
    while let Some(logical) = u32::try_from(at).ok().filter(|&at| at < end) {
        let run = match file.map(fs, logical) {
            Ok(run) => run,
            Err(error) => {
                blocks.push(Err(error));
                break;
            }
        };
        at = run.end();
        match run.mapped() {
            Some(mapped) => blocks.extend(mapped.zip(logical..end).map(|(physical, _)| {
                Ok(OrphanFileBlock {
                    place: place.block(physical),
                    physical,
                    seed,
                })
            })),
            None => blocks.push(Err(fault("the orphan file has a hole"))),
        }
    }
    blocks
}
