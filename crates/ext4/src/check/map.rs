//! Walking everything that an inode's map names: its data, and the blocks of the map itself.
//!
//! The walk calls a [`Visitor`] with each block of the map and each run of data. It decides whether
//! to go on below a block of the map. A visitor that never goes on below a block twice visits no
//! more blocks than the volume has, even on a hostile volume.

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::extent::{self, Expect, Node};
use extern4_disk::indirect::{DIRECT, Pointers, ROOTS};
use extern4_disk::inode::{Inode, InodeFlags};
use extern4_disk::{Corrupt, Place, Structure};

use super::Checker;
use super::fault::Fault;

/// A run of a file's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataRun {
    /// The first block of the file.
    pub(crate) logical: u64,
    /// The block of the volume that holds it.
    pub(crate) physical: u64,
    /// How many blocks.
    pub(crate) len: u64,
    /// Whether they have been written.
    pub(crate) written: bool,
}

/// A visitor of the blocks that a map names.
pub(crate) trait Visitor {
    /// A block of the map, which is one of the volume; whether to look at what it names.
    fn node(&mut self, block: u64) -> bool;
    /// A run of data; its blocks are the volume's.
    fn run(&mut self, run: DataRun);
    /// Something is wrong with the map.
    fn fault(&mut self, fault: Fault);
}

/// Walks the map of `inode`, which must have one.
pub(crate) fn walk(checker: &Checker<'_>, inode: &Inode, visitor: &mut impl Visitor) {
    let walk = Walk { checker, ino: inode.ino(), seed: checker.seed.map(|seed| inode.checksum_seed(seed)) };
    if inode.flags().contains(InodeFlags::EXTENTS) {
        let place = Place::new(Structure::ExtentNode).ino(inode.ino());
        walk.extents(inode.map(), Expect::deep_root(checker.blocks, inode.map()), place, visitor);
    } else {
        walk.indirect(inode, visitor);
    }
}

struct Walk<'a> {
    checker: &'a Checker<'a>,
    ino: u32,
    seed: Option<ChecksumSeed>,
}

impl Walk<'_> {
    fn extents(&self, bytes: &[u8], expect: Expect, place: Place, visitor: &mut impl Visitor) {
        let node = match Node::decode(bytes, expect, place) {
            Ok(node) => node,
            Err(corrupt) => return visitor.fault(corrupt.into()),
        };
        let first = node.extents().next().map(|first| first.logical);
        let first = first.or_else(|| node.children().next().map(|(first, _)| first.logical));
        if place.block.is_some() && first.is_some_and(|first| first != expect.start) {
            let what = "an extent node does not start where its parent says";
            visitor.fault(Fault::mismatch(place, what));
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
            let place = Place::new(Structure::ExtentNode).ino(self.ino).block(index.child);
            if let Some(child) = self.read(index.child, place, visitor) {
                if let Some(Err(corrupt)) = self.seed.map(|seed| extent::verify_checksum(&child, seed, place))
                {
                    visitor.fault(corrupt.into());
                }
                self.extents(&child, expect, place, visitor);
            }
        }
    }

    fn indirect(&self, inode: &Inode, visitor: &mut impl Visitor) {
        let place = Place::new(Structure::IndirectBlock).ino(self.ino);
        let roots = match Pointers::decode(inode.map(), self.checker.blocks, place) {
            Ok(roots) => roots,
            Err(corrupt) => return visitor.fault(corrupt.into()),
        };
        self.numbers(&roots, 0..DIRECT as usize, 0, visitor);
        let arithmetic = self.checker.fs.indirect_map();
        let mut logical = u64::from(DIRECT);
        for (at, levels) in (DIRECT as usize..ROOTS).zip(1..) {
            self.below(roots.get(at), levels, logical, visitor);
            logical += arithmetic.span_blocks(levels);
        }
    }

    /// Walks the block that a number names, with `levels` of numbers from there down to the data.
    fn below(
        &self,
        number: Result<Option<std::num::NonZeroU32>, Corrupt>,
        levels: u32,
        logical: u64,
        visitor: &mut impl Visitor,
    ) {
        let block = match number {
            Ok(Some(block)) => u64::from(block.get()),
            Ok(None) => return,
            Err(corrupt) => return visitor.fault(corrupt.into()),
        };
        let place = Place::new(Structure::IndirectBlock).ino(self.ino).block(block);
        let Some(bytes) = self.read(block, place, visitor) else { return };
        // OK: a block is a multiple of 4 bytes long.
        let Ok(pointers) = Pointers::decode(&bytes, self.checker.blocks, place) else { return };
        if levels == 1 {
            return self.numbers(&pointers, 0..pointers.len(), logical, visitor);
        }
        let span = self.checker.fs.indirect_map().span_blocks(levels - 1);
        for at in 0..pointers.len() {
            self.below(pointers.get(at), levels - 1, logical + at as u64 * span, visitor);
        }
    }

    /// Walks numbers of data blocks, the first of which is the file's block `logical`.
    fn numbers(
        &self,
        pointers: &Pointers<'_>,
        range: std::ops::Range<usize>,
        logical: u64,
        visitor: &mut impl Visitor,
    ) {
        let mut run: Option<DataRun> = None;
        let start = range.start;
        for at in range {
            let next = match pointers.get(at) {
                Ok(Some(block)) => u64::from(block.get()),
                Ok(None) => continue,
                Err(corrupt) => {
                    visitor.fault(corrupt.into());
                    continue;
                }
            };
            let logical = logical + (at - start) as u64;
            match &mut run {
                Some(run) if run.physical + run.len == next && run.logical + run.len == logical => {
                    run.len += 1;
                }
                _ => {
                    let new = DataRun { logical, physical: next, len: 1, written: true };
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

    /// The bytes of a block of the map, if the visitor wants to go on below it and it can be read.
    fn read(&self, block: u64, place: Place, visitor: &mut impl Visitor) -> Option<Vec<u8>> {
        if !visitor.node(block) {
            return None;
        }
        let mut bytes = Vec::new();
        match self.checker.read(block, 1, &mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) => {
                visitor.fault(Fault::of_error(place, error));
                None
            }
        }
    }
}
