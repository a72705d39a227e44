//! Every field of the superblock with values that cannot be, judged by `e2fsck -fn` and by a mount
//! of the kernel's. If they refuse a value, the check names it, and the volume does not open for
//! writing. If they accept a value, it is sound here, too.

use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_check::{Options, check};
use extern4_disk::checksum::crc32c;
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{Need, can_run, e2fsck_complaints};

/// A base, the name of a field, its place in the superblock and its length in bytes, and values.
type Row = (&'static str, &'static str, usize, usize, &'static [u64]);

const M16: u64 = 0xffff;
const M32: u64 = 0xffff_ffff;

const BASES: &[(&str, &[&str])] = &[
    ("ext4", &["-t", "ext4", "-b", "1024", "-I", "256"]),
    ("ext2", &["-t", "ext2", "-b", "1024", "-I", "256"]),
    ("ext3", &["-t", "ext3", "-b", "1024"]),
    (
        "bigalloc",
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"],
    ),
    (
        "meta_bg",
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
    ),
    ("orphan", &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]),
    ("old", &["-t", "ext2", "-r", "0", "-b", "1024"]),
];

/// Values that e2fsck or Linux refuses: the check names the field, and the volume is not opened for
/// writing.
const REFUSED: &[Row] = &[
    ("ext4", "s_inodes_count", 0x00, 4, &[0, 11, M32]),
    (
        "ext4",
        "s_blocks_count",
        0x04,
        4,
        &[0, 1, 100, 8193, 1_000_000, M32],
    ),
    ("ext4", "s_blocks_count", 0x150, 4, &[1, M32]),
    (
        "ext4",
        "s_r_blocks_count",
        0x08,
        4,
        &[8193, 16384, 16385, M32],
    ),
    ("ext4", "s_r_blocks_count", 0x154, 4, &[1, M32]),
    ("old", "s_r_blocks_count", 0x08, 4, &[8193]),
    ("ext4", "s_first_data_block", 0x14, 4, &[0, 2, 8192, M32]),
    ("ext4", "s_log_block_size", 0x18, 4, &[1, 2, 6, 7, 32, M32]),
    ("ext4", "s_log_cluster_size", 0x1c, 4, &[1, 7, 31, M32]),
    ("old", "s_log_cluster_size", 0x1c, 4, &[1, 5]),
    (
        "bigalloc",
        "s_log_cluster_size",
        0x1c,
        4,
        &[0, 1, 3, 20, 31, M32],
    ),
    (
        "ext4",
        "s_blocks_per_group",
        0x20,
        4,
        &[0, 1, 8, 1024, 8184, 8193, 16384, M32],
    ),
    (
        "bigalloc",
        "s_blocks_per_group",
        0x20,
        4,
        &[0, 8192, 32760, M32],
    ),
    (
        "ext4",
        "s_clusters_per_group",
        0x24,
        4,
        &[0, 1, 8191, 8193, M32],
    ),
    ("ext2", "s_clusters_per_group", 0x24, 4, &[0, 16384]),
    ("old", "s_clusters_per_group", 0x24, 4, &[0]),
    (
        "bigalloc",
        "s_clusters_per_group",
        0x24,
        4,
        &[0, 1, 8184, 8193, M32],
    ),
    (
        "ext4",
        "s_inodes_per_group",
        0x28,
        4,
        &[0, 1, 7, 16, 8192, 8193, M32],
    ),
    ("ext4", "s_creator_os", 0x48, 4, &[1]),
    ("ext4", "s_first_ino", 0x54, 4, &[0, 5, 10, 8193, M32]),
    (
        "ext2",
        "s_inode_size",
        0x58,
        2,
        &[0, 1, 64, 100, 200, 2048, M16],
    ),
    ("ext4", "s_reserved_gdt_blocks", 0xce, 2, &[257, M16]),
    ("meta_bg", "s_reserved_gdt_blocks", 0xce, 2, &[1, 256, M16]),
    ("ext4", "s_journal_inum", 0xe0, 4, &[0, 1, 2, 7, 9, 10, M32]),
    ("ext3", "s_journal_inum", 0xe0, 4, &[0, 7]),
    ("ext2", "s_journal_inum", 0xe0, 4, &[8, 12, M32]),
    ("ext4", "s_journal_dev", 0xe4, 4, &[1, M32]),
    ("ext3", "s_journal_dev", 0xe4, 4, &[0x700]),
    ("ext4", "s_def_hash_version", 0xfc, 1, &[6, 7, 255]),
    ("old", "s_def_hash_version", 0xfc, 1, &[7]),
    (
        "ext4",
        "s_desc_size",
        0xfe,
        2,
        &[0, 1, 16, 32, 63, 65, 96, 2048, M16],
    ),
    ("ext2", "s_desc_size", 0xfe, 2, &[63, 65, 1023, 2048, M16]),
    ("meta_bg", "s_first_meta_bg", 0x104, 4, &[9, 1000, M32]),
    (
        "ext4",
        "s_min_extra_isize",
        0x15c,
        2,
        &[1, 3, 31, 33, 129, 132, M16],
    ),
    ("ext2", "s_min_extra_isize", 0x15c, 2, &[3, 129]),
    (
        "ext4",
        "s_want_extra_isize",
        0x15e,
        2,
        &[1, 3, 31, 33, 129, 132, M16],
    ),
    ("ext2", "s_want_extra_isize", 0x15e, 2, &[3, 129]),
    (
        "ext4",
        "s_log_groups_per_flex",
        0x174,
        1,
        &[32, 33, 64, 255],
    ),
    ("ext4", "s_checksum_type", 0x175, 1, &[0, 2, 255]),
    ("ext4", "s_usr_quota_inum", 0x240, 4, &[1, 5, 10, 8193, M32]),
    ("ext4", "s_grp_quota_inum", 0x244, 4, &[2, 8, 8193]),
    ("ext4", "s_prj_quota_inum", 0x26c, 4, &[7, 8193]),
    ("orphan", "s_orphan_file_inum", 0x280, 4, &[0, 1, 2, 8, M32]),
];

