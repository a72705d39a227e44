//! Fast commits: the changes that the end of the journal makes on top of the replayed blocks.
//!
//! A fast commit holds outcomes, not blocks: this inode's fields are these, these blocks of that
//! file stand there, this name is that inode. To write them down is to allocate and to change
//! trees; to read a volume it is enough to remember them. For each inode that the records name,
//! [`FastCommits`] keeps the differences from the blocks: its record, its map, and the names of a
//! directory. Readers of inodes, maps and names ask here first.
//!
//! Later records win over earlier ones. The size of the journal bounds the size of all that is
//! kept.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use extern4_disk::dirent::NAME_MAX;
use extern4_disk::fast_commit::{Dentry, Range, Record};
use extern4_disk::inode::{self, BASE_SIZE, FileKind, Inode, InodeFlags, MAP_SIZE, RawInode, RawInodeExtra};
use extern4_disk::{CorruptKind, Place, Structure, extent};

use crate::error::Result;
use crate::map::run::{LOGICAL_END, Run, RunKind};
use crate::volume::Volume;

/// Where `i_block` stands in an inode's record.
const I_BLOCK: std::ops::Range<usize> =
    std::mem::offset_of!(RawInode, i_block)..std::mem::offset_of!(RawInode, i_block) + MAP_SIZE;
const I_FLAGS: usize = std::mem::offset_of!(RawInode, i_flags);
/// The field that tells a file from others that had its number before, unless it was changed
/// (`chattr -v`).
const GENERATION: std::ops::Range<usize> =
    std::mem::offset_of!(RawInode, i_generation)..std::mem::offset_of!(RawInode, i_generation) + 4;
const LINKS: std::ops::Range<usize> =
    std::mem::offset_of!(RawInode, i_links_count)..std::mem::offset_of!(RawInode, i_links_count) + 2;
/// When it was made, in records that have room for it.
const CRTIME: std::ops::Range<usize> = BASE_SIZE + std::mem::offset_of!(RawInodeExtra, i_crtime)
    ..BASE_SIZE + std::mem::offset_of!(RawInodeExtra, i_crtime_extra) + 4;

/// The changes that fast commits make. Empty on a volume without any.
#[derive(Debug, Default)]
pub(crate) struct FastCommits {
    inodes: HashMap<u32, Changes>,
}

/// The changes that fast commits make to one inode.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Its whole record.
    record: Option<Box<[u8]>>,
    /// By the first block of the file: how many blocks, and what stands there.
    map: BTreeMap<u32, (u32, RunKind)>,
    /// Of a directory: which inode a name stands for now, if any.
    names: BTreeMap<Box<[u8]>, Option<u32>>,
    /// Of a directory that was made by a fast commit: its parent. Its blocks have never been
    /// written.
    made_in: Option<u32>,
}

impl FastCommits {
    /// Gathers the changes that the records of `commits` make on `volume`, the volume with its
    /// journal replayed.
    pub(crate) fn of(volume: &Volume, commits: &[Vec<Record>]) -> Result<Self> {
        let mut this = Self::default();
        // One fast commit at a time: the files that it makes are known before anything else that it
        // says of them.
        let mut named = Named::default();
        for commit in commits {
            named.advance(commit);
            for record in commit {
                if let Record::Inode { ino, raw } = record {
                    this.recreate(volume, *ino, raw, &named)?;
                }
            }
            for record in commit {
                this.apply(volume, record)?;
            }
        }
        Ok(this)
    }

    fn apply(&mut self, volume: &Volume, record: &Record) -> Result<()> {
        match record {
            Record::Inode { ino, raw } => {
                let record = self.record_of(volume, *ino, raw)?;
                self.of_inode(volume, *ino)?.record = Some(record);
            }
            Record::AddRange { ino, range } => self.add_range(volume, *ino, range)?,
            Record::DelRange { ino, logical, len } => {
                self.of_inode(volume, *ino)?.set_map(*logical, *len, RunKind::Hole);
            }
            Record::Create(dentry) => {
                self.set_name(volume, dentry, Some(dentry.ino))?;
                self.of_inode(volume, dentry.ino)?.made_in = Some(dentry.parent);
            }
            Record::Link(dentry) => self.set_name(volume, dentry, Some(dentry.ino))?,
            Record::Unlink(dentry) => self.set_name(volume, dentry, None)?,
            Record::Head { .. } | Record::Pad | Record::Tail { .. } => {}
        }
        Ok(())
    }

    /// Returns the changes to inode `ino`.
    pub(crate) fn changes(&self, ino: u32) -> Option<&Changes> {
        if self.inodes.is_empty() { None } else { self.inodes.get(&ino) }
    }

    fn of_inode(&mut self, volume: &Volume, ino: u32) -> Result<&mut Changes> {
        if ino == 0 || ino > volume.superblock().inodes_count() {
            let kind = CorruptKind::InodeOutOfRange { field: "fc_ino", ino: u64::from(ino) };
            return Err(place().corrupt(kind).into());
        }
        Ok(self.inodes.entry(ino).or_default())
    }

