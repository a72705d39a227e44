//! Changes of what the superblock says of the volume, as `tune2fs` makes them.
//!
//! The superblock that counts changes in one transaction, its backups in those that follow: whoever needs a backup
//! after a crash in between finds the old label there.

use extern4_disk::feature::{Compat, Features, Incompat, RoCompat};
use extern4_disk::superblock::{ErrorPolicy, RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{Place, Structure};
use extern4_vfs::Errno;

use crate::error::{Result, Unsupported};
use crate::mount::Ext4;

/// What to change; `None` leaves a thing as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tune {
    /// The label: 16 bytes at most, none of them NUL.
    pub label: Option<Vec<u8>>,
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// What a kernel does when it finds an error.
    pub errors: Option<ErrorPolicy>,
    /// How many blocks only the superuser may take: half of all at most.
    pub reserved_blocks: Option<u64>,
}

/// Backups that one transaction changes.
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
            raw.s_r_blocks_count_lo.set(u32::from_le_bytes([a, b, c, d]));
            raw.s_r_blocks_count_hi.set(u32::from_le_bytes([e, f, g, h]));
        }
    }
}

/// Refuses a new UUID where what is on the volume depends on the old one.
fn check_uuid(features: Features) -> Result<(), Unsupported> {
    if features.incompat.contains(Incompat::CSUM_SEED) {
        // What was computed with the UUID is computed with the seed; file keys may still be.
    } else if features.metadata_csum() {
        return Err(Unsupported::Uuid("metadata_csum, without metadata_csum_seed"));
    } else if features.ro_compat.contains(RoCompat::GDT_CSUM) {
        return Err(Unsupported::Uuid("uninit_bg"));
    }
    if features.compat.contains(Compat::STABLE_INODES) {
        return Err(Unsupported::Uuid("stable_inodes"));
    }
    Ok(())
}

impl Ext4 {
    /// Changes the superblock and its backups.
    ///
    /// # Errors
    /// `EROFS` if the volume was opened for reading, `EINVAL` for a label that is too long or too many reserved blocks,
    /// [`Unsupported::Uuid`] for a new UUID where checksums hang on the old one, or a device that fails.
    pub fn tune(&self, tune: &Tune) -> Result<()> {
        let sb = self.superblock();
        self.writer()?;
        if tune.label.as_ref().is_some_and(|label| label.len() > 16 || label.contains(&0)) {
            return Err(Errno::EINVAL.into());
        }
        if tune.reserved_blocks.is_some_and(|blocks| blocks > sb.blocks_count() / 2) {
            return Err(Errno::EINVAL.into());
        }
        if tune.uuid.is_some_and(|uuid| uuid != sb.uuid()) {
            check_uuid(sb.features())?;
        }
        self.changing(1, 0, |change| change.edit_superblock(|raw| tune.apply(raw)))?;
        let geometry = sb.geometry();
        let backups: Vec<u64> = (1..geometry.group_count())
            .filter(|group| geometry.has_superblock(*group))
            .filter_map(|group| geometry.superblock_in(group))
            .collect();
        for blocks in backups.chunks(BACKUPS) {
            // OK: no more than `BACKUPS`.
            self.changing(blocks.len() as u32, 0, |change| {
                for block in blocks {
                    let mut buffer = self.cache.read(*block)?;
                    change.edit(&mut buffer, |bytes| {
                        // A backup that is damaged is for e2fsck to mend.
                        let at = || Place::new(Structure::Superblock);
                        let backup = RawSuperblock::read(bytes, at());
                        let Ok(mut backup) = backup.and_then(|raw| Superblock::from_raw(raw, at())) else {
                            return;
                        };
                        tune.apply(backup.raw_mut());
                        bytes[..SUPERBLOCK_SIZE].copy_from_slice(&backup.encode());
                    });
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
