//! Quota files: their structure, and their counts compared with what owners have.
//!
//! The check adds up the blocks and inodes of each owner while it looks at inodes. Memory grows
//! with the number of owners and with the blocks of a quota file: the check follows no block of its
//! tree twice.
//!
//! `check` runs the comparison last.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use extern4_disk::inode::{FileKind, Inode, InodeFlags};
use extern4_disk::quota::{self, BLOCK_SIZE, DEPTH, Entry, Info, Kind, ROOT, leaf};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_ext4::RunKind;

use crate::Checker;
use crate::fault::{Fault, Wrong};
use crate::report::Report;
use crate::to_usize;

/// The bytes of a sector, which `i_blocks` counts.
const SECTOR: u64 = 512;

/// The bytes and inodes of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    bytes: u64,
    inodes: u64,
}

/// The amounts that owners have, by kind and id.
#[derive(Debug, Default)]
pub(crate) struct Owned([HashMap<u32, Amount>; Kind::ALL.len()]);

impl Owned {
    /// Counts an inode, and the inodes that hold values of its attributes.
    pub(crate) fn count(&mut self, inode: &Inode, values: u64) {
        let bytes = inode.sectors() * SECTOR;
        for (owners, id) in self
            .0
            .iter_mut()
            .zip([inode.uid(), inode.gid(), inode.project()])
        {
            owners.entry(id).or_default().add(Amount {
                bytes,
                inodes: 1 + values,
            });
        }
    }
}

impl Amount {
    fn add(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.inodes = self.inodes.saturating_add(more.inodes);
    }
}

/// The sums over the inodes of all groups.
#[derive(Default)]
pub(crate) struct Owners(Mutex<Totals>);

#[derive(Default)]
struct Totals {
    owned: Owned,
    /// Some inodes could not be counted.
    lacks_some: bool,
}

impl Owners {
    fn with<R>(&self, change: impl FnOnce(&mut Totals) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds what the inodes of a group have.
    pub(crate) fn add(&self, more: Owned) {
        self.with(|totals| {
            for (all, more) in totals.owned.0.iter_mut().zip(more.0) {
                more.into_iter()
                    .for_each(|(id, amount)| all.entry(id).or_default().add(amount));
            }
        });
    }

    /// Notes that inodes cannot be counted, so the check does not judge the files.
    pub(crate) fn lack(&self) {
        self.with(|totals| totals.lacks_some = true);
    }
}

impl Checker<'_> {
    /// Returns whether what owners have is to be counted.
    pub(crate) fn has_quotas(&self) -> bool {
        Kind::ALL
            .into_iter()
            .any(|kind| self.sb.quota_inode(kind).is_some())
    }

    /// Returns whether an inode is counted for its owners: the volume's own are not, nor the inodes
    /// of values by themselves.
    pub(crate) fn counts_for_owners(&self, inode: &Inode) -> bool {
        inode.kind() != FileKind::None
            && !self.sb.is_hidden(inode.ino())
            && !inode.flags().contains(InodeFlags::EA_INODE)
    }

    /// Checks the quota files, when all inodes have been looked at.
    pub(crate) fn check_quotas(&self, report: &mut Report<'_>) {
        let Totals { owned, lacks_some } = self.owners.with(std::mem::take);
        let judge = !lacks_some && self.descriptors.iter().all(Option::is_some);
        for (kind, owned) in Kind::ALL.into_iter().zip(owned.0) {
            let Some(ino) = self.sb.quota_inode(kind) else {
                continue;
            };
            match QuotaFile::open(self, kind, ino, owned) {
                Ok(mut file) => {
                    let is_whole = file.tree(ROOT, 0, 0, judge, report);
                    if judge && is_whole {
                        file.missing(report);
                    }
                }
                Err(fault) => report.push(fault),
            }
        }
        report.end_pass();
    }
}

/// A quota file that is being looked at.
struct QuotaFile<'a> {
    checker: &'a Checker<'a>,
    kind: Kind,
    ino: u32,
    header: Info,
    /// The blocks of the tree that have been followed.
    seen: HashSet<u32>,
    /// The amounts of owners that have not been found in the file yet.
    owned: HashMap<u32, Amount>,
}

