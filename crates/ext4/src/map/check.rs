//! Checks the map of a file before blocks are freed by it.
//!
//! An operation that has removed a name or cut a file cannot take that back when it meets a damaged
//! node. So `ops` and `file` call [`InodeInfo::check_map`] before they change anything. It reads
//! what freeing reads anyway: the nodes or indirect blocks below the root. It stops after
//! [`MOST_NODES`] of them. So a huge map is not read from the device twice, and a map whose nodes
//! refer to one another keeps no thread busy. Damage behind that is met by `map::change`, between
//! two of its transactions.

use std::num::NonZeroU32;
use std::ops::Range;

use extern4_disk::extent::{Expect, ExtentNode, sole_extent};
use extern4_disk::indirect::{DIRECT, Pointers, ROOTS};
use extern4_disk::{Place, Structure};

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::map::extents::read::node_block;
use crate::volume::system_zone::SystemZones;

/// The most blocks of a map that one check reads.
const MOST_NODES: u32 = 4096;

impl InodeInfo {
    /// Checks the map of a file from block `keep` on, before those blocks are freed.
    ///
    /// # Errors
    /// A broken rule of the format, a block that belongs to a structure of the volume, or a device
    /// that fails.
    pub(crate) fn check_map(&self, fs: &Ext4, keep: u64) -> Result<()> {
        let mut check = Check {
            fs,
            zones: &fs.writer()?.zones,
            info: self,
            keep,
            left: MOST_NODES,
        };
        if !self.has_extents() {
            return check.roots();
        }
        let place = Place::new(Structure::ExtentNode).ino(self.ino());
        if let Some(extent) = sole_extent(self.i_block(), fs.blocks(), place) {
            let end = extent.physical + u64::from(extent.len_blocks);
            return check.zones.check(&(extent.physical..end));
        }
        check.extents(
            self.i_block(),
            Expect::deep_root(fs.blocks(), self.i_block()),
            place,
        )
    }
}

/// A check of one map that is under way.
struct Check<'a> {
    fs: &'a Ext4,
    zones: &'a SystemZones,
    info: &'a InodeInfo,
    /// The first block of the file that is freed.
    keep: u64,
    /// How many blocks of the map may still be read.
    left: u32,
}

impl Check<'_> {
    /// Checks a node of an extent tree, and all below it.
    fn extents(&mut self, bytes: &[u8], expect: Expect, place: Place) -> Result<()> {
        let node = ExtentNode::decode(bytes, expect, place)?;
        for extent in node.extents().filter(|extent| extent.end() > self.keep) {
            self.zones
                .check(&(extent.physical..extent.physical + u64::from(extent.len_blocks)))?;
        }
        let keep = self.keep;
        for (index, expect) in node.children().filter(|(_, expect)| expect.end > keep) {
            if self.may_read(index.child)? {
                let block = node_block(self.fs, self.info, index.child, expect)?;
                self.extents(&block, expect, place.block(index.child))?;
            }
        }
        Ok(())
    }

    /// Checks the numbers in an inode without extents, and all below them.
    fn roots(&mut self) -> Result<()> {
        let place = Place::new(Structure::IndirectBlock).ino(self.info.ino());
        let roots = Pointers::decode(self.info.i_block(), self.fs.blocks(), place)?;
        self.numbers(&roots, 0..DIRECT as usize, 0)?;
        let mut logical = u64::from(DIRECT);
        for (at, levels) in (DIRECT as usize..ROOTS).zip(1..) {
            let end = logical + self.fs.indirect_map().span_blocks(levels);
            if let Some(block) = roots.get(at)?.filter(|_| end > self.keep) {
                self.indirect(block, levels, logical, place)?;
            }
            logical = end;
        }
        Ok(())
    }

    /// Checks an indirect block, `levels` above the data, that maps the file from `logical` on.
    fn indirect(
        &mut self,
        block: NonZeroU32,
        levels: u32,
        logical: u64,
        place: Place,
    ) -> Result<()> {
        let block = u64::from(block.get());
        if !self.may_read(block)? {
            return Ok(());
        }
        let buffer = self.fs.cache.read(block)?;
        let place = place.block(block);
        let numbers = Pointers::decode(&buffer, self.fs.blocks(), place)?;
        if levels == 1 {
            return self.numbers(&numbers, 0..numbers.len(), logical);
        }
        let span = self.fs.indirect_map().span_blocks(levels - 1);
        for at in 0..numbers.len() {
            let start = logical + at as u64 * span;
            if start + span > self.keep
                && let Some(below) = numbers.get(at)?
            {
                self.indirect(below, levels - 1, start, place)?;
            }
        }
        Ok(())
    }

    /// Checks the numbers of data blocks, the first of which maps the file's block `logical`.
    fn numbers(&self, numbers: &Pointers<'_>, indexes: Range<usize>, logical: u64) -> Result<()> {
        let skip = usize::try_from(self.keep.saturating_sub(logical)).unwrap_or(usize::MAX);
        let mut at = indexes.start.saturating_add(skip);
        while at < indexes.end {
            let (first, len) = numbers.run(at, indexes.end - at)?;
            if let Some(first) = first.map(|first| u64::from(first.get())) {
                self.zones.check(&(first..first + len as u64))?;
            }
            at += len;
        }
        Ok(())
    }

    /// Whether this block of the map is still to be read.
    fn may_read(&mut self, block: u64) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(false);
        };
        self.left = left;
        self.zones.check(&(block..block + 1))?;
        Ok(true)
    }
}
