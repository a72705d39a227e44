//! Changes fields of the superblock, as `tune2fs` does.
//!
//! [`Ext4::tune`] changes the primary superblock in one transaction, and its backups in later ones.
//! A crash in between leaves old values in backups. The command `tune` and `FileSystem::set_label`
//! call it. A value that the format has no room for is refused before anything changes. `own_files`
//! adds and removes the volume's own files, and changes the superblock through it.
//!
//! # A new UUID
//! Checksums of `metadata_csum` start with a seed, the checksum of the UUID. The superblock keeps
//! the seed of the old UUID (`metadata_csum_seed`) before it gets the new one, so no checksum
//! changes. `checksum_rewrite` removes that feature again. The older checksums of group descriptors
//! (`uninit_bg`) include the UUID and have no seed: all descriptors change with the superblock.

pub mod checksum_rewrite;
mod in_use;

use std::sync::Arc;

use extern4_block::BlockDevice;
use extern4_disk::feature::{Compat, Features, Incompat, RoCompat};
use extern4_disk::group::GroupDescriptor;
use extern4_disk::superblock::{
    ErrorPolicy, JournalLocation, RawSuperblock, SUPERBLOCK_SIZE, Superblock,
};
use extern4_disk::{Place, Structure};
use extern4_jbd2::Journal;
use extern4_vfs::Errno;

use crate::error::{Result, Unsupported};
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::time::now_seconds;

/// The fields to change; `None` leaves a field unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tune {
    /// The label: 16 bytes at most, none of them NUL.
    pub label: Option<Vec<u8>>,
    /// The new UUID; `None` keeps the present one.
    pub uuid: Option<[u8; 16]>,
    /// How a kernel reacts when it finds an error.
    pub errors: Option<ErrorPolicy>,
    /// How many blocks are reserved for the superuser: at most half of all.
    pub reserved_blocks: Option<u64>,
    /// The user and the group that may use reserved blocks, too.
    pub reserved_for: (Option<u32>, Option<u32>),
    /// Mounts since the last check.
    pub mounts: Option<u16>,
    /// Mounts between checks; `u16::MAX` for no limit.
    pub max_mounts: Option<u16>,
    /// Seconds between checks; 0 for no limit.
    pub check_interval: Option<u32>,
    /// The time of the last check, in seconds since 1970.
    pub last_checked: Option<u64>,
    /// The directory of the last mount: 63 bytes at most.
    pub last_mounted: Option<Vec<u8>>,
    /// Changes of the default mount options.
    pub mount_options: MountOptions,
    /// Features to add. Nothing else on the volume may have to change with them.
    pub features: Features,
    /// Features to take away. They have to be bits of the superblock only, and ones that the fields
    /// of inodes show to be in use: one that a file uses stays.
    pub without: Features,
}

/// Changes of the default mount options, as bits of `s_default_mount_opts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// The bits to clear first.
    pub clear: u32,
    /// The bits to set.
    pub set: u32,
}

/// The features of the volume's own files.
const OWN_COMPAT: Compat = Compat::HAS_JOURNAL.union(Compat::ORPHAN_FILE);
const OWN_RO_COMPAT: RoCompat = RoCompat::QUOTA.union(RoCompat::PROJECT);
/// How many backups one transaction changes.
const BACKUPS: usize = 16;

