//! Bitmaps and counts, compared with the blocks and inodes that earlier passes found in use.
//!
//! `check` runs it after all inodes and directories. It reports each bit and each count that
//! differs, for every group and the superblock.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use extern4_disk::bitmap::Bitmap;
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::superblock::State;
use extern4_disk::{Place, Structure};

use crate::Checker;
use crate::fault::{Fault, Wrong};
use crate::inode::GroupInodes;
use crate::links::bitmap_of;
use crate::progress::{Interrupted, Pass};
use crate::report::{Report, Sink};
use crate::to_usize;

/// The totals of the whole volume.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) free_clusters: u64,
    pub(crate) free_inodes: u64,
    pub(crate) directories: u64,
}

#[derive(Default)]
struct Totals {
    free_clusters: AtomicU64,
    free_inodes: AtomicU64,
}

impl Checker<'_> {
    /// Checks the bitmaps and counts of all groups and of the superblock.
    pub(crate) fn check_bitmaps(&self, report: &mut Report<'_>) -> Result<Counted, Interrupted> {
        let totals = Totals::default();
        report.each_item(
            Pass::Bitmaps,
            self.descriptors.len(),
            |sink| (sink, Vec::new()),
            |(sink, buffer), index| {
                // OK: the number of groups has 32 bits.
                let mut compare = Compare {
                    checker: self,
                    group: index as u32,
                    sink,
                    buffer,
                };
                if let Some(descriptor) = &self.descriptors[index] {
                    let clusters = compare.blocks(descriptor);
                    let inodes = compare.inodes(descriptor);
                    // Relaxed: read after the threads have ended.
                    totals.free_clusters.fetch_add(clusters.into(), Relaxed);
                    totals.free_inodes.fetch_add(inodes.into(), Relaxed);
                }
            },
        )?;
        let counted = Counted {
            free_clusters: totals.free_clusters.into_inner(),
            free_inodes: totals.free_inodes.into_inner(),
            directories: self.directories().count() as u64,
        };
        self.check_totals(&counted, report);
        Ok(counted)
    }

    fn check_totals(&self, counted: &Counted, report: &mut Report<'_>) {
        // The kernel brings the totals up to date when it unmounts; until then they are hints, with
        // a journal or without. A descriptor that makes no sense leaves a group uncounted.
        let unmounted = self.fs.replayed().is_none() && self.sb.state().contains(State::VALID);
        if !unmounted || self.descriptors.iter().any(Option::is_none) {
            return;
        }
        let place = Place::new(Structure::Superblock);
        let free_blocks = counted.free_clusters << self.geometry.cluster_shift();
        let pairs = [
            ("s_free_blocks_count", self.sb.free_blocks(), free_blocks),
            (
                "s_free_inodes_count",
                u64::from(self.sb.free_inodes()),
                counted.free_inodes,
            ),
        ];
        for (field, stored, counted) in pairs {
            if stored != counted {
                report.push(Fault::new(
                    place,
                    Wrong::Count {
                        field,
                        stored,
                        counted,
                    },
                ));
            }
        }
    }
}

/// The comparison of the bitmaps of one group.
struct Compare<'a> {
    checker: &'a Checker<'a>,
    group: u32,
    sink: &'a mut Sink,
    buffer: &'a mut Vec<u8>,
}

