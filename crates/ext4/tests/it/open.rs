//! Opening: how little it reads, backups, and what is refused.

use std::sync::Arc;

use extern4_block::{FileDevice, MemoryDevice, RecordDevice};
use extern4_ext4::{Backup, Error, Ext4, OpenOptions, RunKind, Unsupported};
use extern4_testkit::image::{ImageSpec, Step};
use extern4_testkit::tools::{self, Need, can_run};
use extern4_testkit::tree::assert_same;
use extern4_testkit::zoo::spec;
use extern4_vfs::{Errno, FileSystem};

use crate::model::{Op, open_for_writing_with, run, session};
use crate::walk;

const GIB: u64 = 1 << 30;

#[test]
fn opening_a_large_volume_reads_little() {
    let spec = ImageSpec::new("large", 20 * GIB, &["-t", "ext4"]);
    if !can_run(&[Need::Tool("mke2fs")]) {
        return;
    }
    let image = spec.build();
    let device = Arc::new(RecordDevice::new(Arc::new(
        FileDevice::open(&image.path).expect("a device"),
    )));
    let fs = Ext4::open(device.clone(), &OpenOptions::default()).expect("the volume opens");
    let root = fs.read_inode(fs.root_ino()).expect("the root is read");
    assert!(root.no_acl);
    assert!(device.log().len() <= 8, "{:?}", device.log());
}

#[test]
fn a_backup_superblock_shows_the_same_tree() {
    for (name, backup) in [
        ("ext4_1k", Backup::Block(8193)),
        ("ext4_1k", Backup::Kib(8193)),
        ("ext4_meta_bg", Backup::Block(8193)),
        ("ext4_default", Backup::Block(0)),
        ("ext4_default", Backup::Kib(1)),
    ] {
        let spec = spec(name);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let ours = walk::tree(&walk::open(&image.path));
        let options = OpenOptions {
            superblock: Some(backup),
            ..OpenOptions::default()
        };
        let backup = walk::open_with(&image.path, &options).expect("the backup is good");
        assert_same(name, &walk::tree(&backup), &ours);
    }
}

#[test]
fn totals_are_those_of_the_kernel() {
    for name in ["ext4_default", "ext4_bigalloc", "ext2_1k", "ext4_meta_bg"] {
        let spec = spec(name);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let ours = walk::open(&image.path).statfs().expect("totals");
        let mount = image.mount("ro,noatime");
        let theirs = rustix::fs::statfs(&mount.path).expect("totals");
        let ours = [
            ours.blocks,
            ours.blocks_free,
            ours.blocks_available,
            ours.files,
            ours.files_free,
        ];
        let theirs = [
            theirs.f_blocks,
            theirs.f_bfree,
            theirs.f_bavail,
            theirs.f_files,
            theirs.f_ffree,
        ];
        assert_eq!(ours, theirs, "{name}: blocks, free, available, files, free");
    }
}

fn open(bytes: Vec<u8>) -> Result<Ext4, Error> {
    Ext4::open(
        Arc::new(MemoryDevice::read_only(bytes)),
        &OpenOptions::default(),
    )
}

#[test]
fn a_device_without_a_volume_is_refused() {
    for bytes in [vec![], vec![0; 1024], vec![0; 2047], vec![0xff; 100_000]] {
        let error = open(bytes).map(drop).unwrap_err();
        assert!(matches!(error, Error::NotExt(_)), "{error}");
        assert_eq!(error.errno(), Errno::EINVAL);
    }
}

#[test]
fn unknown_features_are_refused_by_name_if_they_matter() {
    if !can_run(&[Need::Tool("mke2fs")]) {
        return;
    }
    let image = ImageSpec::new("small", 4 << 20, &["-t", "ext4", "-O", "^metadata_csum"]).build();
    let good = std::fs::read(&image.path).expect("the image is read");
    // The words of features are at the offsets 0x5c, 0x60 and 0x64 of the superblock.
    let with = |offset: usize, bit: u32| {
        let mut bytes = good.clone();
        let word = &mut bytes[1024 + offset..][..4];
        let value = u32::from_le_bytes(word.try_into().expect("4 bytes")) | bit;
        word.copy_from_slice(&value.to_le_bytes());
        open(bytes)
    };
    assert!(with(0x5c, 0x8000_0000).is_ok());
    assert!(with(0x64, 0x8000_0000).is_ok());
    for (bit, text) in [
        (
            0x8000_0000,
            "the volume has features that extern4 cannot read: FEATURE_I31",
        ),
        (
            0x1001,
            "the volume has features that extern4 cannot read: compression dirdata",
        ),
    ] {
        let error = with(0x60, bit).map(drop).unwrap_err();
        assert!(
            matches!(error, Error::Unsupported(Unsupported::Features(_))),
            "{error:?}"
        );
        assert_eq!(error.to_string(), text);
        assert_eq!(error.errno(), Errno::EOPNOTSUPP);
    }
    let error = with(0x60, 0x8).map(drop).unwrap_err();
    assert!(
        matches!(error, Error::Unsupported(Unsupported::JournalDevice)),
        "{error:?}"
    );
}