impl Tune {
    fn apply(&self, raw: &mut RawSuperblock) {
        if let Some(label) = &self.label {
            raw.s_volume_name = [0; 16];
            raw.s_volume_name[..label.len()].copy_from_slice(label);
        }
        if let Some(uuid) = self.uuid {
            raw.s_uuid = uuid;
        }
        match self.errors {
            Some(ErrorPolicy::Continue) => raw.s_errors.set(1),
            Some(ErrorPolicy::RemountReadOnly) => raw.s_errors.set(2),
            Some(ErrorPolicy::Panic) => raw.s_errors.set(3),
            Some(ErrorPolicy::Unknown(_)) | None => {}
        }
        if let Some(blocks) = self.reserved_blocks {
            let [a, b, c, d, e, f, g, h] = blocks.to_le_bytes();
            raw.s_r_blocks_count_lo
                .set(u32::from_le_bytes([a, b, c, d]));
            raw.s_r_blocks_count_hi
                .set(u32::from_le_bytes([e, f, g, h]));
        }
        self.apply_checks(raw);
        let (uid, gid) = self.reserved_for;
        if let Some([a, b, c, d]) = uid.map(u32::to_le_bytes) {
            raw.s_def_resuid.set(u16::from_le_bytes([a, b]));
            raw.s_def_resuid_hi.set(u16::from_le_bytes([c, d]));
        }
        if let Some([a, b, c, d]) = gid.map(u32::to_le_bytes) {
            raw.s_def_resgid.set(u16::from_le_bytes([a, b]));
            raw.s_def_resgid_hi.set(u16::from_le_bytes([c, d]));
        }
        if let Some(directory) = &self.last_mounted {
            raw.s_last_mounted = [0; 64];
            raw.s_last_mounted[..directory.len()].copy_from_slice(directory);
        }
        let options = raw.s_default_mount_opts.get() & !self.mount_options.clear;
        raw.s_default_mount_opts
            .set(options | self.mount_options.set);
        let changed = |old: u32, without: u32, with: u32| old & !without | with;
        let Features {
            compat,
            incompat,
            ro_compat,
        } = self.features;
        let without = self.without;
        let old = raw.s_feature_compat.get();
        raw.s_feature_compat
            .set(changed(old, without.compat.bits(), compat.bits()));
        let old = raw.s_feature_incompat.get();
        raw.s_feature_incompat
            .set(changed(old, without.incompat.bits(), incompat.bits()));
        let old = raw.s_feature_ro_compat.get();
        raw.s_feature_ro_compat
            .set(changed(old, without.ro_compat.bits(), ro_compat.bits()));
    }

    /// Sets the fields about checks of the volume.
    fn apply_checks(&self, raw: &mut RawSuperblock) {
        if let Some(mounts) = self.mounts {
            raw.s_mnt_count.set(mounts);
        }
        if let Some(mounts) = self.max_mounts {
            raw.s_max_mnt_count.set(mounts);
        }
        if let Some(seconds) = self.check_interval {
            raw.s_checkinterval.set(seconds);
        }
        if let Some([a, b, c, d, e, ..]) = self.last_checked.map(u64::to_le_bytes) {
            raw.s_lastcheck.set(u32::from_le_bytes([a, b, c, d]));
            raw.s_lastcheck_hi = e;
        }
    }
}

/// The changes that a new UUID needs besides the field itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewUuid {
    /// Nothing.
    Alone,
    /// The seed of the old one is kept in the superblock.
    KeepsSeed,
    /// The checksums of the group descriptors change.
    ChangesDescriptors,
}

impl NewUuid {
    /// Returns the changes for a volume with these features. Refuses features with which structures
    /// on the volume depend on the UUID.
    fn on(features: Features) -> Result<Self, Unsupported> {
        if features.compat.contains(Compat::STABLE_INODES) {
            return Err(Unsupported::Uuid("stable_inodes"));
        }
        if features.incompat.contains(Incompat::CSUM_SEED) {
            return Ok(Self::Alone);
        }
        if features.metadata_csum() {
            return Ok(Self::KeepsSeed);
        }
        if features.incompat.contains(Incompat::EA_INODE) {
            return Err(Unsupported::Uuid("ea_inode, without metadata_csum"));
        }
        let descriptors = features.ro_compat.contains(RoCompat::GDT_CSUM);
        Ok(if descriptors {
            Self::ChangesDescriptors
        } else {
            Self::Alone
        })
    }
}

/// Stores the seed of checksums, so that they do not depend on the UUID. Reading such a volume
/// needs Linux 4.4 or e2fsprogs 1.43.
fn keep_seed(raw: &mut RawSuperblock, seed: u32) {
    let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
    raw.s_feature_incompat
        .set((incompat | Incompat::CSUM_SEED).bits());
    raw.s_checksum_seed.set(seed);
}

