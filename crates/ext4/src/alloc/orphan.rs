//! Orphans: inodes that were deleted while open, or were being truncated, when the volume was last in use.
//!
//! They are kept in a list through the inodes themselves, from the superblock on, or in the blocks of a hidden file.
//! Whoever opens the volume for writing frees them; who reads leaves them alone, but may want to know of them.
//!
//! What becomes an orphan while the volume is in use goes into the list. In memory it is [`Orphans`], and an inode that is
//! in it is stored with its successor in place of the time of its deletion, whatever the inode in memory says. That it is in it the inode
//! in memory does say ([`InodeInfo::is_orphan`]), so that who stores any other has nothing to ask the list, which all threads use.
//!
//! # Locks
//! The list's lock is taken inside that of a block, and inside the latch of an inode in use, never the other way round. Who takes an
//! orphan off the list changes the list first and then the record that led to it; every record is written with what the list says under
//! the record's lock, its block's or its own ([`edit_record`](Change::edit_record)). So whichever of two is written last has what the list
//! says then.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::PoisonError;

use extern4_disk::feature::RoCompat;
use extern4_disk::inode::{FileKind, Inode};
use extern4_disk::orphan::OrphanBlock;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};
use extern4_sync::primitive::{Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::inode::InodeInfo;
use crate::map::RunKind;
use crate::mount::Ext4;
use crate::ops::create::NAME_CREDITS;
use crate::volume::handle::Change;

/// The list of orphans as it stands now: the superblock leads to the newest, and each to the one before it. The superblock hears of
/// it when a transaction closes (`writer`).
#[derive(Default)]
pub(crate) struct Orphans(Mutex<List>);

/// Inodes by number, 0 for none. Everything is done in a few steps, for every unlink needs the lock.
#[derive(Default)]
struct List {
    newest: u32,
    places: HashMap<u32, Between, BuildHasherDefault<Spread>>,
}

/// Those beside an orphan on the list.
struct Between {
    newer: u32,
    older: u32,
}

impl List {
    /// Puts an inode on the list as the newest, if it is not there.
    fn add(&mut self, ino: u32) {
        let Entry::Vacant(place) = self.places.entry(ino) else { return };
        place.insert(Between { newer: 0, older: self.newest });
        let before = std::mem::replace(&mut self.newest, ino);
        if let Some(before) = self.places.get_mut(&before) {
            before.newer = ino;
        }
    }

    /// Takes an inode off the list; `None` if it is not there.
    fn remove(&mut self, ino: u32) -> Option<Between> {
        let between = self.places.remove(&ino)?;
        match self.places.get_mut(&between.newer) {
            Some(newer) => newer.older = between.older,
            None => self.newest = between.older,
        }
        if let Some(older) = self.places.get_mut(&between.older) {
            older.newer = between.newer;
        }
        Some(between)
    }
}

/// Spreads numbers over a table. Nobody gains by choosing numbers of orphans that fall together.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = spread(self.0 ^ u64::from(number));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Multiplies by an odd number whose bits look random, and folds the upper half, where every bit depends on all below, over the lower.
fn spread(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

impl Orphans {
    /// What stands in place of the time of deletion of an inode; `None` if it is no orphan.
    #[inline]
    pub(crate) fn next_of(&self, info: &InodeInfo) -> Option<u32> {
        if info.is_orphan() { self.next_of_listed(info.ino()) } else { None }
    }

    /// The same of one that may be on the list.
    fn next_of_listed(&self, ino: u32) -> Option<u32> {
        self.list().places.get(&ino).map(|between| between.older)
    }

    /// The one that the superblock leads to; 0 if there is none.
    pub(crate) fn newest(&self) -> u32 {
        self.list().newest
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an inode on the list, if it is not there.
    fn add(&self, ino: u32) {
        self.list().add(ino);
    }

    /// Takes an inode off the list, if it is there.
    fn remove(&self, ino: u32) -> Option<Between> {
        self.list().remove(ino)
    }
}

/// What the volume says is to be freed by who opens it for writing.
pub(crate) struct LeftOver {
    listed: Vec<u32>,
    in_file: Vec<u32>,
    /// The orphan file, if anything may be in it.
    file: Option<u32>,
    /// Faults of either. Orphans that stand behind a fault are not known, and stay allocated.
    pub(crate) faults: Vec<Corrupt>,
}

impl LeftOver {
    fn all(&self) -> impl Iterator<Item = u32> {
        self.listed.iter().chain(&self.in_file).copied()
    }
}

/// The error that a free inode is said to be an orphan.
fn free_orphan_found(ino: u32) -> Error {
    let what = "an inode that is not in use is said to be an orphan";
    Place::new(Structure::Orphan).ino(ino).corrupt(CorruptKind::Mismatch { what }).into()
}

impl Change<'_> {
    /// Puts an inode on the list of orphans. The caller stores it.
    pub(crate) fn orphan_add(&self, info: &mut InodeInfo) -> Result<()> {
        self.writer.orphans.add(info.ino());
        info.set_orphan(true);
        Ok(())
    }

    /// Takes an inode off the list of orphans. The caller stores it.
    pub(crate) fn orphan_remove(&self, info: &mut InodeInfo) -> Result<()> {
        if !info.is_orphan() {
            return Ok(());
        }
        info.set_orphan(false);
        let Some(between) = self.writer.orphans.remove(info.ino()) else { return Ok(()) };
        info.fields_mut().set_dtime(0);
        // The one that led to it leads to the next now.
        if between.newer == 0 { Ok(()) } else { self.renew_next_orphan(between.newer) }
    }

    /// Writes to the record of an orphan which one is next. It may be no orphan any more.
    fn renew_next_orphan(&self, ino: u32) -> Result<()> {
        let at = self.fs.inode_position(ino)?;
        let sb = self.fs.superblock();
        let place = Place::new(Structure::Orphan).ino(ino).block(at.block);
        self.edit_record(ino, at, |record, has_checksum| {
            let Some(next) = self.writer.orphans.next_of_listed(ino) else { return Ok(()) };
            let decode = if has_checksum { Inode::decode } else { Inode::decode_fields };
            let mut inode = decode(record, ino, sb, place)?;
            inode.set_dtime(next);
            inode.encode_fields(record);
            Ok(())
        })?
    }
}

impl Ext4 {
    /// The orphans of the volume: those of the list, then those of the orphan file.
    ///
    /// # Errors
    /// A list that leads back to itself or to an inode that cannot be, a block of the orphan file that is corrupt, or a
    /// device that fails.
    pub fn orphans(&self) -> Result<Vec<u32>> {
        let (mut orphans, fault) = self.follow_list()?;
        fault.map_or(Ok(()), |fault| Err(Error::Corrupt(fault)))?;
        if let Some(ino) = self.superblock().orphan_file_inode() {
            let listed = orphans.len();
            self.orphan_file(ino, &mut orphans)?;
            orphans[listed..].iter().try_for_each(|&ino| self.check_orphan_number(ino))?;
        }
        Ok(orphans)
    }

    /// Finds what is to be freed before the volume is changed. Nothing is changed yet, so an error
    /// leaves the volume as it was.
    ///
    /// An inode that cannot be an orphan is no error. As with Linux, the list ends there, and the
    /// orphan file goes on behind it.
    pub(crate) fn find_left_over(&self) -> Result<LeftOver> {
        let (listed, fault) = self.follow_list()?;
        let faults = Vec::from_iter(fault);
        let mut left = LeftOver { listed, in_file: Vec::new(), file: None, faults };
        let mut named = Vec::new();
        if let Some(file) = self.superblock().orphan_file_inode() {
            // Like Linux, read it even if it should be empty: a file that is none must not be
            // written to later.
            let read = self.orphan_file(file, &mut named);
            read.map_err(|error| error.in_part("the orphan file"))?;
        }
        if self.superblock().features().ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
            left.file = self.superblock().orphan_file_inode();
            for ino in named {
                match self.check_orphan(ino) {
                    Ok(_) => left.in_file.push(ino),
                    Err(Error::Corrupt(fault)) => left.faults.push(fault),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(left)
    }

    /// Frees what was deleted while open, and cuts off what was being truncated, when the volume was last in use. Returns
    /// the inodes that were cut off, and are still there.
    pub(crate) fn free_left_over(&self, left: &LeftOver) -> Result<Vec<u32>> {
        let orphans = &self.writer()?.orphans;
        left.listed.iter().rev().for_each(|&ino| orphans.add(ino));
        if !left.faults.is_empty() {
            // Otherwise nothing may change that says where the list begins.
            self.changing(1, 0, |change| {
                change.edit_superblock(|raw| raw.s_last_orphan.set(orphans.newest()))
            })?;
        }
        let mut kept = Vec::new();
        for ino in left.all() {
            if self.free_orphan(ino)? {
                kept.push(ino);
            }
        }
        left.file.map_or(Ok(()), |file| self.empty_orphan_file(file))?;
        Ok(kept)
    }

    /// An orphan that has not become another file: its number is that of a file, and taken, and its
    /// record says what it was.
    fn check_orphan(&self, ino: u32) -> Result<InodeInfo> {
        self.check_orphan_number(ino)?;
        let info = self.load_orphan(ino)?;
        if self.is_inode_taken(ino)? { Ok(info) } else { Err(free_orphan_found(ino)) }
    }

    fn check_orphan_number(&self, ino: u32) -> Result<()> {
        let sb = self.superblock();
        if ino >= sb.first_ino() && ino <= sb.inodes_count() && !self.is_hidden(ino) {
            return Ok(());
        }
        let kind = CorruptKind::InodeOutOfRange { field: "orphan list", ino: u64::from(ino) };
        Err(Place::new(Structure::Orphan).ino(ino).corrupt(kind).into())
    }

    /// An inode that the volume says is an orphan. One that is not in use is damage, not a stale number of the caller's.
    fn load_orphan(&self, ino: u32) -> Result<InodeInfo> {
        self.load_inode(ino).map_err(|error| match error {
            Error::Stale { .. } => free_orphan_found(ino),
            other => other,
        })
    }

    /// Frees an orphan, or what lies behind the end of one that has links; true for such a one.
    fn free_orphan(&self, ino: u32) -> Result<bool> {
        let mut info = self.load_orphan(ino)?;
        // Those in the orphan file are not on the list.
        info.set_orphan(self.writer()?.orphans.next_of_listed(ino).is_some());
        if info.fields().links() == 0 {
            return self.delete(info).map(|()| false);
        }
        if self.has_map(&info) && info.fields().kind() == FileKind::Regular {
            let keep = info.size().div_ceil(u64::from(self.superblock().block_size()));
            self.free_contents(&mut info, keep, false)?;
        }
        self.changing(NAME_CREDITS, 0, |change| {
            change.orphan_remove(&mut info)?;
            change.store(&info)
        })?;
        Ok(true)
    }

    fn empty_orphan_file(&self, ino: u32) -> Result<()> {
        let file = self.load_inode(ino)?;
        let seed = file.fields().checksum_seed(self.superblock().checksum_seed());
        let blocks = file.len_blocks(self)?;
        self.changing(blocks + 1, 0, |change| {
            for logical in 0..blocks {
                let Some(mapped) = self.map(&file, logical)?.mapped() else { continue };
                let place = Place::new(Structure::Orphan).ino(ino).block(mapped.start);
                let mut buffer = self.cache.read(mapped.start)?;
                let mut block = OrphanBlock::decode(&buffer, mapped.start, seed, self.superblock(), place)?;
                block.clear();
                let bytes = block.encode(mapped.start, seed, self.superblock());
                change.edit(&mut buffer, |old| old.copy_from_slice(&bytes));
            }
            change.edit_superblock(|raw| {
                let features = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
                raw.s_feature_ro_compat.set((features - RoCompat::ORPHAN_PRESENT).bits());
            })
        })
    }

    /// The list of orphans as far as it can be followed, and what is wrong with it there.
    fn follow_list(&self) -> Result<(Vec<u32>, Option<Corrupt>)> {
        let mut orphans = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut next = self.superblock().last_orphan();
        while let Some(ino) = next {
            if !seen.insert(ino) {
                let place = Place::new(Structure::Orphan).ino(ino);
                return Ok((orphans, Some(place.corrupt(CorruptKind::Loop { what: "the list of orphans" }))));
            }
            match self.check_orphan(ino) {
                Ok(info) => next = info.fields().next_orphan(),
                Err(Error::Corrupt(fault)) => return Ok((orphans, Some(fault))),
                Err(error) => return Err(error),
            }
            orphans.push(ino);
        }
        Ok((orphans, None))
    }

    fn orphan_file(&self, ino: u32, orphans: &mut Vec<u32>) -> Result<()> {
        let none = || {
            let what = "the orphan file is not a file that is in use";
            Error::from(Place::new(Structure::Orphan).ino(ino).corrupt(CorruptKind::Mismatch { what }))
        };
        let file = match self.load_inode(ino) {
            Err(Error::Stale { .. }) => return Err(none()),
            file => file?,
        };
        if file.fields().kind() != FileKind::Regular || file.fields().links() != 1 {
            return Err(none());
        }
        let seed = file.fields().checksum_seed(self.superblock().checksum_seed());
        for logical in 0..file.len_blocks(self)? {
            let RunKind::Mapped { physical } = self.map(&file, logical)?.kind else {
                let place = Place::new(Structure::Orphan).ino(ino);
                return Err(place
                    .corrupt(CorruptKind::Mismatch { what: "the orphan file has a hole" })
                    .into());
            };
            let place = Place::new(Structure::Orphan).ino(ino).block(physical);
            let block = self.cache.read(physical)?;
            let decoded = OrphanBlock::decode(&block, physical, seed, self.superblock(), place)?;
            orphans.extend(decoded.inodes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_leads_from_the_newest_to_the_oldest() {
        let orphans = Orphans::default();
        let mut expected: Vec<u32> = Vec::new();
        let mut random = 1_u32;
        for _ in 0..3000 {
            random = random.wrapping_mul(0x9e37_79b1).wrapping_add(7);
            let ino = 11 + (random >> 8) % 100;
            if random >> 31 == 0 {
                orphans.add(ino);
                if !expected.contains(&ino) {
                    expected.push(ino);
                }
            } else {
                let was_there = orphans.remove(ino).is_some();
                assert_eq!(was_there, expected.contains(&ino));
                expected.retain(|&orphan| orphan != ino);
            }
            let next = |&ino: &u32| orphans.next_of_listed(ino).filter(|&next| next != 0);
            let newest = Some(orphans.newest()).filter(|&newest| newest != 0);
            assert!(std::iter::successors(newest, next).eq(expected.iter().rev().copied()));
            assert_eq!(orphans.next_of_listed(ino).is_some(), expected.contains(&ino));
        }
        assert!(!expected.is_empty());
    }
}
