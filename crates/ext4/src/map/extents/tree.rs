//! [`ExtentPath`]: the path from the root of an extent tree to a leaf, and storing it after a
//! change.
//!
//! An `ExtentPath` is a copy of the nodes from the root down to one leaf. `extents::change` changes
//! the extents of the leaf in it and passes it to [`store_path`]. That splits nodes that have
//! become too full, frees nodes that have become empty, and makes the tree deeper or flatter. Each
//! key in an index stays the first block that its child maps, as `e2fsck` demands.
//! [`nodes_needed`](ExtentPath::nodes_needed) says in advance how many nodes it allocates.

use extern4_disk::extent::{
    self, Entries, Expect, Extent, ExtentNode, Index, LOGICAL_END, MAX_DEPTH, OwnedExtentNode,
};
use extern4_disk::{Place, Structure};
use extern4_vfs::Errno;

use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::map::extents::read::node_block;
use crate::map::map_blocks::{allocate_map_block, home_block};
use crate::volume::buffer::Verified;
use crate::volume::group::to_usize;

/// The block number of the root, which is in no block.
const ROOT: u64 = 0;
const HEADER_SIZE: u32 = 12;
const ENTRY_SIZE: u32 = 12;

/// A node on a path.
struct Step {
    /// Where it is; [`ROOT`] for the root.
    block: u64,
    node: OwnedExtentNode,
    /// The index of the path's entry.
    at: usize,
    /// The range of the file's blocks that it may map.
    start: u32,
    end: u64,
}

/// The path from the root to a leaf.
pub(crate) struct ExtentPath {
    /// The root first, the leaf last.
    steps: Vec<Step>,
}

impl ExtentPath {
    /// Loads the path to the leaf that maps `logical` or would map it.
    pub(crate) fn load(fs: &Ext4, info: &InodeInfo, logical: u32) -> Result<Self> {
        let place = Place::new(Structure::ExtentNode).ino(info.ino());
        let mut path = Self {
            steps: Vec::with_capacity(3),
        };
        let expect = Expect::deep_root(fs.blocks(), info.i_block());
        let root = ExtentNode::decode(info.i_block(), expect, place)?;
        let mut next = path.push(ROOT, &root, expect, logical);
        while let Some((index, expect)) = next {
            let block = node_block(fs, info, index.child, expect)?;
            let node = ExtentNode::decode(&block, expect, place.block(index.child))?;
            next = path.push(index.child, &node, expect, logical);
        }
        Ok(path)
    }

    /// Adds a node, and returns its child on the path to `logical`. That is the first child if all
    /// start after `logical`.
    fn push(
        &mut self,
        block: u64,
        node: &ExtentNode<'_>,
        expect: Expect,
        logical: u32,
    ) -> Option<(Index, Expect)> {
        let at = node
            .children()
            .take_while(|(index, _)| index.logical <= logical)
            .count()
            .saturating_sub(1);
        let start = expect.start;
        let end = expect.end;
        self.steps.push(Step {
            block,
            node: node.to_owned(),
            at,
            start,
            end,
        });
        node.children().nth(at)
    }

    fn leaf(&self) -> &Step {
        self.steps.last().expect("a path has a root at least")
    }

    /// Returns the number of levels above the leaf.
    pub(crate) fn depth(&self) -> u32 {
        // OK: at most DEEPEST.
        self.steps.len() as u32 - 1
    }

    /// Returns the extents of the leaf.
    pub(crate) fn extents(&self) -> &[Extent] {
        match &self.leaf().node.entries {
            Entries::Leaf(extents) => extents,
            Entries::Index(_) => &[],
        }
    }

    /// Replaces the extents of the leaf, and joins adjacent ones.
    pub(crate) fn set_extents(&mut self, mut extents: Vec<Extent>) {
        join(&mut extents);
        self.steps
            .last_mut()
            .expect("a path has a root at least")
            .node
            .entries = Entries::Leaf(extents);
    }

    /// Returns the first block of the file that the leaf may map.
    pub(crate) fn start(&self) -> u64 {
        self.leaf().start.into()
    }

    /// Returns one past the last block of the file that the leaf may map.
    pub(crate) fn end(&self) -> u64 {
        self.leaf().end
    }

    /// Whether the leaf is the first of the tree.
    pub(crate) fn is_first(&self) -> bool {
        self.steps.iter().all(|step| step.at == 0)
    }

