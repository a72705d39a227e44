//! Group descriptors, the backups of superblock and descriptors, and where fixed metadata stands.
//!
//! Backups are written when a volume is made, resized or tuned, and not since. `tune2fs` and
//! `e2fsck` leave some of them as they were: without the feature `resize_inode`, backups still name
//! the reserved blocks. So a superblock that is sound by itself is no fault, and the check counts
//! the copies that differ. The places of bitmaps and tables must agree.
//!
//! `check` runs it first, since later passes need the places that it checks and claims.

use extern4_disk::bitmap::initial_block_bitmap;
use extern4_disk::feature::{Incompat, RoCompat};
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::inode::{BAD_BLOCKS_INO, RESIZE_INO};
use extern4_disk::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{Place, Structure};

use crate::Checker;
use crate::fault::{Fault, Owner, Part, Wrong};
use crate::report::Report;
use crate::to_usize;

/// A run of blocks that holds fixed metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fixed {
    /// The first block.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The group that it belongs to.
    pub(crate) group: u32,
    /// The piece of fixed metadata.
    pub(crate) part: Part,
}

impl Fixed {
    pub(crate) fn owner(&self) -> Owner {
        Owner::Metadata {
            group: self.group,
            part: self.part,
        }
    }
}

/// Returns whether `block` was set aside for a backup that was never written, as genext2fs leaves
/// all of them.
fn was_never_written(block: &[u8]) -> bool {
    block.iter().all(|&byte| byte == 0)
}

