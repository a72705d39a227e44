//! Walks a directory's hash tree: to the leaf of a hash, and from leaf to leaf.
//!
//! The tree has a root, up to two levels of interior nodes, and leaves, all of them blocks of the
//! directory. A [`Cursor`] is at a leaf and keeps the path to it. A descent counts the levels from
//! the number in the root, so it ends. A damaged index can lead from leaf to leaf in a circle. A
//! caller that [advances](Cursor::advance) counts the leaves and reports the circle ([`loop_in`]).
//!
//! `namei` looks names up, `list` lists them in the order of their hashes, `htree::insert` finds
//! the leaf for a new name, and [`Ext4::htree`] shows the tree. Checksums and entries of each node
//! are verified.

use std::collections::HashSet;

use extern4_block::Buffer;
use extern4_disk::casefold;
use extern4_disk::dirent::DirEntry;
use extern4_disk::htree::{Expect, Hash, HashVersion, Hasher, HtreeNode, Root, verify_checksum};
use extern4_disk::inode::InodeFlags;
use extern4_disk::superblock::Superblock;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

use crate::dir::blocks::dir_physical;
use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::volume::buffer::Verified;

/// One entry of a node of a directory's hash tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HtreeEntry {
    /// The level of its node; 0 is the root.
    pub depth: usize,
    /// The lowest hash below it. Its lowest bit is a flag: names with the last hash of the entry
    /// before continue here.
    pub hash: u32,
    /// The block of the directory that it refers to.
    pub block: u32,
    /// Whether that block is a leaf, which holds names.
    pub leaf: bool,
}

/// How the names of one directory are hashed.
#[derive(Clone, Copy, Debug)]
pub enum NameHash {
    /// By a function of the name, or of its folded form.
    Function {
        /// The function.
        hasher: Hasher,
        /// Names are folded first.
        casefold: bool,
    },
    /// The entry stores the hash, because the function needs the directory's key.
    Stored,
}

impl NameHash {
    /// Returns how a directory with the flags `dir` hashes its names if its root has `version`.
    pub fn new(superblock: &Superblock, dir: InodeFlags, version: HashVersion) -> Self {
        let version = if superblock.unsigned_hash() {
            version.unsigned()
        } else {
            version
        };
        match Hasher::new(version, superblock.hash_seed()) {
            // The names of an encrypted directory are hashed as they are on the disk.
            Some(hasher) => {
                let casefold =
                    dir.contains(InodeFlags::CASEFOLD) && !dir.contains(InodeFlags::ENCRYPT);
                Self::Function { hasher, casefold }
            }
            None => Self::Stored,
        }
    }

    /// Returns the hash of an entry's name.
    pub fn of_entry(&self, entry: &DirEntry<'_>) -> Hash {
        match self {
            Self::Function {
                hasher,
                casefold: true,
            } if !entry.name.is_ascii() || has_upper(entry.name) => casefold::fold(entry.name)
                .map_or_else(|| hasher.hash(entry.name), |folded| hasher.hash(&folded)),
            Self::Function { hasher, .. } => hasher.hash(entry.name),
            Self::Stored => entry.hash.map_or(Hash::new(0, 0), |stored| {
                Hash::new(stored.major, stored.minor)
            }),
        }
    }
}

fn has_upper(name: &[u8]) -> bool {
    name.iter().any(u8::is_ascii_uppercase)
}

/// The hash tree of a directory, its root read and checked.
pub(crate) struct Tree<'a> {
    fs: &'a Ext4,
    dir: &'a InodeInfo,
    expect: Expect,
    root: Buffer,
    levels: u8,
    /// How its names are hashed.
    pub(crate) hash: NameHash,
}

/// A node on the path to a leaf, and the index of the path's entry in it.
struct Frame {
    block: Buffer,
    at: usize,
}

impl<'a> Tree<'a> {
    /// Reads the root of the tree of `dir`, which must be an indexed directory.
    pub(crate) fn open(fs: &'a Ext4, dir: &'a InodeInfo) -> Result<Self> {
        let root = node_block(fs, dir, 0)?;
        let expect = expect(fs, dir);
        let facts = Root::peek(&root, &expect, place(dir, &root))?;
        let levels = facts.levels;
        let hash = NameHash::new(fs.superblock(), dir.fields().flags(), facts.hash_version);
        Ok(Self {
            fs,
            dir,
            expect,
            levels,
            root,
            hash,
        })
    }

