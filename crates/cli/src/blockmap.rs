//! The blocks of an inode, for experts: where its data is, and the tree or the pointers that say
//! so.
//!
//! The walk reads everything through the volume's cache and checks it as the library does. Any
//! fault ends the walk with an error that names its place. No map has more blocks than its volume,
//! so a walk ends also over a corrupt map.

use std::cell::Cell;

use extern4::block::Buffer;
use extern4_disk::blocks::Blocks;
use extern4_disk::extent::{self, Expect, Node};
use extern4_disk::indirect::Pointers;
use extern4_disk::inode::{FileKind, Inode, InodeFlags};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_ext4::{Error, Ext4};

/// The use that an inode makes of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Contents, from this block of the file on.
    Data {
        /// The first block of the file.
        logical: u64,
        /// Allocated, but not written yet.
        unwritten: bool,
    },
    /// A node of the extent tree, or a block of pointers.
    Map {
        /// Levels above the data.
        level: u32,
        /// The first block of the file it maps.
        logical: u64,
    },
    /// Extended attributes.
    Xattr,
}

/// A run of consecutive blocks of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first block of the volume.
    pub(crate) physical: u64,
    /// The number of blocks.
    pub(crate) len_blocks: u64,
    /// The use of the blocks.
    pub(crate) used: Use,
    /// How many levels below the inode the piece is found: for showing trees.
    pub(crate) depth: u32,
}

/// Calls `each` for all blocks of an inode. A node of the map comes before the blocks that it maps.
pub(crate) fn pieces(ext4: &Ext4, inode: &Inode, each: &mut dyn FnMut(Piece)) -> Result<(), Error> {
    if let Some(block) = inode.xattr_block() {
        each(Piece { physical: block, len_blocks: 1, used: Use::Xattr, depth: 0 });
    }
    if !has_map(inode) {
        return Ok(());
    }
    let superblock = ext4.superblock();
    let volume = Blocks { first: superblock.geometry().table_end(), end: superblock.blocks_count() };
    let walk = Walk { ext4, inode, volume, blocks_left: Cell::new(superblock.blocks_count()) };
    if inode.flags().contains(InodeFlags::EXTENTS) {
        let place = Place::new(Structure::ExtentNode).ino(inode.ino());
        return walk.node(&Node::decode(inode.map(), Expect::root(volume), place)?, 0, each);
    }
    walk.pointers(each)
}

/// Returns whether the inode's 60 bytes map blocks, and are not a device number, a short link's
/// target or the data itself.
fn has_map(inode: &Inode) -> bool {
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        return false;
    }
    match inode.kind() {
        FileKind::Regular | FileKind::Directory => true,
        // A target of 60 bytes and more has a block, and so has a shorter one with the extents
        // flag. The count of sectors does not tell: it includes large values of attributes.
        FileKind::Symlink => inode.flags().contains(InodeFlags::EXTENTS) || inode.size() >= 60,
        // Reserved inodes without a type map the bad blocks and the blocks kept for resizing.
        FileKind::None => inode.links() > 0 || inode.size() > 0 || inode.sectors() > 0,
        FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo | FileKind::Socket => false,
    }
}

struct Walk<'a> {
    ext4: &'a Ext4,
    inode: &'a Inode,
    volume: Blocks,
    /// How many more blocks the map can have.
    blocks_left: Cell<u64>,
}

impl Walk<'_> {
    /// Reads a block of the map.
    fn read(&self, block: u64, place: Place) -> Result<Buffer, Error> {
        let what = "the map has more blocks than the volume";
        let left = self.blocks_left.get().checked_sub(1);
        self.blocks_left.set(left.ok_or_else(|| place.corrupt(CorruptKind::Mismatch { what }))?);
        Ok(self.ext4.cache().read(block)?)
    }

    fn node(&self, node: &Node<'_>, depth: u32, each: &mut dyn FnMut(Piece)) -> Result<(), Error> {
        for extent in node.extents() {
            let used = Use::Data { logical: extent.logical.into(), unwritten: extent.unwritten };
            each(Piece { physical: extent.physical, len_blocks: extent.len_blocks.into(), used, depth });
        }
        for (index, expect) in node.children() {
            let level = u32::from(node.depth());
            let used = Use::Map { level, logical: index.logical.into() };
            each(Piece { physical: index.child, len_blocks: 1, used, depth });
            let place = Place::new(Structure::ExtentNode).ino(self.inode.ino()).block(index.child);
            let block = self.read(index.child, place)?;
            if let Some(seed) = self.ext4.superblock().metadata_seed() {
                extent::verify_checksum(&block, self.inode.checksum_seed(seed), place)?;
            }
            self.node(&Node::decode(&block, expect, place)?, depth + 1, each)?;
        }
        Ok(())
    }

    fn pointers(&self, each: &mut dyn FnMut(Piece)) -> Result<(), Error> {
        let place = Place::new(Structure::Inode).ino(self.inode.ino());
        let roots = Pointers::decode(self.inode.map(), self.volume, place)?;
        self.data(&roots, 12, 0, 0, each)?;
        let per_block = u64::from(self.ext4.superblock().block_size() / 4);
        let mut logical = 12;
        for level in 1..=3 {
            let span = per_block.pow(level);
            // Pointers 12, 13 and 14 have one, two and three levels of blocks below them.
            if let Some(block) = roots.get(11 + level as usize)? {
                self.indirect(u64::from(block.get()), level, logical, 0, each)?;
            }
            logical += span;
        }
        Ok(())
    }

    fn indirect(
        &self,
        block: u64,
        level: u32,
        logical: u64,
        depth: u32,
        each: &mut dyn FnMut(Piece),
    ) -> Result<(), Error> {
        each(Piece { physical: block, len_blocks: 1, used: Use::Map { level, logical }, depth });
        let place = Place::new(Structure::IndirectBlock).ino(self.inode.ino()).block(block);
        let buffer = self.read(block, place)?;
        let pointers = Pointers::decode(&buffer, self.volume, place)?;
        if level == 1 {
            return self.data(&pointers, pointers.len(), logical, depth + 1, each);
        }
        let span = (pointers.len() as u64).pow(level - 1);
        for at in 0..pointers.len() {
            if let Some(block) = pointers.get(at)? {
                let logical = logical + span * at as u64;
                self.indirect(u64::from(block.get()), level - 1, logical, depth + 1, each)?;
            }
        }
        Ok(())
    }

    fn data(
        &self,
        pointers: &Pointers<'_>,
        end: usize,
        logical: u64,
        depth: u32,
        each: &mut dyn FnMut(Piece),
    ) -> Result<(), Error> {
        let mut at = 0;
        while at < end {
            let (first, len) = pointers.run(at, end - at)?;
            if let Some(first) = first {
                let used = Use::Data { logical: logical + at as u64, unwritten: false };
                each(Piece { physical: first.get().into(), len_blocks: len as u64, used, depth });
            }
            at += len;
        }
        Ok(())
    }
}
