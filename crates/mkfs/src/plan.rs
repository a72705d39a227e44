//! A volume that is to be made: everything about it is decided, and nothing is written.

use std::collections::BTreeMap;

use extern4_disk::bitmap::{compute_checksum, initial_block_bitmap};
use extern4_disk::checksum::{ChecksumSeed, inode_seed};
use extern4_disk::feature::{Compat, RoCompat};
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::inode::{Inode, ROOT_INO};
use extern4_disk::superblock::Superblock;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::{Journal, LOST_FOUND_INO};
use crate::layout::{self, Group};
use crate::numbers::{Numbers, default_journal};
use crate::options::{JournalSize, Options};
use crate::space::Space;
use crate::{numbers, superblock};

/// The least blocks of a journal.
const LEAST_JOURNAL: u32 = 1024;
/// A journal of the default size has one block for fast commits for so many others.
const BLOCKS_PER_FAST_COMMIT_BLOCK: u32 = 64;
/// Inodes up to this number are in use without being files.
const RESERVED_INODES: u32 = 10;

/// A volume that is to be made.
#[derive(Debug)]
pub struct Plan {
    pub(crate) sb: Superblock,
    pub(crate) groups: Vec<Group>,
    /// Contents of blocks, up to the last byte that is not zero, or further.
    pub(crate) blocks: Vec<(u64, Vec<u8>)>,
    /// Runs of blocks that have to be zeroes where `blocks` has nothing.
    pub(crate) zeroes: Vec<(u64, u64)>,
    pub(crate) descriptors: Vec<u8>,
    pub(crate) time: u64,
    pub(crate) journal_blocks: u64,
    space: Space,
    inodes: BTreeMap<u32, Inode>,
    warnings: Vec<String>,
}

impl Plan {
    /// Decides everything about the volume that these options make of a device of `bytes`.
    ///
    /// # Errors
    /// [`Error::Options`] for options that are wrong or exclude each other, [`Error::Feature`] for a feature that
    /// cannot be made, [`Error::Size`] for a device of the wrong size.
    pub fn new(options: &Options, config: &Config, bytes: u64) -> Result<Self> {
        let mut numbers = Numbers::choose(options, config, bytes)?;
        let mut warnings = Vec::new();
        let journal = journal(options, &mut numbers, &mut warnings)?;
        let sb = superblock::make(options, config, &numbers)?;
        let mut space = Space::default();
        let groups = layout::place(sb.geometry(), options.stride, &mut space)?;
        let mut plan = Self {
            sb,
            groups,
            blocks: Vec::new(),
            zeroes: Vec::new(),
            descriptors: Vec::new(),
            time: options.time,
            journal_blocks: 0,
            space,
            inodes: BTreeMap::new(),
            warnings,
        };
        let metadata = plan.used_blocks();
        plan.make_files(options, journal)?;
        let overhead = numbers::narrow(metadata + plan.journal_blocks)?;
        plan.sb.raw_mut().s_overhead_blocks.set(overhead);
        plan.make_inode_tables();
        plan.make_descriptors()?;
        Ok(plan)
    }

    /// Bytes of the volume.
    pub fn size_bytes(&self) -> u64 {
        self.sb.blocks_count() * u64::from(self.sb.block_size())
    }

    /// The superblock of the volume.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// The blocks that hold copies of the superblock.
    pub fn backup_blocks(&self) -> impl Iterator<Item = u64> {
        let geometry = *self.sb.geometry();
        (1..geometry.group_count()).filter_map(move |group| geometry.superblock_in(group))
    }

    /// Blocks of the journal; 0 without one.
    pub fn journal_blocks(&self) -> u64 {
        self.journal_blocks
    }

