//! The blocks that the volume's own structures use: superblocks, group descriptors, bitmaps and
//! inode tables.
//!
//! On a damaged or malicious volume a file may claim these blocks, or a bitmap may have them free.
//! With `flex_bg` the structures of one group can be in any other group. So opening a volume for
//! writing makes one [`SystemZones`] of all groups, which never changes afterwards. The allocator,
//! the block maps, `trim` and the check of the journal pass every range of blocks to
//! [`SystemZones::check`]. A conflict is an error that names the structure and the block.

use std::ops::Range;

use extern4_disk::{CorruptKind, Place, Structure};

use crate::error::Result;
use crate::volume::Volume;

/// The volume's own blocks.
pub(crate) struct SystemZones(Box<[Zone]>);

/// Consecutive blocks of one kind.
struct Zone {
    blocks: Range<u64>,
    structure: Structure,
}

impl SystemZones {
    /// Returns the zones of `volume`.
    pub(crate) fn of(volume: &Volume) -> Result<Self> {
        let geometry = volume.superblock().geometry();
        let mut zones = Vec::new();
        for group in 0..geometry.group_count() {
            let descriptor = volume.group(group)?;
            let mut add = |structure, start, len| zones.push(Zone { blocks: start..start + len, structure });
            if let (Some(start), Some(fixed)) = (geometry.group_start(group), geometry.fixed_blocks(group)) {
                let superblock = geometry.superblock_in(group).map_or(start, |block| block + 1);
                add(Structure::Superblock, start, superblock - start);
                add(Structure::GroupDescriptor, superblock, start + u64::from(fixed) - superblock);
            }
            add(Structure::BlockBitmap, descriptor.block_bitmap(), 1);
            add(Structure::InodeBitmap, descriptor.inode_bitmap(), 1);
            add(Structure::Inode, descriptor.inode_table(), geometry.inode_table_blocks().into());
        }
        if let Some((structure, block)) = overlap(&mut zones) {
            let what = "two of the volume's own structures are in one place";
            return Err(Place::new(structure).block(block).corrupt(CorruptKind::Mismatch { what }).into());
        }
        Ok(Self(joined(zones)))
    }

    /// Returns an error if some of `blocks`, which a file claims or the allocator has as free, are
    /// the volume's own.
    pub(crate) fn check(&self, blocks: &Range<u64>) -> Result<()> {
        // The zones ascend and do not overlap.
        let index = self.0.partition_point(|zone| zone.blocks.end <= blocks.start);
        match self.0.get(index).filter(|zone| zone.blocks.start < blocks.end) {
            None => Ok(()),
            Some(zone) => {
                let what = "a file claims it, or it counts as free";
                let block = zone.blocks.start.max(blocks.start);
                Err(Place::new(zone.structure).block(block).corrupt(CorruptKind::Mismatch { what }).into())
            }
        }
    }
}

/// Returns the first block that is in two zones, and the structure of the second. Sorts the zones.
fn overlap(zones: &mut Vec<Zone>) -> Option<(Structure, u64)> {
    zones.retain(|zone| !zone.blocks.is_empty());
    zones.sort_unstable_by_key(|zone| zone.blocks.start);
    let pair = zones.windows(2).find(|pair| pair[1].blocks.start < pair[0].blocks.end)?;
    Some((pair[1].structure, pair[1].blocks.start))
}

/// Returns the zones in ascending order without overlaps. Adjacent zones of one kind become one.
fn joined(mut zones: Vec<Zone>) -> Box<[Zone]> {
    zones.sort_unstable_by_key(|zone| zone.blocks.start);
    let mut joined: Vec<Zone> = Vec::new();
    for Zone { mut blocks, structure } in zones {
        match joined.last_mut() {
            Some(last) if last.structure == structure && last.blocks.end >= blocks.start => {
                last.blocks.end = last.blocks.end.max(blocks.end);
            }
            last => {
                blocks.start = blocks.start.max(last.map_or(0, |last| last.blocks.end));
                if !blocks.is_empty() {
                    joined.push(Zone { blocks, structure });
                }
            }
        }
    }
    joined.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn zones_are_found_by_any_block_of_theirs() {
        use Structure::{BlockBitmap, Inode, Superblock};
        let zone = |blocks, structure| Zone { blocks, structure };
        let zones = SystemZones(joined(vec![
            zone(8..10, Inode),
            zone(0..1, Superblock),
            zone(10..12, Inode),
            zone(5..6, BlockBitmap),
            // A zone that overlaps others, from a hostile descriptor.
            zone(4..9, BlockBitmap),
            zone(20..20, Superblock),
        ]));
        let found = |blocks: Range<u64>| match zones.check(&blocks) {
            Err(Error::Corrupt(corrupt)) => corrupt.place.block.map(|block| (corrupt.place.structure, block)),
            _ => None,
        };
        assert_eq!((found(1..4), found(12..30), found(0..5)), (None, None, Some((Superblock, 0))));
        assert_eq!((found(1..5), found(6..7)), (Some((BlockBitmap, 4)), Some((BlockBitmap, 6))));
        assert_eq!((found(8..9), found(9..10)), (Some((BlockBitmap, 8)), Some((Inode, 9))));
        assert_eq!((found(11..40), zones.0.len()), (Some((Inode, 11)), 3));
    }
}
