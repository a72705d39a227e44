//! Changes of the files that a volume has for itself: its journal and its quota files.
//!
//! `tune` calls it while the volume is open, and takes a journal away after the volume is closed.
//! It looks first whether a journal can be taken away, so a volume that cannot lose it stays as it
//! is.

use extern4_disk::feature::{Compat, Features, RoCompat};
use extern4_disk::quota::Kind;
use extern4_disk::superblock::Superblock;
use extern4_ext4::Ext4;
use extern4_ext4::own_files::journal::{self, check_removable};
use extern4_mkfs::JournalBlocks;
pub use extern4_mkfs::JournalSize;
use extern4_vfs::Errno;

use super::{ACTION, Changes, failed, features, refused};
use crate::error::{Error, ErrorKind, Result};

/// A journal to add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewJournal {
    /// The size of its log; `None` for the default of the volume's size.
    pub size: Option<JournalSize>,
    /// KiB for fast commits, on a volume with that feature; `None` for the default.
    pub fast_commit_kib: Option<u32>,
}

/// Changes of the quotas that a volume keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaChange {
    /// The kinds to add.
    pub with: Vec<Kind>,
    /// The kinds to take away.
    pub without: Vec<Kind>,
}

fn has_journal_feature(features: Features) -> bool {
    features.compat.contains(Compat::HAS_JOURNAL)
}

impl Changes {
    pub(super) fn adds_journal(&self) -> bool {
        self.journal.is_some() || has_journal_feature(self.fields.features)
    }

    pub(super) fn removes_journal(&self) -> bool {
        has_journal_feature(self.fields.without)
    }

    fn changes_quotas(&self) -> bool {
        let all = self.fields.features.ro_compat | self.fields.without.ro_compat;
        all.intersects(features::OF_FILES.ro_compat) || self.quotas != QuotaChange::default()
    }

    /// Adds a journal, and adds or removes quota files, as far as the changes say.
    pub(super) fn change_own_files(&self, ext4: &Ext4) -> Result<()> {
        let superblock = ext4.superblock();
        if self.removes_journal() {
            check_removable(superblock).map_err(|error| failed(error.into()))?;
        }
        let has_journal = superblock.journal().is_some();
        if has_journal && self.journal.is_some() {
            return Err(Error::new(ErrorKind::Os(Errno::EEXIST), ACTION)
                .because("it has a journal already"));
        }
        if self.adds_journal() && !has_journal {
            ext4.add_journal(self.journal_size(superblock)?)
                .map_err(failed)?;
        }
        if self.changes_quotas() {
            let kinds = self.kinds(superblock);
            ext4.set_quotas(&kinds, self.keeps_projects(superblock))
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the size of a new journal.
    fn journal_size(&self, superblock: &Superblock) -> Result<journal::JournalSize> {
        let has_fast_commits = superblock.features().compat.contains(Compat::FAST_COMMIT);
        let NewJournal {
            size,
            fast_commit_kib,
        } = self.journal.unwrap_or_default();
        let JournalBlocks { all, fast_commits } = JournalBlocks::choose(
            superblock.blocks_count(),
            superblock.block_size(),
            has_fast_commits,
            (size, fast_commit_kib),
        )
        .map_err(refused)?
        .ok_or_else(|| refused("the volume is too small for a journal"))?;
        Ok(journal::JournalSize {
            blocks: all,
            fast_commit_blocks: fast_commits,
        })
    }

    /// Returns whether the volume has the feature `project` without quotas, and is to keep it. With
    /// its quota files, a kind of owner goes whole, as with tune2fs.
    fn keeps_projects(&self, superblock: &Superblock) -> bool {
        superblock.features().ro_compat.contains(RoCompat::PROJECT)
            && superblock.quota_inode(Kind::Project).is_none()
            && !self.fields.without.ro_compat.contains(RoCompat::PROJECT)
    }

    /// Returns the kinds of quota that the volume is to keep.
    fn kinds(&self, superblock: &Superblock) -> Vec<Kind> {
        let has = |kind: Kind| superblock.quota_inode(kind).is_some();
        let with = self.fields.features.ro_compat;
        let gone = self.fields.without.ro_compat;
        let projects = superblock.features().ro_compat.contains(RoCompat::PROJECT);
        // As with tune2fs, the feature alone means users and groups, where nothing else says for
        // which kinds.
        let by_default = with.contains(RoCompat::QUOTA)
            && self.quotas.with.is_empty()
            && !Kind::ALL.into_iter().any(has);
        let wanted = |kind: Kind| match kind {
            Kind::User | Kind::Group => by_default,
            Kind::Project => with.contains(RoCompat::PROJECT) || by_default && projects,
        };
        let leaves = |kind: Kind| {
            gone.contains(RoCompat::QUOTA)
                || self.quotas.without.contains(&kind)
                || kind == Kind::Project && gone.contains(RoCompat::PROJECT)
        };
        let stays = |kind: &Kind| has(*kind) && !leaves(*kind);
        let comes = |kind: &Kind| self.quotas.with.contains(kind) || wanted(*kind);
        Kind::ALL
            .into_iter()
            .filter(|kind| stays(kind) || comes(kind))
            .collect()
    }
}
