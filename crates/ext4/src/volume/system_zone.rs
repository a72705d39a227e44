//! The blocks that the volume's own structures use: superblocks, group descriptors, bitmaps and
//! inode tables.
//!
//! On a damaged or malicious volume a file may claim these blocks, or a bitmap may have them free.
//! With `flex_bg` the structures of one group can be in any other group. So opening a volume for
//! writing makes one [`SystemZones`] of all groups, which never changes afterwards. The allocator,
//! the block maps, `trim` and the check of the journal pass every range of blocks to
//! [`SystemZones::check`]. A conflict is an error that names the structure and the block.
//!
//! A descriptor that cannot be decoded does not say where its structures are, and they are left
//! out. If structures of two groups are in one place, either descriptor may be wrong. So
//! [`Volume::group`] refuses both from then on.

use std::collections::BTreeMap;
use std::ops::Range;

use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// The volume's own blocks.
pub(crate) struct SystemZones(Box<[Zone]>);

/// Consecutive blocks of one kind.
struct Zone {
    blocks: Range<u64>,
    structure: Structure,
}

/// A zone, and the group whose descriptor names it; `None` if its place is fixed.
type NamedZone = (Zone, Option<u32>);

impl SystemZones {
    /// Returns the zones of `volume`, which from now on refuses groups whose structures are in one
    /// place with others.
    pub(crate) fn of(volume: &Volume) -> Result<Self> {
        let geometry = volume.superblock().geometry();
        let mut zones: Vec<NamedZone> = Vec::new();
        for group in 0..geometry.group_count() {
            let mut add = |structure, start, len, by| {
                let zone = Zone {
                    blocks: start..start + len,
                    structure,
                };
                if !zone.blocks.is_empty() {
                    zones.push((zone, by));
                }
            };
            if let (Some(start), Some(fixed)) =
                (geometry.group_start(group), geometry.fixed_blocks(group))
            {
                let superblock = geometry
                    .superblock_in(group)
                    .map_or(start, |block| block + 1);
                add(Structure::Superblock, start, superblock - start, None);
                add(
                    Structure::GroupDescriptor,
                    superblock,
                    start + u64::from(fixed) - superblock,
                    None,
                );
            }
            let descriptor = match volume.group(group) {
                Err(Error::Corrupt(_)) => continue,
                descriptor => descriptor?,
            };
            add(
                Structure::BlockBitmap,
                descriptor.block_bitmap(),
                1,
                Some(group),
            );
            add(
                Structure::InodeBitmap,
                descriptor.inode_bitmap(),
                1,
                Some(group),
            );
            let table = geometry.inode_table_blocks().into();
            add(
                Structure::Inode,
                descriptor.inode_table(),
                table,
                Some(group),
            );
        }
        zones.sort_unstable_by_key(|(zone, _)| zone.blocks.start);
        volume.refuse_groups(overlaps(&zones));
        Ok(Self(joined(zones.into_iter().map(|(zone, _)| zone))))
    }

    /// Returns the parts of the zones that are among `blocks`, in ascending order.
    pub(crate) fn within(
        &self,
        blocks: &Range<u64>,
    ) -> impl Iterator<Item = (Structure, Range<u64>)> {
        let start = blocks.start;
        let end = blocks.end;
        let index = self.0.partition_point(|zone| zone.blocks.end <= start);
        let zones = self.0[index..]
            .iter()
            .take_while(move |zone| zone.blocks.start < end);
        zones.map(move |Zone { blocks, structure }| {
            (*structure, blocks.start.max(start)..blocks.end.min(end))
        })
    }