    /// Returns the decoded root of the tree.
    pub(crate) fn root(&self) -> Result<Root<'_>> {
        Ok(Root::peek(
            &self.root,
            &self.expect,
            place(self.dir, &self.root),
        )?)
    }

    /// Returns a cursor at the first leaf that can have names with hash `major`.
    pub(crate) fn seek(&self, major: u32) -> Result<Cursor<'_>> {
        let mut cursor = Cursor {
            tree: self,
            frames: Vec::with_capacity(3),
            leaf: 0,
        };
        cursor.descend(self.root.clone(), |node| node.find(major))?;
        Ok(cursor)
    }

    /// Returns a node that [`node_block`] has checked.
    fn node<'b>(&self, depth: usize, block: &'b Buffer) -> Result<HtreeNode<'b>> {
        let place = place(self.dir, block);
        Ok(match depth {
            0 => Root::peek(block, &self.expect, place)?.node,
            _ => HtreeNode::peek(block, &self.expect, place)?,
        })
    }

    /// Returns the block that entry `at` of a node refers to.
    fn child(&self, node: &HtreeNode<'_>, at: usize) -> Result<u32> {
        checked_child(self.dir, &self.expect, node.block(at))
    }

    /// Checks every node of the tree, but no leaf.
    ///
    /// # Errors
    /// A node that is corrupt, or a block that the tree refers to twice.
    pub(crate) fn check(&self) -> Result<()> {
        self.visit(&mut |_| {})
    }

    /// Calls `each` with the entries of every node, parents before children.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check).
    pub(crate) fn visit(&self, each: &mut dyn FnMut(HtreeEntry)) -> Result<()> {
        self.visit_below(0, &self.root, &mut HashSet::new(), each)
    }

    fn visit_below(
        &self,
        depth: usize,
        block: &Buffer,
        seen: &mut HashSet<u32>,
        each: &mut dyn FnMut(HtreeEntry),
    ) -> Result<()> {
        let leaf = depth == usize::from(self.levels);
        let node = self.node(depth, block)?;
        for (hash, block) in node.iter() {
            if !seen.insert(block) {
                return Err(loop_in(self.dir));
            }
            each(HtreeEntry {
                depth,
                hash,
                block,
                leaf,
            });
        }
        if !leaf {
            for (_, block) in node.iter() {
                self.visit_below(
                    depth + 1,
                    &node_block(self.fs, self.dir, block)?,
                    seen,
                    each,
                )?;
            }
        }
        Ok(())
    }
}

/// A leaf of a tree and the path to it.
pub(crate) struct Cursor<'a> {
    tree: &'a Tree<'a>,
    frames: Vec<Frame>,
    leaf: u32,
}

