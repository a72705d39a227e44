//! The places of all files: which blocks each of them has.
//!
//! Directories come first, then blocks and values of extended attributes and long symbolic links,
//! then the contents of files in the order of their paths. They follow each other. A file that does
//! not fit between the metadata of two groups goes behind it, and smaller files fill the gap.
//!
//! With an earlier volume as a precedent, all files first get the blocks that they had there, and
//! then the blocks that they lack.

use std::collections::HashMap;
use std::ops::Range;

use extern4_disk::casefold;
use extern4_disk::dirent::FileType;
use extern4_disk::feature::Incompat;
use extern4_disk::inode::{InodeFlags, MAP_SIZE};
use extern4_disk::superblock::Superblock;
use extern4_disk::xattr::REFCOUNT_MAX;
use extern4_mkfs::Draft;
use extern4_mkfs::map::{self, Map, Run};

use crate::directory::{Child, Format, Packing};
use crate::error::{Error, Result, shown};
use crate::holes::Holes;
use crate::inode_numbers::InodeNumbers;
use crate::old_layout::Precedent;
use crate::storage::Storage;
use crate::tree::{Body, Order, Tree};

/// The longest target that a symbolic link keeps in its inode, in bytes.
const FAST_SYMLINK_MAX: usize = MAP_SIZE - 1;
/// Extents that an inode has room for, and the blocks of the longest.
const ROOT_EXTENTS: usize = 4;
const EXTENT_BLOCKS: u64 = 32_768;
/// Blocks that an inode's block list maps itself.
const DIRECT_BLOCKS: u64 = 12;

/// The place of one file's blocks.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// It has none.
    Nowhere,
    /// All of them follow each other.
    Run(Run),
    /// They do not.
    Runs(&'a [Run]),
}

/// The inode numbers and the blocks of all files.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) numbers: InodeNumbers,
    /// By the inode in the tree: the first block of a file whose blocks follow each other; 0
    /// without blocks.
    starts: Vec<u64>,
    /// The other files.
    scattered: HashMap<u32, Scattered>,
    /// Blocks of each directory, and whether they are a hash tree.
    pub(crate) directories: HashMap<u32, (u64, bool)>,
    /// Which of the blocks of attributes an inode has.
    xattr_blocks: HashMap<u32, usize>,
    pub(crate) shared_blocks: Vec<SharedBlock>,
    /// How many blocks of attributes have a value, by the value's inode in the tree.
    pub(crate) value_references: HashMap<u32, u64>,
    /// Blocks of maps, with their contents.
    pub(crate) map_blocks: Vec<(u64, Vec<u8>)>,
    /// Blocks in use by files, and how many of them are where the precedent has them.
    pub(crate) used: u64,
    pub(crate) kept: u64,
    /// Extents or, without the feature, runs of all regular files.
    pub(crate) extents: u64,
}

/// A block of extended attributes.
#[derive(Debug)]
pub(crate) struct SharedBlock {
    /// Its place; 0 until it has one.
    pub(crate) number: u64,
    /// An inode in the tree whose set of attributes it has.
    pub(crate) inode: u32,
    /// How many inodes share it.
    pub(crate) users: u32,
}

#[derive(Debug)]
struct Scattered {
    runs: Box<[Run]>,
    root: Option<[u8; MAP_SIZE]>,
    map_blocks: u64,
}

impl Layout {
    /// The blocks of an inode, of which there are `blocks`.
    pub(crate) fn place(&self, inode: u32, blocks: u64) -> Place<'_> {
        if let Some(scattered) = self.scattered.get(&inode) {
            return Place::Runs(&scattered.runs);
        }
        match self.starts.get(inode as usize) {
            Some(&start) if start > 0 && blocks > 0 => Place::Run(Run {
                logical: 0,
                start,
                len: blocks,
            }),
            _ => Place::Nowhere,
        }
    }

    /// Blocks that an inode counts: the blocks of its contents, its map and its extended
    /// attributes.
    pub(crate) fn blocks_of(
        &self,
        tree: &Tree,
        holes: &Holes,
        storage: &Storage,
        inode: u32,
        block_size: u32,
    ) -> u64 {
        let contents = match self.directories.get(&inode) {
            Some(&(blocks, _)) => blocks,
            None => storage.file_blocks(tree, holes, inode, block_size),
        } + storage.value_blocks(tree, inode);
        let map = self
            .scattered
            .get(&inode)
            .map_or(0, |scattered| scattered.map_blocks);
        contents + map + u64::from(self.xattr_blocks.contains_key(&inode))
    }

    /// The block of attributes of an inode.
    pub(crate) fn xattr_block(&self, inode: u32) -> Option<u64> {
        self.xattr_blocks
            .get(&inode)
            .map(|&at| self.shared_blocks[at].number)
    }

    /// The part of an inode's map that is in the inode, and the blocks that hold the rest, if they
    /// are known already.
    pub(crate) fn known_map(&self, inode: u32) -> Option<[u8; MAP_SIZE]> {
        self.scattered.get(&inode)?.root
    }
}