impl Compare<'_> {
    /// Compares the block bitmap and returns how many clusters are free in truth.
    fn blocks(&mut self, descriptor: &GroupDescriptor) -> u32 {
        let checker = self.checker;
        let group = self.group;
        let geometry = checker.geometry;
        let len = geometry.group_clusters(group).unwrap_or(0);
        let found: Vec<u8> = (0..to_usize(len.div_ceil(64)))
            .flat_map(|index| checker.claims.word(group, index).to_le_bytes())
            .collect();
        let place = Place::new(Structure::BlockBitmap).group(group);
        if checker.has_uninit() && descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
            if let Some(initial) = checker.bitmap_of_fixed(group, descriptor) {
                self.differences(&initial, &found, len, "block", place);
            }
        } else if self.read(descriptor.block_bitmap(), place) {
            let place = place.block(descriptor.block_bitmap());
            let decoded = Bitmap::decode_blocks(self.buffer, group, descriptor, checker.sb, place);
            self.decoded(decoded.err(), &found, len, "block", place);
        }
        let free = Bitmap::new(&found, len).map_or(0, |found| found.count_clear());
        self.count("bg_free_blocks_count", descriptor.free_clusters(), free);
        free
    }

    /// Compares the inode bitmap and returns how many inodes are free in truth.
    fn inodes(&mut self, descriptor: &GroupDescriptor) -> u32 {
        let checker = self.checker;
        let group = self.group;
        let len = checker.geometry.inodes_per_group();
        let inodes = checker.inodes.get(to_usize(group)).and_then(OnceLock::get);
        let slots = inodes
            .map(|inodes: &GroupInodes| &*inodes.slots)
            .unwrap_or_default();
        let reserved = checker.sb.reserved_inodes(group);
        let found = bitmap_of(slots, reserved, to_usize(len.div_ceil(8)));
        let place = Place::new(Structure::InodeBitmap).group(group);
        if checker.has_uninit() && descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            // The check looked for nothing here, so nothing can differ.
        } else if self.read(descriptor.inode_bitmap(), place) {
            let place = place.block(descriptor.inode_bitmap());
            let decoded = Bitmap::decode_inodes(self.buffer, group, descriptor, checker.sb, place);
            self.decoded(decoded.err(), &found, len, "inode", place);
        }
        let free = Bitmap::new(&found, len).map_or(0, |found| found.count_clear());
        self.count("bg_free_inodes_count", descriptor.free_inodes(), free);
        let dirs = inodes.map_or(0, |inodes| inodes.dirs.len());
        self.count(
            "bg_used_dirs_count",
            descriptor.used_dirs(),
            u32::try_from(dirs).unwrap_or(u32::MAX),
        );
        free
    }

    fn read(&mut self, block: u64, place: Place) -> bool {
        match self.checker.read(block, 1, self.buffer) {
            Ok(()) => true,
            Err(error) => {
                self.sink.push(Fault::of_error(place.block(block), error));
                false
            }
        }
    }

    /// Compares a bitmap that was read with the claims found, even if its checksum is wrong.
    fn decoded(
        &mut self,
        corrupt: Option<extern4_disk::Corrupt>,
        found: &[u8],
        len: u32,
        unit: &'static str,
        place: Place,
    ) {
        if let Some(corrupt) = corrupt {
            self.sink.push(corrupt);
        }
        let buffer = std::mem::take(self.buffer);
        self.differences(&buffer, found, len, unit, place);
        if Bitmap::new(&buffer, len).is_some_and(|marked| !marked.is_padded()) {
            self.sink.push(Fault::mismatch(
                place,
                "the end of a bitmap is not padded with ones",
            ));
        }
        *self.buffer = buffer;
    }

    /// Compares the first `len` bits of what is marked with the bits of what was found.
    fn differences(
        &mut self,
        marked: &[u8],
        found: &[u8],
        len: u32,
        unit: &'static str,
        place: Place,
    ) {
        let whole = to_usize(len / 8);
        if len.is_multiple_of(8) && marked.get(..whole) == found.get(..whole) {
            return;
        }
        let (Some(marked), Some(found)) = (Bitmap::new(marked, len), Bitmap::new(found, len))
        else {
            return;
        };
        let mut run: Option<(Range<u32>, bool)> = None;
        for index in 0..found.len() {
            let in_use = found.get(index);
            let next = if marked.get(index) == in_use {
                None
            } else {
                in_use
            };
            run = match (run, next) {
                (Some((range, same)), Some(next)) if same == next => {
                    Some((range.start..index + 1, same))
                }
                (before, next) => {
                    if let Some((range, in_use)) = before {
                        self.marked(range, in_use, unit, place);
                    }
                    next.map(|in_use| (index..index + 1, in_use))
                }
            };
        }
        if let Some((range, in_use)) = run {
            self.marked(range, in_use, unit, place);
        }
    }

    fn marked(&mut self, range: Range<u32>, in_use: bool, unit: &'static str, place: Place) {
        let geometry = self.checker.geometry;
        let (from, len) = (u64::from(range.start), u64::from(range.end - range.start));
        let (start, len) = if unit == "inode" {
            (
                u64::from(self.group) * u64::from(geometry.inodes_per_group()) + 1 + from,
                len,
            )
        } else {
            let shift = geometry.cluster_shift();
            (
                geometry.group_start(self.group).unwrap_or(0) + (from << shift),
                len << shift,
            )
        };
        self.sink.push(Fault::new(
            place,
            Wrong::Marked {
                unit,
                start,
                len,
                in_use,
            },
        ));
    }

    fn count(&mut self, field: &'static str, stored: u32, counted: u32) {
        if stored != counted {
            let place = Place::new(Structure::GroupDescriptor).group(self.group);
            let stored = stored.into();
            let counted = counted.into();
            self.sink.push(Fault::new(
                place,
                Wrong::Count {
                    field,
                    stored,
                    counted,
                },
            ));
        }
    }
}
