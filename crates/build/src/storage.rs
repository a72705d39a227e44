//! The contents of inodes: extended attributes, and with `inline_data` small files, directories and
//! symbolic links, as far as there is room.
//!
//! `builder` decides it once, when the sizes of inodes and blocks are known. With `ea_inode`,
//! values that no block has room for become inodes without names, one for all attributes with the
//! same value. `layout` and `write` then treat these as any other file.
//!
//! Contents take their room first, as with `mke2fs -O inline_data -d`. The root directory and
//! lost+found have blocks, there too.

use std::collections::HashMap;

use extern4_disk::dirent::{DirEntry, Layout};
use extern4_disk::feature::Incompat;
use extern4_disk::inline::{HEAD_SIZE, XATTR};
use extern4_disk::inode::Inode;
use extern4_disk::superblock::Superblock;
use extern4_disk::xattr::{Attr, Value, size_in_inode};

use crate::directory::{Child, Format};
use crate::error::{Error, Result, shown};
use crate::holes::Holes;
use crate::layout::is_fast_symlink;
use crate::tree::{Body, Order, Tree};
use crate::xattr::{Division, Set};

/// Bytes of `i_block` in front of the names of a directory: the number of its parent.
const PARENT_SIZE: usize = 4;

/// The decision which contents and attributes are in inodes.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    /// The contents that are in their inodes, by the inode in the tree.
    inline: HashMap<u32, Inline>,
    /// How each set of attributes is divided, next to contents that take some of the room.
    divisions: HashMap<Room, Division>,
    /// The blocks of values in EA inodes, by the set of attributes and the room.
    value_blocks: HashMap<Room, u64>,
}

/// A set of attributes, and the bytes of contents that are among them in the inode. An inode with
/// contents has an attribute for them, even if it is empty.
type Room = (Set, Option<usize>);

/// Contents that are in their inode.
#[derive(Clone, Copy, Debug)]
struct Inline {
    /// Bytes among the attributes.
    tail: usize,
    /// The name of a directory.
    directory: Option<u32>,
}

impl Storage {
    /// Decides what is in the inodes of a volume, and adds the inodes of large values to the tree.
    pub(crate) fn decide(tree: &mut Tree, order: &mut Order, sb: &Superblock) -> Result<Self> {
        let mut storage = Self::default();
        let room = Inode::new(1, 0, 0, sb).xattr_range().len();
        if sb.features().incompat.contains(Incompat::INLINE_DATA) {
            storage.find_inline(tree, order, room, sb);
        }
        storage.divide(tree, order, room, sb)?;
        Ok(storage)
    }

    fn find_inline(&mut self, tree: &Tree, order: &Order, room: usize, sb: &Superblock) {
        for &inode in &order.inodes {
            let node = tree.node(inode);
            let tail = match &node.body {
                Body::File { contents, .. } if !node.is_sealed => {
                    usize::try_from(contents.size).ok()
                }
                Body::Symlink(target) if !is_fast_symlink(target) => Some(target.len()),
                _ => None,
            };
            let tail = tail.map(|size| size.saturating_sub(HEAD_SIZE));
            if let Some(tail) = tail.filter(|tail| size_with_data(*tail) <= room) {
                self.inline.insert(
                    inode,
                    Inline {
                        tail,
                        directory: None,
                    },
                );
            }
        }
        let layout = Format::of(sb).layout();
        let has_blocks = |inode: u32| inode == 0 || inode == order.lost_found;
        for &name in order
            .directories
            .iter()
            .filter(|name| !has_blocks(tree.name(**name).inode))
        {
            let names = tree.children(name).map(|(_, child)| &*child.text);
            let tail = split(names.map(|name| layout.rec_len(name))).1;
            if size_with_data(tail) <= room {
                self.inline.insert(
                    tree.name(name).inode,
                    Inline {
                        tail,
                        directory: Some(name),
                    },
                );
            }
        }
    }

    fn divide(
        &mut self,
        tree: &mut Tree,
        order: &mut Order,
        room: usize,
        sb: &Superblock,
    ) -> Result<()> {
        let mut values: HashMap<Vec<u8>, u32> = HashMap::new();
        for at in 0..order.inodes.len() {
            let inode = order.inodes[at];
            let key = self.room(tree, inode);
            if key.0.is_empty() || self.divisions.contains_key(&key) {
                continue;
            }
            let data = key.1.map_or(0, size_with_data);
            let divided = tree.xattrs.divide(key.0, room, data, sb);
            let mut division = divided.map_err(|reason| {
                let path = shown(&tree.path(tree.some_name_of(inode)));
                Error::Member { path, reason }
            })?;
            let mut blocks = 0;
            for (attribute, value_inode) in division.values_mut() {
                let value = tree.xattrs.value(key.0, *attribute).to_vec();
                blocks += value.len().div_ceil(sb.block_size() as usize) as u64;
                *value_inode = *values.entry(value).or_insert_with_key(|value| {
                    let inode = tree.add_value(value, inode);
                    order.inodes.push(inode);
                    inode
                });
            }
            self.value_blocks.insert(key, blocks);
            self.divisions.insert(key, division);
        }
        Ok(())
    }