/// Replaces the volume's UUID `old` by `new` on its external journal. Does nothing for a volume
/// without an external journal. `sb` is the superblock of the volume, which must not be open for
/// writing.
///
/// # Errors
/// A device that is not the volume's journal, or that fails.
pub fn rename_journal_user(
    device: Arc<dyn BlockDevice>,
    sb: &Superblock,
    old: &[u8; 16],
    new: &[u8; 16],
) -> Result<()> {
    if let Some(JournalLocation::Device { uuid, .. }) = sb.journal() {
        Journal::external(device, sb.block_size(), &uuid)?.rename_user(old, new)?;
    }
    Ok(())
}

impl Ext4 {
    /// Changes the superblock and its backups.
    ///
    /// A new UUID adds the feature `metadata_csum_seed` to a volume with `metadata_csum`.
    ///
    /// # Errors
    /// `EROFS` if the volume was opened for reading, `EINVAL` for a label that is too long or too
    /// many reserved blocks. [`Unsupported::Uuid`] for a new UUID where structures on the volume
    /// depend on the old one; or a device that fails.
    pub fn tune(&self, tune: &Tune) -> Result<()> {
        let sb = self.superblock();
        self.writer()?;
        if tune
            .label
            .as_ref()
            .is_some_and(|label| label.len() > 16 || label.contains(&0))
        {
            return Err(Errno::EINVAL.into());
        }
        if tune
            .reserved_blocks
            .is_some_and(|blocks| blocks > sb.blocks_count() / 2)
        {
            return Err(Errno::EINVAL.into());
        }
        if tune
            .last_mounted
            .as_ref()
            .is_some_and(|directory| directory.len() > 63 || directory.contains(&0))
        {
            return Err(Errno::EINVAL.into());
        }
        let used = self.features_in_use(tune.without)?;
        if used != Features::default() {
            return Err(Unsupported::InUse(used.iter().collect()).into());
        }
        let is_new = tune
            .uuid
            .is_some_and(|uuid| uuid != self.current_superblock().uuid());
        let new = if is_new {
            NewUuid::on(self.current_superblock().features())?
        } else {
            NewUuid::Alone
        };
        let seed = Some(sb.checksum_seed().get()).filter(|_| new == NewUuid::KeepsSeed);
        if let Some(seed) = seed {
            self.with_handle(1, 0, |handle| {
                handle.edit_superblock(|raw| keep_seed(raw, seed))
            })?;
            // The seed is durable before the UUID changes, so readers use the right seed after a
            // crash at any moment.
            self.writer()?.transactions.sync()?;
        }
        let renames = new == NewUuid::ChangesDescriptors;
        let descriptors = if renames {
            sb.geometry().descriptor_blocks()
        } else {
            0
        };
        self.with_handle(1 + descriptors, 0, |handle| {
            handle.edit_superblock(|raw| tune.apply(raw))?;
            let blocks = (0..descriptors)
                .filter_map(|index| Some((sb.geometry().descriptor_block(index)?, index)));
            blocks
                .into_iter()
                .try_for_each(|(block, index)| seal_descriptors(handle, block, index))
        })?;
        self.tune_backups(tune, seed)?;
        if renames {
            self.seal_descriptor_copies()
        } else {
            Ok(())
        }
    }

    /// Notes that a check has found nothing wrong: clears the state "errors" and the record of
    /// errors, and notes the time of the check, as e2fsck does.
    ///
    /// # Errors
    /// `EROFS` if the volume was opened for reading, or a device that fails.
    pub fn note_sound(&self) -> Result<()> {
        let now = u64::from(now_seconds());
        let checked = Tune {
            mounts: Some(0),
            last_checked: Some(now),
            ..Tune::default()
        };
        self.with_handle(1, 0, |handle| {
            handle.edit_superblock(|raw| {
                checked.apply(raw);
                raw.clear_errors();
            })
        })
    }

