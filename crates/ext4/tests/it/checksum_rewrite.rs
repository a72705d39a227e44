//! The rewrite of all checksums for a new UUID, with a power loss at every write.
//!
//! After each loss, another run must finish the rewrite, and e2fsck must find no fault.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use extern4_block::{BlockDevice, CrashDevice, MemoryDevice};
use extern4_disk::feature::Incompat;
use extern4_ext4::checksum_rewrite::{is_rewriting, rewrite_checksums, was_interrupted};
use extern4_ext4::tune::Tune;
use extern4_ext4::{Ext4, OpenOptions, Unsupported};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::plan;
use extern4_testkit::tools::{e2fsck, e2fsck_complaints, find};
use extern4_testkit::tree::{Tree, assert_same};
use extern4_vfs::Errno;

use crate::model::Random;
use crate::{power, walk};

const UUID: [u8; 16] = [0x5a; 16];
/// Everything that has a checksum: extents of several levels, an indexed directory, links in
/// blocks, attribute blocks.
const FULL: &[extern4_testkit::image::Plan] = &[
    plan::small_files,
    plan::small_crowd,
    plan::symlinks,
    plan::xattrs,
    plan::access_lists,
    plan::fragmented,
];

const SPECS: [ImageSpec; 3] = [
    ImageSpec::new(
        "default",
        32 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum_seed"],
    )
    .mounted(FULL),
    ImageSpec::new(
        "orphan_file",
        32 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum_seed,orphan_file,meta_bg,^resize_inode",
        ],
    )
    .mounted(FULL),
    ImageSpec::new(
        "narrow",
        32 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum_seed,^64bit,^has_journal,inline_data",
        ],
    )
    .mounted(FULL),
];

/// A few of each structure, so that there are not too many writes to lose the power at.
fn few(root: &Path) -> std::io::Result<()> {
    let map = std::fs::File::create(root.join("map"))?;
    (0..40).try_for_each(|at| map.write_all_at(&[3; 1024], at * 2048))?;
    std::os::unix::fs::symlink("target/".repeat(20), root.join("link"))?;
    rustix::fs::setxattr(
        root.join("map"),
        "user.large",
        &[b'v'; 700],
        rustix::fs::XattrFlags::empty(),
    )?;
    std::fs::create_dir(root.join("crowd"))?;
    (0..60).try_for_each(|at| std::fs::write(root.join(format!("crowd/{at:0>60}")), b""))
}

/// The image with another UUID, and the seed of the old one.
fn renamed(image: &Image) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image"),
    ));
    let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default())
        .expect("a volume");
    fs.tune(&Tune {
        uuid: Some(UUID),
        ..Tune::default()
    })
    .expect("tuned");
    fs.close().expect("closed");
    drop(fs);
    Arc::into_inner(device)
        .expect("the only reference")
        .into_bytes()
}

fn rewritten(bytes: Vec<u8>) -> extern4_ext4::Result<Vec<u8>> {
    let device = Arc::new(MemoryDevice::new(bytes));
    rewrite_checksums(&(Arc::clone(&device) as Arc<dyn BlockDevice>))?;
    Ok(Arc::into_inner(device)
        .expect("the only reference")
        .into_bytes())
}

/// The volume has the new UUID and no seed, and neither e2fsck nor the check has anything to say of
/// it.
#[track_caller]
fn assert_done(what: &str, image: &Image, before: Option<&Tree>) {
    let fs = walk::open(&image.path);
    let sb = fs.superblock();
    assert_eq!(sb.uuid(), UUID, "{what}");
    assert!(
        !sb.features().incompat.contains(Incompat::CSUM_SEED) && !is_rewriting(sb.raw()),
        "{what}"
    );
    let complaints = e2fsck_complaints(&image.path);
    assert!(complaints.is_empty(), "{what}: {complaints:#?}");
    if let Some(before) = before {
        assert_same(what, &walk::tree(&fs), before);
    }
}

