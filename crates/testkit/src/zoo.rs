//! The images every reader of ext2, ext3 and ext4 has to get right.
//!
//! A row is a name, mke2fs's arguments and the plans that fill it. Rows are cheap: sizes are small, files
//! sparse, and each expensive plan (200,000 names, 65,000 directories) is in one or two of them only. The block size is always said,
//! as mke2fs would take 1024 for images this small.

use crate::image::{ImageSpec, Plan, Step};
use crate::plan;

const MIB: u64 = 1 << 20;

/// What every inode and block format can hold.
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

/// [`BASIC`], and what is worth its time in the common formats.
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

/// What `mke2fs -d` copies faithfully.
const COPIED: &[Plan] = &[
    plan::small_files,
    plan::symlinks,
    plan::modes_and_owners,
    plan::devices,
    plan::many_links,
    plan::xattrs,
    plan::access_lists,
];

/// All images.
pub const SPECS: &[ImageSpec] =
    &[
        ImageSpec::new("ext2_default", 64 * MIB, &["-t", "ext2", "-b", "4096"]).mounted(BASIC),
        ImageSpec::new("ext2_1k", 48 * MIB, &["-t", "ext2", "-b", "1024"]).mounted(&[
            plan::small_files,
            plan::holes,
            plan::indirect,
            plan::symlinks,
            plan::odd_names,
            plan::crowd,
            plan::fragmented,
        ]),
        ImageSpec::new("ext2_2k", 64 * MIB, &["-t", "ext2", "-b", "2048"]).mounted(&[
            plan::small_files,
            plan::holes,
            plan::indirect,
            plan::fragmented,
        ]),
        ImageSpec::new("ext3_default", 96 * MIB, &["-t", "ext3", "-b", "4096"]).mounted(BASIC),
        ImageSpec::new("ext3_1k", 64 * MIB, &["-t", "ext3", "-b", "1024"]).mounted(&[
            plan::small_files,
            plan::indirect,
            plan::crowd,
            plan::deep,
        ]),
        ImageSpec::new("ext4_default", 128 * MIB, &["-t", "ext4", "-b", "4096"]).mounted(FULL),
        ImageSpec::new("ext4_1k", 96 * MIB, &["-t", "ext4", "-b", "1024"]).mounted(FULL),
        ImageSpec::new("ext4_2k", 96 * MIB, &["-t", "ext4", "-b", "2048"]).mounted(FULL),
        ImageSpec::new("ext4_8k", 96 * MIB, &["-t", "ext4", "-b", "8192"]).from_directory(COPIED),
        ImageSpec::new("ext4_16k", 96 * MIB, &["-t", "ext4", "-b", "16384"]).from_directory(COPIED),
        ImageSpec::new("ext4_32k", 128 * MIB, &["-t", "ext4", "-b", "32768"]).from_directory(COPIED),
        ImageSpec::new("ext4_64k", 192 * MIB, &["-t", "ext4", "-b", "65536"]).from_directory(COPIED),
        ImageSpec::new("ext4_inode_128", 64 * MIB, &["-t", "ext4", "-b", "4096", "-I", "128"]).mounted(BASIC),
        ImageSpec::new("ext4_inode_512", 64 * MIB, &["-t", "ext4", "-b", "4096", "-I", "512"]).mounted(BASIC),
        ImageSpec::new("ext4_inode_1024", 64 * MIB, &["-t", "ext4", "-b", "4096", "-I", "1024"])
            .mounted(BASIC),
        ImageSpec::new("ext4_no_extents", 64 * MIB, &["-t", "ext4", "-b", "4096", "-O", "^extents,^64bit"])
            .mounted(&[plan::small_files, plan::holes, plan::indirect, plan::fragmented]),
        ImageSpec::new("ext4_inline_data", 64 * MIB, &["-t", "ext4", "-b", "4096", "-O", "inline_data"])
            .mounted(FULL),
        ImageSpec::new("ext4_ea_inode", 64 * MIB, &["-t", "ext4", "-b", "4096", "-O", "ea_inode"])
            .mounted(&[plan::big_xattrs, plan::xattrs, plan::shared_xattrs]),
        ImageSpec::new("ext4_terabyte", 64 * MIB, &["-t", "ext4", "-b", "4096"]).mounted(&[plan::terabyte]),
        ImageSpec::new("ext4_reordered", 64 * MIB, &["-t", "ext4", "-b", "4096"])
            .mounted(&[plan::crowd, plan::gaps])
            .then(&[Step::E2fsck(&["-D"])]),
    ];

/// The spec with this name.
///
/// # Panics
/// When there is none.
pub fn spec(name: &str) -> &'static ImageSpec {
    SPECS.iter().find(|spec| spec.name == name).unwrap_or_else(|| panic!("no image is named {name}"))
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

    /// The two oracles share nothing but the format, so each checks the other and both parsers here.
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

    #[test]
    fn every_image_can_be_built_and_judged() {
        for spec in SPECS {
            if !spec.can_run() {
                return;
            }
            let start = std::time::Instant::now();
            let image = spec.build();
            let built = start.elapsed();
            let tree = spec.oracle_tree(&image);
            println!(
                "{:20} {:6} entries, built in {built:.1?}, read in {:.1?}",
                spec.name,
                tree.len(),
                start.elapsed() - built
            );
            assert!(tree.len() > 3, "{} is empty", spec.name);
        }
    }
}
