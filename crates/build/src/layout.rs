//! The places of all files: which blocks each of them has.
//!
//! Directories come first, then blocks of extended attributes and long symbolic links, then the
//! contents of files in the order of their paths. They follow each other. A file that does not fit
//! between the metadata of two groups goes behind it, and smaller files fill the gap.

use std::collections::HashMap;

use extern4_disk::dirent::FileType;
use extern4_disk::feature::Incompat;
use extern4_disk::inode::{Inode, MAP_SIZE, ROOT_INO};
use extern4_disk::superblock::Superblock;
use extern4_disk::xattr::REFCOUNT_MAX;
use extern4_mkfs::map::{self, Map, Run};
use extern4_mkfs::{Draft, LOST_FOUND_INO};

use crate::directory::{Child, Format};
use crate::error::{Error, Result, shown};
use crate::holes::Holes;
use crate::tree::{Body, Order, Tree};
use crate::xattr::Division;

/// The directory that every volume has, for what e2fsck finds.
pub(crate) const LOST_FOUND: &[u8] = b"lost+found";
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

/// The blocks of all files.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// By the inode in the tree: the first block of a file whose blocks follow each other; 0
    /// without blocks.
    starts: Vec<u64>,
    /// The other files.
    scattered: HashMap<u32, Scattered>,
    /// Blocks of each directory, and whether they are a hash tree.
    pub(crate) directories: HashMap<u32, (u64, bool)>,
    /// How each set of attributes is divided.
    pub(crate) divisions: Vec<Division>,
    /// The block of attributes of each inode that has one.
    pub(crate) xattr_blocks: HashMap<u32, u64>,
    /// All blocks of attributes: the number, the inode in the tree whose set it has, and how many
    /// share it.
    pub(crate) shared_blocks: Vec<(u64, u32, u32)>,
    /// Blocks of maps, with their contents.
    pub(crate) map_blocks: Vec<(u64, Vec<u8>)>,
    /// Blocks in use by files.
    pub(crate) used: u64,
    /// Extents or, without the feature, runs of all regular files.
    pub(crate) extents: u64,
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
            Some(&start) if start > 0 && blocks > 0 => Place::Run(Run { logical: 0, start, len: blocks }),
            _ => Place::Nowhere,
        }
    }

    /// Blocks that an inode counts: those of its contents, its map and its extended attributes.
    pub(crate) fn blocks_of(&self, tree: &Tree, holes: &Holes, inode: u32, block_size: u32) -> u64 {
        let contents = match self.directories.get(&inode) {
            Some(&(blocks, _)) => blocks,
            None => file_blocks(tree, holes, inode, block_size),
        };
        let map = self.scattered.get(&inode).map_or(0, |scattered| scattered.map_blocks);
        contents + map + u64::from(self.xattr_blocks.contains_key(&inode))
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
        let runs = runs.map(|(start, len)| Free { start, len, taken: 0 }).collect();
        Self { runs, at: 0, used: 0 }
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
    /// The inode of the first file behind the root directory.
    pub(crate) first_ino: u32,
}

/// The inode number of the inode at a place of the order.
pub(crate) fn number(place: u32, first_ino: u32) -> u32 {
    if place == 0 { ROOT_INO } else { first_ino + (place - 1) }
}

