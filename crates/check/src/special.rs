//! Journal, orphans and multiple mount protection: the structures that a volume has one of.
//!
//! `check` runs it with the groups, before the inodes, so that later passes know which inodes are
//! orphans and may have no name. It reads these structures and changes none of them.

use extern4_disk::feature::{Compat, RoCompat};
use extern4_disk::inode::{FileKind, GROUP_QUOTA_INO, Inode, JOURNAL_INO, USER_QUOTA_INO};
use extern4_disk::journal::JournalSuperblock;
use extern4_disk::mmp::Mmp;
use extern4_disk::orphan::OrphanBlock;
use extern4_disk::superblock::JournalLocation;
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_ext4::DataRun;

use crate::Checker;
use crate::fault::Fault;
use crate::report::Report;

/// The most blocks of the orphan file, and of its map, that the check reads. `mke2fs` makes at most
/// 512 of the file and none of the map.
const BLOCKS: usize = 1 << 13;
const NODES: u32 = 16;

impl Checker<'_> {
    /// Checks the structures that the volume has one of, and learns which inodes are orphans.
    pub(crate) fn check_special(&mut self, report: &mut Report<'_>) {
        self.check_journal(report);
        self.check_unused(report);
        self.check_mmp(report);
        self.follow_orphans(report);
        self.read_orphan_file(report);
    }

    fn check_journal(&mut self, report: &mut Report<'_>) {
        let place = Place::new(Structure::JournalSuperblock);
        match self.fs.journal_info(None) {
            Ok(Some(journal)) => {
                let place = match journal.location {
                    JournalLocation::Inode(ino) => place.ino(ino),
                    JournalLocation::Device { .. } => place,
                };
                if journal.is_unannounced {
                    let what = "the journal is not empty, but the superblock says that nothing is to be recovered";
                    report.push(Fault::mismatch(place, what));
                }
                self.noted = noted_error(journal.superblock.errno);
            }
            Ok(None) => {}
            Err(error) => {
                let fault = Fault::of_error(place, error);
                // A bad descriptor has been reported.
                if fault.place.structure != Structure::GroupDescriptor {
                    report.push(fault);
                }
            }
        }
    }

    /// Checks that each reserved inode of a structure that the volume lacks is empty.
    fn check_unused(&self, report: &mut Report<'_>) {
        let raw = self.sb.raw();
        let features = self.sb.features();
        let quotas = [
            raw.s_usr_quota_inum,
            raw.s_grp_quota_inum,
            raw.s_prj_quota_inum,
        ]
        .map(|ino| ino.get());
        let has_journal =
            features.compat.contains(Compat::HAS_JOURNAL) || raw.s_journal_inum.get() != 0;
        let has_quota = features.ro_compat.contains(RoCompat::QUOTA);
        let kept = [
            (
                JOURNAL_INO,
                !has_journal,
                "the inode of the journal has contents, but the volume has no journal",
            ),
            (
                USER_QUOTA_INO,
                has_quota && !quotas.contains(&USER_QUOTA_INO),
                "the inode of the users' quota file has contents, but s_usr_quota_inum does not name it",
            ),
            (
                GROUP_QUOTA_INO,
                has_quota && !quotas.contains(&GROUP_QUOTA_INO),
                "the inode of the groups' quota file has contents, but s_grp_quota_inum does not name it",
            ),
        ];
        for (ino, _, what) in kept.into_iter().filter(|(_, unused, _)| *unused) {
            // The pass over all inodes reports faults of the record.
            let Ok(inode) = self.fs.raw_inode(ino) else {
                continue;
            };
            if inode.links() > 0 || inode.sectors() > 0 || inode.map()[..4] != [0; 4] {
                report.push(Fault::mismatch(Place::new(Structure::Inode).ino(ino), what));
            }
        }
    }

    fn check_mmp(&self, report: &mut Report<'_>) {
        let Some(number) = self.sb.mmp_block() else {
            return;
        };
        let place = Place::new(Structure::Mmp).block(number);
        let mut block = Vec::new();
        match self.read(number, 1, &mut block) {
            Ok(()) => {
                if let Err(corrupt) = Mmp::decode(&block, self.sb, place) {
                    report.push(corrupt);
                }
            }
            Err(error) => report.push(Fault::of_error(place, error)),
        }
    }

    /// Follows the list of orphans from the superblock on.
    fn follow_orphans(&mut self, report: &mut Report<'_>) {
        let place = Place::new(Structure::Orphan);
        let mut next = self.sb.last_orphan();
        while let Some(ino) = next {
            if !self.may_be_orphan(ino) {
                let kind = CorruptKind::InodeOutOfRange {
                    field: "orphan",
                    ino: ino.into(),
                };
                return report.push(place.corrupt(kind));
            }
            if !self.orphans.insert(ino) {
                return report.push(place.ino(ino).corrupt(CorruptKind::Loop {
                    what: "the list of orphans",
                }));
            }
            next = match self.inode(ino) {
                Ok(inode) => inode.next_orphan(),
                Err(fault) => return report.push(fault),
            };
        }
    }

    fn may_be_orphan(&self, ino: u32) -> bool {
        (self.sb.first_ino()..=self.sb.inodes_count()).contains(&ino)
    }

    /// Returns inode `ino` as its record on the device says.
    pub(crate) fn inode(&self, ino: u32) -> Result<Inode, Fault> {
        let place = Place::new(Structure::Inode).ino(ino);
        let mut block = Vec::new();
        let read = self.fs.inode_position(ino).and_then(|at| {
            self.read(at.block, 1, &mut block)?;
            Ok(at)
        });
        let at = read.map_err(|error| Fault::of_error(place, error))?;
        let place = place.block(at.block).offset(at.offset);
        // OK: an inode starts inside its block.
        Inode::decode(&block[crate::to_usize(at.offset)..], ino, self.sb, place)
            .map_err(Fault::from)
    }

    fn read_orphan_file(&mut self, report: &mut Report<'_>) {
        let Some(ino) = self.sb.orphan_file_inode() else {
            return;
        };
        let place = Place::new(Structure::Orphan).ino(ino);
        let inode = match self.inode(ino) {
            Ok(inode) if inode.kind() == FileKind::Regular && inode.links() == 1 => inode,
            Ok(_) => {
                return report.push(Fault::mismatch(
                    place,
                    "the orphan file is not a file that is in use",
                ));
            }
            Err(fault) => return report.push(fault),
        };
        let runs = self.runs_of(&inode, NODES);
        let seed = inode.checksum_seed(self.sb.checksum_seed());
        let mut found = Vec::new();
        let mut block = Vec::new();
        let end = inode.size() >> self.geometry.block_bits();
        let has = |run: &DataRun| run.len.min(end.saturating_sub(run.logical));
        if end > self.geometry.blocks_count() {
            report.push(Fault::field(place, "i_size", inode.size()));
        } else if runs.iter().map(has).sum::<u64>() < end {
            report.push(Fault::mismatch(place, "the orphan file has a hole"));
        }
        let blocks = runs.iter().flat_map(|run| {
            let len = run.len.min(end.saturating_sub(run.logical));
            run.physical..run.physical + len
        });
        for number in blocks.take(BLOCKS) {
            let decoded = match self.read(number, 1, &mut block) {
                Ok(()) => OrphanBlock::decode(&block, number, seed, self.sb, place)
                    .and_then(|orphans| {
                        orphans
                            .check_inodes(self.sb, place.block(number))
                            .map(|()| orphans)
                    })
                    .map_err(Fault::from),
                Err(error) => Err(Fault::of_error(place.block(number), error)),
            };
            match decoded {
                Ok(orphans) => found.extend(orphans.inodes()),
                Err(fault) => report.push(fault),
            }
        }
        if !found.is_empty()
            && !self
                .sb
                .features()
                .ro_compat
                .contains(RoCompat::ORPHAN_PRESENT)
        {
            let what =
                "the orphan file names inodes, but the superblock says that there are no orphans";
            report.push(Fault::mismatch(place, what));
        }
        self.orphans.extend(found);
    }
}

/// Returns the meaning of the error that the journal's superblock notes, if it notes one.
fn noted_error(errno: i32) -> Option<&'static str> {
    match errno {
        0 => None,
        JournalSuperblock::EIO => Some("something could not be read or written"),
        JournalSuperblock::EUCLEAN => Some("damage has been found on the volume"),
        _ => Some("a writer of the volume met an error"),
    }
}