    /// Returns how many nodes are allocated if the leaf gets `more` extents.
    pub(crate) fn nodes_needed(&self, more: usize) -> u32 {
        let mut more = more;
        let mut needed = 0;
        for step in self.steps.iter().rev() {
            let len = len(&step.node) + more;
            let max = usize::from(step.node.max);
            if len <= max {
                break;
            }
            // All entries of a root go into one node.
            more = if step.block == ROOT {
                1
            } else {
                len.div_ceil(max) - 1
            };
            needed += more;
        }
        // OK: no more than there are entries in a few nodes.
        needed as u32
    }

    /// Returns `EFBIG` if the tree has no room for one more extent: it has the greatest depth, and
    /// is full.
    pub(crate) fn check_room(&self) -> Result<()> {
        let full = |step: &Step| len(&step.node) + 2 > usize::from(step.node.max);
        let deepest = self.depth() >= u32::from(MAX_DEPTH);
        if deepest && self.steps.iter().all(full) {
            Err(Errno::EFBIG.into())
        } else {
            Ok(())
        }
    }
}

/// Joins adjacent extents that one extent can replace.
pub(crate) fn join(extents: &mut Vec<Extent>) {
    extents.dedup_by(|next, last| absorb(last, next));
}

/// Extends `last` by `next` if one extent can map both. Returns whether it did.
fn absorb(last: &mut Extent, next: &Extent) -> bool {
    let len = u32::from(last.len_blocks) + u32::from(next.len_blocks);
    let follows = last.end() == u64::from(next.logical)
        && last.physical + u64::from(last.len_blocks) == next.physical
        && last.unwritten == next.unwritten
        && len <= max_len(last.unwritten);
    if follows {
        // OK: at most 32768.
        last.len_blocks = len as u16;
    }
    follows
}

/// Returns the greatest length of an extent.
pub(crate) fn max_len(unwritten: bool) -> u32 {
    u32::from(extent::MAX_WRITTEN_LEN) - u32::from(unwritten)
}

fn len(node: &OwnedExtentNode) -> usize {
    match &node.entries {
        Entries::Leaf(extents) => extents.len(),
        Entries::Index(indexes) => indexes.len(),
    }
}

/// Returns the first block of the file that a node maps; `None` if it is empty.
fn first(node: &OwnedExtentNode) -> Option<u32> {
    match &node.entries {
        Entries::Leaf(extents) => extents.first().map(|extent| extent.logical),
        Entries::Index(indexes) => indexes.first().map(|index| index.logical),
    }
}

/// Splits a node that is too full into the node and new ones for the rest. `end` is the end of the
/// node's range.
fn cut(mut node: OwnedExtentNode, end: u64) -> (OwnedExtentNode, Vec<OwnedExtentNode>) {
    let len = len(&node);
    let max = usize::from(node.max);
    // At the end of the file more extents will probably follow, so the node stays full. Elsewhere
    // both halves get room.
    let each = if end == LOGICAL_END || len > 2 * max {
        max
    } else {
        len.div_ceil(2)
    };
    if len <= max {
        return (node, Vec::new());
    }
    let like = OwnedExtentNode {
        entries: Entries::Leaf(Vec::new()),
        ..node
    };
    let of = |entries| OwnedExtentNode {
        entries,
        ..like.clone()
    };
    let rest = match &mut node.entries {
        Entries::Leaf(all) => all
            .split_off(each)
            .chunks(each)
            .map(|part| of(Entries::Leaf(part.into())))
            .collect(),
        Entries::Index(all) => all
            .split_off(each)
            .chunks(each)
            .map(|part| of(Entries::Index(part.into())))
            .collect(),
    };
    (node, rest)
}

fn indexes(node: &mut OwnedExtentNode) -> &mut Vec<Index> {
    match &mut node.entries {
        Entries::Index(indexes) => indexes,
        Entries::Leaf(_) => unreachable!("only nodes above the leaves have children"),
    }
}

/// Stores the changed leaf of a path, and the nodes above it that change with it.
pub(crate) fn store_path(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    mut path: ExtentPath,
) -> Result<()> {
    while let Some(step) = path.steps.pop() {
        let Some(parent) = path.steps.last_mut() else {
            return store_root(handle, info, step.node);
        };
        // An only child that fits into the root replaces it.
        let small = parent.block == ROOT
            && len(&parent.node) == 1
            && len(&step.node) <= usize::from(parent.node.max);
        if !store_step(handle, info, step, parent)? && !small {
            break;
        }
    }
    Ok(())
}

