//! Values of the superblock that a volume can be read with, but that Linux or e2fsck refuse.
//!
//! [`Superblock::decode`] refuses the values that reading depends on. This module lists others.
//! They were found by setting each field to odd values, and checking the volume with `e2fsck -fn`
//! and with a mount by Linux 6.18.
//!
//! The checker reports them. A volume without any may still have other faults.

use super::{CreatorOs, HASH_VERSION_LAST, Superblock};
use crate::corrupt::{Corrupt, CorruptKind, Place};
use crate::feature::{Compat, Incompat, RoCompat};
use crate::inode_number::JOURNAL_INO;

/// Inodes that a kernel without the `quota` feature used for quota files, and that the feature
/// still uses.
const QUOTA_INODES: std::ops::RangeInclusive<u32> = 3..=4;
/// Bytes of an inode before its extra fields.
const BASE_INODE: u16 = 128;
/// The largest descriptor that e2fsck accepts.
const MAX_DESC_SIZE: u16 = 1024;

impl Superblock {
    /// Returns the fields with values that Linux or e2fsck refuse, though the volume can be read. A
    /// sound volume has none; a volume that has any must not be written to.
    pub fn impossible(&self, at: Place) -> Vec<Corrupt> {
        let fields = [
            self.impossible_sizes(),
            self.impossible_inodes(),
            self.impossible_options(),
        ];
        fields
            .concat()
            .into_iter()
            .map(|(field, value)| at.corrupt(CorruptKind::Field { field, value }))
            .collect()
    }

    fn impossible_sizes(&self) -> Vec<(&'static str, u64)> {
        let raw = &self.raw;
        let features = self.features();
        let has = |feature| features.incompat.contains(feature);
        let clusters = raw.s_clusters_per_group.get();
        let desc = raw.s_desc_size.get();
        let reserved = self.reserved_gdt_blocks();
        let flex = raw.s_log_groups_per_flex;
        let tests = [
            (
                !features.ro_compat.contains(RoCompat::BIGALLOC)
                    && clusters != raw.s_blocks_per_group.get(),
                "s_clusters_per_group",
                clusters.into(),
            ),
            (
                self.reserved_blocks() > self.blocks_count() / 2,
                "s_r_blocks_count",
                self.reserved_blocks(),
            ),
            (
                !has(Incompat::BIT64)
                    && desc != 0
                    && !(desc.is_power_of_two() && desc <= MAX_DESC_SIZE),
                "s_desc_size",
                desc.into(),
            ),
            (
                reserved != 0 && !features.compat.contains(Compat::RESIZE_INODE),
                "s_reserved_gdt_blocks",
                reserved.into(),
            ),
            (
                has(Incompat::FLEX_BG) && flex >= 32,
                "s_log_groups_per_flex",
                flex.into(),
            ),
            self.extra_fields("s_min_extra_isize", raw.s_min_extra_isize.get()),
            self.extra_fields("s_want_extra_isize", raw.s_want_extra_isize.get()),
        ];
        named(&tests)
    }

    /// Tests whether a size of the extra fields is impossible: they must end on a multiple of 4
    /// inside the inode.
    fn extra_fields(&self, field: &'static str, size: u16) -> (bool, &'static str, u64) {
        let inode = self.inode_size();
        let fits = size.is_multiple_of(4) && size <= inode - BASE_INODE;
        (inode > BASE_INODE && !fits, field, size.into())
    }

    fn impossible_inodes(&self) -> Vec<(&'static str, u64)> {
        let raw = &self.raw;
        let features = self.features();
        let is_file = |ino: u32| (self.first_ino()..=self.inodes_count()).contains(&ino);
        let has_journal = features.compat.contains(Compat::HAS_JOURNAL);
        let journal = raw.s_journal_inum.get();
        let device = raw.s_journal_dev.get();
        let journal_ok = match journal {
            0 => !has_journal || raw.s_journal_uuid != [0; 16],
            ino => has_journal && (ino == JOURNAL_INO || is_file(ino)),
        };
        let quota = |field, ino: u32| {
            (
                ino != 0 && !QUOTA_INODES.contains(&ino) && !is_file(ino),
                field,
                u64::from(ino),
            )
        };
        let orphan_file = raw.s_orphan_file_inum.get();
        let has_orphan_file = features.compat.contains(Compat::ORPHAN_FILE);
        let tests = [
            (!journal_ok, "s_journal_inum", journal.into()),
            (
                has_journal && journal != 0 && device != 0,
                "s_journal_dev",
                device.into(),
            ),
            quota("s_usr_quota_inum", raw.s_usr_quota_inum.get()),
            quota("s_grp_quota_inum", raw.s_grp_quota_inum.get()),
            quota("s_prj_quota_inum", raw.s_prj_quota_inum.get()),
            (
                has_orphan_file && !is_file(orphan_file),
                "s_orphan_file_inum",
                orphan_file.into(),
            ),
        ];
        named(&tests)
    }

    fn impossible_options(&self) -> Vec<(&'static str, u64)> {
        let raw = &self.raw;
        let features = self.features();
        let hurd =
            self.creator_os() == CreatorOs::Hurd && features.incompat.contains(Incompat::BIT64);
        let hash = raw.s_def_hash_version;
        let lacks_mmp = features.incompat.contains(Incompat::MMP) && self.mmp_block().is_none();
        let tests = [
            (
                raw.s_rev_level.get() > 1,
                "s_rev_level",
                raw.s_rev_level.get().into(),
            ),
            (hurd, "s_creator_os", raw.s_creator_os.get().into()),
            (lacks_mmp, "s_mmp_block", raw.s_mmp_block.get()),
            (hash > HASH_VERSION_LAST, "s_def_hash_version", hash.into()),
        ];
        named(&tests)
    }
}

/// Returns the names and values of the fields that are impossible.
fn named(tests: &[(bool, &'static str, u64)]) -> Vec<(&'static str, u64)> {
    tests
        .iter()
        .filter(|(impossible, ..)| *impossible)
        .map(|&(_, field, value)| (field, value))
        .collect()
}
