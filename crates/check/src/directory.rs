//! Every directory: its blocks and their entries.
//!
//! The check takes directories in the order in which they stand on the device, and reads the blocks
//! of each in runs. An entry must name an inode that is in use and be of its type; each counts as a
//! link of that inode. For `links`, the check keeps which directory names a directory, and where
//! its own `..` leads.
//!
//! `check` runs it after all inodes. A block that cannot be read or parsed is reported, and the
//! rest of the directory is still checked.

use std::sync::atomic::Ordering::Relaxed;

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::dirent::{self, DirEntry, Entries, FileType, Layout, Slots};
use extern4_disk::feature::Incompat;
use extern4_disk::inline;
use extern4_disk::inode::{InodeFlags, MAP_SIZE, ROOT_INO};
use extern4_disk::{CorruptKind, Place, Structure};

use crate::Checker;
use crate::claims::ClusterMap;
use crate::duplicates::Names;
use crate::fault::{Fault, Wrong};
use crate::inode::{DirRecord, DirRun, GroupInodes, Usage};
use crate::progress::{Interrupted, Pass};
use crate::report::{Report, Sink};
use crate::to_usize;
use crate::tree::{Role, Tree};

/// How many bytes of a directory are read at once.
const READ_BYTES: u32 = 256 << 10;
/// How many directories a thread takes at once.
const BATCH: usize = 64;

/// Where the blocks of one directory are.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a>(&'a [DirRun]);

impl Blocks<'_> {
    /// Returns the block of the volume that holds block `logical`.
    pub(crate) fn physical(&self, logical: u32) -> Option<u64> {
        // A map names its blocks in ascending order, and what breaks that has been refused.
        let next = self.0.partition_point(|run| run.logical <= logical);
        let run = self.0[..next]
            .last()
            .filter(|run| logical - run.logical < run.len)?;
        Some(run.physical + u64::from(logical - run.logical))
    }
}

impl DirRecord {
    /// Returns the seed of the checksums of its blocks.
    pub(crate) fn seed(&self) -> ChecksumSeed {
        ChecksumSeed::new(self.seed)
    }

    fn has(&self, flags: InodeFlags) -> bool {
        self.flags.contains(flags)
    }
}

/// Where a directory's record is, and its first block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    block: u64,
    group: u32,
    index: u32,
}

impl Checker<'_> {
    /// Checks all directories.
    pub(crate) fn check_directories(&self, report: &mut Report<'_>) -> Result<(), Interrupted> {
        let turns = self.turns();
        let visited = ClusterMap::new(self.geometry);
        report.each_item(
            Pass::Directories,
            turns.len().div_ceil(BATCH),
            |sink| Look {
                checker: self,
                visited: &visited,
                sink,
                buffer: Vec::new(),
                names: Names::new(),
            },
            |look, batch| {
                let end = turns.len().min((batch + 1) * BATCH);
                for turn in &turns[batch * BATCH..end] {
                    let group = self
                        .inodes
                        .get(to_usize(turn.group))
                        .and_then(std::sync::OnceLock::get);
                    if let Some(group) = group {
                        look.directory(&group.dirs[to_usize(turn.index)], group);
                    }
                }
            },
        )
    }

    /// Returns all directories in the order of their first blocks.
    fn turns(&self) -> Vec<Turn> {
        let mut turns = Vec::new();
        for (number, group) in self.inodes.iter().enumerate() {
            let Some(group) = group.get() else { continue };
            // A directory that was removed while it was open names nothing any more.
            let is_named = |dir: &DirRecord| {
                self.slot(dir.ino)
                    .is_none_or(|slot| slot.usage != Usage::Orphan)
            };
            for (index, dir) in group
                .dirs
                .iter()
                .enumerate()
                .filter(|(_, dir)| is_named(dir))
            {
                let block = if dir.has(InodeFlags::INLINE_DATA) {
                    0
                } else {
                    group
                        .runs
                        .get(to_usize(dir.parts.start))
                        .map_or(0, |run| run.physical)
                };
                // OK: numbers of groups and of inodes have 32 bits.
                turns.push(Turn {
                    block,
                    group: number as u32,
                    index: index as u32,
                });
            }
        }
        turns.sort_unstable();
        turns
    }
}

/// The state with which one thread checks directories.
struct Look<'a> {
    checker: &'a Checker<'a>,
    /// The blocks with several owners that have been looked at.
    visited: &'a ClusterMap,
    sink: Sink,
    buffer: Vec<u8>,
    names: Names,
}

/// The directory that is being checked.
struct Current<'d> {
    dir: &'d DirRecord,
    layout: Layout,
    tree: Option<Tree>,
}