/// Free blocks, each run of which is taken from its first block on.
#[derive(Debug)]
struct Cursor {
    runs: Vec<Free>,
    /// The runs before this one are full.
    at: usize,
    used: u64,
}

#[derive(Debug)]
struct Free {
    start: u64,
    len: u64,
    taken: u64,
}

impl Free {
    fn left(&self) -> u64 {
        self.len - self.taken
    }

    fn take(&mut self, len: u64) -> u64 {
        self.taken += len;
        self.start + self.taken - len
    }
}

impl Cursor {
    fn new(runs: impl Iterator<Item = (u64, u64)>) -> Self {
        let runs = runs
            .map(|(start, len)| Free {
                start,
                len,
                taken: 0,
            })
            .collect();
        Self {
            runs,
            at: 0,
            used: 0,
        }
    }

    /// Takes one block.
    fn take_one(&mut self) -> Option<u64> {
        let mut number = None;
        self.take(1, |start, _| number = Some(start));
        number
    }

    /// Takes blocks from the first run that has room for all of them, or in pieces if there is
    /// none. False if there are too few.
    fn take(&mut self, mut len: u64, mut give: impl FnMut(u64, u64)) -> bool {
        self.used += len;
        while self.runs.get(self.at).is_some_and(|run| run.left() == 0) {
            self.at += 1;
        }
        let runs = &mut self.runs[self.at..];
        if let Some(run) = runs.iter_mut().find(|run| run.left() >= len) {
            give(run.take(len), len);
            return true;
        }
        for run in runs.iter_mut().filter(|run| run.left() > 0) {
            let part = len.min(run.left());
            give(run.take(part), part);
            len -= part;
            if len == 0 {
                return true;
            }
        }
        false
    }
}

/// Gives all files their blocks.
pub(crate) struct Placer<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) order: &'a Order,
    pub(crate) holes: &'a Holes,
    pub(crate) storage: &'a Storage,
    /// The layout to keep.
    pub(crate) old: Option<&'a Precedent>,
}

/// The blocks that files keep, by the inode in the tree.
#[derive(Debug, Default)]
struct Kept {
    /// Runs of their contents.
    runs: HashMap<u32, Vec<Run>>,
    /// Blocks of the maps of files that keep all of their contents.
    maps: HashMap<u32, Vec<u64>>,
}