impl Placer<'_> {
    fn ino(&self, inode: u32) -> u32 {
        number(self.tree.node(inode).place, self.first_ino)
    }

    /// Gives all files blocks that are free in a draft, and takes these, if there is room for all.
    pub(crate) fn place(&self, draft: &mut Draft) -> Result<Option<Layout>> {
        let mut cursor = Cursor::new(draft.free_runs());
        let mut layout = Layout { starts: vec![0; self.tree.nodes()], ..Layout::default() };
        let fits = self.place_directories(draft, &mut cursor, &mut layout)?
            && self.place_xattrs(draft, &mut cursor, &mut layout)?
            && self.place_files(draft, &mut cursor, &mut layout)?;
        if !fits {
            return Ok(None);
        }
        layout.used = cursor.used;
        for run in &cursor.runs {
            draft.take(run.start, run.taken);
        }
        Ok(Some(layout))
    }

    /// Blocks that the tree needs at least: all but those of maps.
    pub(crate) fn least_blocks(&self, draft: &Draft) -> Result<u64> {
        let mut cursor = Cursor::new(std::iter::once((1, u64::MAX / 2)));
        let mut layout = Layout { starts: vec![0; self.tree.nodes()], ..Layout::default() };
        self.place_directories(draft, &mut cursor, &mut layout)?;
        self.place_xattrs(draft, &mut cursor, &mut layout)?;
        let size = draft.superblock().block_size();
        let files: u64 = self.order.inodes.iter().map(|&inode| self.blocks(inode, size)).sum();
        Ok(cursor.used + files)
    }

    fn place_directories(&self, draft: &Draft, cursor: &mut Cursor, layout: &mut Layout) -> Result<bool> {
        let format = Format::of(draft.superblock());
        for &directory in &self.order.directories {
            let children = children(self.tree, directory, self.first_ino);
            let packing = format.pack(&children).ok_or_else(|| Error::Member {
                path: shown(&self.tree.path(directory)),
                reason: format!("{} names are too many for one directory", children.len()),
            })?;
            let inode = self.tree.name(directory).inode;
            layout.directories.insert(inode, (packing.blocks(), packing.is_tree()));
            if !self.take(inode, packing.blocks(), None, draft, cursor, layout)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn place_xattrs(&self, draft: &Draft, cursor: &mut Cursor, layout: &mut Layout) -> Result<bool> {
        let sb = draft.superblock();
        let room = Inode::new(1, 0, 0, sb).xattr_range().len();
        let mut shared: HashMap<usize, usize> = HashMap::new();
        let mut divisions: Vec<Option<Division>> = vec![None; self.tree.xattrs.len()];
        for &inode in &self.order.inodes {
            let set = self.tree.node(inode).xattrs;
            if set.is_empty() {
                continue;
            }
            let division = match &divisions[set.index()] {
                Some(division) => division,
                None => {
                    let divided = self.tree.xattrs.divide(set, room, sb).map_err(|reason| {
                        let path = shown(&self.tree.path(self.tree.some_name_of(inode)));
                        Error::Member { path, reason }
                    })?;
                    divisions[set.index()].insert(divided)
                }
            };
            if !division.needs_block() {
                continue;
            }
            let known = shared.get(&set.index()).copied();
            let at = match known.filter(|&at| layout.shared_blocks[at].2 < REFCOUNT_MAX) {
                Some(at) => at,
                None => {
                    let mut number = 0;
                    if !cursor.take(1, |start, _| number = start) {
                        return Ok(false);
                    }
                    layout.shared_blocks.push((number, inode, 0));
                    let at = layout.shared_blocks.len() - 1;
                    shared.insert(set.index(), at);
                    at
                }
            };
            layout.shared_blocks[at].2 += 1;
            layout.xattr_blocks.insert(inode, layout.shared_blocks[at].0);
        }
        layout.divisions = divisions.into_iter().map(Option::unwrap_or_default).collect();
        Ok(true)
    }

    fn place_files(&self, draft: &Draft, cursor: &mut Cursor, layout: &mut Layout) -> Result<bool> {
        let size = draft.superblock().block_size();
        let symlinks = |inode: &u32| matches!(self.tree.node(*inode).body, Body::Symlink(_));
        let files = |inode: &u32| matches!(self.tree.node(*inode).body, Body::File { .. });
        for &inode in self.order.inodes.iter().filter(|inode| symlinks(inode)) {
            if !self.take(inode, self.blocks(inode, size), None, draft, cursor, layout)? {
                return Ok(false);
            }
        }
        for &inode in self.order.inodes.iter().filter(|inode| files(inode)) {
            let holes = self.holes.runs(inode);
            if !self.take(inode, self.blocks(inode, size), holes, draft, cursor, layout)? {
                return Ok(false);
            }
            layout.extents += match layout.scattered.get(&inode) {
                Some(scattered) => scattered.runs.len() as u64,
                None => u64::from(layout.starts[inode as usize] > 0),
            };
        }
        Ok(true)
    }

    /// Blocks of the contents of a file or of a long symbolic link.
    fn blocks(&self, inode: u32, block_size: u32) -> u64 {
        file_blocks(self.tree, self.holes, inode, block_size)
    }

    /// Takes the blocks of one file: `blocks` in a row, or those that `pieces` say: places in the
    /// file and lengths.
    fn take(
        &self,
        inode: u32,
        blocks: u64,
        pieces: Option<&[(u64, u64)]>,
        draft: &Draft,
        cursor: &mut Cursor,
        layout: &mut Layout,
    ) -> Result<bool> {
        if blocks == 0 {
            return Ok(true);
        }
        let whole = [(0, blocks)];
        let mut runs = Vec::new();
        for &(logical, len) in pieces.unwrap_or(&whole) {
            let mut done = logical;
            let give = |start, len| {
                runs.push(Run { logical: done, start, len });
                done += len;
            };
            if !cursor.take(len, give) {
                return Ok(false);
            }
        }
        let simple = runs.len() == 1 && runs[0].logical == 0;
        let has_extents = draft.superblock().features().incompat.contains(Incompat::EXTENTS);
        let needs_map = match has_extents {
            true => runs.iter().map(|run| run.len.div_ceil(EXTENT_BLOCKS)).sum::<u64>() > ROOT_EXTENTS as u64,
            false => runs.last().is_some_and(|run| run.logical + run.len > DIRECT_BLOCKS),
        };
        if simple && !needs_map {
            layout.starts[inode as usize] = runs[0].start;
            return Ok(true);
        }
        let mut scattered = Scattered { runs: runs.into(), root: None, map_blocks: 0 };
        if needs_map {
            let mut full = false;
            let mut take = || {
                let mut number = 0;
                full |= !cursor.take(1, |start, _| number = start);
                Ok(number)
            };
            let Map { root, blocks } =
                make_map(draft.superblock(), self.ino(inode), &scattered.runs, &mut take)?;
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

/// The map of a file with these runs.
pub(crate) fn make_map(sb: &Superblock, ino: u32, runs: &[Run], take: &mut map::Take<'_>) -> Result<Map> {
    let size = sb.block_size() as usize;
    let seed = sb.metadata_seed().map(|seed| extern4_disk::checksum::inode_seed(seed, ino, 0));
    Ok(match sb.features().incompat.contains(Incompat::EXTENTS) {
        true => map::extents(runs, size, seed, take)?,
        false => map::block_list(runs, size, take)?,
    })
}

/// Blocks of the contents of a file or of a long symbolic link, without those of its map.
pub(crate) fn file_blocks(tree: &Tree, holes: &Holes, inode: u32, block_size: u32) -> u64 {
    match &tree.node(inode).body {
        Body::File { contents, .. } => match holes.runs(inode) {
            Some(runs) => runs.iter().map(|(_, len)| len).sum(),
            None => contents.size.div_ceil(block_size.into()),
        },
        Body::Symlink(target) => u64::from(target.len() > FAST_SYMLINK_MAX),
        _ => 0,
    }
}

/// Whether a symbolic link's target is in its inode.
pub(crate) fn is_fast_symlink(target: &[u8]) -> bool {
    target.len() <= FAST_SYMLINK_MAX
}

/// The names in a directory, lost+found included.
pub(crate) fn children(tree: &Tree, directory: u32, first_ino: u32) -> Vec<Child<'_>> {
    let mut children: Vec<Child<'_>> = tree
        .children(directory)
        .map(|(_, name)| {
            let node = tree.node(name.inode);
            Child {
                name: &name.text,
                ino: number(node.place, first_ino),
                kind: FileType::from_mode(node.body.kind().mode_bits()),
            }
        })
        .collect();
    if directory == 0 {
        let lost_found = Child { name: LOST_FOUND, ino: LOST_FOUND_INO, kind: FileType::Directory };
        let at = children.partition_point(|child| child.name < lost_found.name);
        children.insert(at, lost_found);
    }
    children
}