impl Cursor<'_> {
    /// Returns the logical block of the leaf.
    pub(crate) fn leaf(&self) -> u32 {
        self.leaf
    }

    /// Returns the nodes from the root on, and the index of the path's entry in each.
    pub(crate) fn into_nodes(self) -> Vec<(Buffer, usize)> {
        self.frames
            .into_iter()
            .map(|frame| (frame.block, frame.at))
            .collect()
    }

    /// Returns the lowest and the highest hash that names in the leaf may have, according to the
    /// nodes above it.
    pub(crate) fn range(&self) -> Result<(u32, u32)> {
        let mut low = 0;
        let mut high = Hash::EOF_MAJOR - 2;
        for (depth, frame) in self.frames.iter().enumerate() {
            let node = self.tree.node(depth, &frame.block)?;
            low = low.max(node.hash(frame.at) & !1);
            if frame.at + 1 < node.len() {
                // A next leaf that continues this one shares its last hash. Any other starts with a
                // higher one.
                let next = node.hash(frame.at + 1);
                high = high.min(if next & 1 == 1 {
                    next - 1
                } else {
                    next.saturating_sub(2)
                });
            }
        }
        Ok((low, high.max(low)))
    }

    /// Moves to the next leaf. Returns the hash of its entry, with the flag for a continuation;
    /// `None` at the end of the tree.
    pub(crate) fn advance(&mut self) -> Result<Option<u32>> {
        while let Some(mut frame) = self.frames.pop() {
            let node = self.tree.node(self.frames.len(), &frame.block)?;
            let at = frame.at + 1;
            if at < node.len() {
                let hash = node.hash(at);
                let child = self.tree.child(&node, at)?;
                frame.at = at;
                self.frames.push(frame);
                self.down(child, |_| 0)?;
                return Ok(Some(hash));
            }
        }
        Ok(None)
    }

    /// Descends from `block` to a leaf. `choose` picks the entry in each node.
    fn descend(&mut self, block: Buffer, choose: impl Fn(&HtreeNode<'_>) -> usize) -> Result<()> {
        let node = self.tree.node(self.frames.len(), &block)?;
        let at = choose(&node);
        let child = self.tree.child(&node, at)?;
        self.frames.push(Frame { block, at });
        self.down(child, choose)
    }

    /// Descends from logical block `child`, which is a leaf if the path is complete, to a leaf.
    fn down(&mut self, child: u32, choose: impl Fn(&HtreeNode<'_>) -> usize) -> Result<()> {
        let mut child = child;
        while self.frames.len() <= usize::from(self.tree.levels) {
            let block = node_block(self.tree.fs, self.tree.dir, child)?;
            let node = self.tree.node(self.frames.len(), &block)?;
            let at = choose(&node);
            child = self.tree.child(&node, at)?;
            self.frames.push(Frame { block, at });
        }
        self.leaf = child;
        Ok(())
    }
}

/// The leaf with which a search for a hash begins.
pub(crate) struct FirstLeaf {
    /// The hash.
    pub(crate) major: u32,
    /// The logical block of the leaf.
    pub(crate) leaf: u32,
    /// The hash of the next leaf's entry, with the flag for a continuation; `None` if this leaf is
    /// the last.
    pub(crate) next: Option<u32>,
}

/// The entry of a node that a search for a hash takes, and the hash of the next entry.
struct ChosenEntry {
    block: u32,
    next: Option<u32>,
}

impl ChosenEntry {
    fn new(node: &HtreeNode<'_>, major: u32) -> Self {
        let at = node.find(major);
        Self {
            block: node.block(at),
            next: (at + 1 < node.len()).then(|| node.hash(at + 1)),
        }
    }
}

/// Returns the first leaf of the tree of `dir` that can have names with the hash that `major`
/// returns; `None` if it returns none. Unlike a [`Cursor`], it keeps no node.
pub(crate) fn first_leaf(
    fs: &Ext4,
    dir: &InodeInfo,
    major: impl FnOnce(&NameHash) -> Option<u32>,
) -> Result<Option<FirstLeaf>> {
    let expect = expect(fs, dir);
    let in_root = |bytes: &[u8], place| {
        let root = Root::peek(bytes, &expect, place)?;
        let hash = NameHash::new(fs.superblock(), dir.fields().flags(), root.hash_version);
        Ok(major(&hash).map(|major| (major, root.levels, ChosenEntry::new(&root.node, major))))
    };
    let Some((major, levels, mut chosen)) = with_node(fs, dir, 0, in_root)? else {
        return Ok(None);
    };
    let mut next = chosen.next;
    for _ in 0..levels {
        let child = checked_child(dir, &expect, chosen.block)?;
        chosen = with_node(fs, dir, child, |bytes, place| {
            let node = HtreeNode::peek(bytes, &expect, place)?;
            Ok(ChosenEntry::new(&node, major))
        })?;
        next = chosen.next.or(next);
    }
    Ok(Some(FirstLeaf {
        major,
        leaf: checked_child(dir, &expect, chosen.block)?,
        next,
    }))
}

/// Returns the number of a block that a node refers to. It is checked again: the node may have been
/// verified when the directory had more blocks.
fn checked_child(dir: &InodeInfo, expect: &Expect, block: u32) -> Result<u32> {
    if block == 0 || block >= expect.blocks {
        let kind = CorruptKind::Field {
            field: "dx_entry.block",
            value: block.into(),
        };
        return Err(Place::new(Structure::HtreeNode)
            .ino(dir.ino())
            .corrupt(kind)
            .into());
    }
    Ok(block)
}

/// Returns the block of the root (logical block 0) or of an interior node, with checksum and
/// entries verified.
pub(crate) fn node_block(fs: &Ext4, dir: &InodeInfo, logical: u32) -> Result<Buffer> {
    let physical = dir_physical(fs, dir, logical)?;
    let place = node_place(dir, physical);
    fs.verified(physical, Verified::HtreeNode, |bytes| {
        verify_node(fs, dir, logical, place, bytes)
    })
}

/// Calls `look` with the verified bytes of that block, as [`Ext4::with_verified`] does, and with
/// its place.
fn with_node<R>(
    fs: &Ext4,
    dir: &InodeInfo,
    logical: u32,
    look: impl FnOnce(&[u8], Place) -> Result<R, Corrupt>,
) -> Result<R> {
    let physical = dir_physical(fs, dir, logical)?;
    let place = node_place(dir, physical);
    let verify = |bytes: &[u8]| verify_node(fs, dir, logical, place, bytes);
    let look = |bytes: &[u8]| look(bytes, place);
    Ok(fs.with_verified(physical, Verified::HtreeNode, verify, look)??)
}

fn verify_node(
    fs: &Ext4,
    dir: &InodeInfo,
    logical: u32,
    place: Place,
    bytes: &[u8],
) -> Result<(), Corrupt> {
    if let Some(seed) = dir.seed() {
        verify_checksum(bytes, logical == 0, seed, place)?;
    }
    match logical {
        0 => Root::decode(bytes, &expect(fs, dir), place).map(drop),
        _ => HtreeNode::decode(bytes, &expect(fs, dir), place).map(drop),
    }
}

pub(crate) fn expect(fs: &Ext4, dir: &InodeInfo) -> Expect {
    use extern4_disk::feature::Incompat;
    let features = fs.superblock().features();
    Expect {
        blocks: dir.len_blocks(fs).unwrap_or(0),
        checksum: features.metadata_csum(),
        large_dir: features.incompat.contains(Incompat::LARGEDIR),
    }
}

fn place(dir: &InodeInfo, block: &Buffer) -> Place {
    node_place(dir, block.number())
}

fn node_place(dir: &InodeInfo, physical: u64) -> Place {
    Place::new(Structure::HtreeNode)
        .ino(dir.ino())
        .block(physical)
}

/// Returns the error for a tree that leads to the same block twice.
pub(crate) fn loop_in(dir: &InodeInfo) -> crate::Error {
    Place::new(Structure::HtreeNode)
        .ino(dir.ino())
        .corrupt(CorruptKind::Loop {
            what: "the hash tree",
        })
        .into()
}
