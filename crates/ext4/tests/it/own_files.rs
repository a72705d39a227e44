//! The volume's own files, added to a volume and taken away: its journal and its quota files.
//!
//! The power is lost at every write. `e2fsck -p` then mends the volume without a question, and no
//! file has changed. On a volume without a journal, `e2fsck` asks about the file of project
//! quotas. The finished volume is one in which neither `e2fsck` nor the check finds a fault, and
//! which Linux mounts.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use extern4_block::{BlockDevice, CrashDevice, MemoryDevice};
use extern4_check::Options;
use extern4_disk::feature::RoCompat;
use extern4_disk::superblock::Superblock;
use extern4_ext4::own_files::journal::{JournalSize, remove_journal};
use extern4_ext4::quota::Kind;
use extern4_ext4::{Error, Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{Need, can_run, e2fsck_complaints};
use extern4_testkit::tree::{Tree, assert_same};
use extern4_vfs::Errno;

use crate::model::{Op, Random, open_for_writing, run, session};
use crate::{power, walk};

/// A change of a volume that is not open.
type Change = fn(&Arc<dyn BlockDevice>) -> extern4_ext4::Result<()>;

/// A volume, a change of it, and whether the result is the one wanted.
type Case = (
    &'static str,
    &'static [&'static str],
    Change,
    fn(&Superblock) -> bool,
);

const SIZE: JournalSize = JournalSize {
    blocks: 1024,
    fast_commit_blocks: 0,
};

fn with(
    device: &Arc<dyn BlockDevice>,
    change: impl FnOnce(&Ext4) -> extern4_ext4::Result<()>,
) -> extern4_ext4::Result<()> {
    let fs = Ext4::open_for_writing(Arc::clone(device), &OpenOptions::default())?;
    let changed = change(&fs);
    fs.close()?;
    changed
}

fn add_journal(device: &Arc<dyn BlockDevice>) -> extern4_ext4::Result<()> {
    with(device, |fs| fs.add_journal(SIZE))
}

fn take_journal(device: &Arc<dyn BlockDevice>) -> extern4_ext4::Result<()> {
    remove_journal(device, &OpenOptions::default())
}

fn add_quotas(device: &Arc<dyn BlockDevice>) -> extern4_ext4::Result<()> {
    with(device, |fs| fs.set_quotas(&Kind::ALL, false))
}

fn take_quotas(device: &Arc<dyn BlockDevice>) -> extern4_ext4::Result<()> {
    with(device, |fs| fs.set_quotas(&[], false))
}

fn has_journal(sb: &Superblock) -> bool {
    sb.journal_inode() == Some(8) && sb.journal_backup().is_some()
}

fn has_quotas(sb: &Superblock) -> bool {
    Kind::ALL
        .into_iter()
        .all(|kind| sb.quota_inode(kind).is_some())
}

fn has_users_only(sb: &Superblock) -> bool {
    Kind::ALL
        .into_iter()
        .all(|kind| sb.quota_inode(kind).is_some() == (kind == Kind::User))
}

const CASES: [Case; 11] = [
    (
        "add a journal",
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        add_journal,
        has_journal,
    ),
    (
        "add a journal to ext2",
        &["-t", "ext2", "-b", "1024"],
        add_journal,
        has_journal,
    ),
    (
        "take the journal",
        &["-t", "ext4", "-b", "1024"],
        take_journal,
        |sb| sb.journal().is_none(),
    ),
    (
        "take the journal of ext3",
        &["-t", "ext3", "-b", "1024"],
        take_journal,
        |sb| sb.journal().is_none(),
    ),
    (
        "take the journal and the orphan file",
        &["-t", "ext4", "-b", "1024", "-O", "orphan_file,quota"],
        take_journal,
        |sb| sb.journal().is_none() && sb.orphan_file_inode().is_none(),
    ),
    (
        "add quotas",
        &["-t", "ext4", "-b", "1024"],
        add_quotas,
        has_quotas,
    ),
    (
        "add quotas without a journal",
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        add_quotas,
        has_quotas,
    ),
    (
        "add a quota to others",
        &["-t", "ext4", "-b", "4096", "-O", "quota"],
        add_quotas,
        has_quotas,
    ),
    (
        "take all quotas",
        &["-t", "ext4", "-b", "1024", "-O", "quota,project"],
        take_quotas,
        |sb| {
            Kind::ALL
                .into_iter()
                .all(|kind| sb.quota_inode(kind).is_none())
        },
    ),
    (
        "take some quotas",
        &["-t", "ext4", "-b", "1024", "-O", "quota,project"],
        |device| with(device, |fs| fs.set_quotas(&[Kind::User], false)),
        has_users_only,
    ),
    (
        "take quotas without a journal",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "quota,project,^has_journal",
        ],
        take_quotas,
        |sb| {
            Kind::ALL
                .into_iter()
                .all(|kind| sb.quota_inode(kind).is_none())
        },
    ),
];