/// Values that damage a volume whose fields are possible each for itself.
const DAMAGING: &[Row] = &[
    ("ext2", "s_inode_size", 0x58, 2, &[128, 512]),
    ("ext4", "s_inode_size", 0x58, 2, &[128, 512]),
    ("ext4", "s_reserved_gdt_blocks", 0xce, 2, &[256]),
    ("old", "s_reserved_gdt_blocks", 0xce, 2, &[1]),
    ("ext4", "s_journal_inum", 0xe0, 4, &[11, 12, 2048]),
    ("orphan", "s_orphan_file_inum", 0x280, 4, &[11, 13, 2048]),
];

/// Values of fields that are hints: e2fsck corrects them, and Linux goes on.
const HINTS: &[Row] = &[
    ("ext4", "s_free_blocks_count", 0x0c, 4, &[0, 16385, M32]),
    ("ext4", "s_free_blocks_count", 0x158, 4, &[1]),
    ("ext4", "s_free_inodes_count", 0x10, 4, &[0, M32]),
];

/// Odd values that are taken by all.
const TAKEN: &[Row] = &[
    ("ext4", "s_r_blocks_count", 0x08, 4, &[0, 8192]),
    ("ext2", "s_blocks_count", 0x150, 4, &[1]),
    ("ext4", "s_max_mnt_count", 0x36, 2, &[0, 1, 0x8000, M16]),
    ("ext4", "s_mnt_count", 0x34, 2, &[M16]),
    ("ext4", "s_state", 0x3a, 2, &[5, 9, 0x8001]),
    ("ext4", "s_errors", 0x3c, 2, &[0, 4, M16]),
    ("ext4", "s_minor_rev_level", 0x3e, 2, &[1, M16]),
    ("ext4", "s_block_group_nr", 0x5a, 2, &[1, M16]),
    ("old", "s_first_ino", 0x54, 4, &[0, 5]),
    ("old", "s_inode_size", 0x58, 2, &[0, 5]),
    ("ext4", "s_algorithm_usage_bitmap", 0xc8, 4, &[M32]),
    ("ext4", "s_journal_inum", 0xe0, 4, &[8]),
    ("ext2", "s_journal_dev", 0xe4, 4, &[5]),
    ("ext4", "s_def_hash_version", 0xfc, 1, &[0, 3, 5]),
    ("ext4", "s_jnl_backup_type", 0xfd, 1, &[0, 255]),
    ("ext2", "s_desc_size", 0xfe, 2, &[1, 32, 64, 1024]),
    ("ext4", "s_default_mount_opts", 0x100, 4, &[0x60, 0x8000]),
    ("ext4", "s_first_meta_bg", 0x104, 4, &[1, M32]),
    ("ext4", "s_min_extra_isize", 0x15c, 2, &[0, 4, 28, 96, 128]),
    ("ext4", "s_want_extra_isize", 0x15e, 2, &[0, 4, 28, 96, 128]),
    ("ext4", "s_flags", 0x160, 4, &[0, 1, 3, 4, 8, M32]),
    ("ext4", "s_raid_stride", 0x164, 2, &[1, M16]),
    ("ext4", "s_mmp_interval", 0x166, 2, &[M16]),
    ("ext4", "s_mmp_block", 0x168, 8, &[5, 1 << 40]),
    ("ext4", "s_raid_stripe_width", 0x170, 4, &[1, M32]),
    ("ext2", "s_log_groups_per_flex", 0x174, 1, &[32, 255]),
    ("ext2", "s_checksum_type", 0x175, 1, &[2, 255]),
    ("ext4", "s_kbytes_written", 0x178, 8, &[u64::MAX]),
    ("ext4", "s_snapshot_inum", 0x180, 4, &[5, M32]),
    ("ext4", "s_error_count", 0x194, 4, &[1, M32]),
    ("ext4", "s_first_error_ino", 0x19c, 4, &[M32]),
    ("ext4", "s_last_error_block", 0x1e0, 8, &[1 << 60]),
    ("ext4", "s_usr_quota_inum", 0x240, 4, &[3, 12]),
    ("ext4", "s_overhead_blocks", 0x248, 4, &[1, M32]),
    ("ext4", "s_backup_bgs", 0x24c, 4, &[1, M32]),
    ("ext4", "s_lpf_ino", 0x268, 4, &[1, 8193]),
    ("ext4", "s_checksum_seed", 0x270, 4, &[M32]),
    ("ext4", "s_encoding", 0x27c, 2, &[2, M16]),
    ("ext4", "s_orphan_file_inum", 0x280, 4, &[12, M32]),
];

