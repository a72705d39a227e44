//! [`Draft`]: a new volume whose metadata and internal files have their blocks, and that can get
//! more files before it is finished.
//!
//! [`Plan::new`] makes an empty volume by it. The crate `build` takes a `Draft`, allocates blocks
//! for the files of its trees, and calls [`Draft::finish`]. Nothing is written: the result is a
//! [`Plan`]. A volume that is too small, or options that contradict each other, are an error here.
//! The same options always make the same volume.

use std::collections::BTreeMap;
use std::ops::Range;

use extern4_disk::checksum::{ChecksumSeed, inode_seed};
use extern4_disk::feature::{Compat, Incompat};
use extern4_disk::inode::{Inode, ROOT_INO};
use extern4_disk::superblock::Superblock;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::{LOST_FOUND_INO, LOST_FOUND_OWNER};
use crate::journal::JournalBlocks;
use crate::layout::{self, Group};
use crate::numbers::Numbers;
use crate::options::Options;
use crate::plan::{Plan, UsedInodes};
use crate::quota::{Owner, QuotaFile};
use crate::space::Space;
use crate::{features, journal_device, numbers, superblock};

/// Inodes up to this number are reserved.
const RESERVED_INODES: u32 = 10;

/// An unfinished volume: its groups' metadata, the journal and the other internal files have their
/// blocks. The root directory and lost+found do not.
///
/// A caller that fills the volume allocates blocks, makes these two and the inode tables, and then
/// calls [`finish`](Self::finish).
#[derive(Debug)]
pub struct Draft {
    pub(crate) sb: Superblock,
    pub(crate) groups: Vec<Group>,
    /// Contents of blocks, up to the last byte that is not zero, or further.
    blocks: Vec<(u64, Vec<u8>)>,
    /// Runs of blocks that must read as zeroes where `blocks` has no contents.
    pub(crate) zeroes: Vec<(u64, u64)>,
    pub(crate) time: u64,
    pub(crate) journal_blocks: u64,
    /// The block of the journal's superblock.
    pub(crate) journal_superblock: Option<u64>,
    space: Space,
    keep_allocated: bool,
    pub(crate) superblocks_only: bool,
    types: Vec<String>,
    inodes: BTreeMap<u32, Inode>,
    pub(crate) quotas: Vec<QuotaFile>,
    warnings: Vec<String>,
}

impl Draft {
    /// Returns the draft that these options make for a device of `bytes`. `owners` are the owners
    /// of the caller's files, for the quota files.
    ///
    /// # Errors
    /// The errors of [`Plan::new`].
    pub fn new(options: &Options, config: &Config, bytes: u64, owners: &[Owner]) -> Result<Self> {
        let (mut draft, journal) = Self::begin(options, config, bytes, owners)?;
        draft.make_files(journal, options)?;
        Ok(draft)
    }

    /// Returns the draft of a volume without further files.
    pub(crate) fn empty(options: &Options, config: &Config, bytes: u64) -> Result<Self> {
        let (mut draft, journal) = Self::begin(
            options,
            config,
            bytes,
            &[Owner::of(options.root_owner), LOST_FOUND_OWNER],
        )?;
        draft.make_root(options)?;
        draft.make_lost_found()?;
        draft.make_files(journal, options)?;
        draft.make_inode_tables();
        Ok(draft)
    }

    fn begin(
        options: &Options,
        config: &Config,
        bytes: u64,
        owners: &[Owner],
    ) -> Result<(Self, Option<JournalBlocks>)> {
        let mut numbers = Numbers::choose(options, config, bytes)?;
        let mut warnings = numbers::warnings(options, config);
        let journal = journal(options, &mut numbers, &mut warnings)?;
        let sb = superblock::make(options, config, &numbers)?;
        let quotas = QuotaFile::all(options, sb.features(), owners);
        let mut space = Space::default();
        layout::take_fixed(sb.geometry(), &mut space);
        let bad_blocks = layout::take_bad(
            sb.geometry(),
            &options.bad_blocks,
            &mut space,
            &mut warnings,
        )?;
        let groups = layout::place(sb.geometry(), options, &mut space)?;
        let mut draft = Self {
            sb,
            groups,
            blocks: Vec::new(),
            zeroes: Vec::new(),
            time: options.time,
            journal_blocks: 0,
            journal_superblock: None,
            space,
            keep_allocated: options.keep_allocated,
            superblocks_only: options.superblocks_only,
            types: numbers.types,
            inodes: BTreeMap::new(),
            quotas,
            warnings,
        };
        let metadata = draft.space.used_in(0, draft.sb.blocks_count()) - bad_blocks.len() as u64;
        draft.make_bad_blocks(&bad_blocks)?;
        let overhead = metadata + journal.map_or(0, |journal| journal.all.into());
        draft
            .sb
            .raw_mut()
            .s_overhead_blocks
            .set(numbers::narrow(overhead)?);
        Ok((draft, journal))
    }