    fn set_name(&mut self, volume: &Volume, dentry: &Dentry, ino: Option<u32>) -> Result<()> {
        let changes = self.of_inode(volume, dentry.parent)?;
        debug_assert!(dentry.name.len() <= NAME_MAX);
        changes.names.insert(dentry.name.as_slice().into(), ino);
        Ok(())
    }

    fn add_range(&mut self, volume: &Volume, ino: u32, range: &Range) -> Result<()> {
        let place = place().ino(ino);
        volume.blocks().check("fc_range", range.physical, u64::from(range.len), place)?;
        let physical = range.physical;
        let kind =
            if range.unwritten { RunKind::Unwritten { physical } } else { RunKind::Mapped { physical } };
        self.of_inode(volume, ino)?.set_map(range.logical, u32::from(range.len), kind);
        Ok(())
    }

    /// Forgets everything about inode `ino` if `raw` says that it is another file by now. A fast
    /// commit says of the former file only that its name is gone. It says nothing of the new one
    /// where that has holes.
    fn recreate(&mut self, volume: &Volume, ino: u32, raw: &[u8], named: &Named) -> Result<()> {
        let mut record = self.known_record(volume, ino)?;
        if record.get(GENERATION) != raw.get(GENERATION) && named.is_another(ino, &record, raw) {
            record.fill(0);
            *self.of_inode(volume, ino)? = Changes { record: Some(record), ..Changes::default() };
        }
        Ok(())
    }

    /// Returns the record of inode `ino` after the records replayed so far.
    fn known_record(&self, volume: &Volume, ino: u32) -> Result<Box<[u8]>> {
        let known = self.changes(ino).and_then(|changes| changes.record.clone());
        known.map_or_else(|| volume.record_bytes(ino), Ok)
    }

    /// Returns the record of inode `ino` with the bytes of `raw`. Its map and its extended
    /// attributes stay as they are in the volume's record.
    fn record_of(&self, volume: &Volume, ino: u32, raw: &[u8]) -> Result<Box<[u8]>> {
        let mut record = self.known_record(volume, ino)?;
        let len = raw.len().min(record.len());
        if len < BASE_SIZE {
            let kind = CorruptKind::Truncated { need: BASE_SIZE as u64, have: raw.len() as u64 };
            return Err(place().ino(ino).corrupt(kind).into());
        }
        let mut map = [0; MAP_SIZE];
        map.copy_from_slice(&record[I_BLOCK]);
        record[..len].copy_from_slice(&raw[..len]);
        if !keeps_map_of_record(&record) {
            record[I_BLOCK].copy_from_slice(&map);
            if flags(&record).contains(InodeFlags::EXTENTS) && !has_extent_root(&map) {
                // The fast commit made this file: only its own records map blocks.
                let root = extent::OwnedExtentNode {
                    entries: extent::Entries::Leaf(Vec::new()),
                    depth: 0,
                    max: ROOT_ENTRIES,
                    generation: 0,
                };
                record[I_BLOCK].fill(0);
                root.encode(&mut record[I_BLOCK]);
            }
        }
        inode::store_checksum(&mut record, ino, volume.superblock());
        // Damage of the record is found now, not when a reader comes upon it.
        Inode::decode(&record, ino, volume.superblock(), place())?;
        Ok(record)
    }
}

/// The inodes that a fast commit gives names.
#[derive(Default)]
struct Named {
    /// Those whose name is their first.
    created: HashSet<u32>,
    /// Those that had lost a name before, in this commit or an earlier one. A rename gives the file
    /// its new name first.
    linked: HashSet<u32>,
    /// Those that have lost a name so far.
    unlinked: HashSet<u32>,
}

impl Named {
    /// Goes on to the next fast commit.
    fn advance(&mut self, commit: &[Record]) {
        self.created.clear();
        self.linked.clear();
        for record in commit {
            match record {
                Record::Create(dentry) => self.created.insert(dentry.ino),
                Record::Link(dentry) if self.unlinked.contains(&dentry.ino) => self.linked.insert(dentry.ino),
                Record::Unlink(dentry) => self.unlinked.insert(dentry.ino),
                _ => continue,
            };
        }
    }

    /// Whether inode `ino`, whose generation has changed, is another file, and not the same with a
    /// generation that was set. It is another if it has got its first name since.
    fn is_another(&self, ino: u32, known: &[u8], raw: &[u8]) -> bool {
        let had_none = known.get(LINKS).is_none_or(|links| links == [0; 2]);
        let made = known.get(CRTIME);
        let made_then_too = made.is_some() && made == raw.get(CRTIME);
        had_none || self.created.contains(&ino) || self.linked.contains(&ino) && !made_then_too
    }
}

/// How many extents fit into an inode's root.
const ROOT_ENTRIES: u16 = 4;

