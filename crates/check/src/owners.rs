//! The owners of blocks that more than one file claims.
//!
//! Claiming a block tells that it has a second owner, but does not name the first. If there are any
//! such blocks, the check walks all maps once more and keeps every owner that names one of them.
//!
//! `check` runs it after all inodes, and it does nothing on a volume without such blocks. It names
//! every owner, and fixed metadata among them.

use extern4_disk::group::GroupDescriptor;
use extern4_disk::inode::{BAD_BLOCKS_INO, FileKind, Inode, InodeFlags};
use extern4_disk::{Place, Structure};
use extern4_ext4::{DataRun, Error, MapNode, MapVisitor};

use crate::Checker;
use crate::claims::ClusterMap;
use crate::fault::{Fault, Owner, Wrong};
use crate::report::Report;

/// How many claims are kept at most.
const CLAIMS: usize = 1 << 20;

/// Blocks, among them some with several owners, and one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    start: u64,
    end: u64,
    owner: Owner,
}

impl Checker<'_> {
    /// Reports the blocks that have several owners.
    pub(crate) fn check_owners(&self, report: &mut Report<'_>) {
        let in_fixed = || {
            self.fixed
                .iter()
                .any(|piece| self.twice.touches(piece.start, piece.len))
        };
        if self.twice.is_empty() || self.may_share() && !in_fixed() {
            return;
        }
        let mut search = Search {
            checker: self,
            ino: 0,
            claims: Vec::new(),
            nodes: ClusterMap::new(self.geometry),
        };
        for piece in &self.fixed {
            search.keep(piece.start, piece.len, piece.owner());
        }
        for (group, descriptor) in (0..).zip(&self.descriptors) {
            if let Some(descriptor) = descriptor {
                search.group(group, descriptor);
            }
        }
        search.report(report);
        report.end_pass();
    }
}

struct Search<'a> {
    checker: &'a Checker<'a>,
    ino: u32,
    claims: Vec<Claim>,
    /// The blocks of maps that have been followed.
    nodes: ClusterMap,
}

impl Search<'_> {
    fn keep(&mut self, start: u64, len: u64, owner: Owner) {
        if self.claims.len() < CLAIMS && self.checker.twice.touches(start, len) {
            let shift = self.checker.geometry.cluster_shift();
            // Clusters are what has owners; they count from the first block, which `bigalloc` has
            // at 0.
            let (start, end) = (
                start >> shift << shift,
                (start + len).div_ceil(1 << shift) << shift,
            );
            self.claims.push(Claim { start, end, owner });
        }
    }

    fn group(&mut self, group: u32, descriptor: &GroupDescriptor) {
        let geometry = self.checker.geometry;
        let per_block = geometry.block_size() / u32::from(geometry.inode_size());
        let count = self.checker.inodes_to_scan(descriptor);
        let first = group * geometry.inodes_per_group() + 1;
        let mut buffer = Vec::new();
        for (at, block) in (0..count.div_ceil(per_block)).zip(descriptor.inode_table()..) {
            // A block that cannot be read has been reported.
            if self.checker.read(block, 1, &mut buffer).is_err() {
                continue;
            }
            let numbers = first + at * per_block..first + count;
            for (record, ino) in buffer
                .chunks_exact(usize::from(geometry.inode_size()))
                .zip(numbers)
            {
                self.record(record, ino);
            }
        }
    }

    fn record(&mut self, record: &[u8], ino: u32) {
        let sb = self.checker.sb;
        let mut record = record.to_vec();
        extern4_disk::inode::store_checksum(&mut record, ino, sb);
        let Ok(inode) = Inode::decode(&record, ino, sb, Place::new(Structure::Inode)) else {
            return;
        };
        let in_use =
            inode.links() > 0 || ino == BAD_BLOCKS_INO || self.checker.orphans.contains(&ino);
        if !in_use {
            return;
        }
        self.ino = ino;
        let fast = inode.size() < 60 && !inode.flags().contains(InodeFlags::EXTENTS);
        let has_map = match inode.kind() {
            FileKind::Regular | FileKind::Directory | FileKind::None => true,
            FileKind::Symlink => !fast,
            _ => false,
        };
        if has_map && !inode.flags().contains(InodeFlags::INLINE_DATA) {
            self.checker.fs.walk_map(&inode, self);
        }
        if let Some(block) = inode.xattr_block()
            && self.nodes.first_visit(block)
        {
            self.keep(block, 1, Owner::Inode(ino));
        }
    }

    fn report(mut self, report: &mut Report<'_>) {
        self.claims.sort_unstable();
        let mut last: Option<Claim> = None;
        for claim in self.claims {
            if let Some(before) = last
                && claim.start < before.end
                && (before.owner != claim.owner || self.checker.geometry.cluster_shift() == 0)
            {
                let len = before.end.min(claim.end) - claim.start;
                let start = claim.start;
                let first = before.owner;
                let second = claim.owner;
                let files = matches!((first, second), (Owner::Inode(_), Owner::Inode(_)));
                // The metadata was there first; the order of the others means nothing.
                let (first, second) = match (first, second) {
                    (Owner::Inode(_), Owner::Metadata { .. }) => (second, first),
                    both => both,
                };
                let place = Place::new(Structure::Inode).block(start);
                let place = if let Owner::Inode(ino) = second {
                    place.ino(ino)
                } else {
                    place
                };
                if !(files && self.checker.may_share()) {
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
            last = last.filter(|before| before.end > claim.end).or(Some(claim));
        }
    }
}

impl MapVisitor for Search<'_> {
    fn node(&mut self, MapNode { block, .. }: MapNode) -> bool {
        if !self.checker.may_name(self.ino, block) {
            self.keep(block, 1, Owner::Inode(self.ino));
        }
        self.nodes.first_visit(block)
    }

    fn run(&mut self, run: DataRun) {
        let checker = self.checker;
        let owner = Owner::Inode(self.ino);
        checker.claimed_parts(self.ino, run.physical, run.len, |start, len| {
            self.keep(start, len, owner)
        });
    }

    fn fault(&mut self, _place: Place, _error: Error) {}
}
