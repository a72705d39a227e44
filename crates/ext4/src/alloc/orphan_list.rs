//! Orphans: inodes that were deleted while open, or were being truncated, when the volume was last
//! in use.
//!
//! They are kept in a list through the inodes themselves, from the superblock on, or in the blocks
//! of a hidden file. An opener for writing frees them. A reader leaves them alone, but may want to
//! know of them.
//!
//! An inode that becomes an orphan while the volume is in use goes into the list, which is
//! [`Orphans`] in memory. A listed inode is stored with its successor in place of the time of its
//! deletion, whatever the inode in memory has there. The inode in memory does say whether it is
//! listed ([`InodeInfo::is_orphan`]). So storing any other inode asks nothing of the list, which
//! all threads use.
//!
//! # Locks
//! The list's lock is taken inside that of a block, and inside the latch of an inode in use, never
//! the other way round. A thread that takes an orphan off the list changes the list first, and then
//! the record that led to it. Every writer of a record stores what the list says under the record's
//! lock, its block's or its own ([`edit_record`](Handle::edit_record)). So of two writes of a
//! record, the later one has what the list says then.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::PoisonError;

use extern4_sync::primitive::{Mutex, MutexGuard};

use crate::inode::info::InodeInfo;

/// The present list of orphans: the superblock leads to the newest, and each to the one before it.
/// The superblock gets the newest when a transaction closes (`writer`).
#[derive(Default)]
pub(crate) struct Orphans(Mutex<OrphanList>);

/// The neighbours of inodes by number, 0 for none. Every operation takes a few steps, since every
/// unlink needs the lock.
#[derive(Default)]
struct OrphanList {
    newest: u32,
    neighbours: HashMap<u32, Neighbours, BuildHasherDefault<InodeHasher>>,
}

/// The neighbours of an orphan on the list.
pub(super) struct Neighbours {
    pub(super) newer: u32,
    older: u32,
}

impl OrphanList {
    /// Puts an inode on the list as the newest, if it is not there.
    fn add(&mut self, ino: u32) {
        let Entry::Vacant(place) = self.neighbours.entry(ino) else { return };
        place.insert(Neighbours { newer: 0, older: self.newest });
        let before = std::mem::replace(&mut self.newest, ino);
        if let Some(before) = self.neighbours.get_mut(&before) {
            before.newer = ino;
        }
    }

    /// Takes an inode off the list; `None` if it is not there.
    fn remove(&mut self, ino: u32) -> Option<Neighbours> {
        let neighbours = self.neighbours.remove(&ino)?;
        match self.neighbours.get_mut(&neighbours.newer) {
            Some(newer) => newer.older = neighbours.older,
            None => self.newest = neighbours.older,
        }
        if let Some(older) = self.neighbours.get_mut(&neighbours.older) {
            older.newer = neighbours.newer;
        }
        Some(neighbours)
    }
}

/// Spreads numbers over a table. No attacker gains by choosing orphans whose numbers fall together.
#[derive(Default)]
struct InodeHasher(u64);

impl Hasher for InodeHasher {
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

/// Multiplies by an odd number whose bits look random, and folds the upper half, where every bit
/// depends on all below, over the lower.
fn spread(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

impl Orphans {
    /// Returns the number that stands in place of an inode's time of deletion; `None` if it is no
    /// orphan.
    #[inline]
    pub(crate) fn next_of(&self, info: &InodeInfo) -> Option<u32> {
        if info.is_orphan() { self.next_of_listed(info.ino()) } else { None }
    }

    /// Returns the same number for an inode that may be on the list.
    pub(super) fn next_of_listed(&self, ino: u32) -> Option<u32> {
        self.list().neighbours.get(&ino).map(|neighbours| neighbours.older)
    }

    /// Returns the orphan that the superblock leads to; 0 if there is none.
    pub(crate) fn newest(&self) -> u32 {
        self.list().newest
    }

    fn list(&self) -> MutexGuard<'_, OrphanList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an inode on the list, if it is not there.
    pub(super) fn add(&self, ino: u32) {
        self.list().add(ino);
    }

    /// Takes an inode off the list, if it is there.
    pub(super) fn remove(&self, ino: u32) -> Option<Neighbours> {
        self.list().remove(ino)
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
