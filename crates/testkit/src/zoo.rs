//! The images that every reader of ext2, ext3 and ext4 has to get right.
//!
//! A row is a name, mke2fs's arguments and the plans that fill it. Rows are cheap: sizes are small
//! and files sparse. Only one or two rows have each expensive plan (200,000 names, 65,000
//! directories). Each row gives the block size, as mke2fs would take 1024 for images this small.
//!
//! The tests of `ext4`, `check` and the command go through all of them, each against its oracle.

mod touch;

use crate::image::{ImageSpec, Oracle, Plan, Step};
use crate::plan;
use crate::tools::Need;

const MIB: u64 = 1 << 20;

/// The plans that every inode and block format can hold.
const BASIC: &[Plan] = &[
    plan::small_files,
    plan::holes,
    plan::symlinks,
    plan::odd_names,
    plan::modes_and_owners,
    plan::times,
    plan::devices,
    plan::many_links,
    plan::gaps,
    plan::xattrs,
    plan::access_lists,
];

/// [`BASIC`], and plans that are worth their time only in the common formats.
const FULL: &[Plan] = &[
    plan::small_files,
    plan::holes,
    plan::symlinks,
    plan::odd_names,
    plan::modes_and_owners,
    plan::times,
    plan::devices,
    plan::many_links,
    plan::gaps,
    plan::xattrs,
    plan::access_lists,
    plan::unwritten,
    plan::fragmented,
    plan::inode_flags,
    plan::shared_xattrs,
    plan::crowd,
    plan::deep,
];

/// Enough to see that a feature changes nothing it should not.
const FEW: &[Plan] = &[
    plan::small_files,
    plan::symlinks,
    plan::crowd,
    plan::unwritten,
    plan::xattrs,
    plan::shared_xattrs,
];

/// The plans that `mke2fs -d` copies faithfully.
const COPIED: &[Plan] = &[
    plan::small_files,
    plan::holes,
    plan::symlinks,
    plan::odd_names,
    plan::modes_and_owners,
    plan::devices,
    plan::many_links,
    plan::xattrs,
    plan::access_lists,
    plan::small_crowd,
    plan::small_directories,
];

/// Maps of blocks instead of extents.
const MAPPED: &[Plan] = &[
    plan::small_files,
    plan::holes,
    plan::indirect,
    plan::fragmented,
    plan::symlinks,
];

/// Directory hashes.
const HASHED: &[Plan] = &[plan::crowd, plan::crowd_of_bytes];