impl Placer<'_> {
    /// Gives all files blocks that are free in a draft, and takes these, if there is room for all.
    pub(crate) fn place(&self, draft: &mut Draft) -> Result<Option<Layout>> {
        let mut layout = self.measure(draft)?;
        let mut kept = self.keep(draft, &mut layout)?;
        let mut cursor = Cursor::new(draft.free_runs());
        let fits = self.place_directories(draft, &mut kept, &mut cursor, &mut layout)?
            && place_xattrs(&mut cursor, &mut layout)
            && self.place_files(draft, &mut kept, &mut cursor, &mut layout)?;
        if !fits {
            return Ok(None);
        }
        layout.used = layout.kept + cursor.used;
        for run in &cursor.runs {
            draft.take(run.start, run.taken);
        }
        Ok(Some(layout))
    }

    /// Blocks that the tree needs at least: all but the blocks of maps.
    pub(crate) fn least_blocks(&self, draft: &Draft) -> Result<u64> {
        let layout = self.measure(draft)?;
        let size = draft.superblock().block_size();
        let directories: u64 = layout.directories.values().map(|(blocks, _)| blocks).sum();
        let files: u64 = self
            .order
            .inodes
            .iter()
            .map(|&inode| self.file_blocks(inode, size))
            .sum();
        Ok(directories + layout.shared_blocks.len() as u64 + files)
    }

    /// A layout in which all numbers and sizes are known, and no places.
    fn measure(&self, draft: &Draft) -> Result<Layout> {
        let available = draft.first_free_inode()..draft.superblock().inodes_count() + 1;
        let mut layout = Layout {
            numbers: InodeNumbers::assign(self.tree, self.order, self.old, available),
            starts: vec![0; self.tree.nodes()],
            ..Layout::default()
        };
        self.measure_directories(draft, &mut layout)?;
        self.measure_xattrs(&mut layout);
        Ok(layout)
    }

    fn file_blocks(&self, inode: u32, block_size: u32) -> u64 {
        self.storage
            .file_blocks(self.tree, self.holes, inode, block_size)
    }

    fn measure_directories(&self, draft: &Draft, layout: &mut Layout) -> Result<()> {
        let format = Format::of(draft.superblock());
        for &directory in &self.order.directories {
            let inode = self.tree.name(directory).inode;
            if self.storage.is_inline(inode) {
                layout.directories.insert(inode, (0, false));
                continue;
            }
            let children = children(self.tree, directory, &layout.numbers);
            let packing = pack(&format, self.tree, self.order, directory, &children)?;
            layout
                .directories
                .insert(inode, (packing.blocks(), packing.is_tree()));
        }
        Ok(())
    }

    fn measure_xattrs(&self, layout: &mut Layout) {
        let mut shared = HashMap::new();
        for &inode in &self.order.inodes {
            let division = if self.tree.node(inode).xattrs.is_empty() {
                None
            } else {
                self.storage.division(self.tree, inode)
            };
            let Some(division) = division.filter(|division| division.needs_block()) else {
                continue;
            };
            let key = self.storage.sharing_key(self.tree, inode);
            let known = shared.get(&key).copied();
            let at = match known.filter(|&at: &usize| layout.shared_blocks[at].users < REFCOUNT_MAX)
            {
                Some(at) => at,
                None => {
                    layout.shared_blocks.push(SharedBlock {
                        number: 0,
                        inode,
                        users: 0,
                    });
                    for value in division.value_inodes() {
                        *layout.value_references.entry(value).or_default() += 1;
                    }
                    let at = layout.shared_blocks.len() - 1;
                    shared.insert(key, at);
                    at
                }
            };
            layout.shared_blocks[at].users += 1;
            layout.xattr_blocks.insert(inode, at);
        }
    }

    /// Takes the blocks that files had and still need, as far as they are free.
    fn keep(&self, draft: &mut Draft, layout: &mut Layout) -> Result<Kept> {
        let mut kept = Kept::default();
        let Some(old) = self.old else { return Ok(kept) };
        for block in &mut layout.shared_blocks {
            if let Some(number) = old.xattr_block(block.inode)
                && let [(number, _)] = take_free(draft, number, 1)[..]
            {
                block.number = number;
                layout.kept += 1;
            }
        }
        let size = draft.superblock().block_size();
        for &inode in &self.order.inodes {
            let mut runs = Vec::new();
            let mut needed = 0;
            for (logical, len) in self.pieces(inode, layout, size) {
                needed += len;
                for run in old.runs_in(inode, logical, logical + len) {
                    let free = take_free(draft, run.start, run.len).into_iter();
                    let kept = |(start, len)| Run {
                        logical: run.logical + (start - run.start),
                        start,
                        len,
                    };
                    runs.extend(free.map(kept));
                }
            }
            let blocks = runs.iter().map(|run| run.len).sum::<u64>();
            if blocks == needed && blocks > 0 {
                let map = self.keep_map(inode, &runs, old, draft, layout)?;
                kept.maps.insert(inode, map);
            }
            layout.kept += blocks;
            kept.runs.insert(inode, runs);
        }
        Ok(kept)
    }

    /// Takes as many of the blocks that a file's map had as one of these runs needs.
    fn keep_map(
        &self,
        inode: u32,
        runs: &[Run],
        old: &Precedent,
        draft: &mut Draft,
        layout: &mut Layout,
    ) -> Result<Vec<u64>> {
        let mut joined = Vec::new();
        runs.iter().for_each(|run| join(&mut joined, *run));
        let sb = draft.superblock();
        if !needs_map(sb, &joined) {
            return Ok(Vec::new());
        }
        let needed = make_map(sb, layout.numbers.of(inode), &joined, &mut || Ok(0))?
            .blocks
            .len();
        let free = old
            .map_blocks(inode)
            .iter()
            .filter(|&&block| !take_free(draft, block, 1).is_empty());
        let kept: Vec<u64> = free.take(needed).copied().collect();
        layout.kept += kept.len() as u64;
        Ok(kept)
    }

    fn place_directories(
        &self,
        draft: &Draft,
        kept: &mut Kept,
        cursor: &mut Cursor,
        layout: &mut Layout,
    ) -> Result<bool> {
        for &directory in &self.order.directories {
            if !self.take(self.tree.name(directory).inode, kept, draft, cursor, layout)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn place_files(
        &self,
        draft: &Draft,
        kept: &mut Kept,
        cursor: &mut Cursor,
        layout: &mut Layout,
    ) -> Result<bool> {
        let others = |inode: &u32| {
            matches!(
                self.tree.node(*inode).body,
                Body::Symlink(_) | Body::Value(_)
            )
        };
        let files = |inode: &u32| matches!(self.tree.node(*inode).body, Body::File { .. });
        for &inode in self.order.inodes.iter().filter(|inode| others(inode)) {
            if !self.take(inode, kept, draft, cursor, layout)? {
                return Ok(false);
            }
        }
        for &inode in self.order.inodes.iter().filter(|inode| files(inode)) {
            if !self.take(inode, kept, draft, cursor, layout)? {
                return Ok(false);
            }
            layout.extents += match layout.scattered.get(&inode) {
                Some(scattered) => scattered.runs.len() as u64,
                None => u64::from(layout.starts[inode as usize] > 0),
            };
        }
        Ok(true)
    }

    /// The blocks that an inode needs: places in the file, and lengths.
    fn pieces(
        &self,
        inode: u32,
        layout: &Layout,
        block_size: u32,
    ) -> impl Iterator<Item = (u64, u64)> {
        let holes = self.holes.runs(inode);
        let blocks = match layout.directories.get(&inode) {
            Some(&(blocks, _)) => blocks,
            None => self.file_blocks(inode, block_size),
        };
        let holes = holes.filter(|_| blocks > 0);
        let whole = (holes.is_none() && blocks > 0).then_some((0, blocks));
        holes.unwrap_or_default().iter().copied().chain(whole)
    }

    /// Gives one file the blocks that it keeps, and the blocks that it lacks.
    fn take(
        &self,
        inode: u32,
        kept: &mut Kept,
        draft: &Draft,
        cursor: &mut Cursor,
        layout: &mut Layout,
    ) -> Result<bool> {
        let size = draft.superblock().block_size();
        let map = kept.maps.remove(&inode).unwrap_or_default();
        let mut kept = kept
            .runs
            .get(&inode)
            .map_or(&[][..], |runs| runs)
            .iter()
            .peekable();
        let mut runs = Vec::new();
        for (logical, len) in self.pieces(inode, layout, size) {
            let mut at = logical;
            let end = logical + len;
            while let Some(run) = kept.next_if(|run| run.logical < end) {
                if !fill(at..run.logical, cursor, &mut runs) {
                    return Ok(false);
                }
                join(&mut runs, *run);
                at = run.logical + run.len;
            }
            if !fill(at..end, cursor, &mut runs) {
                return Ok(false);
            }
        }
        self.map(inode, runs, map, draft.superblock(), cursor, layout)
    }

    /// Gives a file with these runs the blocks of its map: the kept ones first.
    fn map(
        &self,
        inode: u32,
        runs: Vec<Run>,
        kept: Vec<u64>,
        sb: &Superblock,
        cursor: &mut Cursor,
        layout: &mut Layout,
    ) -> Result<bool> {
        let Some(first) = runs.first() else {
            return Ok(true);
        };
        let simple = runs.len() == 1 && first.logical == 0;
        let needs_map = needs_map(sb, &runs);
        if simple && !needs_map {
            layout.starts[inode as usize] = first.start;
            return Ok(true);
        }
        let mut scattered = Scattered {
            runs: runs.into(),
            root: None,
            map_blocks: 0,
        };
        if needs_map {
            let mut full = false;
            let mut kept = kept.into_iter();
            let mut take = || {
                let number = kept.next().or_else(|| cursor.take_one());
                full |= number.is_none();
                Ok(number.unwrap_or_default())
            };
            let Map { root, blocks } =
                make_map(sb, layout.numbers.of(inode), &scattered.runs, &mut take)?;
            if full {
                return Ok(false);
            }
            scattered.map_blocks = blocks.len() as u64;
            scattered.root = Some(root);
            layout.map_blocks.extend(blocks);
        }
        layout.scattered.insert(inode, scattered);
        Ok(true)
    }
}

/// Takes the free blocks among `len` blocks.
fn take_free(draft: &mut Draft, start: u64, len: u64) -> Vec<(u64, u64)> {
    let free: Vec<_> = draft
        .free_runs_in(start..start.saturating_add(len))
        .collect();
    free.iter()
        .for_each(|(start, len)| draft.take(*start, *len));
    free
}

/// Gives the blocks of extended attributes their places.
fn place_xattrs(cursor: &mut Cursor, layout: &mut Layout) -> bool {
    for block in layout
        .shared_blocks
        .iter_mut()
        .filter(|block| block.number == 0)
    {
        let Some(number) = cursor.take_one() else {
            return false;
        };
        block.number = number;
    }
    true
}

/// Takes free blocks for a range of a file. False if there are too few.
fn fill(range: Range<u64>, cursor: &mut Cursor, runs: &mut Vec<Run>) -> bool {
    let mut logical = range.start;
    range.is_empty()
        || cursor.take(range.end - range.start, |start, len| {
            join(
                runs,
                Run {
                    logical,
                    start,
                    len,
                },
            );
            logical += len;
        })
}

/// Appends a run, to the last one if it continues that.
fn join(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last)
            if last.logical + last.len == run.logical && last.start + last.len == run.start =>
        {
            last.len += run.len;
        }
        _ => runs.push(run),
    }
}