    /// Warnings for the user, such as a journal that the volume is too small for.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(crate) fn block_size(&self) -> usize {
        self.sb.block_size() as usize
    }

    pub(crate) fn used_blocks(&self) -> u64 {
        self.space.used_in(0, self.sb.blocks_count())
    }

    pub(crate) fn inode_seed(&self, ino: u32) -> Option<ChecksumSeed> {
        self.sb.metadata_seed().map(|seed| inode_seed(seed, ino, 0))
    }

    pub(crate) fn put(&mut self, number: u64, block: Vec<u8>) {
        self.blocks.push((number, block));
    }

    pub(crate) fn set_inode(&mut self, inode: &Inode) {
        self.inodes.insert(inode.ino(), *inode);
    }

    /// Takes `len` free blocks: in one piece behind `goal`, or else anywhere, or else in the first pieces behind it.
    pub(crate) fn allocate(&mut self, len: u64, goal: u64) -> Result<Vec<(u64, u64)>> {
        let end = self.sb.blocks_count();
        let whole = self.space.find(len, goal, end).or_else(|| self.space.find(len, 0, end));
        if let Some(start) = whole {
            self.space.take(start, len);
            return Ok(vec![(start, len)]);
        }
        let (mut runs, mut left) = (Vec::new(), len);
        for (start, free) in self.space.free_in(goal, end).chain(self.space.free_in(0, goal)) {
            let part = free.min(left);
            if part > 0 {
                runs.push((start, part));
                left -= part;
            }
        }
        if left > 0 {
            return Err(Error::Size(format!("the volume has no room for {len} blocks of its own")));
        }
        for &(start, len) in &runs {
            self.space.take(start, len);
        }
        Ok(runs)
    }

    /// The blocks of inode tables that have inodes in them.
    fn make_inode_tables(&mut self) {
        let mut tables = BTreeMap::<u64, Vec<u8>>::new();
        if self.sb.metadata_seed().is_some() {
            // Reserved inodes without a file are all zeroes, but for their checksums.
            for ino in (1..=RESERVED_INODES).filter(|ino| !self.inodes.contains_key(ino)).collect::<Vec<_>>()
            {
                self.inodes.insert(ino, Inode::new(ino, 0, 0, &self.sb));
            }
        }
        let (geometry, size) = (*self.sb.geometry(), self.block_size());
        for (&ino, inode) in &self.inodes {
            let Some(slot) = geometry.inode_slot(ino) else { continue };
            let table = self.groups[slot.group as usize].inode_table;
            let Some(position) = geometry.inode_position(table, slot.index) else { continue };
            let block = tables.entry(position.block).or_insert_with(|| vec![0; size]);
            inode.encode(&mut block[position.offset as usize..], &self.sb);
        }
        self.blocks.extend(tables);
    }

    /// The bitmaps and descriptors of all groups, and the superblock's counts.
    fn make_descriptors(&mut self) -> Result<()> {
        let geometry = *self.sb.geometry();
        let desc_size = usize::from(geometry.desc_size());
        let blocks = geometry.descriptor_blocks() as usize;
        let mut table = vec![0; blocks * self.block_size()];
        let per_block = geometry.descriptors_per_block() as usize;
        let (mut free_blocks, mut free_inodes) = (0_u64, 0_u32);
        for group in 0..geometry.group_count() {
            let descriptor = self.make_group(group)?;
            free_blocks += u64::from(descriptor.free_clusters());
            free_inodes += descriptor.free_inodes();
            let at = group as usize / per_block * self.block_size() + group as usize % per_block * desc_size;
            descriptor.encode(&mut table[at..at + desc_size], group, &self.sb);
        }
        self.descriptors = table;
        let raw = self.sb.raw_mut();
        raw.s_free_blocks_count_lo.set((free_blocks & 0xffff_ffff) as u32);
        raw.s_free_blocks_count_hi.set((free_blocks >> 32) as u32);
        raw.s_free_inodes_count.set(free_inodes);
        Ok(())
    }

    fn make_group(&mut self, group: u32) -> Result<GroupDescriptor> {
        let Group { block_bitmap, inode_bitmap, inode_table } = self.groups[group as usize];
        self.zeroes.push((inode_table, self.sb.geometry().inode_table_blocks().into()));
        let mut descriptor = GroupDescriptor::new(block_bitmap, inode_bitmap, inode_table, &self.sb);
        let features = self.sb.features().ro_compat;
        let lazy = features.intersects(RoCompat::GDT_CSUM | RoCompat::METADATA_CSUM);
        let mut flags = if lazy { GroupFlags::INODE_ZEROED } else { GroupFlags::empty() };
        if !self.make_block_bitmap(group, &mut descriptor, lazy)? {
            flags |= GroupFlags::BLOCK_UNINIT;
        }
        if !self.make_inode_bitmap(group, &mut descriptor, lazy) {
            flags |= GroupFlags::INODE_UNINIT;
        }
        descriptor.set_flags(flags);
        Ok(descriptor)
    }

    /// Counts the group's blocks, and makes its block bitmap; false if its readers can do without one.
    fn make_block_bitmap(
        &mut self,
        group: u32,
        descriptor: &mut GroupDescriptor,
        lazy: bool,
    ) -> Result<bool> {
        let geometry = *self.sb.geometry();
        let start = geometry.group_start(group).unwrap_or(0);
        let len = geometry.group_blocks(group).unwrap_or(0);
        let end = start + u64::from(len);
        let used = numbers::narrow(self.space.used_in(start, end))?;
        descriptor.set_free_clusters(len - used);
        let bitmap = bitmap(self.block_size(), len, self.space.runs_in(start, end), start);
        let is_initial = initial_block_bitmap(group, descriptor, &geometry).as_ref() == Some(&bitmap);
        if lazy && is_initial && group > 0 && group + 1 < geometry.group_count() {
            return Ok(false);
        }
        if let Some(seed) = self.sb.metadata_seed() {
            let sum = compute_checksum(&bitmap, geometry.clusters_per_group(), seed);
            descriptor.set_block_bitmap_checksum(sum.unwrap_or(0));
        }
        self.put(descriptor.block_bitmap(), bitmap);
        Ok(true)
    }

    /// Counts the group's inodes, and makes its inode bitmap; false if its readers can do without one.
    fn make_inode_bitmap(&mut self, group: u32, descriptor: &mut GroupDescriptor, lazy: bool) -> bool {
        let per_group = self.sb.geometry().inodes_per_group();
        let first = group * per_group + 1;
        let inodes = self.used_inodes(first, per_group);
        descriptor.set_free_inodes(per_group - inodes.len() as u32);
        let last = inodes.last().map_or(0, |ino| ino - first + 1);
        descriptor.set_unused_inodes(if lazy { per_group - last } else { 0 });
        let is_directory = |ino: &&u32| matches!(**ino, ROOT_INO | LOST_FOUND_INO);
        descriptor.set_used_dirs(inodes.iter().filter(is_directory).count() as u32);
        if lazy && inodes.is_empty() {
            return false;
        }
        let runs = inodes.iter().map(|ino| (u64::from(*ino), u64::from(*ino) + 1));
        let bitmap = bitmap(self.block_size(), per_group, runs, first.into());
        if let Some(seed) = self.sb.metadata_seed() {
            let sum = compute_checksum(&bitmap, per_group, seed);
            descriptor.set_inode_bitmap_checksum(sum.unwrap_or(0));
        }
        self.put(descriptor.inode_bitmap(), bitmap);
        true
    }

    /// The inodes in use among `len` from `first` on, in order.
    fn used_inodes(&self, first: u32, len: u32) -> Vec<u32> {
        let end = first.saturating_add(len);
        let reserved = first..end.min(RESERVED_INODES + 1).max(first);
        let files = self.inodes.range(first.max(RESERVED_INODES + 1)..end.max(RESERVED_INODES + 1));
        reserved.chain(files.map(|(ino, _)| *ino)).collect()
    }
}

