//! Walks everything that an inode's map refers to: its data, and the blocks of the map itself.
//!
//! The walk bypasses the buffer cache, reports each fault to its [`MapVisitor`] and continues. The
//! checker (`extern4_check`) and `tune::checksum_rewrite` use it on whole volumes. On a damaged
//! volume it ends only if the visitor descends below no block twice. An operation on one file uses
//! `InodeInfo::map` instead.

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::extent::{self, Expect, ExtentNode};
use extern4_disk::indirect::{DIRECT, Pointers, ROOTS};
use extern4_disk::inode::{Inode, InodeFlags};
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

use crate::error::Error;
use crate::volume::Volume;
use crate::volume::group::to_usize;

/// A block of a file's map, as [`Volume::walk_map`] reports it: a node of the extent tree, or an
/// indirect block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapNode {
    /// The block of the volume.
    pub block: u64,
    /// The first block of the file that it maps.
    pub logical: u64,
    /// Its level above the data: at least 1.
    pub level: u32,
}

/// A run of a file's blocks, as [`Volume::walk_map`] reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRun {
    /// The first block of the file.
    pub logical: u64,
    /// The block of the volume that holds it.
    pub physical: u64,
    /// How many blocks.
    pub len: u64,
    /// Whether they have been written.
    pub written: bool,
}

/// The callbacks of [`Volume::walk_map`], called in the order of the file's blocks.
pub trait MapVisitor {
    /// Called with a block of the map, which is inside the volume. Returns whether to read it and
    /// descend.
    fn node(&mut self, node: MapNode) -> bool;
    /// Called with a run of data, whose blocks are inside the volume.
    fn run(&mut self, run: DataRun);
    /// Called with a fault at `place`: a broken rule, or a block of the map that cannot be read.
    /// The walk does not descend below such a block.
    fn fault(&mut self, place: Place, error: Error);
}

impl Volume {
    /// Calls `visitor` with each block of the map of `inode` and each run of data, in the order of
    /// the file's blocks. The inode must have a map: an inode with inline data or a fast symbolic
    /// link has none.
    ///
    /// On a hostile volume, blocks of a map can refer to each other. A visitor that descends below
    /// no block twice visits at most all blocks of the volume.
    pub fn walk_map(&self, inode: &Inode, visitor: &mut impl MapVisitor) {
        let seed = self
            .superblock()
            .metadata_seed()
            .map(|seed| inode.checksum_seed(seed));
        let walk = Walk {
            volume: self,
            ino: inode.ino(),
            seed,
        };
        if inode.flags().contains(InodeFlags::EXTENTS) {
            let place = Place::new(Structure::ExtentNode).ino(inode.ino());
            walk.extents(
                inode.map(),
                Expect::deep_root(self.blocks(), inode.map()),
                place,
                visitor,
            );
        } else {
            walk.indirect(inode, visitor);
        }
    }
}

struct Walk<'a> {
    volume: &'a Volume,
    ino: u32,
    seed: Option<ChecksumSeed>,
}

fn report(visitor: &mut impl MapVisitor, corrupt: Corrupt) {
    visitor.fault(corrupt.place, corrupt.into());
}

