//! Fast commits: the changes that the end of the journal makes on top of the replayed blocks.
//!
//! A fast commit logs results, not blocks: the fields of an inode, the place of some blocks of a
//! file, the inode of a name. Writing them to the volume would mean to allocate and to change
//! trees. To read a volume it is enough to keep them in memory. For each inode that the records
//! name, [`FastCommits`] keeps the differences from the blocks: its record, its map, and the names
//! of a directory. A later record replaces an earlier one. The size of the journal bounds the
//! memory.
//!
//! Opening a volume for reading makes it; a volume with fast commits is not opened for writing.
//! `fs::inode`, `map`, `dir::list` and `dir::namei` ask it first. A record that contradicts the
//! volume is an error of the open.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use extern4_disk::dirent::NAME_MAX;
use extern4_disk::fast_commit::{Dentry, Range, Record};
use extern4_disk::inode::{
    self, BASE_SIZE, FileKind, Inode, InodeFlags, MAP_SIZE, RawInode, RawInodeExtra,
};
use extern4_disk::{CorruptKind, Place, Structure, extent};

use crate::error::Result;
use crate::run::{LOGICAL_END, Run, RunKind};
use crate::volume::Volume;

/// The range of `i_block` in an inode's record.
const I_BLOCK: std::ops::Range<usize> =
    std::mem::offset_of!(RawInode, i_block)..std::mem::offset_of!(RawInode, i_block) + MAP_SIZE;
const I_FLAGS: usize = std::mem::offset_of!(RawInode, i_flags);
/// The field that distinguishes a file from former files of its number, unless it was set (`chattr
/// -v`).
const GENERATION: std::ops::Range<usize> =
    std::mem::offset_of!(RawInode, i_generation)..std::mem::offset_of!(RawInode, i_generation) + 4;
const LINKS: std::ops::Range<usize> = std::mem::offset_of!(RawInode, i_links_count)
    ..std::mem::offset_of!(RawInode, i_links_count) + 2;
/// The time of creation, in records that have room for it.
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
    /// Runs of changed blocks, by their first block: the length and the new mapping.
    map: BTreeMap<u32, (u32, RunKind)>,
    /// The changed names of a directory: the new inode, or `None` for a removed name.
    names: BTreeMap<Box<[u8]>, Option<u32>>,
    /// The parent of a directory that a fast commit made, and whose blocks have never been written.
    made_in: Option<u32>,
}

impl FastCommits {
    /// Collects the changes that the records of `commits` make on `volume`, which is read through
    /// its replayed journal.
    pub(crate) fn of(volume: &Volume, commits: &[Vec<Record>]) -> Result<Self> {
        let mut this = Self::default();
        // In each fast commit, inodes that are new files are found first, before other records
        // about them apply.
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
                self.of_inode(volume, *ino)?
                    .set_map(*logical, *len, RunKind::Hole);
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
        if self.inodes.is_empty() {
            None
        } else {
            self.inodes.get(&ino)
        }
    }