const fn of(name: &'static str, mib: u64, mke2fs: &'static [&'static str]) -> ImageSpec {
    ImageSpec::new(name, mib * MIB, mke2fs)
}

/// An ext4 image of 4096-byte blocks with (or, by `^`, without) features beyond the default.
macro_rules! ext4 {
    ($name:literal, $mib:literal, $features:literal) => {
        of($name, $mib, &["-t", "ext4", "-b", "4096", "-O", $features])
    };
    ($name:literal, $mib:literal, $features:literal, $($more:literal),+) => {
        of($name, $mib, &["-t", "ext4", "-b", "4096", "-O", $features, $($more),+])
    };
}

/// All images.
pub const SPECS: &[ImageSpec] = &[
    // Generations and block sizes.
    of("ext2_default", 64, &["-t", "ext2", "-b", "4096"]).mounted(BASIC),
    of(
        "ext2_revision_0",
        64,
        &["-t", "ext2", "-b", "1024", "-r", "0"],
    )
    .mounted(&[
        plan::small_files,
        plan::indirect,
        plan::symlinks,
        plan::odd_names,
        plan::times,
    ]),
    of("ext2_1k", 48, &["-t", "ext2", "-b", "1024"]).mounted(MAPPED),
    of("ext2_2k", 64, &["-t", "ext2", "-b", "2048"]).mounted(MAPPED),
    of("ext2_4k", 64, &["-t", "ext2", "-b", "4096"]).mounted(MAPPED),
    of(
        "ext2_64k",
        192,
        &["-t", "ext2", "-b", "65536", "-N", "8000"],
    )
    .from_directory(COPIED),
    of("ext3_default", 96, &["-t", "ext3", "-b", "4096"]).mounted(BASIC),
    of("ext3_1k", 64, &["-t", "ext3", "-b", "1024"]).mounted(MAPPED),
    of("ext4_default", 128, &["-t", "ext4", "-b", "4096"]).mounted(FULL),
    of("ext4_1k", 96, &["-t", "ext4", "-b", "1024"]).mounted(FULL),
    of("ext4_2k", 96, &["-t", "ext4", "-b", "2048"]).mounted(FULL),
    of("ext4_8k", 96, &["-t", "ext4", "-b", "8192", "-N", "8000"]).from_directory(COPIED),
    of("ext4_16k", 96, &["-t", "ext4", "-b", "16384", "-N", "8000"]).from_directory(COPIED),
    of(
        "ext4_32k",
        128,
        &["-t", "ext4", "-b", "32768", "-N", "8000"],
    )
    .from_directory(COPIED),
    of(
        "ext4_64k",
        256,
        &["-t", "ext4", "-b", "65536", "-N", "8000"],
    )
    .from_directory(COPIED),
    of(
        "ext4_64k_hashed",
        256,
        &["-t", "ext4", "-b", "65536", "-N", "8000"],
    )
    .from_directory(COPIED)
    .then(&[Step::E2fsck(&["-D"])]),
    // Inode sizes.
    of(
        "ext4_inode_128",
        64,
        &["-t", "ext4", "-b", "4096", "-I", "128"],
    )
    .mounted(BASIC),
    of(
        "ext4_inode_512",
        64,
        &["-t", "ext4", "-b", "4096", "-I", "512"],
    )
    .mounted(BASIC),
    of(
        "ext4_inode_1024",
        64,
        &["-t", "ext4", "-b", "4096", "-I", "1024"],
    )
    .mounted(BASIC),
    of(
        "ext4_inode_4096",
        128,
        &["-t", "ext4", "-b", "4096", "-I", "4096", "-N", "4000"],
    )
    .mounted(BASIC),
    of(
        "ext4_inode_1024_1k",
        64,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "1024",
            "-O",
            "inline_data",
        ],
    )
    .mounted(FULL),
    ext4!("ext4_no_extra_isize", 64, "^extra_isize").mounted(BASIC),
    // With and without each feature.
    ext4!("ext4_no_extents", 64, "^extents,^64bit").mounted(MAPPED),
    ext4!("ext4_no_64bit", 64, "^64bit").mounted(FEW),
    ext4!("ext4_no_metadata_csum", 64, "^metadata_csum").mounted(FULL),
    ext4!("ext4_uninit_bg", 2048, "uninit_bg,^metadata_csum").mounted(FEW),
    ext4!("ext4_no_group_checksums", 64, "^uninit_bg,^metadata_csum").mounted(FEW),
    ext4!("ext4_uninit_groups", 2048, "^resize_inode").mounted(FEW),
    ext4!("ext4_metadata_csum_seed", 64, "metadata_csum_seed")
        .mounted(FULL)
        .then(&[Step::Tune2fs(&["-U", "random"])]),
    of(
        "ext4_meta_bg",
        256,
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
    )
    .mounted(FEW),
    of(
        "ext4_meta_bg_no_64bit",
        256,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "meta_bg,^resize_inode,^64bit,^flex_bg",
        ],
    )
    .mounted(FEW),
    ext4!("ext4_no_flex_bg", 512, "^flex_bg").mounted(FEW),
    ext4!(
        "ext4_sparse_super2",
        512,
        "sparse_super2",
        "-E",
        "num_backup_sb=1"
    )
    .mounted(FEW),
    ext4!("ext4_no_sparse_super", 512, "^sparse_super,^resize_inode").mounted(FEW),
    ext4!("ext4_bigalloc", 128, "bigalloc", "-C", "16384").mounted(FULL),
    of(
        "ext4_bigalloc_1k",
        512,
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "65536"],
    )
    .mounted(FEW),
    ext4!("ext4_inline_data", 96, "inline_data").mounted(FULL),
    of(
        "ext4_inline_data_1k",
        64,
        &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "256"],
    )
    .mounted(&[
        plan::small_files,
        plan::small_directories,
        plan::symlinks,
        plan::odd_names,
        plan::xattrs,
        plan::access_lists,
    ]),
    ext4!("ext4_inline_data_512", 64, "inline_data", "-I", "512").mounted(&[
        plan::small_files,
        plan::small_directories,
        plan::symlinks,
        plan::odd_names,
        plan::xattrs,
        plan::access_lists,
        plan::gaps,
    ]),
    ext4!("ext4_ea_inode", 64, "ea_inode").mounted(&[
        plan::big_xattrs,
        plan::xattrs,
        plan::shared_xattrs,
    ]),
    of(
        "ext4_ea_inode_1k",
        64,
        &["-t", "ext4", "-b", "1024", "-O", "ea_inode,inline_data"],
    )
    .mounted(&[plan::big_xattrs, plan::xattrs, plan::shared_xattrs]),
    ext4!("ext4_no_dir_index", 64, "^dir_index").mounted(&[
        plan::crowd,
        plan::gaps,
        plan::odd_names,
    ]),
    ext4!("ext4_no_filetype", 64, "^filetype").mounted(BASIC),
    ext4!("ext4_no_huge_file", 64, "^huge_file").mounted(FEW),
    ext4!("ext4_huge_file", 64, "huge_file")
        .mounted(FEW)
        .then(&[Step::Run(touch::huge_file)]),
    ext4!("ext4_no_journal", 64, "^has_journal").mounted(FEW),
    ext4!("ext4_no_resize_inode", 64, "^resize_inode").mounted(FEW),
    ext4!("ext4_fast_commit", 64, "fast_commit").mounted(FEW),
    ext4!("ext4_orphan_file", 64, "orphan_file").mounted(FEW),
    ext4!("ext4_stable_inodes", 64, "encrypt,stable_inodes").mounted(FEW),
    ext4!("ext4_orphans", 64, "^has_journal")
        .mounted(FEW)
        .then(&[Step::Run(touch::orphans)]),
    ext4!("ext4_external_journal", 64, "^has_journal")
        .mounted(FEW)
        .then(&[Step::Run(touch::external_journal)])
        .judged_by(Oracle::Debugfs),
    // Images that this or any kernel may refuse to mount for writing.
    ext4!(
        "ext4_quota",
        64,
        "quota",
        "-E",
        "quotatype=usrquota:grpquota"
    )
    .from_directory(COPIED)
    .judged_by(Oracle::Kernel),
    ext4!(
        "ext4_project",
        64,
        "project,quota",
        "-E",
        "quotatype=prjquota"
    )
    .from_directory(COPIED)
    .then(&[Step::Debugfs(touch::PROJECTS)])
    .judged_by(Oracle::Kernel),
    ext4!("ext4_mmp", 64, "mmp")
        .from_directory(COPIED)
        .judged_by(Oracle::Kernel),
    ext4!("ext4_casefold", 64, "casefold", "-E", "encoding=utf8")
        .from_directory(&[touch::folded_names])
        .then(&[Step::Debugfs(touch::FOLD), Step::E2fsck(&["-D"])])
        .judged_by(Oracle::KernelWith("casefold")),
    ext4!(
        "ext4_seed_and_orphan_file",
        64,
        "metadata_csum_seed,orphan_file"
    )
    .mounted(FEW),
    ext4!("ext4_encrypt_feature", 64, "encrypt").mounted(FEW),
    ext4!("ext4_verity", 64, "verity")
        .mounted(&[touch::sealed])
        .then(&[Step::Debugfs(touch::SEAL)])
        .judged_by(Oracle::Debugfs),
    // Hashes of directories.
    of("hash_legacy", 64, &["-t", "ext4", "-b", "1024"]).then(&[
        Step::Tune2fs(&["-E", "hash_alg=legacy"]),
        Step::Mounted("noatime", HASHED),
    ]),
    of("hash_tea", 64, &["-t", "ext4", "-b", "1024"]).then(&[
        Step::Tune2fs(&["-E", "hash_alg=tea"]),
        Step::Mounted("noatime", HASHED),
    ]),
    of("hash_half_md4", 64, &["-t", "ext4", "-b", "1024"]).then(&[
        Step::Tune2fs(&["-E", "hash_alg=half_md4"]),
        Step::Mounted("noatime", HASHED),
    ]),
    of("hash_legacy_unsigned", 64, &["-t", "ext4", "-b", "1024"]).then(&[
        Step::Tune2fs(&["-E", "hash_alg=legacy"]),
        Step::Debugfs(touch::UNSIGNED),
        Step::Mounted("noatime", HASHED),
    ]),
    of("hash_tea_unsigned", 64, &["-t", "ext4", "-b", "1024"]).then(&[
        Step::Tune2fs(&["-E", "hash_alg=tea"]),
        Step::Debugfs(touch::UNSIGNED),
        Step::Mounted("noatime", HASHED),
    ]),
    of("hash_half_md4_unsigned", 64, &["-t", "ext4", "-b", "1024"]).then(&[
        Step::Debugfs(touch::UNSIGNED),
        Step::Mounted("noatime", HASHED),
    ]),
    of("hash_reordered", 64, &["-t", "ext4", "-b", "4096"])
        .mounted(&[plan::crowd, plan::crowd_of_bytes, plan::gaps])
        .then(&[Step::E2fsck(&["-D"])]),
    // Sizes.
    of(
        "crowd_200k",
        96,
        &["-t", "ext4", "-b", "4096", "-N", "210000", "-I", "128"],
    )
    .mounted(&[plan::crowd_200k]),
    of(
        "crowd_200k_1k",
        96,
        &["-t", "ext4", "-b", "1024", "-N", "210000", "-I", "128"],
    )
    .mounted(&[plan::crowd_200k]),
    of(
        "crowd_three_levels",
        96,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "61000",
            "-I",
            "128",
            "-O",
            "large_dir",
        ],
    )
    .mounted(&[plan::crowd_three_levels]),
    of(
        "crowd_of_directories",
        128,
        &["-t", "ext4", "-b", "1024", "-N", "66000", "-I", "128"],
    )
    .mounted(&[plan::subdirectories]),
    of("deep_extents", 128, &["-t", "ext4", "-b", "1024"]).mounted(&[plan::shattered]),
    of("terabyte_file", 64, &["-t", "ext4", "-b", "4096"]).mounted(&[plan::terabyte]),
    of(
        "terabyte_image",
        1 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-E",
            "nodiscard",
            "-J",
            "size=4",
        ],
    )
    .mounted(FEW),
    // States that only a tool can set.
    of("times_and_flags", 64, &["-t", "ext4", "-b", "4096"])
        .mounted(&[plan::small_files])
        .then(&[Step::Debugfs(touch::TIMES_AND_FLAGS)]),
];