#[test]
fn the_volumes_own_files_are_hidden() {
    let spec = spec("ext4_orphan_file");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = walk::open(&image.path);
    let orphans = fs.superblock().orphan_file_inode().expect("an orphan file");
    for ino in [0, 1, 3, 7, 8, u64::from(orphans), 1 << 20, 1 << 40] {
        assert_eq!(
            fs.read_inode(ino).map(drop).unwrap_err().errno(),
            Errno::ESTALE,
            "inode {ino}"
        );
    }
    assert!(fs.raw_inode(8).is_ok(), "experts see the journal");
    assert!(fs.journal_info(None).expect("a good journal").is_some());
}

#[test]
fn orphans_are_found_in_the_list_and_in_the_file() {
    for name in ["orphan_list", "orphan_file", "orphan_file_1k"] {
        let spec = extern4_testkit::crash::spec(name);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let fs = walk::open(&image.path);
        let orphans = fs.orphans().expect("a good list");
        assert!(!orphans.is_empty(), "{name}");
        for ino in orphans {
            assert!(fs.raw_inode(ino).is_ok(), "{name}: {ino}");
        }
    }
}

#[test]
fn experts_see_maps_and_hash_trees() {
    let spec = spec("crowd_three_levels");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = walk::open(&image.path);
    let root = walk::inode(&fs, fs.root_ino()).expect("the root");
    let (name, ino) = walk::names(&fs, &root, usize::MAX)
        .expect("a listing")
        .into_iter()
        .find(|(name, _)| !name.starts_with(b".") && name != b"lost+found")
        .expect("the directory");
    let mut leaves = 0;
    let mut deepest = 0;
    let ino = u32::try_from(ino).expect("an inode number");
    fs.htree(ino, &mut |entry| {
        leaves += u64::from(entry.leaf);
        deepest = deepest.max(entry.depth);
    })
    .expect("a good tree");
    assert_eq!(deepest, 2, "{}", name.escape_ascii());
    assert!(leaves * 1024 < fs.raw_inode(ino).expect("an inode").size());
    assert!(matches!(
        fs.map_block(ino, 0).expect("a map").kind,
        RunKind::Mapped { .. }
    ));
}

/// As Linux with `noblock_validity` (the kernel's `Documentation/admin-guide/ext4.rst`); without
/// it, Linux refuses the volume, too.
#[test]
fn blocks_kept_for_descriptors_without_a_resize_inode_are_for_files_where_that_is_asked_for() {
    let spec = ImageSpec::new(
        "kept",
        64 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^resize_inode"],
    )
    .then(&[Step::Debugfs("ssv reserved_gdt_blocks 100\n")]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let refused = open_for_writing_with(&image.path, &OpenOptions::default())
        .map(drop)
        .expect_err("damage");
    assert!(
        refused.to_string().contains("s_reserved_gdt_blocks"),
        "{refused}"
    );
    let options = OpenOptions {
        block_validity: false,
        ..OpenOptions::default()
    };
    let fs = Arc::new(open_for_writing_with(&image.path, &options).expect("it is asked for"));
    let root = session(fs.clone() as _);
    root.mkdir("/d", 0o755).expect("mkdir");
    run(&root, &Op::Create("/f".to_owned(), 0o644)).expect("create");
    run(&root, &Op::Write("/f".to_owned(), 0, 20 << 20)).expect("write");
    drop(root);
    fs.close().expect("close");
    assert!(fs.warnings().is_empty(), "{:?}", fs.warnings());
    drop(fs);
    if can_run(&[Need::Mount]) {
        assert!(image.try_mount("").is_err(), "Linux refuses it, too");
        let mount = image.mount("noblock_validity");
        assert_eq!(
            std::fs::metadata(mount.path.join("f")).expect("stat").len(),
            20 << 20
        );
        mount.unmount();
    }
    // Only the number is wrong.
    let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
    tools::e2fsck(&image.path).expect("nothing is wrong any more");
}