/// Whether the map of a file with these runs needs blocks for itself.
fn needs_map(sb: &Superblock, runs: &[Run]) -> bool {
    if sb.features().incompat.contains(Incompat::EXTENTS) {
        runs.iter()
            .map(|run| run.len.div_ceil(EXTENT_BLOCKS))
            .sum::<u64>()
            > ROOT_EXTENTS as u64
    } else {
        runs.last()
            .is_some_and(|run| run.logical + run.len > DIRECT_BLOCKS)
    }
}

/// The map of a file with these runs.
pub(crate) fn make_map(
    sb: &Superblock,
    ino: u32,
    runs: &[Run],
    take: &mut map::Take<'_>,
) -> Result<Map> {
    let size = sb.block_size() as usize;
    let seed = sb
        .metadata_seed()
        .map(|seed| extern4_disk::checksum::inode_seed(seed, ino, 0));
    Ok(if sb.features().incompat.contains(Incompat::EXTENTS) {
        map::extents(runs, size, seed, take)?
    } else {
        map::block_list(runs, size, take)?
    })
}

/// Whether a symbolic link's target is in its inode.
pub(crate) fn is_fast_symlink(target: &[u8]) -> bool {
    target.len() <= FAST_SYMLINK_MAX
}

/// Decides which names of a directory go to which of its blocks.
pub(crate) fn pack(
    format: &Format,
    tree: &Tree,
    order: &Order,
    directory: u32,
    children: &[Child<'_>],
) -> Result<Packing> {
    let refuse = |reason| Error::Member {
        path: shown(&tree.path(directory)),
        reason,
    };
    let flags = tree
        .node(tree.name(directory).inode)
        .flags
        .unwrap_or_default();
    let is_folded = flags.contains(InodeFlags::CASEFOLD);
    if is_folded && let Some((one, other)) = of_one_name(children) {
        let one = String::from_utf8_lossy(one);
        let other = String::from_utf8_lossy(other);
        return Err(refuse(format!(
            "'{one}' and '{other}' are one name where the case does not count (F)"
        )));
    }
    let packing = format.pack(children, is_folded);
    let mut packing = packing.ok_or_else(|| {
        refuse(format!(
            "{} names are too many for one directory",
            children.len()
        ))
    })?;
    if tree.name(directory).inode == order.lost_found {
        packing.extend(format.lost_found_blocks());
    }
    Ok(packing)
}

/// Two names that are one without regard to case, if there are such.
fn of_one_name<'a>(children: &[Child<'a>]) -> Option<(&'a [u8], &'a [u8])> {
    let mut folded = HashMap::new();
    children.iter().find_map(|child| {
        let key = casefold::fold(child.name).unwrap_or_else(|| child.name.to_vec());
        folded
            .insert(key, child.name)
            .map(|other| (other, child.name))
    })
}

/// The names in a directory.
pub(crate) fn children<'a>(
    tree: &'a Tree,
    directory: u32,
    numbers: &InodeNumbers,
) -> Vec<Child<'a>> {
    tree.children(directory)
        .map(|(_, name)| {
            let node = tree.node(name.inode);
            Child {
                name: &name.text,
                ino: numbers.of(name.inode),
                kind: FileType::from_mode(node.body.kind().mode_bits()),
            }
        })
        .collect()
}
