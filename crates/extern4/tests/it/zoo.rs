//! Every image of the zoo: the library sees in it the same as the kernel, or debugfs.

use extern4::Volume;
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tree::assert_same;
use extern4_testkit::zoo::{ENCRYPTED, SPECS, spec};

use crate::ours;

fn judge(spec: &ImageSpec) {
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    assert_same(
        spec.name,
        &ours::tree(&image.path),
        &spec.oracle_tree(&image),
    );
}

/// One test an image, so that a failure has its name.
macro_rules! images {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                judge(spec(stringify!($name)));
            }
        )*
    };
}

images! {
    ext2_default ext2_revision_0 ext2_1k ext2_2k ext2_4k ext2_64k ext3_default ext3_1k ext4_default ext4_1k
    ext4_2k ext4_8k ext4_16k ext4_32k ext4_64k ext4_64k_hashed ext4_inode_128 ext4_inode_512 ext4_inode_1024
    ext4_inode_4096 ext4_inode_1024_1k ext4_no_extra_isize ext4_no_extents ext4_no_64bit
    ext4_no_metadata_csum ext4_uninit_bg ext4_no_group_checksums ext4_uninit_groups ext4_metadata_csum_seed
    ext4_meta_bg ext4_meta_bg_no_64bit ext4_no_flex_bg ext4_sparse_super2 ext4_no_sparse_super ext4_bigalloc
    ext4_bigalloc_1k ext4_inline_data ext4_inline_data_1k ext4_inline_data_512 ext4_ea_inode
    ext4_ea_inode_1k ext4_no_dir_index ext4_no_filetype ext4_no_huge_file ext4_huge_file ext4_no_journal
    ext4_no_resize_inode ext4_fast_commit ext4_orphan_file ext4_stable_inodes ext4_orphans
    ext4_external_journal ext4_quota ext4_project ext4_mmp ext4_casefold ext4_seed_and_orphan_file ext4_encrypt_feature ext4_verity
    hash_legacy hash_tea hash_half_md4 hash_legacy_unsigned hash_tea_unsigned hash_half_md4_unsigned
    hash_reordered crowd_200k crowd_200k_1k crowd_three_levels crowd_of_directories deep_extents
    terabyte_file terabyte_image times_and_flags
}

#[test]
fn every_image_has_its_test() {
    let missing: Vec<_> = SPECS
        .iter()
        .map(|spec| spec.name)
        .filter(|name| !TESTED.contains(name))
        .collect();
    assert!(missing.is_empty(), "no test for {missing:?}");
}

/// Names and links look as the kernel shows them without the key, and reads of contents fail in the
/// same way.
#[test]
fn ext4_encrypted() {
    judge(&ENCRYPTED);
}

#[test]
fn casefolded_names_are_found_in_any_case() {
    let spec = spec("ext4_casefold");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let session = Volume::open(&image.path)
        .expect("a casefolded volume opens")
        .superuser();
    for (asked, stored) in [
        ("/folded/NAME-number-17", "/folded/Name-Number-17"),
        ("/folded/inner/äöü.TXT", "/folded/Inner/ÄÖÜ.Txt"),
        ("/folded/STRASSE", "/folded/Straße"),
        ("/folded/σίσυφος", "/folded/ΣΊΣΥΦΟΣ"),
        ("/folded/\u{e9}", "/folded/e\u{301}"),
        ("/folded/FIN", "/folded/ﬁn"),
    ] {
        let asked_ino = session
            .symlink_metadata(asked)
            .unwrap_or_else(|e| panic!("{e}"))
            .ino();
        assert_eq!(
            asked_ino,
            session
                .symlink_metadata(stored)
                .unwrap_or_else(|e| panic!("{e}"))
                .ino(),
            "{asked}"
        );
    }
    for exact in ["/exact/straße", "/Folded", "/folded/name-number-1777"] {
        assert!(
            !session.exists(exact).unwrap_or_else(|e| panic!("{e}")),
            "{exact} is there"
        );
    }
}