    /// Returns whether the volume is too small for a journal that the list of `-O` asks for.
    ///
    /// # Errors
    /// [`Error::Options`] for a list that is wrong.
    pub fn lacks_journal(&self, options: &Options) -> Result<bool> {
        let has_journal = self.sb.features().compat.contains(Compat::HAS_JOURNAL);
        Ok(!has_journal && features::asks_for_journal(options)?)
    }

    /// Returns the superblock, whose counts of free blocks and inodes are not set yet.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// Returns the runs of free blocks in ascending order, by start and length.
    pub fn free_runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.space.free_in(0, self.sb.blocks_count())
    }

    /// Returns the runs of free blocks in a range, cut to it.
    pub fn free_runs_in(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let end = range.end.min(self.sb.blocks_count());
        self.space.free_in(range.start.min(end), end)
    }

    /// Marks `len` free blocks from `start` on as used.
    pub fn take(&mut self, start: u64, len: u64) {
        self.space.take(start, len);
    }

    /// Adds an inode to the quota usage of its owner. `bytes` are the bytes of its contents, map
    /// and attributes.
    pub fn charge(&mut self, owner: Owner, bytes: u64) {
        self.quotas
            .iter_mut()
            .for_each(|file| file.charge(owner, bytes));
    }

    /// Returns the first block of a group's inode table.
    pub fn inode_table(&self, group: u32) -> Option<u64> {
        self.groups
            .get(group as usize)
            .map(|group| group.inode_table)
    }

    /// Returns the inodes in use so far. They have all numbers from 1 on, except the numbers of the
    /// root directory and of lost+found.
    ///
    /// Reserved inodes without a file are all zeroes, except for their checksums.
    pub fn inodes(&self) -> BTreeMap<u32, Inode> {
        let mut inodes = self.inodes.clone();
        if self.sb.metadata_seed().is_some() {
            for ino in 1..=RESERVED_INODES {
                inodes
                    .entry(ino)
                    .or_insert_with(|| Inode::new(ino, 0, 0, &self.sb));
            }
        }
        inodes
    }

    /// Returns the first free inode.
    pub fn first_free_inode(&self) -> u32 {
        self.inodes
            .last_key_value()
            .map_or(LOST_FOUND_INO, |(ino, _)| LOST_FOUND_INO.max(*ino))
            + 1
    }

    /// Finishes the plan, now that all files have their blocks and inodes. The caller writes the
    /// blocks of its files, of the inode tables and of the root directory.
    ///
    /// # Errors
    /// [`Error::Size`] if a count is too large for the format, or if an inode was charged to an
    /// owner that [`new`](Self::new) did not get.
    pub fn finish(mut self, inodes: &UsedInodes<'_>) -> Result<Plan> {
        self.fill_quotas()?;
        let mut plan = Plan {
            sb: self.sb,
            groups: self.groups,
            blocks: self.blocks,
            zeroes: self.zeroes,
            descriptors: Vec::new(),
            journal_blocks: self.journal_blocks,
            journal_superblock: self.journal_superblock,
            space: self.space,
            keep_allocated: self.keep_allocated,
            superblocks_only: self.superblocks_only,
            types: self.types,
            warnings: self.warnings,
        };
        plan.make_descriptors(inodes)?;
        Ok(plan)
    }

    /// Finishes a volume without further files.
    pub(crate) fn finish_empty(self) -> Result<Plan> {
        let runs = [(1, u64::from(self.first_free_inode()))];
        self.finish(&UsedInodes {
            runs: &runs,
            directories: &[ROOT_INO, LOST_FOUND_INO],
        })
    }

    pub(crate) fn block_size(&self) -> usize {
        self.sb.block_size() as usize
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

    /// Allocates `len` blocks: in one run after `goal`, or else in one run anywhere, or else in the
    /// first free runs after `goal`.
    pub(crate) fn allocate(&mut self, len: u64, goal: u64) -> Result<Vec<(u64, u64)>> {
        let end = self.sb.blocks_count();
        let whole = self
            .space
            .find(len, goal, end)
            .or_else(|| self.space.find(len, 0, end));
        if let Some(start) = whole {
            self.space.take(start, len);
            return Ok(vec![(start, len)]);
        }
        let mut runs = Vec::new();
        let mut left = len;
        for (start, free) in self
            .space
            .free_in(goal, end)
            .chain(self.space.free_in(0, goal))
        {
            let part = free.min(left);
            if part > 0 {
                runs.push((start, part));
                left -= part;
            }
        }
        if left > 0 {
            return Err(Error::Size(format!(
                "the volume has no room for {len} blocks of its own"
            )));
        }
        for &(start, len) in &runs {
            self.space.take(start, len);
        }
        Ok(runs)
    }

    /// Makes the blocks of inode tables that have inodes in them.
    fn make_inode_tables(&mut self) {
        let mut tables = BTreeMap::<u64, Vec<u8>>::new();
        let geometry = *self.sb.geometry();
        let size = self.block_size();
        for (ino, inode) in self.inodes() {
            let Some(slot) = geometry.inode_slot(ino) else {
                continue;
            };
            let table = self.groups[slot.group as usize].inode_table;
            let Some(position) = geometry.inode_position(table, slot.index) else {
                continue;
            };
            let block = tables
                .entry(position.block)
                .or_insert_with(|| vec![0; size]);
            inode.encode(&mut block[position.offset as usize..], &self.sb);
        }
        self.blocks.extend(tables);
    }
}