/// A bitmap of `len` bits, of which those in `runs` are set, counted from `start`; so are all bits behind them.
fn bitmap(bytes: usize, len: u32, runs: impl Iterator<Item = (u64, u64)>, start: u64) -> Vec<u8> {
    let mut bitmap = vec![0_u8; bytes];
    let mut set = |from: usize, to: usize| {
        let mut at = from;
        while at < to {
            if at.is_multiple_of(8) && to - at >= 8 {
                let end = to / 8 * 8;
                bitmap[at / 8..end / 8].fill(0xff);
                at = end;
            } else {
                bitmap[at / 8] |= 1 << (at % 8);
                at += 1;
            }
        }
    };
    for (from, to) in runs {
        set((from - start) as usize, (to - start) as usize);
    }
    set(len as usize, bytes * 8);
    bitmap
}

/// Decides the size of the journal. A volume that is too small for one loses it, with a warning.
fn journal(options: &Options, numbers: &mut Numbers, warnings: &mut Vec<String>) -> Result<Option<Journal>> {
    if !numbers.features.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let Some(default) = default_journal(numbers.blocks) else {
        warnings.push("the volume is too small for a journal, so it gets none".to_owned());
        numbers.features.compat.remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE);
        return Ok(None);
    };
    let blocks = match options.journal_size {
        Some(JournalSize::Blocks(blocks)) => blocks,
        Some(JournalSize::Mebibytes(size)) => size.saturating_mul((1 << 20) / numbers.block_size),
        None => default,
    };
    if blocks < LEAST_JOURNAL || u64::from(blocks) > numbers.blocks / 2 {
        return Err(Error::options(format!(
            "a journal of {blocks} blocks: {LEAST_JOURNAL} to half of the volume's {} are possible",
            numbers.blocks
        )));
    }
    let fast_commit_blocks = if !numbers.features.compat.contains(Compat::FAST_COMMIT) {
        0
    } else {
        match options.fast_commit_kib {
            Some(kib) => kib.saturating_mul(1024) / numbers.block_size,
            None => default / BLOCKS_PER_FAST_COMMIT_BLOCK,
        }
    };
    Ok(Some(Journal { blocks: blocks + fast_commit_blocks, fast_commit_blocks }))
}