    fn of_inode(&mut self, volume: &Volume, ino: u32) -> Result<&mut Changes> {
        if ino == 0 || ino > volume.superblock().inodes_count() {
            let kind = CorruptKind::InodeOutOfRange {
                field: "fc_ino",
                ino: u64::from(ino),
            };
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
        volume
            .blocks()
            .check("fc_range", range.physical, u64::from(range.len), place)?;
        let physical = range.physical;
        let kind = if range.unwritten {
            RunKind::Unwritten { physical }
        } else {
            RunKind::Mapped { physical }
        };
        self.of_inode(volume, ino)?
            .set_map(range.logical, u32::from(range.len), kind);
        Ok(())
    }

    /// Drops all that is known of inode `ino` if `raw` is the record of a new file with its number.
    /// A fast commit logs only the removed name of the former file, and nothing for holes of the
    /// new one.
    fn recreate(&mut self, volume: &Volume, ino: u32, raw: &[u8], named: &Named) -> Result<()> {
        let mut record = self.known_record(volume, ino)?;
        if record.get(GENERATION) != raw.get(GENERATION) && named.is_another(ino, &record, raw) {
            record.fill(0);
            *self.of_inode(volume, ino)? = Changes {
                record: Some(record),
                ..Changes::default()
            };
        }
        Ok(())
    }

    /// Returns the record of inode `ino` after the records replayed so far.
    fn known_record(&self, volume: &Volume, ino: u32) -> Result<Box<[u8]>> {
        let known = self.changes(ino).and_then(|changes| changes.record.clone());
        known.map_or_else(|| volume.record_bytes(ino), Ok)
    }

    /// Returns the record of inode `ino` with the bytes of `raw`. It keeps the map and the extended
    /// attributes of the volume's record.
    fn record_of(&self, volume: &Volume, ino: u32, raw: &[u8]) -> Result<Box<[u8]>> {
        let mut record = self.known_record(volume, ino)?;
        let len = raw.len().min(record.len());
        if len < BASE_SIZE {
            let kind = CorruptKind::Truncated {
                need: BASE_SIZE as u64,
                have: raw.len() as u64,
            };
            return Err(place().ino(ino).corrupt(kind).into());
        }
        let mut map = [0; MAP_SIZE];
        map.copy_from_slice(&record[I_BLOCK]);
        record[..len].copy_from_slice(&raw[..len]);
        if !keeps_map_of_record(&record) {
            record[I_BLOCK].copy_from_slice(&map);
            if flags(&record).contains(InodeFlags::EXTENTS) && !has_extent_root(&map) {
                // The fast commit made this file, so only fast commit records map blocks of it.
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
        // Damage of the record fails the open, not a later reader.
        Inode::decode(&record, ino, volume.superblock(), place())?;
        Ok(record)
    }
}

/// The inodes to which a fast commit gives names.
#[derive(Default)]
struct Named {
    /// Files that are created with a name.
    created: HashSet<u32>,
    /// Files that get another name after they have lost one, in this commit or an earlier one. A
    /// rename adds the new name before it removes the old one.
    linked: HashSet<u32>,
    /// Files that have lost a name so far.
    unlinked: HashSet<u32>,
}

impl Named {
    /// Collects the names of the next fast commit.
    fn advance(&mut self, commit: &[Record]) {
        self.created.clear();
        self.linked.clear();
        for record in commit {
            match record {
                Record::Create(dentry) => self.created.insert(dentry.ino),
                Record::Link(dentry) if self.unlinked.contains(&dentry.ino) => {
                    self.linked.insert(dentry.ino)
                }
                Record::Unlink(dentry) => self.unlinked.insert(dentry.ino),
                _ => continue,
            };
        }
    }

    /// Whether inode `ino`, whose generation has changed, is another file, and not the same with a
    /// new generation. It is another if it has been created since.
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
    let word = record[I_FLAGS..]
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes));
    InodeFlags::from_bits_retain(word)
}

/// Whether `i_block` is not a map but data, which the fast commit's record has.
fn keeps_map_of_record(record: &[u8]) -> bool {
    let mode = record
        .first_chunk()
        .map_or(0, |bytes| u16::from_le_bytes(*bytes));
    flags(record).contains(InodeFlags::INLINE_DATA)
        || !matches!(
            FileKind::of_mode(mode),
            Some(FileKind::Regular | FileKind::Directory)
        ) && !flags(record).contains(InodeFlags::EXTENTS)
}

fn has_extent_root(map: &[u8; MAP_SIZE]) -> bool {
    map.starts_with(&extent::MAGIC.to_le_bytes())
}

fn place() -> Place {
    Place::new(Structure::FastCommit)
}

impl Changes {
    /// Returns its record, if that has changed.
    pub(crate) fn record(&self) -> Option<&[u8]> {
        self.record.as_deref()
    }