    fn room(&self, tree: &Tree, inode: u32) -> Room {
        (
            tree.node(inode).xattrs,
            self.inline.get(&inode).map(|inline| inline.tail),
        )
    }

    /// Whether the contents of an inode are in it.
    pub(crate) fn is_inline(&self, inode: u32) -> bool {
        self.inline.contains_key(&inode)
    }

    /// The name of a directory that is in its inode.
    pub(crate) fn inline_directory(&self, inode: u32) -> Option<u32> {
        self.inline.get(&inode)?.directory
    }

    /// How the attributes of an inode are divided; `None` without attributes.
    pub(crate) fn division(&self, tree: &Tree, inode: u32) -> Option<&Division> {
        self.divisions.get(&self.room(tree, inode))
    }

    /// Blocks that an inode counts for values that are in EA inodes.
    pub(crate) fn value_blocks(&self, tree: &Tree, inode: u32) -> u64 {
        if self.value_blocks.is_empty() {
            0
        } else {
            self.value_blocks
                .get(&self.room(tree, inode))
                .copied()
                .unwrap_or(0)
        }
    }

    /// The key that inodes with the same block of attributes have in common.
    pub(crate) fn sharing_key(&self, tree: &Tree, inode: u32) -> (Set, Option<usize>) {
        self.room(tree, inode)
    }

    /// Returns how many blocks the contents of a file, of a long symbolic link or of a value take.
    /// The blocks of its map are not counted.
    pub(crate) fn file_blocks(
        &self,
        tree: &Tree,
        holes: &Holes,
        inode: u32,
        block_size: u32,
    ) -> u64 {
        let blocks_of = |size: u64| size.div_ceil(block_size.into());
        match &tree.node(inode).body {
            Body::File { .. } | Body::Symlink(_) if self.is_inline(inode) => 0,
            Body::File { contents, .. } => match holes.runs(inode) {
                Some(runs) => runs.iter().map(|(_, len)| len).sum(),
                None => blocks_of(contents.size),
            },
            Body::Symlink(target) => u64::from(!is_fast_symlink(target)),
            Body::Value(value) => blocks_of(value.len() as u64),
            _ => 0,
        }
    }
}

/// Bytes of an inode that the attribute with `tail` bytes of contents takes alone.
fn size_with_data(tail: usize) -> usize {
    let value = vec![0; tail];
    size_in_inode(&[data_attribute(&value)])
}

/// The attribute that holds contents of an inode.
pub(crate) fn data_attribute(value: &[u8]) -> Attr<'_> {
    Attr {
        index: XATTR.0,
        name: XATTR.1,
        value: Value::Here(value),
        hash: 0,
    }
}

/// Divides records of these lengths between `i_block` and the attribute: how many are in the first,
/// and the bytes of the others.
fn split(lengths: impl Iterator<Item = usize>) -> (usize, usize) {
    let mut in_head = 0;
    let mut head = PARENT_SIZE;
    let mut tail = 0;
    for len in lengths {
        if tail == 0 && head + len <= HEAD_SIZE {
            in_head += 1;
            head += len;
        } else {
            tail += len;
        }
    }
    (in_head, tail)
}

/// Returns the contents of a directory that is in its inode: the bytes of `i_block`, and after
/// them the bytes of the attribute.
pub(crate) fn inline_directory(children: &[Child<'_>], parent: u32, layout: &Layout) -> Vec<u8> {
    let (in_head, tail) = split(children.iter().map(|child| layout.rec_len(child.name)));
    let mut contents = vec![0; HEAD_SIZE + tail];
    contents[..PARENT_SIZE].copy_from_slice(&parent.to_le_bytes());
    let (head, tail) = contents.split_at_mut(HEAD_SIZE);
    chain(&children[..in_head], &mut head[PARENT_SIZE..], layout);
    if !tail.is_empty() {
        chain(&children[in_head..], tail, layout);
    }
    contents
}

/// Writes records that fill `space`.
fn chain(children: &[Child<'_>], space: &mut [u8], layout: &Layout) {
    let unused = DirEntry {
        ino: 0,
        kind: extern4_disk::dirent::FileType::Unknown,
        name: b"",
        offset: 0,
        hash: None,
    };
    if children.is_empty() {
        unused.encode(space, layout);
    }
    let mut at = 0;
    for (index, child) in children.iter().enumerate() {
        let is_last = index + 1 == children.len();
        let len = if is_last {
            space.len() - at
        } else {
            layout.rec_len(child.name)
        };
        let entry = DirEntry {
            ino: child.ino,
            kind: child.kind,
            name: child.name,
            offset: 0,
            hash: None,
        };
        entry.encode(&mut space[at..at + len], layout);
        at += len;
    }
}