    pub(crate) fn tune_backups(&self, tune: &Tune, seed: Option<u32>) -> Result<()> {
        let sb = self.current_superblock();
        let geometry = self.superblock().geometry();
        let backups: Vec<u64> = (1..geometry.group_count())
            .filter(|group| geometry.has_superblock(*group))
            .filter_map(|group| geometry.superblock_in(group))
            .collect();
        for blocks in backups.chunks(BACKUPS) {
            // OK: no more than `BACKUPS`.
            self.with_handle(blocks.len() as u32, 0, |handle| {
                for block in blocks {
                    let mut buffer = self.cache.read(*block)?;
                    handle.edit(&mut buffer, |bytes| {
                        // A damaged backup is left for e2fsck.
                        let at = || Place::new(Structure::Superblock);
                        let backup = RawSuperblock::read(bytes, at());
                        let Ok(mut backup) = backup.and_then(|raw| Superblock::from_raw(raw, at()))
                        else {
                            return;
                        };
                        if let Some(seed) = seed {
                            keep_seed(backup.raw_mut(), seed);
                        }
                        tune.apply(backup.raw_mut());
                        copy_fields(sb.raw(), backup.raw_mut());
                        bytes[..SUPERBLOCK_SIZE].copy_from_slice(&backup.encode());
                    });
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Stores the checksums of backup descriptors with the current UUID.
    fn seal_descriptor_copies(&self) -> Result<()> {
        let geometry = self.superblock().geometry();
        let copies = (1..geometry.group_count()).flat_map(|group| {
            let own = group / geometry.descriptors_per_block();
            let all = 0..geometry.descriptor_blocks();
            let indices = if geometry.has_superblock(group) {
                all
            } else {
                own..own + 1
            };
            indices
                .filter_map(move |index| Some((geometry.descriptor_block_in(group, index)?, index)))
        });
        let copies: Vec<_> = copies
            .filter(|(block, index)| Some(*block) != geometry.descriptor_block(*index))
            .collect();
        for copies in copies.chunks(BACKUPS) {
            // OK: no more than `BACKUPS`.
            self.with_handle(copies.len() as u32, 0, |handle| {
                copies
                    .iter()
                    .try_for_each(|(block, index)| seal_descriptors(handle, *block, *index))
            })?;
        }
        Ok(())
    }
}

/// Copies the fields about the volume's own files from the primary superblock to a backup.
fn copy_fields(from: &RawSuperblock, to: &mut RawSuperblock) {
    let all = from.features();
    let old = to.features();
    let compat = old.compat.difference(OWN_COMPAT) | all.compat.intersection(OWN_COMPAT);
    let ro_compat =
        old.ro_compat.difference(OWN_RO_COMPAT) | all.ro_compat.intersection(OWN_RO_COMPAT);
    to.s_feature_compat.set(compat.bits());
    to.s_feature_ro_compat.set(ro_compat.bits());
    (to.s_journal_inum, to.s_journal_dev) = (from.s_journal_inum, from.s_journal_dev);
    to.s_journal_uuid = from.s_journal_uuid;
    (to.s_jnl_backup_type, to.s_jnl_blocks) = (from.s_jnl_backup_type, from.s_jnl_blocks);
    to.s_orphan_file_inum = from.s_orphan_file_inum;
    to.s_usr_quota_inum = from.s_usr_quota_inum;
    to.s_grp_quota_inum = from.s_grp_quota_inum;
    to.s_prj_quota_inum = from.s_prj_quota_inum;
    to.s_overhead_blocks = from.s_overhead_blocks;
}

/// Stores the checksums of the descriptors in `block`, which is block `index` of them or a backup
/// of that.
fn seal_descriptors(handle: &Handle<'_>, block: u64, index: u32) -> Result<()> {
    let sb = handle.current_superblock();
    let geometry = sb.geometry();
    let mut buffer = handle.fs.cache.read(block)?;
    let first = index * geometry.descriptors_per_block();
    handle.edit(&mut buffer, |bytes| {
        let descriptors = bytes.chunks_exact_mut(usize::from(geometry.desc_size()));
        for (descriptor, group) in descriptors.zip(first..geometry.group_count()) {
            // A backup that was never written stays empty.
            if descriptor.iter().any(|&byte| byte != 0) {
                GroupDescriptor::store_checksum(descriptor, group, &sb);
            }
        }
    });
    Ok(())
}
