//! A hint of where names were last added to and removed from a linear directory.
//!
//! Names are often added one after the other, and removed in the order of their records or soon
//! after they were added. So a search for a gap starts where the last one was found, and a removal
//! first looks where the last change was. Neither reads all records from the block's start.
//!
//! The hint is part of the directory's [`InodeInfo`](crate::inode::info::InodeInfo). `insert` uses
//! and updates it under the lock on the directory's names. It covers one block. A directory with a
//! hash tree has no hint. A hint changes no result: a search with it finds what a search without it
//! finds.
//!
//! # Invariants
//! 1. `added`, `removed` and all of `rooms` are offsets of records of the block.
//! 2. No record before `rooms[n]` has `NEEDS[n]` unused bytes. So a search from there finds the
//!    first record with room, as a search from the start would.

use extern4_disk::Corrupt;
use extern4_disk::dirent::Slots;

use crate::dir_entries::{self, Gap, RecordPosition};

/// How many records after a position a search for a name reads.
const NEIGHBOURS: usize = 4;

/// The sizes of records with names of up to 20 bytes. A search for a longer record starts where
/// there may be room for the largest of these.
const NEEDS: [usize; 5] = [12, 16, 20, 24, 28];

/// An offset in a block, in 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Offset(u16);

impl Offset {
    fn new(offset: usize) -> Self {
        // OK: records begin at multiples of 4, and a block has no more than 64 KiB.
        Self((offset / 4) as u16)
    }

    fn get(self) -> usize {
        usize::from(self.0) * 4
    }
}

/// A hint of where names last changed in one block of a directory. The module describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DirHint {
    /// The block of the volume; 0, which is in no directory, for an empty hint.
    block: u64,
    /// The number of that block in the directory. Hints are copied often, so it has 16 bits, and
    /// only the first blocks of a directory can have one.
    logical: u16,
    /// The record whose gap got the last name.
    added: Offset,
    /// The record before the one that was removed last.
    removed: Offset,
    rooms: [Offset; NEEDS.len()],
}

impl DirHint {
    /// Returns the block that the hint covers, by its number in the directory and on the volume.
    pub(crate) fn block(&self) -> Option<(u32, u64)> {
        (self.block != 0).then_some((self.logical.into(), self.block))
    }

    /// Returns the block of the volume for block `logical` of the directory, if the hint covers it.
    pub(crate) fn physical(&self, logical: u32) -> Option<u64> {
        (self.block != 0 && u32::from(self.logical) == logical).then_some(self.block)
    }

    /// Returns the offset in block `logical` of the directory where the search for `need` bytes may
    /// start.
    pub(crate) fn room_from(&self, logical: u32, need: usize) -> usize {
        match NEEDS.iter().rposition(|&least| least <= need) {
            Some(at) if self.physical(logical).is_some() => self.rooms[at].get(),
            _ => 0,
        }
    }