impl Checker<'_> {
    /// Checks descriptors and backups, and claims the blocks of fixed metadata.
    pub(crate) fn check_groups(&mut self, report: &mut Report<'_>) {
        for corrupt in self.sb.impossible(Place::new(Structure::Superblock)) {
            report.push(corrupt);
        }
        if let Some(corrupt) = self.fs.cut_off() {
            report.push(corrupt);
        }
        for group in 0..self.geometry.group_count() {
            let descriptor = self.descriptor(group, report);
            self.descriptors.push(descriptor);
        }
        self.check_backups(report);
        self.claim_fixed(report);
    }

    /// Returns the descriptor of `group`, as far as it makes sense, or a copy of it: a wrong
    /// checksum alone keeps nothing from being found.
    fn descriptor(&self, group: u32, report: &mut Report<'_>) -> Option<GroupDescriptor> {
        let place = Place::new(Structure::GroupDescriptor).group(group);
        let descriptor = match self.fs.group(group) {
            Ok(descriptor) => *descriptor,
            Err(error) => {
                report.push(Fault::of_error(place, error));
                *self.fs.readable_group(group).ok()?
            }
        };
        if let Err(corrupt) = descriptor.check_counts(group, self.geometry, place) {
            report.push(corrupt);
        }
        let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        if !self.has_uninit() && descriptor.flags().intersects(uninit) {
            let what = "a group is not initialized, on a volume without checksums of descriptors";
            report.push(Fault::mismatch(place, what));
        }
        Some(descriptor)
    }

    /// Returns whether groups may have parts that are not initialized: descriptors have checksums.
    pub(crate) fn has_uninit(&self) -> bool {
        let features = self.sb.features();
        features.metadata_csum() || features.ro_compat.contains(RoCompat::GDT_CSUM)
    }

    fn check_backups(&mut self, report: &mut Report<'_>) {
        let mut block = Vec::new();
        for group in 1..self.geometry.group_count() {
            if let Some(number) = self.geometry.superblock_in(group) {
                let place = Place::new(Structure::Superblock).group(group).block(number);
                match self.read(number, 1, &mut block) {
                    Ok(()) if was_never_written(&block) => {}
                    Ok(()) => self.check_superblock_copy(&block, place, report),
                    Err(error) => report.push(Fault::of_error(place, error)),
                }
            }
        }
        for group in 1..self.geometry.group_count() {
            let own = group / self.geometry.descriptors_per_block();
            let all = 0..self.geometry.descriptor_blocks();
            let indices = if self.geometry.has_superblock(group) {
                all
            } else {
                own..own + 1
            };
            for index in indices {
                self.check_descriptor_copy(group, index, &mut block, report);
            }
        }
    }

    fn check_superblock_copy(&mut self, block: &[u8], place: Place, report: &mut Report<'_>) {
        let copy = match RawSuperblock::read(&block[..SUPERBLOCK_SIZE.min(block.len())], place)
            .and_then(|raw| Superblock::from_raw(raw, place))
        {
            Ok(copy) => copy,
            Err(corrupt) => return report.push(corrupt),
        };
        let incompat = |sb: &Superblock| sb.features().incompat.difference(Incompat::RECOVER);
        let is_old = copy.uuid() != self.sb.uuid()
            || incompat(&copy) != incompat(self.sb)
            || copy.geometry() != self.geometry;
        self.old_copies += u32::from(is_old);
    }

    fn check_descriptor_copy(
        &self,
        group: u32,
        index: u32,
        block: &mut Vec<u8>,
        report: &mut Report<'_>,
    ) {
        let copy = self.geometry.descriptor_block_in(group, index);
        // A copy that would not fit into its group is none.
        let is_copy = |number: &u64| {
            copy != self.geometry.descriptor_block(index)
                && self.geometry.group_of_block(*number) == Some(group)
        };
        let Some(number) = copy.filter(is_copy) else {
            return;
        };
        let place = Place::new(Structure::GroupDescriptor).block(number);
        if let Err(error) = self.read(number, 1, block) {
            return report.push(Fault::of_error(place, error));
        }
        if was_never_written(block) {
            return;
        }
        let first = index * self.geometry.descriptors_per_block();
        let size = self.geometry.desc_size();
        for (copy, of) in block
            .chunks_exact(usize::from(size))
            .zip(first..self.geometry.group_count())
        {
            let Some(Some(descriptor)) = self.descriptors.get(to_usize(of)) else {
                continue;
            };
            if places(copy) != Some(descriptor.places()) {
                let what =
                    "a backup of a descriptor names other places for bitmaps and inode table";
                report.push(Fault::mismatch(place.group(of), what));
            }
        }
    }

    fn claim_fixed(&mut self, report: &mut Report<'_>) {
        let table = u64::from(self.geometry.inode_table_blocks());
        let mut fixed = Vec::new();
        for group in 0..self.geometry.group_count() {
            let mut add = |start, len, part| {
                fixed.push(Fixed {
                    start,
                    len,
                    group,
                    part,
                })
            };
            let start = self.geometry.group_start(group).unwrap_or(0);
            match self.geometry.fixed_blocks(group).unwrap_or(0) {
                0 => {}
                len => add(start, u64::from(len), Part::Header),
            }
            if let Some(Some(descriptor)) = self.descriptors.get(to_usize(group)) {
                add(descriptor.block_bitmap(), 1, Part::BlockBitmap);
                add(descriptor.inode_bitmap(), 1, Part::InodeBitmap);
                add(descriptor.inode_table(), table, Part::InodeTable);
            }
        }
        if let Some(block) = self.sb.mmp_block() {
            let group = self.geometry.group_of_block(block).unwrap_or(0);
            fixed.push(Fixed {
                start: block,
                len: 1,
                group,
                part: Part::Mmp,
            });
        }
        fixed.sort_unstable();
        for pair in fixed.windows(2) {
            let first = &pair[0];
            let second = &pair[1];
            let end = (first.start + first.len).min(second.start + second.len);
            if second.start < end {
                let place = Place::new(second.part.structure())
                    .group(second.group)
                    .block(second.start);
                let start = second.start;
                let len = end - second.start;
                let first = first.owner();
                let second = second.owner();
                report.push(Fault::new(
                    place,
                    Wrong::Claimed {
                        start,
                        len,
                        first,
                        second,
                    },
                ));
            }
        }
        // Pieces of metadata may share a cluster with each other, though not with files.
        let ignored = crate::ClusterMap::new(self.geometry);
        for piece in &fixed {
            self.claims.claim(piece.start, piece.len, &ignored);
        }
        self.fixed = fixed;
    }

    /// Returns the fixed metadata in `block`, if there is any.
    pub(crate) fn fixed_at(&self, block: u64) -> Option<&Fixed> {
        let next = self.fixed.partition_point(|piece| piece.start <= block);
        next.checked_sub(1)
            .map(|at| &self.fixed[at])
            .filter(|piece| block - piece.start < piece.len)
    }

    /// Returns whether inode `ino` may name `block`, though that is claimed already. The blocks
    /// reserved for the descriptors to grow are in the map of the resize inode. Bad blocks may be
    /// in superblocks, descriptors and inode tables, which cannot move: e2fsck leaves them there.
    pub(crate) fn may_name(&self, ino: u32, block: u64) -> bool {
        let part = || self.fixed_at(block).map(|piece| piece.part);
        match ino {
            RESIZE_INO => part() == Some(Part::Header),
            BAD_BLOCKS_INO => matches!(part(), Some(Part::Header | Part::InodeTable)),
            _ => false,
        }
    }

    /// Calls `each` with the parts of a run that inode `ino` claims. The list of bad blocks claims
    /// only blocks that nothing else may have claimed. Returns how many blocks are left out.
    pub(crate) fn claimed_parts(
        &self,
        ino: u32,
        start: u64,
        len: u64,
        mut each: impl FnMut(u64, u64),
    ) -> u64 {
        if ino != BAD_BLOCKS_INO {
            if self.may_name(ino, start) {
                return len;
            }
            each(start, len);
            return 0;
        }
        let (own, left_out): (Vec<u64>, Vec<u64>) =
            (start..start + len).partition(|block| !self.may_name(ino, *block));
        own.into_iter().for_each(|block| each(block, 1));
        left_out.len() as u64
    }

    /// Returns the block bitmap of a group as it would be if no file owned a block there.
    pub(crate) fn bitmap_of_fixed(
        &self,
        group: u32,
        descriptor: &GroupDescriptor,
    ) -> Option<Vec<u8>> {
        let mut bytes = initial_block_bitmap(group, descriptor, self.geometry)?;
        let start = self.geometry.group_start(group)?;
        let end = start + u64::from(self.geometry.group_blocks(group)?);
        // Pieces do not overlap on a sane volume. So a piece that reaches into the group from
        // before it is the last of the groups that start there.
        let from = self
            .fixed
            .partition_point(|piece| piece.start < start)
            .saturating_sub(1);
        for piece in self.fixed[from..]
            .iter()
            .take_while(|piece| piece.start < end)
        {
            let first = piece.start.max(start);
            let last = (piece.start + piece.len).min(end);
            if first >= last {
                continue;
            }
            let shift = self.geometry.cluster_shift();
            for bit in (first - start) >> shift..=(last - 1 - start) >> shift {
                // OK: a group has at most 8 bits for each byte of a block.
                if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
                    *byte |= 1 << (bit % 8);
                }
            }
        }
        Some(bytes)
    }
}

/// Returns the block numbers of bitmaps and inode table in the bytes of a descriptor.
fn places(bytes: &[u8]) -> Option<[u64; 3]> {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)?
            .first_chunk()
            .map(|word| u32::from_le_bytes(*word))
    };
    let mut places = [0; 3];
    for (at, place) in places.iter_mut().enumerate() {
        // The upper halves stand in the second 32 bytes, if there are any.
        let high = if bytes.len() >= 64 {
            word(32 + at * 4)?
        } else {
            0
        };
        *place = u64::from(high) << 32 | u64::from(word(at * 4)?);
    }
    Some(places)
}