impl Checker<'_> {
    /// Returns block `number` of the quota file `ino`, and where it stands.
    fn quota_block(&self, ino: u32, number: u32) -> Result<(Vec<u8>, Place), Fault> {
        let place = Place::new(Structure::Quota).ino(ino);
        let start = u64::from(number) * BLOCK_SIZE as u64;
        let block_size = u64::from(self.sb.block_size());
        // OK: a block of the volume holds at least one of the quota file, whose numbers have 32
        // bits.
        let run = self.fs.map_block(ino, (start / block_size) as u32);
        let RunKind::Mapped { physical } = run.map_err(|error| Fault::of_error(place, error))?.kind
        else {
            return Err(Fault::mismatch(place, "a quota file has a hole"));
        };
        let place = place.block(physical);
        let mut bytes = Vec::new();
        self.read(physical, 1, &mut bytes)
            .map_err(|error| Fault::of_error(place, error))?;
        // OK: less than a block of the volume, which has a multiple of these.
        let offset = to_usize((start % block_size) as u32);
        Ok((bytes[offset..offset + BLOCK_SIZE].to_vec(), place))
    }
}

impl<'a> QuotaFile<'a> {
    fn open(
        checker: &'a Checker<'a>,
        kind: Kind,
        ino: u32,
        owned: HashMap<u32, Amount>,
    ) -> Result<Self, Fault> {
        let inode = checker.inode(ino)?;
        if inode.kind() != FileKind::Regular || inode.flags().contains(InodeFlags::INLINE_DATA) {
            let place = Place::new(Structure::Quota).ino(ino);
            return Err(Fault::mismatch(place, "a quota file is no regular file"));
        }
        let (block, place) = checker.quota_block(ino, 0)?;
        let header = Info::decode(&block, kind, place)?;
        Ok(Self {
            checker,
            kind,
            ino,
            header,
            seen: HashSet::new(),
            owned,
        })
    }

    fn place(&self) -> Place {
        Place::new(Structure::Quota).ino(self.ino)
    }

    fn block(&self, number: u32) -> Result<(Vec<u8>, Place), Fault> {
        self.checker.quota_block(self.ino, number)
    }

    /// Follows a block of the tree at `level`, to which ids lead that begin as `above` does.
    /// Returns whether all below it could be read.
    fn tree(
        &mut self,
        number: u32,
        level: u32,
        above: u32,
        judge: bool,
        report: &mut Report<'_>,
    ) -> bool {
        if !self.seen.insert(number) {
            report.push(self.place().corrupt(CorruptKind::Loop {
                what: "the tree of a quota file",
            }));
            return false;
        }
        let (block, place) = match self.block(number) {
            Ok(found) => found,
            Err(fault) => {
                report.push(fault);
                return false;
            }
        };
        let mut is_whole = true;
        for byte in 0..=u32::from(u8::MAX) {
            let id = above | byte << (8 * (DEPTH - 1 - level));
            match quota::reference(&block, level, id, &self.header, place) {
                Ok(None) => {}
                Ok(Some(next)) if level + 1 < DEPTH => {
                    is_whole &= self.tree(next, level + 1, id, judge, report);
                }
                Ok(Some(next)) => {
                    if let Err(fault) = self.entry(next, id, judge, report) {
                        report.push(fault);
                        is_whole = false;
                    }
                }
                Err(corrupt) => {
                    report.push(corrupt);
                    is_whole = false;
                }
            }
        }
        is_whole
    }

    /// Looks at the entry of an id in a leaf.
    fn entry(
        &mut self,
        number: u32,
        id: u32,
        judge: bool,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let (block, place) = self.block(number)?;
        let Some(offset) = leaf::find(&block, id, place)? else {
            return Err(Fault::mismatch(
                place,
                "the tree of a quota file leads to no entry",
            ));
        };
        let entry = Entry::decode(&block, offset, place)?;
        let has = self.owned.remove(&id).unwrap_or_default();
        for (unit, stored, counted) in [
            ("bytes", entry.space.used, has.bytes),
            ("inodes", entry.inodes.used, has.inodes),
        ] {
            if judge && stored != counted {
                let wrong = Wrong::Quota {
                    kind: self.kind,
                    id,
                    unit,
                    stored,
                    counted,
                };
                report.push(Fault::new(place, wrong));
            }
        }
        Ok(())
    }

    /// Reports owners that the file does not know.
    fn missing(&self, report: &mut Report<'_>) {
        let mut owned: Vec<_> = self.owned.iter().collect();
        owned.sort_unstable_by_key(|(id, _)| **id);
        for (&id, &Amount { bytes, inodes }) in owned {
            let wrong = Wrong::NoQuota {
                kind: self.kind,
                id,
                bytes,
                inodes,
            };
            report.push(Fault::new(self.place(), wrong));
        }
    }
}