/// Makes the volume, with files of some owners, one of which has a map of more than one node.
fn build(spec: &ImageSpec) -> Image {
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let ours = session(Arc::clone(&fs) as _);
    let mut ops = vec![
        Op::Mkdir("/d".to_owned(), 0o755),
        Op::Create("/map".to_owned(), 0o600),
    ];
    for at in 0..20 {
        let path = format!("/d/{at}");
        ops.push(Op::Create(path.clone(), 0o644));
        ops.push(Op::Write(path.clone(), 0, 700 * at as usize));
        ops.push(Op::Chown(path, at * 300, at % 3));
    }
    ops.extend((0..40).map(|at| Op::Write("/map".to_owned(), at * 8192, 1024)));
    ops.iter()
        .for_each(|op| run(&ours, op).unwrap_or_else(|e| panic!("{op:?}: {e}")));
    drop(ours);
    fs.close().expect("closed");
    drop(fs);
    image
}

fn spec(name: &'static str, mke2fs: &'static [&'static str]) -> ImageSpec {
    ImageSpec::new(name, 12 << 20, mke2fs)
}

/// Returns the tree without what `e2fsck` may put into lost+found.
fn without_found(mut tree: Tree) -> Tree {
    tree.entries
        .retain(|path, _| !path.windows(10).any(|part| part == b"lost+found"));
    tree
}

/// Neither `e2fsck` nor the check finds a fault, and no file has changed.
#[track_caller]
fn assert_sound(what: &str, path: &Path, before: &Tree) {
    let complaints = e2fsck_complaints(path);
    assert!(complaints.is_empty(), "{what}: {complaints:#?}");
    let fs = walk::open(path);
    let mut faults = Vec::new();
    extern4_check::check(&fs, &Options::default(), &mut |fault| faults.push(fault))
        .expect("checked");
    assert!(faults.is_empty(), "{what}: {faults:?}");
    assert_same(what, &without_found(walk::tree(&fs)), before);
}

#[test]
fn files_of_the_volume_come_and_go() {
    for (name, mke2fs, change, is_done) in CASES {
        let spec = spec(name, mke2fs);
        if !spec.can_run() {
            return;
        }
        let image = build(&spec);
        let before = without_found(walk::tree(&walk::open(&image.path)));
        let device = Arc::new(MemoryDevice::new(
            std::fs::read(&image.path).expect("the image"),
        ));
        for again in 0..2 {
            let changed = change(&(Arc::clone(&device) as _));
            let refused = again == 1 && name.starts_with("add a journal");
            assert_eq!(changed.is_err(), refused, "{name}: {changed:?}");
        }
        std::fs::write(
            &image.path,
            Arc::into_inner(device)
                .expect("the only reference")
                .into_bytes(),
        )
        .expect("written");
        assert!(is_done(walk::open(&image.path).superblock()), "{name}");
        assert_sound(name, &image.path, &before);
        let has_quota = walk::open(&image.path)
            .superblock()
            .features()
            .ro_compat
            .contains(RoCompat::QUOTA);
        if can_run(&[Need::Mount]) && (!has_quota || can_run(&[Need::KernelQuota])) {
            let mount = image.mount("rw,noatime");
            std::fs::write(mount.path.join("written"), vec![b'k'; 50_000]).expect("a file");
            mount.unmount();
            assert!(e2fsck_complaints(&image.path).is_empty(), "{name}");
        }
    }
}

/// Lets `e2fsck` mend the volume.
#[track_caller]
fn mend(what: &str, path: &Path, how: &str) {
    let mended = Command::new("e2fsck")
        .arg(how)
        .arg(path)
        .output()
        .expect("it runs");
    assert!(
        mended.status.code().is_some_and(|code| code <= 1),
        "{what}: {mended:?}"
    );
}

/// The power is lost at every write.
#[test]
fn e2fsck_mends_a_change_that_lost_the_power() {
    let mut random = Random::new(11);
    for (name, mke2fs, change, is_done) in CASES {
        let spec = spec(name, mke2fs);
        if !spec.can_run() {
            return;
        }
        let image = build(&spec);
        let before = without_found(walk::tree(&walk::open(&image.path)));
        let device = Arc::new(CrashDevice::new(
            std::fs::read(&image.path).expect("the image"),
        ));
        change(&(Arc::clone(&device) as _)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut silent = 0;
        let mut done = 0;
        for moment in 0..=device.moment() {
            let (kind, bytes) = power::crash(&device, moment, &mut random);
            let what = format!(
                "{name}: moment {moment} of {}, kind {kind}",
                device.moment()
            );
            std::fs::write(&image.path, &bytes).expect("written");
            silent += u32::from(e2fsck_complaints(&image.path).is_empty());
            // Without a journal, e2fsck may have to ask, and to run twice.
            let is_journaled = !name.contains("without a journal");
            mend(&what, &image.path, if is_journaled { "-fp" } else { "-fy" });
            if !is_journaled {
                mend(&what, &image.path, "-fy");
            }
            assert_sound(&what, &image.path, &before);
            let is_changed = is_done(walk::open(&image.path).superblock());
            done += u32::from(is_changed);
            // The change can be made again after any crash.
            if !is_changed {
                let device = Arc::new(MemoryDevice::new(
                    std::fs::read(&image.path).expect("the image"),
                ));
                change(&(Arc::clone(&device) as _)).unwrap_or_else(|e| panic!("{what}: {e}"));
                let bytes = Arc::into_inner(device)
                    .expect("the only reference")
                    .into_bytes();
                std::fs::write(&image.path, bytes).expect("written");
                assert_sound(&what, &image.path, &before);
            }
        }
        println!(
            "{name}: {} moments, {silent} need no mending, {done} end as changed",
            device.moment() + 1
        );
        assert!(
            done > 0 && (done as usize) < device.moment(),
            "{name}: {done}"
        );
    }
}

/// A volume without room stays as it is.
#[test]
fn a_full_volume_gets_no_journal_and_no_quotas() {
    let cases: [(&str, &'static [&'static str], Change); 2] = [
        (
            "no room for a journal",
            &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"],
            add_journal,
        ),
        (
            "no room for quotas",
            &["-t", "ext4", "-b", "1024", "-m", "0"],
            add_quotas,
        ),
    ];
    for (name, mke2fs, change) in cases {
        let spec = spec(name, mke2fs);
        if !spec.can_run() {
            return;
        }
        let image = build(&spec);
        let fs = open_for_writing(&image.path);
        let ours = session(Arc::clone(&fs) as _);
        let mut at = 0;
        let mut part = 1 << 20;
        while part >= 1024 {
            match run(&ours, &Op::Write("/map".to_owned(), (1 << 20) + at, part)) {
                Ok(()) => at += part as u64,
                Err(_) => part /= 2,
            }
        }
        drop(ours);
        fs.close().expect("closed");
        drop(fs);
        let before = without_found(walk::tree(&walk::open(&image.path)));
        let features = walk::open(&image.path).superblock().features();
        let device = Arc::new(MemoryDevice::new(
            std::fs::read(&image.path).expect("the image"),
        ));
        let error = change(&(Arc::clone(&device) as _)).expect_err("no room");
        assert!(
            matches!(error, Error::Answer(Errno::ENOSPC)),
            "{name}: {error}"
        );
        let bytes = Arc::into_inner(device)
            .expect("the only reference")
            .into_bytes();
        std::fs::write(&image.path, bytes).expect("written");
        assert_eq!(
            walk::open(&image.path).superblock().features(),
            features,
            "{name}"
        );
        assert_sound(name, &image.path, &before);
    }
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let small = ImageSpec::new("small inodes", 12 << 20, &["-t", "ext4", "-I", "128"]);
    if !small.can_run() {
        return;
    }
    let image = small.build();
    let read = walk::open(&image.path);
    for refused in [
        read.set_quotas(&[Kind::User], false),
        read.add_journal(SIZE),
    ] {
        assert!(refused.is_err(), "it was opened for reading");
    }
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image"),
    ));
    let error = add_quotas(&device).expect_err("too small");
    assert!(
        error.to_string().contains("too small for projects"),
        "{error}"
    );
    let error = add_journal(&device).expect_err("one journal is there");
    assert!(error.to_string().contains("a journal already"), "{error}");
}