fn flags(record: &[u8]) -> InodeFlags {
    let word = record[I_FLAGS..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    InodeFlags::from_bits_retain(word)
}

/// Whether the bytes in place of the map are no map, but data that the fast commit's inode carries.
fn keeps_map_of_record(record: &[u8]) -> bool {
    let mode = record.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
    flags(record).contains(InodeFlags::INLINE_DATA)
        || !matches!(FileKind::of_mode(mode), Some(FileKind::Regular | FileKind::Directory))
            && !flags(record).contains(InodeFlags::EXTENTS)
}

fn has_extent_root(map: &[u8; MAP_SIZE]) -> bool {
    map.starts_with(&extent::MAGIC.to_le_bytes())
}

fn place() -> Place {
    Place::new(Structure::FastCommit)
}

impl Changes {
    /// Returns its record, if that is changed.
    pub(crate) fn record(&self) -> Option<&[u8]> {
        self.record.as_deref()
    }

    /// Returns the inode that a name stands for now: `Some(None)` if it was removed, `None` if
    /// nothing is said of it.
    pub(crate) fn name(&self, name: &[u8]) -> Option<Option<u32>> {
        self.names.get(name).copied()
    }

    /// Returns the names that are changed, and the inodes that they stand for now.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&[u8], Option<u32>)> {
        self.names.iter().map(|(name, ino)| (&**name, *ino))
    }

    /// Returns the parent of a directory that was made by a fast commit, whose own blocks mean
    /// nothing.
    pub(crate) fn made_in(&self) -> Option<u32> {
        self.made_in
    }

    /// Whether anything is changed in the map.
    pub(crate) fn has_map(&self) -> bool {
        !self.map.is_empty()
    }

    /// Returns `run`, which the volume's own map gives, with the changes made to it.
    pub(crate) fn patch(&self, run: Run) -> Run {
        let before = self.map.range(..=run.logical).next_back();
        if let Some((&start, &(len, kind))) = before {
            let skip = u64::from(run.logical - start);
            if skip < u64::from(len) {
                return Run {
                    logical: run.logical,
                    len_blocks: u64::from(len) - skip,
                    kind: kind.skip(skip),
                };
            }
        }
        let after = self.map.range((Bound::Excluded(run.logical), Bound::Unbounded)).next();
        let end = after.map_or(LOGICAL_END, |(&start, _)| u64::from(start));
        Run { len_blocks: run.len_blocks.min(end - u64::from(run.logical)), ..run }
    }

    /// Maps `len` blocks from `logical` on to `kind`, in place of all earlier runs there.
    fn set_map(&mut self, logical: u32, len: u32, kind: RunKind) {
        let (start, end) = (u64::from(logical), u64::from(logical) + u64::from(len));
        // Only the last run that begins before can reach in: runs do not overlap.
        let first = self.map.range(..=logical).next_back().map_or(logical, |(&at, _)| at);
        let overlapping: Vec<u32> = self
            .map
            .range(first..)
            .take_while(|&(&at, _)| u64::from(at) < end)
            .filter(|&(&at, &(len, _))| u64::from(at) + u64::from(len) > start)
            .map(|(&at, _)| at)
            .collect();
        for at in overlapping {
            let Some((old_len, old_kind)) = self.map.remove(&at) else { continue };
            let old = Run { logical: at, len_blocks: u64::from(old_len), kind: old_kind };
            self.keep(old, u64::from(at), start);
            self.keep(old, end, old.end());
        }
        self.keep(Run { logical, len_blocks: u64::from(len), kind }, start, end);
    }

    /// Keeps the part of `run` from block `start` to `end`, if there is such a part.
    fn keep(&mut self, run: Run, start: u64, end: u64) {
        let (start, end) = (start.max(u64::from(run.logical)), end.min(run.end()).min(LOGICAL_END));
        let (Ok(logical), Some(Ok(len))) = (u32::try_from(start), end.checked_sub(start).map(u32::try_from))
        else {
            return;
        };
        if len == 0 {
            return;
        }
        self.map.insert(logical, (len, run.kind.skip(start - u64::from(run.logical))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(physical: u64) -> RunKind {
        RunKind::Mapped { physical }
    }

    #[test]
    fn later_ranges_cut_earlier_ones() {
        let mut changes = Changes::default();
        changes.set_map(10, 10, mapped(100));
        changes.set_map(14, 2, RunKind::Hole);
        changes.set_map(18, 10, mapped(500));
        let shown: Vec<_> = changes.map.iter().map(|(&at, &(len, kind))| (at, len, kind)).collect();
        assert_eq!(
            shown,
            [(10, 4, mapped(100)), (14, 2, RunKind::Hole), (16, 2, mapped(106)), (18, 10, mapped(500))]
        );
        changes.set_map(0, u32::MAX, RunKind::Hole);
        assert_eq!(changes.map.len(), 1);
    }

    #[test]
    fn a_run_is_replaced_or_cut() {
        let mut changes = Changes::default();
        changes.set_map(10, 10, mapped(100));
        let run = |logical, len_blocks, kind| Run { logical, len_blocks, kind };
        assert_eq!(changes.patch(run(0, 50, mapped(7))), run(0, 10, mapped(7)));
        assert_eq!(changes.patch(run(13, 1, mapped(7))), run(13, 7, mapped(103)));
        assert_eq!(changes.patch(run(20, 9, RunKind::Hole)), run(20, 9, RunKind::Hole));
    }
}
