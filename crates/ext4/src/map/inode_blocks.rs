//! The blocks of an inode, for experts: where its data is, and the tree or the pointers that say
//! so.
//!
//! Any fault ends the walk with an error that names its place. No map has more blocks than its
//! volume, so a walk ends also over a corrupt map.
//!
//! The commands `inode` and `block` call it, and the library's `diff`.

use extern4_disk::inode::Inode;
use extern4_disk::{CorruptKind, Place, Structure};

use crate::error::Error;
use crate::fs::Ext4;
use crate::map::walk::{DataRun, MapNode, MapVisitor};

/// The use that an inode makes of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
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
pub struct Piece {
    /// The first block of the volume.
    pub physical: u64,
    /// The number of blocks.
    pub len_blocks: u64,
    /// The use of the blocks.
    pub used: Use,
    /// Levels between the inode and the piece, by which a tree is indented.
    pub depth: u32,
}

/// Calls `each` for all blocks of an inode. A node of the map comes before the blocks that it maps.
///
/// # Errors
/// A map that is corrupt, or a device that fails.
pub fn pieces(ext4: &Ext4, inode: &Inode, each: &mut dyn FnMut(Piece)) -> Result<(), Error> {
    if let Some(block) = inode.xattr_block() {
        each(Piece {
            physical: block,
            len_blocks: 1,
            used: Use::Xattr,
            depth: 0,
        });
    }
    if !inode.has_map() {
        return Ok(());
    }
    let blocks_left = ext4.superblock().blocks_count();
    let place = Place::new(Structure::Inode).ino(inode.ino());
    let mut pieces = Pieces {
        each,
        place,
        levels: 0,
        data_depth: 0,
        blocks_left,
        fault: None,
    };
    ext4.walk_map(inode, &mut pieces);
    match pieces.fault {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// A visitor that passes the blocks of a map on to `each`, up to the first fault.
struct Pieces<'a> {
    each: &'a mut dyn FnMut(Piece),
    place: Place,
    /// The highest level of the map's blocks so far, counted from the data.
    levels: u32,
    /// Levels between the inode and the data that the last block of the map leads to.
    data_depth: u32,
    /// How many more blocks the map can have.
    blocks_left: u64,
    fault: Option<Error>,
}

impl MapVisitor for Pieces<'_> {
    fn node(
        &mut self,
        MapNode {
            block,
            logical,
            level,
        }: MapNode,
    ) -> bool {
        if self.fault.is_some() {
            return false;
        }
        self.levels = self.levels.max(level);
        let depth = self.levels - level;
        self.data_depth = depth + 1;
        (self.each)(Piece {
            physical: block,
            len_blocks: 1,
            used: Use::Map { level, logical },
            depth,
        });
        let Some(left) = self.blocks_left.checked_sub(1) else {
            let what = "the map has more blocks than the volume";
            self.fault = Some(self.place.corrupt(CorruptKind::Mismatch { what }).into());
            return false;
        };
        self.blocks_left = left;
        true
    }

    fn run(&mut self, run: DataRun) {
        if self.fault.is_none() {
            let used = Use::Data {
                logical: run.logical,
                unwritten: !run.written,
            };
            let physical = run.physical;
            let len_blocks = run.len;
            let depth = self.data_depth;
            (self.each)(Piece {
                physical,
                len_blocks,
                used,
                depth,
            });
        }
    }

    fn fault(&mut self, _place: Place, error: Error) {
        self.fault.get_or_insert(error);
    }
}