#[test]
fn every_checksum_is_computed_again() {
    for spec in SPECS.iter().filter(|spec| spec.can_run()) {
        let image = spec.build();
        let before = walk::tree(&walk::open(&image.path));
        let start = renamed(&image);
        std::fs::write(&image.path, &start).expect("written");
        assert!(e2fsck_complaints(&image.path).is_empty(), "{}", spec.name);
        let done = rewritten(start).expect("rewritten");
        std::fs::write(&image.path, &done).expect("written");
        assert_done(spec.name, &image, Some(&before));
        assert!(
            rewritten(done.clone()).expect("nothing left to do") == done,
            "{}",
            spec.name
        );
        let mount = image.mount("rw,noatime");
        std::fs::write(mount.path.join("written"), b"by Linux").expect("a file");
        mount.unmount();
        e2fsck(&image.path).expect("sound");
    }
}

/// The power is lost at every write: nothing else touches the volume then, and another run ends
/// with a sound one.
#[test]
fn it_can_be_killed_at_every_write() {
    const SPEC: ImageSpec = ImageSpec::new(
        "killed",
        8 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "2048",
            "-O",
            "^metadata_csum_seed",
        ],
    )
    .mounted(&[few]);
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let before = walk::tree(&walk::open(&image.path));
    let start = renamed(&image);
    let device = Arc::new(CrashDevice::new(start.clone()));
    rewrite_checksums(&(Arc::clone(&device) as Arc<dyn BlockDevice>)).expect("rewritten");
    let mut random = Random::new(7);
    let mut interrupted = 0;
    for moment in 0..=device.moment() {
        let (kind, bytes) = power::crash(&device, moment, &mut random);
        let what = format!("moment {moment} of {}, kind {kind}", device.moment());
        std::fs::write(&image.path, &bytes).expect("written");
        if was_interrupted(&MemoryDevice::read_only(bytes.clone())) {
            interrupted += 1;
            let opened = Ext4::open(
                Arc::new(MemoryDevice::new(bytes.clone())),
                &OpenOptions::default(),
            );
            let refused = opened
                .map(drop)
                .expect_err("nothing else uses it")
                .to_string();
            assert!(
                refused.contains("checksums were being rewritten"),
                "{what}: {refused}"
            );
            if moment % 32 == 0 {
                // e2fsck must not "mend" it.
                let tool = find("e2fsck").expect("e2fsck");
                let ran = Command::new(tool)
                    .arg("-fy")
                    .arg(&image.path)
                    .output()
                    .expect("it runs");
                assert!(
                    ran.status.code().is_some_and(|code| code >= 8),
                    "{what}: {ran:?}"
                );
                assert!(
                    std::fs::read(&image.path).expect("the image") == bytes,
                    "{what}"
                );
            }
        } else {
            assert!(e2fsck_complaints(&image.path).is_empty(), "{what}");
        }
        let done = rewritten(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
        std::fs::write(&image.path, &done).expect("written");
        assert_done(&what, &image, Some(&before).filter(|_| moment % 16 == 0));
    }
    assert!(interrupted > 20, "{interrupted} of {}", device.moment());
}

#[test]
fn unsupported_features_are_refused_by_name() {
    for (features, says) in [
        (
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-O",
                "ea_inode,metadata_csum_seed",
            ],
            "ea_inode",
        ),
        (
            &["-t", "ext4", "-b", "1024", "-O", "mmp,metadata_csum_seed"],
            "mmp",
        ),
    ] {
        let spec = ImageSpec::new("refused", 16 << 20, features);
        if !spec.can_run() {
            return;
        }
        let bytes = std::fs::read(&spec.build().path).expect("the image");
        let error = rewritten(bytes).expect_err("refused");
        assert!(
            matches!(
                error,
                extern4_ext4::Error::Unsupported(Unsupported::Rewriting(_))
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains(says), "{error}");
    }
    // A wrong checksum ends it: an inode table's, whose inodes are read first.
    let spec = &SPECS[0];
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let mut bytes = renamed(&image);
    let table = walk::open(&image.path)
        .group(0)
        .expect("a group")
        .inode_table() as usize
        * 1024;
    bytes[table + 256 + 4] ^= 1;
    let error = rewritten(bytes).expect_err("a wrong checksum");
    assert_eq!(error.errno(), Errno::EUCLEAN, "{error}");
    assert!(error.to_string().contains("inode 2"), "{error}");
}
