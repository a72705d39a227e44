//! Changes of the files that a volume has for itself: its journal and its quota files.
//!
//! `tune` calls [`Structures::of`] before it opens the volume and [`Structures::change`] while it
//! is open. It takes a journal away itself, after it has closed the volume. A contradiction is a
//! usage error, and a volume that cannot be changed is not changed at all.

use extern4_disk::feature::{Compat, Features, RoCompat};
use extern4_disk::quota::Kind;
use extern4_disk::superblock::Superblock;
use extern4_ext4::Ext4;
use extern4_ext4::own_files::journal::{JournalSize, check_removable};
use extern4_mkfs::JournalBlocks;

use super::settings::{FeatureChange, QuotaChange};
use crate::app::App;
use crate::cmd::mkfs::extended::JournalOptions;
use crate::exit_status::ExitStatus;
use crate::image_path::Image;

/// The features that follow from the volume's own files.
const FEATURES: Features = Features {
    compat: Compat::HAS_JOURNAL,
    incompat: extern4_disk::feature::Incompat::empty(),
    ro_compat: RoCompat::QUOTA.union(RoCompat::PROJECT),
};

/// The changes that a command line asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Structures {
    adds_journal: bool,
    /// A volume that has a journal is an error.
    is_new_journal: bool,
    pub(super) removes_journal: bool,
    journal: JournalOptions,
    features: FeatureChange,
    quotas: QuotaChange,
}

impl Structures {
    /// Returns the changes of the options `-j`, `-J`, `-Q` and `-O`, and takes those of `-O` from
    /// `features`.
    pub(super) fn of(
        journal: bool,
        options: Option<&JournalOptions>,
        quotas: Option<&QuotaChange>,
        features: &mut FeatureChange,
    ) -> Result<Self, &'static str> {
        let own = FeatureChange {
            with: features.with.intersection(FEATURES),
            without: features.without.intersection(FEATURES),
        };
        features.with = features.with.difference(FEATURES);
        features.without = features.without.difference(FEATURES);
        let is_new_journal = journal || options.is_some();
        let has = |features: Features| features.compat.contains(Compat::HAS_JOURNAL);
        let adds_journal = is_new_journal || has(own.with);
        let removes_journal = has(own.without);
        if adds_journal && removes_journal {
            return Err("a journal cannot be added and taken away at once");
        }
        let journal = options.cloned().unwrap_or_default();
        if journal.device.is_some() {
            return Err("-J device=: only mkfs gives a volume a journal on another device");
        }
        if journal.location.is_some() {
            return Err("-J location=: a journal that is added gets the first room for it");
        }
        let quotas = quotas.cloned().unwrap_or_default();
        Ok(Self {
            adds_journal,
            is_new_journal,
            removes_journal,
            journal,
            features: own,
            quotas,
        })
    }

    fn changes_quotas(&self) -> bool {
        let all = self.features.with.ro_compat | self.features.without.ro_compat;
        !all.is_empty() || self.quotas != QuotaChange::default()
    }

    /// Makes the changes of an open volume. Returns false after a failure, which it reports.
    pub(super) fn change(&self, ext4: &Ext4, image: &Image, app: &mut App) -> bool {
        if self.removes_journal
            && let Err(error) = check_removable(ext4.superblock())
        {
            app.ext4_error(image, &error.into());
            return false;
        }
        let has_journal = ext4.superblock().journal().is_some();
        if has_journal && self.is_new_journal {
            app.fail_at(ExitStatus::Failed, image, "it has a journal already");
            return false;
        }
        if self.adds_journal && !has_journal {
            let Some(size) = self.journal_size(ext4.superblock(), image, app) else {
                return false;
            };
            if let Err(error) = ext4.add_journal(size) {
                app.ext4_error(image, &error);
                return false;
            }
        }
        if self.changes_quotas()
            && let Err(error) = ext4.set_quotas(
                &self.kinds(ext4.superblock()),
                self.keeps_projects(ext4.superblock()),
            )
        {
            app.ext4_error(image, &error);
            return false;
        }
        true
    }

    /// Returns the size of a new journal. Reports a volume or a size that allows none.
    fn journal_size(&self, sb: &Superblock, image: &Image, app: &mut App) -> Option<JournalSize> {
        let has_fast_commits = sb.features().compat.contains(Compat::FAST_COMMIT);
        let wanted = (self.journal.size, self.journal.fast_commit_kib);
        match JournalBlocks::choose(sb.blocks_count(), sb.block_size(), has_fast_commits, wanted) {
            Ok(Some(JournalBlocks { all, fast_commits })) => Some(JournalSize {
                blocks: all,
                fast_commit_blocks: fast_commits,
            }),
            Ok(None) => {
                app.fail_at(
                    ExitStatus::Failed,
                    image,
                    "the volume is too small for a journal",
                );
                None
            }
            Err(error) => {
                app.fail_at(ExitStatus::Failed, image, error);
                None
            }
        }
    }

    /// Returns whether the volume has the feature `project` without quotas, and is to keep it. With
    /// its quota files, a kind of owner goes whole, as with tune2fs.
    fn keeps_projects(&self, sb: &Superblock) -> bool {
        sb.features().ro_compat.contains(RoCompat::PROJECT)
            && sb.quota_inode(Kind::Project).is_none()
            && !self.features.without.ro_compat.contains(RoCompat::PROJECT)
    }

    /// Returns the kinds of quota that the volume is to keep.
    fn kinds(&self, sb: &Superblock) -> Vec<Kind> {
        let has = |kind: Kind| sb.quota_inode(kind).is_some();
        let with = self.features.with.ro_compat;
        let gone = self.features.without.ro_compat;
        let projects = sb.features().ro_compat.contains(RoCompat::PROJECT);
        // As with tune2fs, the feature alone stands for users and groups, where nothing else says
        // for which kinds.
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