/// A base image that each value is set in.
struct Base {
    image: Image,
    bytes: Vec<u8>,
}

/// The findings for one value: of the check, one fault a line, and of opening for writing.
struct Found {
    check: String,
    writing: Result<(), String>,
}

impl Base {
    fn set(&self, at: usize, len: usize, value: u64) {
        let mut bytes = self.bytes.clone();
        let superblock = &mut bytes[1024..2048];
        superblock[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        if superblock[0x65] & 0x04 != 0 {
            let sum = crc32c(!0, &superblock[..0x3fc]);
            superblock[0x3fc..].copy_from_slice(&sum.to_le_bytes());
        }
        std::fs::write(&self.image.path, bytes).expect("the image is written");
    }

    fn found(&self) -> Found {
        let bytes = std::fs::read(&self.image.path).expect("the image");
        let device = Arc::new(MemoryDevice::read_only(bytes.clone()));
        let mut text = String::new();
        match Ext4::open(device, &OpenOptions::default()) {
            Ok(fs) => {
                let each = &mut |fault: extern4_check::Fault| text += &format!("{fault}\n");
                check(
                    &fs,
                    &Options {
                        threads: 1,
                        ..Options::default()
                    },
                    each,
                )
                .expect("a check");
            }
            Err(error) => text = error.to_string(),
        }
        let device = Arc::new(MemoryDevice::new(bytes));
        let opened = Ext4::open_for_writing(device, &OpenOptions::default());
        let writing = opened
            .and_then(|fs| fs.close())
            .map_err(|error| error.to_string());
        Found {
            check: text,
            writing,
        }
    }

    /// Whether the kernel mounts the volume.
    fn mounts(&self) -> bool {
        self.image.try_mount("rw,noatime").is_ok()
    }
}

/// Judges each value of `rows`: what is wrong, as lines.
fn judge(rows: &[Row], mut wrong: impl FnMut(&Base, &Found, &str) -> Option<String>) {
    if !can_run(&[Need::Mount, Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let mut failed = Vec::new();
    for (name, options) in BASES {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.0 == *name).collect();
        if rows.is_empty() {
            continue;
        }
        let image = ImageSpec::new(name, 16 << 20, options).build();
        let bytes = std::fs::read(&image.path).expect("the image");
        let base = Base { image, bytes };
        for &&(_, field, at, len, values) in &rows {
            for value in values {
                base.set(at, len, *value);
                let found = base.found();
                if let Some(what) = wrong(&base, &found, field) {
                    let Found { check, writing } = &found;
                    failed.push(format!(
                        "{name}: {field} = {value:#x}: {what}: {check:?}, writing: {writing:?}"
                    ));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn impossible_fields_are_named_and_not_written_with() {
    judge(REFUSED, |base, found, field| {
        if !found.check.contains(field) {
            return Some("not named".to_owned());
        }
        if found.writing.is_ok() {
            return Some("opened for writing".to_owned());
        }
        let taken = e2fsck_complaints(&base.image.path).is_empty() && base.mounts();
        taken.then(|| "e2fsck and Linux take it".to_owned())
    });
}

#[test]
fn damaging_fields_are_found_and_not_written_with() {
    judge(DAMAGING, |base, found, field| {
        // The writer does without an orphan file that is none.
        let is_written = found.writing.is_ok() && field != "s_orphan_file_inum";
        if found.check.is_empty() || is_written {
            return Some("passed".to_owned());
        }
        let taken = e2fsck_complaints(&base.image.path).is_empty() && base.mounts();
        taken.then(|| "e2fsck and Linux take it".to_owned())
    });
}

#[test]
fn hints_are_named_and_may_be_wrong() {
    judge(HINTS, |base, found, field| {
        let as_expected = found.check.contains(field) && found.writing.is_ok();
        let theirs = !e2fsck_complaints(&base.image.path).is_empty() && base.mounts();
        (!as_expected || !theirs).then(|| format!("theirs: {theirs}"))
    });
}

#[test]
fn odd_fields_are_taken_as_e2fsck_and_linux_take_them() {
    judge(TAKEN, |base, found, _| {
        if !found.check.is_empty() || found.writing.is_err() {
            return Some("refused".to_owned());
        }
        let complaints = e2fsck_complaints(&base.image.path);
        (!complaints.is_empty() || !base.mounts())
            .then(|| format!("they do not take it: {complaints:?}"))
    });
}