    /// Returns the new inode of a name: `Some(None)` if the name was removed, `None` if it has not
    /// changed.
    pub(crate) fn name(&self, name: &[u8]) -> Option<Option<u32>> {
        self.names.get(name).copied()
    }

    /// Returns the changed names and their new inodes.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&[u8], Option<u32>)> {
        self.names.iter().map(|(name, ino)| (&**name, *ino))
    }

    /// Returns the parent of a directory that a fast commit made, whose blocks must not be read.
    pub(crate) fn made_in(&self) -> Option<u32> {
        self.made_in
    }

    /// Whether the map has changed.
    pub(crate) fn has_map(&self) -> bool {
        !self.map.is_empty()
    }

    /// Returns `run`, which is from the map on the volume, with the changes applied.
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
        let after = self
            .map
            .range((Bound::Excluded(run.logical), Bound::Unbounded))
            .next();
        let end = after.map_or(LOGICAL_END, |(&start, _)| u64::from(start));
        Run {
            len_blocks: run.len_blocks.min(end - u64::from(run.logical)),
            ..run
        }
    }

    /// Maps `len` blocks from `logical` on to `kind`, and removes earlier runs there.
    fn set_map(&mut self, logical: u32, len: u32, kind: RunKind) {
        let start = u64::from(logical);
        let end = u64::from(logical) + u64::from(len);
        // Runs do not overlap, so only the last run that starts before `logical` can reach beyond
        // it.
        let first = self
            .map
            .range(..=logical)
            .next_back()
            .map_or(logical, |(&at, _)| at);
        let overlapping: Vec<u32> = self
            .map
            .range(first..)
            .take_while(|&(&at, _)| u64::from(at) < end)
            .filter(|&(&at, &(len, _))| u64::from(at) + u64::from(len) > start)
            .map(|(&at, _)| at)
            .collect();
        for at in overlapping {
            let Some((old_len, old_kind)) = self.map.remove(&at) else {
                continue;
            };
            let old = Run {
                logical: at,
                len_blocks: u64::from(old_len),
                kind: old_kind,
            };
            self.keep(old, u64::from(at), start);
            self.keep(old, end, old.end());
        }
        self.keep(
            Run {
                logical,
                len_blocks: u64::from(len),
                kind,
            },
            start,
            end,
        );
    }

    /// Keeps the part of `run` from block `start` to `end`, if there is such a part.
    fn keep(&mut self, run: Run, start: u64, end: u64) {
        let start = start.max(u64::from(run.logical));
        let end = end.min(run.end()).min(LOGICAL_END);
        let (Ok(logical), Some(Ok(len))) = (
            u32::try_from(start),
            end.checked_sub(start).map(u32::try_from),
        ) else {
            return;
        };
        if len == 0 {
            return;
        }
        self.map.insert(
            logical,
            (len, run.kind.skip(start - u64::from(run.logical))),
        );
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
        let shown: Vec<_> = changes
            .map
            .iter()
            .map(|(&at, &(len, kind))| (at, len, kind))
            .collect();
        assert_eq!(
            shown,
            [
                (10, 4, mapped(100)),
                (14, 2, RunKind::Hole),
                (16, 2, mapped(106)),
                (18, 10, mapped(500))
            ]
        );
        changes.set_map(0, u32::MAX, RunKind::Hole);
        assert_eq!(changes.map.len(), 1);
    }

    #[test]
    fn a_run_is_replaced_or_cut() {
        let mut changes = Changes::default();
        changes.set_map(10, 10, mapped(100));
        let run = |logical, len_blocks, kind| Run {
            logical,
            len_blocks,
            kind,
        };
        assert_eq!(changes.patch(run(0, 50, mapped(7))), run(0, 10, mapped(7)));
        assert_eq!(
            changes.patch(run(13, 1, mapped(7))),
            run(13, 7, mapped(103))
        );
        assert_eq!(
            changes.patch(run(20, 9, RunKind::Hole)),
            run(20, 9, RunKind::Hole)
        );
    }
}
