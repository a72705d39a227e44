//! Tests of names, types, attributes and ACLs of whole volumes against the output of the kernel or
//! debugfs.

use std::collections::BTreeMap;

use extern4_disk::dirent::FileType;
use extern4_disk::feature::Incompat;
use extern4_testkit::acl::canonical;
use extern4_testkit::image::{ImageSpec, Step};
use extern4_testkit::tree::{Entry, Kind};
use extern4_testkit::{plan, zoo};

use crate::reader::{Volume, Xattrs};

fn kind(entry: &Entry) -> FileType {
    match entry.kind {
        Kind::File => FileType::Regular,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}

fn check(name: &str) {
    check_spec(zoo::spec(name));
}

fn check_spec(spec: &ImageSpec) {
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let volume = Volume::open(&image.path);
    let filetype = volume.sb.features().incompat.contains(Incompat::FILETYPE);
    let mut theirs: BTreeMap<_, _> = spec.oracle_tree(&image).entries;
    for (path, name) in volume.walk() {
        let shown = path.escape_ascii();
        let entry = theirs
            .remove(&path)
            .unwrap_or_else(|| panic!("the oracle does not have {shown}"));
        assert_eq!(u64::from(name.ino), entry.ino, "{shown}");
        if filetype {
            assert_eq!(name.kind, kind(&entry), "{shown}");
        }
        let (inode, record) = volume.inode(name.ino);
        assert_eq!(FileType::from_mode(inode.mode()), kind(&entry), "{shown}");
        if let Some(want) = entry.xattrs {
            let want: Xattrs = want
                .into_iter()
                .map(|(name, value)| {
                    let acl = name.starts_with(b"system.posix_acl_");
                    (name, if acl { canonical(value) } else { value })
                })
                .collect();
            assert_eq!(volume.xattrs(&inode, &record), want, "{shown}");
        }
    }
    let missed: Vec<_> = theirs
        .keys()
        .map(|path| path.escape_ascii().to_string())
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn ext2_with_small_blocks() {
    check("ext2_1k");
}

#[test]
fn ext3() {
    check("ext3_default");
}

#[test]
fn ext4() {
    check("ext4_default");
}

#[test]
fn ext4_with_small_blocks() {
    check("ext4_1k");
}

#[test]
fn ext4_with_the_largest_blocks() {
    check("ext4_64k");
}

#[test]
fn inline_data() {
    check("ext4_inline_data");
}

#[test]
fn values_in_inodes_of_their_own() {
    check("ext4_ea_inode");
}

#[test]
fn directories_that_e2fsck_rebuilt() {
    const SPEC: ImageSpec = ImageSpec::new("rebuilt", 64 << 20, &["-t", "ext4", "-b", "4096"])
        .mounted(&[plan::crowd, plan::gaps])
        .then(&[Step::E2fsck(&["-D"])]);
    check_spec(&SPEC);
}
