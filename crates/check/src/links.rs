//! Link counts, and the path from the root to every directory.
//!
//! `check` runs it after all directories. It reports each inode whose stored count of links differs
//! from the names that were found. It also reports inodes without a name that are no orphans, and
//! directories that no path from the root reaches.

use std::sync::atomic::Ordering::Relaxed;

use extern4_disk::dirent::FileType;
use extern4_disk::inode::ROOT_INO;
use extern4_disk::{CorruptKind, Place, Structure};

use crate::Checker;
use crate::directory::wrong_parent;
use crate::fault::{Fault, Wrong};
use crate::inode::{DirRecord, Slot, Usage};
use crate::report::Report;
use crate::to_usize;

/// The most links that are counted; a directory with more says 1.
const LINK_MAX: u32 = 65000;

/// The state of the path from the root to a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    /// It is being followed.
    Open,
    /// It has been followed to its end.
    Known,
}

impl Checker<'_> {
    /// Checks names against links, and that every directory is reached from the root.
    pub(crate) fn check_links(&self, report: &mut Report<'_>) {
        self.check_shared(report);
        self.check_ways(report);
        let table = self.geometry.inodes_per_group();
        for (group, inodes) in (0u32..).zip(self.inodes.iter()) {
            let slots = inodes
                .get()
                .map(|inodes| &*inodes.slots)
                .unwrap_or_default();
            for (slot, ino) in slots.iter().zip(group * table + 1..) {
                self.check_slot(slot, ino, report);
            }
        }
        report.end_pass();
    }

    fn check_slot(&self, slot: &Slot, ino: u32, report: &mut Report<'_>) {
        if slot.usage != Usage::Named {
            return;
        }
        let place = Place::new(Structure::Inode).ino(ino);
        let directory = slot.kind == FileType::Directory.to_raw();
        let named = slot.names.load(Relaxed);
        // A directory's own `.` is no name.
        let alone = match self.directory(ino) {
            Some(dir) => dir.named_in.load(Relaxed) == 0 && ino != ROOT_INO,
            None => named == 0,
        };
        if alone {
            report.push(Fault::mismatch(
                place,
                "the inode is in use, but has no name",
            ));
        }
        let counted = if directory && named > LINK_MAX {
            1
        } else {
            named
        };
        if u32::from(slot.links) != counted && named != 0 {
            let stored = u64::from(slot.links);
            let counted = u64::from(counted);
            report.push(Fault::new(
                place,
                Wrong::Count {
                    field: "i_links_count",
                    stored,
                    counted,
                },
            ));
        }
    }

    fn check_ways(&self, report: &mut Report<'_>) {
        if self.directory(ROOT_INO).is_none() {
            let what = "the root directory is not a directory";
            report.push(Fault::mismatch(
                Place::new(Structure::Inode).ino(ROOT_INO),
                what,
            ));
        }
        let numbers: Vec<&DirRecord> = self.directories().collect();
        let mut ways = vec![Way::Unknown; numbers.len()];
        let index_of = |ino: u32| numbers.binary_search_by_key(&ino, |dir| dir.ino).ok();
        for (start, dir) in numbers.iter().enumerate() {
            self.check_parent(dir, report);
            let mut path = Vec::new();
            let mut at = Some(start);
            while let Some(index) = at.filter(|&index| ways[index] == Way::Unknown) {
                ways[index] = Way::Open;
                path.push(index);
                let parent = numbers[index].named_in.load(Relaxed);
                at = if numbers[index].ino == ROOT_INO {
                    None
                } else {
                    index_of(parent)
                };
            }
            if let Some(looped) = at.filter(|&index| ways[index] == Way::Open) {
                let place = Place::new(Structure::DirectoryBlock).ino(numbers[looped].ino);
                report.push(place.corrupt(CorruptKind::Loop {
                    what: "the way to the root",
                }));
            }
            path.into_iter().for_each(|index| ways[index] = Way::Known);
        }
    }

    fn check_parent(&self, dir: &DirRecord, report: &mut Report<'_>) {
        let named_in = dir.named_in.load(Relaxed);
        let dotdot = dir.dotdot.load(Relaxed);
        let parent = if dir.ino == ROOT_INO {
            ROOT_INO
        } else {
            named_in
        };
        // Without a name, or without entries, something else is wrong and has been reported.
        if parent != 0 && dotdot != 0 && parent != dotdot {
            report.push(wrong_parent(dir));
        }
    }
}

/// Returns the inodes of a group as a bitmap of `bytes` bytes.
pub(crate) fn bitmap_of(slots: &[Slot], reserved: u32, bytes: usize) -> Vec<u8> {
    let mut bitmap = vec![0u8; bytes];
    for (byte, slots) in bitmap.iter_mut().zip(slots.chunks(8)) {
        for (bit, slot) in slots.iter().enumerate() {
            *byte |= u8::from(slot.usage != Usage::Free) << bit;
        }
    }
    for index in 0..reserved {
        if let Some(byte) = bitmap.get_mut(to_usize(index / 8)) {
            *byte |= 1 << (index % 8);
        }
    }
    bitmap
}
