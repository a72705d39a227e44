//! The block numbers that a pointer of the volume may hold.
//!
//! Extents, indirect blocks and extended attribute pointers all name blocks by number. Such a
//! number must not name the superblock or the group descriptors after it, nor a block past the end
//! of the volume. The superblock gives both ends of the range; decoders take them as one
//! [`Blocks`].
//!
//! The decoders of extents, indirect blocks and attributes call `check`, so no later layer sees a
//! number outside of the range.

use crate::superblock::geometry::Geometry;
use crate::{Corrupt, CorruptKind, Place};

/// The range of blocks that files of a volume may own: `first` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The first block that a pointer may name: the one after the superblock and the table of group
    /// descriptors.
    pub first: u64,
    /// One past the last block: the superblock's block count.
    pub end: u64,
}

impl From<&Geometry> for Blocks {
    fn from(geometry: &Geometry) -> Self {
        Self {
            first: geometry.table_end(),
            end: geometry.blocks_count(),
        }
    }
}

impl Blocks {
    /// Checks that `len` blocks from `start` all lie in the range.
    ///
    /// # Errors
    /// [`CorruptKind::BlockOutOfRange`] with `field` if they do not.
    #[inline]
    pub fn check(
        self,
        field: &'static str,
        start: u64,
        len: u64,
        place: Place,
    ) -> Result<(), Corrupt> {
        match start.checked_add(len) {
            Some(end) if start >= self.first && end <= self.end => Ok(()),
            _ => Err(place.corrupt(CorruptKind::BlockOutOfRange {
                field,
                block: start,
            })),
        }
    }
}