impl Plan {
    /// Returns the plan of the volume that these options make on a device of `bytes`. With the
    /// feature `journal_dev` it is an external journal instead.
    ///
    /// # Errors
    /// [`Error::Options`](crate::Error::Options) for options that are wrong or exclude each other,
    /// [`Error::Feature`](crate::Error::Feature) for a feature that cannot be made,
    /// [`Error::Size`](crate::Error::Size) for a device of the wrong size.
    pub fn new(options: &Options, config: &Config, bytes: u64) -> Result<Self> {
        if journal_device::is_wanted(options) {
            return journal_device::plan(options, config, bytes);
        }
        Draft::empty(options, config, bytes)?.finish_empty()
    }
}

/// Decides the size of the journal. A volume that is too small for one loses it, with a warning.
fn journal(
    options: &Options,
    numbers: &mut Numbers,
    warnings: &mut Vec<String>,
) -> Result<Option<JournalBlocks>> {
    if !numbers.features.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    if options.external_journal.is_some() {
        return match options.journal_size {
            None => Ok(None),
            Some(_) => Err(Error::options(
                "the size of an external journal is that of its device",
            )),
        };
    }
    let has_fast_commits = numbers.features.compat.contains(Compat::FAST_COMMIT);
    let chosen = JournalBlocks::choose(
        numbers.blocks,
        numbers.block_size,
        has_fast_commits,
        (options.journal_size, options.fast_commit_kib),
    )?;
    // As in mke2fs, where the default size may take more, and so may volumes with flex_bg.
    let has_limit =
        options.journal_size.is_some() && !numbers.features.incompat.contains(Incompat::FLEX_BG);
    if let Some(journal) = chosen.filter(|_| has_limit) {
        let free = numbers.free_blocks(options);
        if u64::from(journal.all) > free / 2 {
            let text = format!(
                "a journal of {} blocks: at most half of the {free} free ones",
                journal.all
            );
            return Err(Error::options(text));
        }
    }
    if chosen.is_none() {
        warnings.push("the volume is too small for a journal, so it gets none".to_owned());
        numbers
            .features
            .compat
            .remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE);
    }
    Ok(chosen)
}