impl Walk<'_> {
    fn extents(&self, bytes: &[u8], expect: Expect, place: Place, visitor: &mut impl MapVisitor) {
        let node = match ExtentNode::decode(bytes, expect, place) {
            Ok(node) => node,
            Err(corrupt) => return report(visitor, corrupt),
        };
        let first = node.extents().next().map(|first| first.logical);
        let first = first.or_else(|| node.children().next().map(|(first, _)| first.logical));
        if place.block.is_some() && first.is_some_and(|first| first != expect.start) {
            let what = "an extent node does not start where its parent says";
            report(visitor, place.corrupt(CorruptKind::Mismatch { what }));
        }
        for extent in node.extents() {
            visitor.run(DataRun {
                logical: extent.logical.into(),
                physical: extent.physical,
                len: extent.len_blocks.into(),
                written: !extent.unwritten,
            });
        }
        for (index, expect) in node.children() {
            let place = Place::new(Structure::ExtentNode)
                .ino(self.ino)
                .block(index.child);
            let below = MapNode {
                block: index.child,
                logical: index.logical.into(),
                level: node.depth().into(),
            };
            if let Some(child) = self.read(below, place, visitor) {
                if let Some(Err(corrupt)) = self
                    .seed
                    .map(|seed| extent::verify_checksum(&child, seed, place))
                {
                    report(visitor, corrupt);
                }
                self.extents(&child, expect, place, visitor);
            }
        }
    }

    fn indirect(&self, inode: &Inode, visitor: &mut impl MapVisitor) {
        let place = Place::new(Structure::IndirectBlock).ino(self.ino);
        let roots = match Pointers::decode(inode.map(), self.volume.blocks(), place) {
            Ok(roots) => roots,
            Err(corrupt) => return report(visitor, corrupt),
        };
        self.numbers(&roots, 0..DIRECT as usize, 0, visitor);
        let arithmetic = self.volume.indirect_map();
        let mut logical = u64::from(DIRECT);
        for (at, levels) in (DIRECT as usize..ROOTS).zip(1..) {
            self.below(roots.get(at), levels, logical, visitor);
            logical += arithmetic.span_blocks(levels);
        }
    }

    /// Walks the indirect block that a number refers to, `levels` above the data.
    fn below(
        &self,
        number: Result<Option<std::num::NonZeroU32>, Corrupt>,
        levels: u32,
        logical: u64,
        visitor: &mut impl MapVisitor,
    ) {
        let block = match number {
            Ok(Some(block)) => u64::from(block.get()),
            Ok(None) => return,
            Err(corrupt) => return report(visitor, corrupt),
        };
        let place = Place::new(Structure::IndirectBlock)
            .ino(self.ino)
            .block(block);
        let node = MapNode {
            block,
            logical,
            level: levels,
        };
        let Some(bytes) = self.read(node, place, visitor) else {
            return;
        };
        // OK: a block is a multiple of 4 bytes long.
        let Ok(pointers) = Pointers::decode(&bytes, self.volume.blocks(), place) else {
            return;
        };
        if levels == 1 {
            return self.numbers(&pointers, 0..pointers.len(), logical, visitor);
        }
        let span = self.volume.indirect_map().span_blocks(levels - 1);
        for at in 0..pointers.len() {
            self.below(
                pointers.get(at),
                levels - 1,
                logical + at as u64 * span,
                visitor,
            );
        }
    }

    /// Walks numbers of data blocks, the first of which is the file's block `logical`.
    fn numbers(
        &self,
        pointers: &Pointers<'_>,
        range: std::ops::Range<usize>,
        logical: u64,
        visitor: &mut impl MapVisitor,
    ) {
        let mut run: Option<DataRun> = None;
        let start = range.start;
        for at in range {
            let next = match pointers.get(at) {
                Ok(Some(block)) => u64::from(block.get()),
                Ok(None) => continue,
                Err(corrupt) => {
                    report(visitor, corrupt);
                    continue;
                }
            };
            let logical = logical + (at - start) as u64;
            match &mut run {
                Some(run) if run.physical + run.len == next && run.logical + run.len == logical => {
                    run.len += 1;
                }
                _ => {
                    let new = DataRun {
                        logical,
                        physical: next,
                        len: 1,
                        written: true,
                    };
                    if let Some(done) = run.replace(new) {
                        visitor.run(done);
                    }
                }
            }
        }
        if let Some(run) = run {
            visitor.run(run);
        }
    }

    /// Returns the bytes of a block of the map, if the visitor wants to descend and it can be read.
    fn read(&self, node: MapNode, place: Place, visitor: &mut impl MapVisitor) -> Option<Vec<u8>> {
        if !visitor.node(node) {
            return None;
        }
        let mut bytes = vec![0; to_usize(self.volume.superblock().block_size())];
        match self.volume.read_from_device(node.block, &mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) => {
                visitor.fault(place, error);
                None
            }
        }
    }
}
