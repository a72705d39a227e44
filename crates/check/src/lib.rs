//! The checker of ext2, ext3 and ext4 volumes, which changes nothing.
//!
//! The command's `check` and `fsck` call it, and `tune` does before it changes a feature.
//!
//! [`check`] looks at every structure of a volume and reports each that breaks the format or
//! disagrees with another, with its place. It goes on after every fault.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use extern4_block::FileDevice;
//! use extern4_check::{Options, check};
//! use extern4_ext4::{Ext4, OpenOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fs = Ext4::open(Arc::new(FileDevice::open("disk.img")?), &OpenOptions::default())?;
//! let summary = check(&fs, &Options::default(), &mut |fault| println!("{fault}"))?;
//! println!("{} faults in {} inodes", summary.faults, summary.inodes_used);
//! # Ok(())
//! # }
//! ```
//!
//! The check looks at these structures, in this order:
//!
//! 1. superblock and descriptors with their backups, the places of fixed metadata, journal,
//!    orphans, multiple mount protection (`groups`, `special`);
//! 2. every inode in use: its fields, its map, its attributes, and the owners of each block
//!    (`inode`, `xattr`, `owners`);
//! 3. every directory: blocks, entries, hash tree (`directory`, `tree`);
//! 4. names against link counts, and the path from the root to each directory (`links`);
//! 5. bitmaps and counts against what was found (`bitmaps`), and quota files against what owners
//!    have (`quota`).
//!
//! A pass runs on all cores, group by group or directory by directory. The check reads metadata
//! from the device in long runs and past the buffer cache, because it needs all of it once. It does
//! not read file contents. Memory grows with the size of the volume: a bit for each cluster of the
//! groups in use, eight bytes for each inode, and about fifty for each directory. Where there are
//! quotas, each owner takes some more. The check follows no block of a map or a tree twice. So a
//! hostile volume costs no more than a large one.
//!
//! On a volume that was not cleanly unmounted, the check looks at the state that a replay of the
//! journal would leave. Fast commits on top of that change nothing here: the blocks below them are
//! consistent by themselves.

#![forbid(unsafe_code)]

mod bitmaps;
mod claims;
mod directory;
mod duplicates;
mod fault;
mod groups;
mod inode;
mod links;
mod owners;
mod progress;
mod quota;
mod report;
mod runs;
mod special;
mod tree;
mod xattr;

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::feature::RoCompat;
use extern4_disk::geometry::Geometry;
use extern4_disk::group::GroupDescriptor;
use extern4_disk::superblock::{ErrorRecord, State, Superblock};
use extern4_ext4::{Ext4, Replayed, Result};

pub use extern4_disk::Structure;
pub use fault::{Fault, Owner, Part, Wrong};
pub use progress::{Interrupted, Pass, Progress, Watch};

use claims::ClusterMap;
use groups::Fixed;
use inode::{DirRecord, GroupInodes, Slot};
use quota::Owners;
use report::Report;
use xattr::Shared;

/// How to check a volume.
#[derive(Clone, Copy, Default)]
pub struct Options<'w> {
    /// How many threads to use; 0 for as many as there are cores.
    pub threads: usize,
    /// Gets the progress, and may end the check.
    pub watch: Option<&'w Watch<'w>>,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// The summary of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many faults were reported.
    pub faults: u64,
    /// The journal's contents; `None` if the volume was clean. The check looked at the volume as
    /// replayed.
    pub replayed: Option<Replayed>,
    /// An error that the journal notes from the time when the volume was being changed, as a
    /// sentence. That is no fault: the volume may be sound, or its faults are among those reported.
    pub noted: Option<&'static str>,
    /// The errors that the superblock notes. That is no fault either.
    pub errors: Option<NotedErrors>,
    /// How many copies of the superblock are sound, but older than it. That is no fault: `tune2fs`
    /// and `e2fsck` leave such copies.
    pub old_copies: u32,
    /// Inodes in use, reserved ones among them.
    pub inodes_used: u64,
    /// Inodes of the volume.
    pub inodes: u64,
    /// Directories among those in use.
    pub directories: u64,
    /// Blocks in use, including the volume's own structures.
    pub blocks_used: u64,
    /// Blocks of the volume.
    pub blocks: u64,
}

/// Errors that a superblock notes until a check has found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotedErrors {
    /// How many there were; 0 for a volume that has only the state "errors".
    pub count: u32,
    /// The first of them.
    pub first: Option<ErrorRecord>,
    /// The last of them.
    pub last: Option<ErrorRecord>,
}

impl NotedErrors {
    /// Returns the errors that a superblock notes; `None` if it notes none.
    pub fn of(sb: &Superblock) -> Option<Self> {
        let noted = Self {
            count: sb.error_count(),
            first: sb.first_error(),
            last: sb.last_error(),
        };
        (noted.count > 0 || sb.state().contains(State::ERROR)).then_some(noted)
    }
}