/// Stores a node below the root. Returns whether that has changed its parent.
fn store_step(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    step: Step,
    parent: &mut Step,
) -> Result<bool> {
    let block = step.block;
    let at = parent.at;
    let children = indexes(&mut parent.node);
    let Some(key) = first(&step.node) else {
        free_node(handle, info, block)?;
        children.remove(at);
        return Ok(true);
    };
    let mut changed = std::mem::replace(&mut children[at].logical, key) != key;
    let (node, behind) = cut(step.node, step.end);
    write_node(handle, info, block, &node)?;
    for (node, at) in behind.iter().zip(at + 1..) {
        let child = new_node(handle, info, block)?;
        write_node(handle, info, child, node)?;
        children.insert(
            at,
            Index {
                logical: first(node).unwrap_or(key),
                child,
            },
        );
        changed = true;
    }
    Ok(changed)
}

fn store_root(handle: &Handle<'_>, info: &mut InodeInfo, mut root: OwnedExtentNode) -> Result<()> {
    shrink_root(handle, info, &mut root)?;
    if len(&root) == 0 {
        root = OwnedExtentNode {
            entries: Entries::Leaf(Vec::new()),
            depth: 0,
            ..root
        };
    }
    if len(&root) > usize::from(root.max) {
        grow_root(handle, info, &mut root)?;
    }
    let mut bytes = *info.i_block();
    root.encode(&mut bytes);
    info.fields_mut().set_map(&bytes);
    Ok(())
}

/// Replaces the root by its only child, as long as it has one that fits. A damaged child stays
/// where it is, since the change is half done.
fn shrink_root(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    root: &mut OwnedExtentNode,
) -> Result<()> {
    while let Entries::Index(children) = &root.entries
        && let [Index { child, .. }] = children[..]
    {
        let place = Place::new(Structure::ExtentNode)
            .ino(info.ino())
            .block(child);
        let expect = Expect {
            depth: Some(root.depth - 1),
            ..Expect::root(handle.fs.blocks())
        };
        let node = node_block(handle.fs, info, child, expect)
            .and_then(|block| Ok(ExtentNode::decode(&block, expect, place)?.to_owned()));
        let node = match node {
            Err(Error::Corrupt(_)) => break,
            node => node?,
        };
        if len(&node) > usize::from(root.max) {
            break;
        }
        free_node(handle, info, child)?;
        *root = OwnedExtentNode {
            max: root.max,
            ..node
        };
    }
    Ok(())
}

/// Moves the entries of a root that is too full to a new node below it.
fn grow_root(handle: &Handle<'_>, info: &mut InodeInfo, root: &mut OwnedExtentNode) -> Result<()> {
    let depth = root.depth + 1;
    let logical = first(root).unwrap_or(0);
    // OK: at most 5461, with blocks of 64 KiB.
    let max = ((handle.fs.superblock().block_size() - HEADER_SIZE) / ENTRY_SIZE) as u16;
    let child = new_node(handle, info, home_block(handle, info))?;
    write_node(
        handle,
        info,
        child,
        &OwnedExtentNode {
            max,
            ..root.clone()
        },
    )?;
    *root = OwnedExtentNode {
        entries: Entries::Index(vec![Index { logical, child }]),
        depth,
        ..*root
    };
    Ok(())
}

/// Allocates a block for a new node, near block `near`.
fn new_node(handle: &Handle<'_>, info: &mut InodeInfo, near: u64) -> Result<u64> {
    let block = allocate_map_block(handle, info, near)?;
    handle
        .fs
        .note_verified(&handle.fresh(block)?, Verified::ExtentNode);
    Ok(block)
}

fn free_node(handle: &Handle<'_>, info: &mut InodeInfo, block: u64) -> Result<()> {
    handle
        .writer
        .allocator
        .free(handle, block..block + 1, true)?;
    info.add_blocks(-1, handle.fs.superblock().block_size())
}

fn write_node(
    handle: &Handle<'_>,
    info: &InodeInfo,
    block: u64,
    node: &OwnedExtentNode,
) -> Result<()> {
    let place = Place::new(Structure::ExtentNode)
        .ino(info.ino())
        .block(block);
    let mut buffer = handle.fs.cache.read(block)?;
    handle.edit(&mut buffer, |bytes| {
        node.encode(bytes);
        // The bytes after the last entry are unused. Clearing them keeps old entries off the
        // volume.
        let used = to_usize(HEADER_SIZE) + len(node) * to_usize(ENTRY_SIZE);
        let room = to_usize(HEADER_SIZE) + usize::from(node.max) * to_usize(ENTRY_SIZE);
        bytes[used..room].fill(0);
        match info.seed() {
            Some(seed) => extent::store_checksum(bytes, seed, place),
            None => Ok(()),
        }
    })?;
    Ok(())
}
