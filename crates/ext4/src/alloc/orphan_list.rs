//! The list of orphans in memory: inodes that were deleted while open, or that are being truncated.
//!
//! On the volume the list is linked through the inodes' records, and the superblock names its
//! newest member. Older orphans may also be in the orphan file, a hidden file. After a crash the
//! next opener for writing frees all of them (`orphan`). A reader only lists them.
//!
//! An inode that becomes an orphan while the volume is in use is added to [`Orphans`]. The record
//! of a listed inode holds the number of its successor in the field for the time of deletion. The
//! inode in memory keeps its own time there and a flag that it is listed
//! ([`InodeInfo::is_orphan`]). So storing any other inode does not touch the list, which all
//! threads share.
//!
//! # Locks
//! 1. The list's lock is taken inside a block's lock and inside the latch of an inode in use, never
//!    the other way round.
//! 2. A thread that removes an orphan changes the list first, and then the record that named it.
//! 3. A thread that writes a record reads the successor from the list under the lock of the record
//!    or of its block ([`edit_record`](Handle::edit_record)).
//!
//! So of two writes of one record, the later one stores the list's state at that time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::PoisonError;

use extern4_sync::primitive::{Mutex, MutexGuard};

use crate::inode::info::InodeInfo;

/// The list of orphans: the superblock names the newest, and each one the next older. The newest is
/// stored in the superblock when a transaction closes (`fs::writer`).
#[derive(Default)]
pub(crate) struct Orphans(Mutex<OrphanList>);

/// The neighbours of inodes by number, 0 for none. Each operation takes constant time, since every
/// unlink needs the lock.
#[derive(Default)]
struct OrphanList {
    newest: u32,
    neighbours: HashMap<u32, Neighbours, BuildHasherDefault<InodeHasher>>,
}

/// The neighbours of an orphan on the list.
pub(crate) struct Neighbours {
    pub(crate) newer: u32,
    older: u32,
}

impl OrphanList {
    /// Adds an inode to the list as the newest, if it is not there.
    fn add(&mut self, ino: u32) {
        let Entry::Vacant(place) = self.neighbours.entry(ino) else {
            return;
        };
        place.insert(Neighbours {
            newer: 0,
            older: self.newest,
        });
        let before = std::mem::replace(&mut self.newest, ino);
        if let Some(before) = self.neighbours.get_mut(&before) {
            before.newer = ino;
        }
    }

    /// Removes an inode from the list; `None` if it is not there.
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

/// A hash of inode numbers. It needs no secret: an attacker gains nothing by orphans whose hashes
/// collide.
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

/// Multiplies by an odd number, the golden ratio in binary, and adds the upper half to the lower by
/// exclusive or: the upper bits depend on all lower ones.
fn spread(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

impl Orphans {
    /// Returns the successor that an inode's record holds in place of the time of deletion; `None`
    /// if the inode is no orphan.
    #[inline]
    pub(crate) fn next_of(&self, info: &InodeInfo) -> Option<u32> {
        if info.is_orphan() {
            self.next_of_listed(info.ino())
        } else {
            None
        }
    }

    /// Returns the successor of an inode that may be on the list; `None` if it is not.
    pub(crate) fn next_of_listed(&self, ino: u32) -> Option<u32> {
        self.list()
            .neighbours
            .get(&ino)
            .map(|neighbours| neighbours.older)
    }

    /// Returns the newest orphan, which the superblock names; 0 if there is none.
    pub(crate) fn newest(&self) -> u32 {
        self.list().newest
    }

    fn list(&self) -> MutexGuard<'_, OrphanList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an inode to the list, if it is not there.
    pub(crate) fn add(&self, ino: u32) {
        self.list().add(ino);
    }

    /// Removes an inode from the list, if it is there.
    pub(crate) fn remove(&self, ino: u32) -> Option<Neighbours> {
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
            assert_eq!(
                orphans.next_of_listed(ino).is_some(),
                expected.contains(&ino)
            );
        }
        assert!(!expected.is_empty());
    }
}