    /// Returns an error if some of `blocks`, which a file claims or the allocator has as free, are
    /// the volume's own.
    pub(crate) fn check(&self, blocks: &Range<u64>) -> Result<()> {
        // The zones ascend and do not overlap.
        let index = self
            .0
            .partition_point(|zone| zone.blocks.end <= blocks.start);
        match self
            .0
            .get(index)
            .filter(|zone| zone.blocks.start < blocks.end)
        {
            None => Ok(()),
            Some(zone) => {
                let what = "a file claims it, or it counts as free";
                let block = zone.blocks.start.max(blocks.start);
                Err(Place::new(zone.structure)
                    .block(block)
                    .corrupt(CorruptKind::Mismatch { what })
                    .into())
            }
        }
    }
}

/// Returns the groups whose zones have blocks of other zones, with one fault each. The zones
/// ascend.
fn overlaps(zones: &[NamedZone]) -> BTreeMap<u32, Corrupt> {
    let mut faults = BTreeMap::new();
    let Some(mut longest) = zones.first() else {
        return faults;
    };
    for next in &zones[1..] {
        let before = &longest.0.blocks;
        let after = &next.0.blocks;
        if after.start < before.end {
            for (zone, group) in [longest, next] {
                let what = "two of the volume's own structures are in one place";
                let place = Place::new(zone.structure).block(after.start);
                if let Some(group) = *group {
                    faults
                        .entry(group)
                        .or_insert(place.group(group).corrupt(CorruptKind::Mismatch { what }));
                }
            }
        }
        if after.end > before.end {
            longest = next;
        }
    }
    faults
}

/// Returns the zones, which ascend, without overlaps. Adjacent zones of one kind become one.
fn joined(zones: impl IntoIterator<Item = Zone>) -> Box<[Zone]> {
    let mut joined: Vec<Zone> = Vec::new();
    for Zone {
        mut blocks,
        structure,
    } in zones
    {
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

    #[test]
    fn zones_are_found_by_any_block_of_theirs() {
        use Structure::{BlockBitmap, Inode, Superblock};
        let zone = |blocks, structure| Zone { blocks, structure };
        let zones = SystemZones(joined([
            zone(0..1, Superblock),
            // A zone that overlaps others, from a hostile descriptor.
            zone(4..9, BlockBitmap),
            zone(5..6, BlockBitmap),
            zone(8..10, Inode),
            zone(10..12, Inode),
        ]));
        let found = |blocks: Range<u64>| match zones.check(&blocks) {
            Err(Error::Corrupt(corrupt)) => corrupt
                .place
                .block
                .map(|block| (corrupt.place.structure, block)),
            _ => None,
        };
        assert_eq!(
            (found(1..4), found(12..30), found(0..5)),
            (None, None, Some((Superblock, 0)))
        );
        assert_eq!(
            (found(1..5), found(6..7)),
            (Some((BlockBitmap, 4)), Some((BlockBitmap, 6)))
        );
        assert_eq!(
            (found(8..9), found(9..10)),
            (Some((BlockBitmap, 8)), Some((Inode, 9)))
        );
        assert_eq!((found(11..40), zones.0.len()), (Some((Inode, 11)), 3));
        assert_eq!(
            zones.within(&(6..11)).collect::<Vec<_>>(),
            [(BlockBitmap, 6..9), (Inode, 9..11)]
        );
    }

    #[test]
    fn groups_with_structures_in_one_place_are_named() {
        let zone = |blocks, group| {
            (
                Zone {
                    blocks,
                    structure: Structure::Inode,
                },
                group,
            )
        };
        let named = |zones: &[NamedZone]| overlaps(zones).into_keys().collect::<Vec<_>>();
        let zones = [
            zone(0..4, None),
            zone(4..20, Some(3)),
            zone(20..30, Some(2)),
            zone(30..31, Some(1)),
        ];
        assert!(named(&zones).is_empty());
        // The long zone reaches behind the next one.
        let zones = [
            zone(0..9, Some(7)),
            zone(1..2, Some(4)),
            zone(5..6, None),
            zone(9..10, Some(5)),
        ];
        assert_eq!(named(&zones), [4, 7]);
        assert_eq!(named(&[zone(0..2, None), zone(1..3, Some(0))]), [0]);
    }
}