/// An image that needs its own judgement: a kernel without the key shows encrypted names.
pub const ENCRYPTED: ImageSpec = ext4!("ext4_encrypted", 64, "encrypt")
    .mounted(&[plan::small_files, plan::encrypted])
    .needing(&[Need::KernelFeature("encryption")]);

/// Returns the spec with this name.
///
/// # Panics
/// When there is none.
pub fn spec(name: &str) -> &'static ImageSpec {
    SPECS
        .iter()
        .find(|spec| spec.name == name)
        .unwrap_or_else(|| panic!("no image is named {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{assert_same, from_debugfs, from_mount};

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = SPECS.iter().map(|spec| spec.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SPECS.len());
    }

    /// The two oracles share nothing but the format, so each checks the other and both parsers
    /// here.
    #[test]
    fn debugfs_and_the_kernel_agree() {
        let spec = spec("ext4_default");
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let kernel = from_mount(&image.mount("ro,noatime").path);
        assert_same("debugfs", &from_debugfs(&image.path), &kernel);
    }

    /// This takes long, and the tests of the library do the same with every image.
    #[test]
    #[ignore = "the library's tests build every image too; this one prints what each costs"]
    fn every_image_can_be_built_and_judged() {
        let mut failed = Vec::new();
        for spec in SPECS.iter().chain([&ENCRYPTED]) {
            if !spec.can_run() {
                return;
            }
            let measured = std::panic::catch_unwind(|| {
                let start = std::time::Instant::now();
                let image = spec.build();
                let built = start.elapsed();
                let tree = spec.oracle_tree(&image);
                let read = start.elapsed() - built;
                println!(
                    "{:24} {:6} entries, built in {built:.1?}, read in {read:.1?}",
                    spec.name,
                    tree.len()
                );
                assert!(tree.len() > 3, "{} is empty", spec.name);
            });
            if measured.is_err() {
                failed.push(spec.name);
            }
        }
        assert!(failed.is_empty(), "{failed:?}");
    }
}
