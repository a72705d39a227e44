//! An inode as the volume stores it, and the map of its blocks.
//!
//! Programs call [`inode`] also for inodes that no path leads to. It changes nothing.

pub use extern4_disk::inode::{FileKind, Inode};
pub use extern4_disk::time::Timestamp;
use extern4_ext4::inode_blocks;
pub use extern4_ext4::inode_blocks::{Piece as MapPiece, Use};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// An inode as the volume stores it.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoredInode {
    /// The fields of its record.
    pub inode: Inode,
    /// The block of its record, and the byte in it.
    pub position: Option<(u64, u32)>,
    /// Its blocks. A node of the map comes before the blocks that it maps.
    pub map: Vec<MapPiece>,
    /// The fault that ended the map; `None` for a whole map.
    pub map_fault: Option<Error>,
}

/// Reads an inode, also one that is reserved, deleted, or one of the volume's own.
///
/// # Errors
/// A number that no inode has, a record that is damaged, or a device that fails.
pub fn inode(volume: &Volume, ino: u32) -> Result<StoredInode> {
    let failed = |error| Error::ext4("read an inode of", error);
    let ext4 = volume.ext4();
    let inode = ext4.raw_inode(ino).map_err(failed)?;
    let mut map = Vec::new();
    let mapped = inode_blocks::pieces(ext4, &inode, &mut |piece| map.push(piece));
    let position = ext4.inode_position(ino).ok();
    Ok(StoredInode {
        position: position.map(|at| (at.block, at.offset)),
        inode,
        map,
        map_fault: mapped.err().map(failed),
    })
}