    /// Returns the record of the entry `name` in the block and its inode, if the record is near the
    /// last change.
    pub(crate) fn find(
        &self,
        slots: &Slots<'_>,
        name: &[u8],
    ) -> Result<Option<(RecordPosition, u32)>, Corrupt> {
        for at in [self.removed, self.added] {
            let found = dir_entries::find_name_near(slots, name, at.get(), NEIGHBOURS)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Notes that the first gap with room for `need` bytes has been filled.
    pub(crate) fn note_added(&mut self, logical: u32, block: u64, gap: Gap, need: usize) {
        let at = Offset::new(gap.offset());
        if self.block != block && !self.reset_to(logical, block, at) {
            return;
        }
        self.added = at;
        for (room, least) in self.rooms.iter_mut().zip(NEEDS) {
            if need <= least {
                *room = at.max(*room);
            }
        }
    }

    /// Starts again with another block, of which only the record at `at` is known. Returns false if
    /// the hint cannot hold the number of the block.
    fn reset_to(&mut self, logical: u32, block: u64, at: Offset) -> bool {
        let Ok(logical) = u16::try_from(logical) else {
            return false;
        };
        *self = Self {
            block,
            logical,
            added: at,
            removed: at,
            rooms: Default::default(),
        };
        true
    }

    /// Notes that the entry of a record has been renamed and now needs `need` bytes.
    pub(crate) fn note_renamed(
        &mut self,
        logical: u32,
        block: u64,
        record: RecordPosition,
        need: usize,
    ) {
        let at = Offset::new(record.left());
        if self.block != block && !self.reset_to(logical, block, at) {
            return;
        }
        self.removed = at;
        let renamed = Offset::new(record.start());
        let slack = record.rec_len() - need;
        for (room, least) in self.rooms.iter_mut().zip(NEEDS) {
            if slack >= least {
                *room = renamed.min(*room);
            }
        }
    }

    /// Notes that a record has been removed.
    pub(crate) fn note_removed(&mut self, logical: u32, block: u64, record: RecordPosition) {
        let at = Offset::new(record.left());
        if self.block != block && !self.reset_to(logical, block, at) {
            return;
        }
        self.removed = at;
        // No record starts at the removed record's offset any more.
        let gone = Offset::new(record.start());
        if self.added == gone {
            self.added = at;
        }
        for (room, least) in self.rooms.iter_mut().zip(NEEDS) {
            if *room == gone || record.room() >= least {
                *room = at.min(*room);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extern4_disk::dirent::{DirEntry, FileType, Layout};
    use extern4_disk::{Place, Structure};

    const LAYOUT: Layout = Layout {
        block_size: 1024,
        inodes: 1000,
        filetype: true,
        checksum: false,
        encrypted: false,
        casefold: false,
    };

    fn slots(bytes: &[u8]) -> Slots<'_> {
        Slots::new(bytes, &LAYOUT, Place::new(Structure::DirectoryBlock))
    }

    /// Adds and removes names in random order, and searches for room and names with and without the
    /// hints.
    #[test]
    fn a_hinted_search_agrees_with_a_full_search() {
        let mut bytes = vec![0; 1024];
        let mut hint = DirHint::default();
        let mut names = Vec::new();
        let mut found_by_hint = 0;
        let mut renamed = 0;
        dir_entries::free_record(&mut bytes);
        let mut random = 7_u64;
        for step in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let drawn = (random >> 40) as usize;
            let name = format!("{step:0$}", 1 + drawn % 20);
            let need = LAYOUT.rec_len(name.as_bytes());
            let gap = dir_entries::find_gap(&slots(&bytes), 0, need).unwrap();
            let hinted_gap = dir_entries::find_gap(&slots(&bytes), hint.room_from(3, need), need);
            assert_eq!(hinted_gap.unwrap(), gap, "step {step}");
            if let Some(gap) = gap.filter(|_| !drawn.is_multiple_of(3)) {
                let entry = DirEntry {
                    ino: 11,
                    kind: FileType::Regular,
                    name: name.as_bytes(),
                    offset: 0,
                    hash: None,
                };
                dir_entries::fill_gap(&mut bytes, gap, &entry, &LAYOUT);
                hint.note_added(3, 77, gap, need);
                names.push(name);
            } else if !names.is_empty() {
                let place = drawn % 5 % names.len();
                let name = names.remove(place);
                let (record, ino) = dir_entries::find_name(&slots(&bytes), name.as_bytes())
                    .unwrap()
                    .unwrap();
                let found = hint.find(&slots(&bytes), name.as_bytes()).unwrap();
                assert!(found.is_none_or(|found| found == (record, ino)));
                found_by_hint += usize::from(found.is_some());
                let other = format!("{step:0$}r", 1 + drawn % 17);
                let need = LAYOUT.rec_len(other.as_bytes());
                if drawn.is_multiple_of(2) && need <= record.rec_len() {
                    let name = other.as_bytes();
                    let entry = DirEntry {
                        ino: 12,
                        kind: FileType::Regular,
                        name,
                        offset: 0,
                        hash: None,
                    };
                    dir_entries::rename(&mut bytes, record, &entry, &LAYOUT);
                    hint.note_renamed(3, 77, record, need);
                    names.insert(place, other);
                    renamed += 1;
                    continue;
                }
                dir_entries::remove(&mut bytes, record);
                hint.note_removed(3, 77, record);
            }
        }
        assert!(
            found_by_hint > 1000 && renamed > 1000,
            "{found_by_hint} {renamed}"
        );
        assert_eq!(
            (hint.block(), hint.physical(3), hint.physical(4)),
            (Some((3, 77)), Some(77), None)
        );
    }
}
