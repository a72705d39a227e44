//! Discards: no data is lost, also when other threads allocate blocks meanwhile, and after a crash.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use extern4_block::device::fault::{Effect, Fault};
use extern4_block::{BlockDevice, FaultDevice, Op, RecordDevice};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools;
use extern4_vfs::*;

use crate::model::{data, device, open, open_for_writing, session};

const SPEC: ImageSpec = ImageSpec::new("trim", 96 << 20, &["-t", "ext4", "-b", "1024"]);
const MIB: usize = 1 << 20;

fn put(root: &Session, path: &str, seed: u64, len: usize) {
    let file = open(root, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
    let bytes = data(seed << 24, len);
    let mut done = 0;
    while done < len {
        done += file.write_at(&bytes[done..], done as u64).unwrap();
    }
}

fn holds(root: &Session, path: &str, seed: u64, len: usize) -> bool {
    let file = open(root, path, OpenFlags::READ, 0).unwrap();
    let mut bytes = vec![0; len];
    file.read_at(&mut bytes, 0).unwrap() == len && bytes == data(seed << 24, len)
}

/// Closes the volume, which is sound then.
fn close(image: &Image, fs: Arc<Ext4>, root: Session) {
    drop(root);
    fs.close().unwrap();
    drop(fs);
    tools::e2fsck(&image.path).unwrap();
}

/// Bytes that the image takes on its host.
fn taken(image: &Image) -> u64 {
    std::fs::metadata(&image.path).unwrap().blocks() * 512
}

#[test]
fn removed_files_take_no_room_on_the_host() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    put(&root, "/kept", 1, 8 * MIB);
    put(&root, "/gone", 2, 32 * MIB);
    fs.sync().unwrap();
    let before = taken(&image);
    root.unlink("/gone").unwrap();
    let sb = Arc::clone(root.root().superblock());
    // Neither where nothing is, nor in runs that are longer than there are.
    for (range, min) in [(0..1023, 0), (1 << 40..1 << 41, 0), (0..u64::MAX, u64::MAX)] {
        assert_eq!(
            sb.trim(range.clone(), min).unwrap_err(),
            Errno::EINVAL,
            "{range:?} {min}"
        );
    }
    assert_eq!(sb.trim(0..4 << 20, 8192 << 10).unwrap(), 0);
    let trimmed = sb.trim(0..u64::MAX, 0).unwrap();
    assert!(
        trimmed > 32 << 20 && trimmed <= sb.statfs().unwrap().blocks_free * 1024,
        "{trimmed}"
    );
    assert!(
        taken(&image) + (31 << 20) < before,
        "{} of {before} bytes",
        taken(&image)
    );
    assert!(holds(&root, "/kept", 1, 8 * MIB));
    drop(sb);
    close(&image, fs, root);
}

#[test]
fn nothing_is_lost_that_is_written_meanwhile() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                root.root().superblock().trim(0..u64::MAX, 0).unwrap();
            }
        });
        for round in 0..30_u64 {
            for file in 0..4 {
                put(&root, &format!("/{file}"), round * 4 + file, MIB);
            }
            for file in 0..4 {
                assert!(
                    holds(&root, &format!("/{file}"), round * 4 + file, MIB),
                    "{round} {file}"
                );
                root.unlink(format!("/{file}")).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    close(&image, fs, root);
}

#[test]
fn files_that_a_crash_brings_back_are_whole() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    put(&root, "/file", 3, 4 * MIB);
    fs.sync().unwrap();
    let sb = Arc::clone(root.root().superblock());
    sb.trim(0..u64::MAX, 0).unwrap();
    root.unlink("/file").unwrap();
    // The removal can no longer become durable, so its blocks must not be discarded either.
    sb.shut_down(Shutdown::Forget).unwrap();
    assert_eq!(sb.trim(0..u64::MAX, 0).unwrap_err(), Errno::EIO);
    assert!(fs.trim(0..u64::MAX, 0).is_err());
    drop((root, sb, fs));
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    assert!(holds(&root, "/file", 3, 4 * MIB));
    close(&image, fs, root);
}

/// Commits only when it is asked to.
fn discarding(discard: Option<bool>) -> OpenOptions {
    OpenOptions {
        discard,
        commit_interval: Some(Duration::from_secs(3600)),
        ..OpenOptions::default()
    }
}

fn open_on(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> (Arc<Ext4>, Session) {
    let fs = Arc::new(Ext4::open_for_writing(device, options).unwrap());
    let root = session(Arc::clone(&fs) as _);
    (fs, root)
}

/// Writes a file of 4 MiB and removes it.
fn put_and_remove(fs: &Ext4, root: &Session) {
    put(root, "/file", 4, 4 * MIB);
    fs.sync().unwrap();
    root.unlink("/file").unwrap();
}

#[test]
fn freed_blocks_are_discarded_once_durable_if_asked_for() {
    const BY_DEFAULT: ImageSpec = SPEC.then(&[Step::Tune2fs(&["-o", "discard"])]);
    for (spec, asked, is_told) in [
        (SPEC, None, false),
        (SPEC, Some(true), true),
        (BY_DEFAULT, None, true),
        (BY_DEFAULT, Some(false), false),
        (
            ImageSpec::new("plain", 96 << 20, &["-t", "ext2", "-b", "1024"]),
            Some(true),
            true,
        ),
    ] {
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let record = Arc::new(RecordDevice::new(Arc::new(device(&image.path))));
        let (fs, root) = open_on(Arc::clone(&record) as _, &discarding(asked));
        put(&root, "/kept", 5, MIB);
        let before = taken(&image);
        put_and_remove(&fs, &root);
        assert_eq!(record.counts().discards, 0);
        fs.sync().unwrap();
        let told = record
            .log()
            .iter()
            .filter(|request| request.op == Op::Discard)
            .map(|it| it.len)
            .sum::<u64>();
        assert_eq!(told >= 4 << 20, is_told, "{asked:?}: {told} bytes");
        assert_eq!(taken(&image) < before + (1 << 20), is_told, "{asked:?}");
        // Adjacent blocks are reported in one call.
        assert!(record.counts().discards <= 16, "{:?}", record.counts());
        assert!(holds(&root, "/kept", 5, MIB));
        close(&image, fs, root);
    }
}

#[test]
fn a_device_that_fails_to_discard_is_not_told_again_and_nothing_is_lost() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let faulty = Arc::new(FaultDevice::new(Arc::new(device(&image.path))));
    faulty.inject(Fault::every(Op::Discard, Effect::Error(5)));
    let record = Arc::new(RecordDevice::new(Arc::clone(&faulty) as _));
    let (fs, root) = open_on(Arc::clone(&record) as _, &discarding(Some(true)));
    for _ in 0..3 {
        put_and_remove(&fs, &root);
        fs.sync().unwrap();
    }
    assert_eq!(record.counts().discards, 1);
    close(&image, fs, root);
}