impl Look<'_> {
    fn directory(&mut self, dir: &DirRecord, group: &GroupInodes) {
        let sb = self.checker.sb;
        let layout = Layout {
            block_size: sb.block_size(),
            inodes: sb.inodes_count(),
            filetype: sb.features().incompat.contains(Incompat::FILETYPE),
            checksum: sb.features().metadata_csum(),
            encrypted: dir.has(InodeFlags::ENCRYPT),
            casefold: dir.has(InodeFlags::CASEFOLD),
        };
        let parts = to_usize(dir.parts.start)..to_usize(dir.parts.end);
        if dir.has(InodeFlags::INLINE_DATA) {
            return self.inline(dir, &layout, &group.inline[parts]);
        }
        let runs = &group.runs[parts];
        let mut current = Current {
            dir,
            layout,
            tree: None,
        };
        if dir.has(InodeFlags::INDEX) {
            current.tree = Tree::walk(self.checker, dir, &Blocks(runs), &mut self.sink);
        }
        for run in runs {
            self.run(&current, run);
        }
    }

    fn run(&mut self, current: &Current<'_>, run: &DirRun) {
        let block_size = self.checker.geometry.block_size();
        let step = (READ_BYTES / block_size).max(1);
        let len = run.len.min(current.dir.blocks.saturating_sub(run.logical));
        for at in (0..len).step_by(to_usize(step)) {
            let first = run.physical + u64::from(at);
            let count = step.min(len - at);
            if self.checker.twice.touches(first, count.into()) {
                for one in 0..count {
                    self.shared_block(current, run.logical + at + one, first + u64::from(one));
                }
                continue;
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            match self.checker.read(first, count, &mut buffer) {
                Ok(()) => {
                    for (bytes, index) in buffer.chunks_exact(to_usize(block_size)).zip(0..) {
                        self.block(
                            current,
                            run.logical + at + index,
                            first + u64::from(index),
                            bytes,
                        );
                    }
                }
                Err(error) => {
                    let place = Place::new(Structure::DirectoryBlock)
                        .ino(current.dir.ino)
                        .block(first);
                    self.sink.push(Fault::of_error(place, error));
                }
            }
            self.buffer = buffer;
        }
    }

    /// Looks at a block that may have several owners only for the first of them, so that no block
    /// is read over and over.
    fn shared_block(&mut self, current: &Current<'_>, logical: u32, physical: u64) {
        if self.checker.twice.touches(physical, 1) && !self.visited.first_visit(physical) {
            return;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        match self.checker.read(physical, 1, &mut buffer) {
            Ok(()) => self.block(current, logical, physical, &buffer),
            Err(error) => {
                let place = Place::new(Structure::DirectoryBlock)
                    .ino(current.dir.ino)
                    .block(physical);
                self.sink.push(Fault::of_error(place, error));
            }
        }
        self.buffer = buffer;
    }

    fn block(&mut self, current: &Current<'_>, logical: u32, physical: u64, bytes: &[u8]) {
        let checker = self.checker;
        let dir = current.dir;
        let place = Place::new(Structure::DirectoryBlock)
            .ino(dir.ino)
            .block(physical);
        let role = current
            .tree
            .as_ref()
            .and_then(|tree| tree.roles.get(to_usize(logical)).copied());
        let is_root = logical == 0 && dir.has(InodeFlags::INDEX);
        if logical == 0 {
            self.dots(dir, &current.layout, bytes, place);
        }
        if is_root || role == Some(Role::Node) {
            // Its checksum has been verified on the way down.
            return;
        }
        if role == Some(Role::Unknown) {
            self.sink.push(Fault::mismatch(
                place,
                "the hash tree does not lead to a block of its directory",
            ));
        }
        if checker.seed.is_some()
            && let Err(corrupt) = dirent::verify_checksum(bytes, dir.seed(), place)
        {
            self.sink.push(corrupt);
        }
        let range = match role {
            Some(Role::Leaf { low, high }) => Some((low, high)),
            _ => None,
        };
        self.names.start_block(bytes.len());
        for (index, slot) in Slots::new(bytes, &current.layout, place).enumerate() {
            let entry = match slot {
                Ok(slot) => slot.entry,
                Err(corrupt) => return self.sink.push(corrupt),
            };
            // The entries of the first block have been looked at.
            let Some(entry) = entry.filter(|_| logical != 0 || index > 1) else {
                continue;
            };
            if !self.names.insert(bytes, entry.offset, entry.name) {
                self.wrong(place, &entry, "is there twice");
            }
            if let (Some((low, high)), Some(tree)) = (range, &current.tree) {
                let hash = tree.hash.of_entry(&entry).major;
                if hash < low || hash > high {
                    self.wrong(place, &entry, "is in the wrong leaf of the hash tree");
                }
            }
            self.entry(dir, &entry, &current.layout, place);
        }
    }

    /// Checks `.` and `..` of a directory, which stand in its first block.
    fn dots(&mut self, dir: &DirRecord, layout: &Layout, bytes: &[u8], place: Place) {
        match dirent::dot_and_dotdot(bytes, layout, place) {
            Ok((dot, dotdot)) => {
                if dot != dir.ino {
                    self.sink.push(Fault::field(place, "`.`", dot.into()));
                }
                self.keep_dots(dir, dotdot);
                let kinds = Entries::without_tail(bytes, layout, place)
                    .take(2)
                    .flatten();
                let wrong = kinds
                    .filter(|entry| layout.filetype && entry.kind != FileType::Directory)
                    .count();
                if wrong > 0 {
                    self.sink.push(Fault::mismatch(
                        place,
                        "`.` or `..` is not marked as a directory",
                    ));
                }
            }
            Err(corrupt) => self.sink.push(corrupt),
        }
    }

    fn keep_dots(&self, dir: &DirRecord, dotdot: u32) {
        // Relaxed: read after the threads of this pass have ended.
        dir.dotdot.store(dotdot, Relaxed);
        for ino in [dir.ino, dotdot] {
            if let Some(slot) = self.checker.slot(ino) {
                slot.add_name();
            }
        }
    }

    fn inline(&mut self, dir: &DirRecord, layout: &Layout, bytes: &[u8]) {
        let place = Place::new(Structure::InlineData).ino(dir.ino);
        // OK: a directory in its inode has the inode's map and what follows.
        let Some((head, tail)) = bytes.split_first_chunk::<MAP_SIZE>() else {
            return;
        };
        match inline::Dir::decode(head, tail, layout, place) {
            Ok(inline) => {
                self.keep_dots(dir, inline.parent);
                let (head, tail) = inline.parts();
                for part in [head, tail] {
                    self.names.start_block(part.len().max(MAP_SIZE));
                    for entry in Entries::without_tail(part, layout, place) {
                        match entry {
                            Ok(entry) => {
                                if !self.names.insert(part, entry.offset, entry.name) {
                                    self.wrong(place, &entry, "is there twice");
                                }
                                self.entry(dir, &entry, layout, place);
                            }
                            Err(corrupt) => self.sink.push(corrupt),
                        }
                    }
                }
            }
            Err(corrupt) => self.sink.push(corrupt),
        }
    }

    fn entry(&mut self, dir: &DirRecord, entry: &DirEntry<'_>, layout: &Layout, place: Place) {
        if entry.is_dot_or_dotdot() {
            return self.wrong(place, entry, "does not stand at the start");
        }
        let Some(slot) = self
            .checker
            .slot(entry.ino)
            .filter(|slot| slot.usage != Usage::Free)
        else {
            return self.wrong(place, entry, "names an inode that is not in use");
        };
        slot.add_name();
        match slot.usage {
            Usage::Reserved => {
                return self.wrong(place, entry, "names one of the volume's own inodes");
            }
            Usage::Value => {
                return self.wrong(place, entry, "names an inode that holds an attribute");
            }
            Usage::Orphan => return self.wrong(place, entry, "names an inode that was deleted"),
            Usage::Named | Usage::Free => {}
        }
        // Entries have no types if the feature came after them (`tune2fs -O filetype`).
        let type_is_known = layout.filetype && entry.kind != FileType::Unknown;
        if type_is_known && entry.kind.to_raw() != slot.kind {
            self.wrong(place, entry, "is not of the inode's type");
        }
        if slot.kind != FileType::Directory.to_raw() {
            return;
        }
        if entry.ino == ROOT_INO {
            return self.wrong(place, entry, "names the root directory");
        }
        if let Some(child) = self.checker.directory(entry.ino) {
            // Relaxed: only one thread can change it from 0, and it guards nothing.
            if child
                .named_in
                .compare_exchange(0, dir.ino, Relaxed, Relaxed)
                .is_err()
            {
                self.wrong(place, entry, "is a second name of a directory");
            }
        }
    }

    #[cold]
    fn wrong(&mut self, place: Place, entry: &DirEntry<'_>, what: &'static str) {
        let wrong = Wrong::Entry {
            name: entry.name.into(),
            ino: entry.ino,
            what,
        };
        self.sink
            .push(Fault::new(place.offset(entry.offset), wrong));
    }
}

/// Returns the fault that a directory's `..` is not the directory that names it.
pub(crate) fn wrong_parent(dir: &DirRecord) -> Fault {
    let value = u64::from(dir.dotdot.load(Relaxed));
    Place::new(Structure::DirectoryBlock)
        .ino(dir.ino)
        .corrupt(CorruptKind::Field {
            field: "`..`",
            value,
        })
        .into()
}