/// Checks all of `fs` and calls `each` with every fault.
///
/// # Errors
/// [`Options::watch`] ended the check. No fault of the volume is an error, not even a block that
/// cannot be read.
pub fn check(
    fs: &Ext4,
    options: &Options<'_>,
    each: &mut dyn FnMut(Fault),
) -> std::result::Result<Summary, Interrupted> {
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let mut report = Report::new(each, threads, options.watch);
    let mut checker = Checker::new(fs);
    checker.check_groups(&mut report);
    checker.check_special(&mut report);
    report.end_pass();
    checker.check_inodes(&mut report)?;
    checker.check_owners(&mut report);
    checker.check_directories(&mut report)?;
    checker.check_links(&mut report);
    let counted = checker.check_bitmaps(&mut report)?;
    checker.check_quotas(&mut report);
    report.end_pass();
    let geometry = checker.geometry;
    Ok(Summary {
        faults: report.faults,
        replayed: fs.replayed(),
        noted: checker.noted,
        errors: NotedErrors::of(checker.sb),
        old_copies: checker.old_copies,
        inodes_used: u64::from(geometry.inodes_count()).saturating_sub(counted.free_inodes),
        inodes: geometry.inodes_count().into(),
        directories: counted.directories,
        blocks_used: geometry
            .blocks_count()
            .saturating_sub(counted.free_clusters << geometry.cluster_shift()),
        blocks: geometry.blocks_count(),
    })
}

/// Returns a `u32` as an index: every machine that extern4 supports has at least 32-bit addresses.
const fn to_usize(number: u32) -> usize {
    number as usize
}

/// The check's knowledge of the volume so far.
struct Checker<'a> {
    fs: &'a Ext4,
    sb: &'a Superblock,
    geometry: &'a Geometry,
    seed: Option<ChecksumSeed>,
    /// The descriptors, of the groups whose descriptor makes sense.
    descriptors: Vec<Option<GroupDescriptor>>,
    /// Where fixed metadata is, in ascending order.
    fixed: Vec<Fixed>,
    /// An error that the journal notes.
    noted: Option<&'static str>,
    /// How many copies of the superblock are sound, but older than it.
    old_copies: u32,
    /// Inodes that a crash has left to be deleted or truncated.
    orphans: BTreeSet<u32>,
    /// The clusters that have an owner, and the clusters that have more than one.
    claims: ClusterMap,
    twice: ClusterMap,
    /// How often a map led to a block of a map that another file has, too, on a volume whose files
    /// share blocks.
    nodes_again: AtomicU64,
    shared: Shared,
    owners: Owners,
    /// The inodes of each group, once they have been looked at.
    inodes: Box<[OnceLock<GroupInodes>]>,
}

impl<'a> Checker<'a> {
    fn new(fs: &'a Ext4) -> Self {
        let sb = fs.superblock();
        let geometry = sb.geometry();
        Self {
            fs,
            sb,
            geometry,
            seed: sb.metadata_seed(),
            descriptors: Vec::new(),
            fixed: Vec::new(),
            noted: None,
            old_copies: 0,
            orphans: BTreeSet::new(),
            claims: ClusterMap::new(geometry),
            twice: ClusterMap::new(geometry),
            nodes_again: AtomicU64::new(0),
            shared: Shared::new(geometry),
            owners: Owners::default(),
            inodes: (0..geometry.group_count())
                .map(|_| OnceLock::new())
                .collect(),
        }
    }

    /// Reads `count` blocks from `block` on into `buffer`, whose length becomes theirs.
    fn read(&self, block: u64, count: u32, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.resize(to_usize(count) << self.geometry.block_bits(), 0);
        self.fs.read_from_device(block, buffer)
    }

    /// Returns the record of inode `ino`; `None` if the volume has no such inode, or none of its
    /// neighbours is in use.
    fn slot(&self, ino: u32) -> Option<&Slot> {
        let at = self.geometry.inode_slot(ino)?;
        self.inodes
            .get(to_usize(at.group))?
            .get()?
            .slots
            .get(to_usize(at.index))
    }

    /// Returns the directory `ino`, if it is one.
    fn directory(&self, ino: u32) -> Option<&DirRecord> {
        let at = self.geometry.inode_slot(ino)?;
        let dirs = &self.inodes.get(to_usize(at.group))?.get()?.dirs;
        dirs.binary_search_by_key(&ino, |dir| dir.ino)
            .ok()
            .map(|at| &dirs[at])
    }

    /// Returns whether files may share blocks (`shared_blocks`): Android's images store equal
    /// blocks once. Fixed metadata is still no file's; Linux refuses to read such a file.
    fn may_share(&self) -> bool {
        self.sb
            .features()
            .ro_compat
            .contains(RoCompat::SHARED_BLOCKS)
    }

    /// Returns whether to go on below a block of a map that another file has, too. All files
    /// together do so at most once for each block of the volume: a hostile volume costs no more
    /// than a large one.
    fn may_follow_again(&self) -> bool {
        // Relaxed: the count only bounds the work, and guards nothing.
        self.may_share() && self.nodes_again.fetch_add(1, Relaxed) < self.geometry.blocks_count()
    }

    /// Returns every directory, by inode number.
    fn directories(&self) -> impl Iterator<Item = &DirRecord> {
        self.inodes
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|group| group.dirs.iter())
    }
}
