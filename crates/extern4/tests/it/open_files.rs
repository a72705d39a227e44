//! The list of open files, and their fate when a volume turns read-only or is shut down.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extern4::{Cred, Errno, File, OpenFlags, Session, Shutdown, Volume};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools;

const SPEC: ImageSpec = ImageSpec::new("open-files", 32 << 20, &["-t", "ext4"]);

fn open(path: &Path) -> Volume {
    Volume::options()
        .write(true)
        .open(path)
        .unwrap_or_else(|e| panic!("{e}"))
}

fn errno<T>(result: extern4::Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

#[test]
fn open_files_are_listed_with_their_session_path_flags_and_position() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image.path);
    let root = volume.superuser();
    let user = volume.session(Cred::new(7, 7, &[]));
    root.create("/a").unwrap().write_all(b"0123456789").unwrap();
    let long = format!("/{}", "./".repeat(100) + "a");
    let mut file = user.open("/a").unwrap();
    let append = root.open_with(&long, File::options().append(true)).unwrap();
    file.seek(SeekFrom::Start(3)).unwrap();
    file.read_exact(&mut [0; 4]).unwrap();
    let mut list = volume.open_files();
    list.sort_by_key(|open| open.uid);
    let [ours, theirs] = &list[..] else {
        panic!("{list:?}")
    };
    assert_eq!(
        (&ours.path[..], ours.uid, ours.position),
        (long.as_bytes(), 0, 0)
    );
    assert_eq!(ours.flags, OpenFlags::WRITE | OpenFlags::APPEND);
    assert_eq!(
        (&theirs.path[..], theirs.uid, theirs.position),
        (&b"/a"[..], 7, 7)
    );
    assert_eq!((theirs.flags, theirs.ino), (OpenFlags::READ, ours.ino));
    assert_ne!(ours.session, theirs.session);
    // On another thread, or where it was opened.
    std::thread::spawn(move || drop(append)).join().unwrap();
    assert_eq!(volume.open_files().len(), 1);
    let before = volume.stats().files;
    drop(file);
    let after = volume.stats().files;
    assert_eq!(after.closed_by_thread - before.closed_by_thread, 1);
    assert_eq!(
        after.opened,
        after.closed_on_cpu + after.closed_on_node + after.closed_elsewhere
    );
    assert_eq!((after.opened, after.closed_by_thread), (3, 2));
    assert!(volume.open_files().is_empty());
    drop((root, user));
    volume.close().unwrap();
}

#[test]
fn a_removed_file_lives_until_its_last_close_wherever_that_is() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image.path);
    let root = volume.superuser();
    let before = volume.stat_fs().unwrap().files_free;
    let mut one = root.create("/gone").unwrap();
    one.write_all(b"still here").unwrap();
    let other = root.open("/gone").unwrap();
    root.remove_file("/gone").unwrap();
    drop(one);
    assert_eq!(volume.stat_fs().unwrap().files_free, before - 1);
    let list = volume.open_files();
    let mut bytes = [0; 10];
    assert_eq!(other.read_at(&mut bytes, 0).unwrap(), 10);
    assert_eq!(&bytes, b"still here");
    std::thread::spawn(move || drop(other)).join().unwrap();
    // The list does not keep the file open.
    assert_eq!(
        (volume.stat_fs().unwrap().files_free, list.len()),
        (before, 1)
    );
    drop(root);
    volume.close().unwrap();
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_volume_without_writers_turns_read_only() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image.path);
    let root = volume.superuser();
    let file = root.create("/a").unwrap();
    let reader = root.open("/a").unwrap();
    assert_eq!(errno(volume.set_read_only(true)), Some(Errno::EBUSY));
    // Refused without a trace.
    file.write_all_at(b"x", 0).unwrap();
    root.create_dir("/d").unwrap();
    std::thread::spawn(move || drop(file)).join().unwrap();
    volume.set_read_only(true).unwrap();
    assert_eq!(errno(root.create("/b")), Some(Errno::EROFS));
    assert_eq!(
        errno(root.open_with("/a", File::options().write(true))),
        Some(Errno::EROFS)
    );
    assert_eq!(errno(root.remove_file("/a")), Some(Errno::EROFS));
    assert_eq!(reader.read_at(&mut [0; 1], 0).unwrap(), 1);
    volume.set_read_only(false).unwrap();
    root.remove_file("/a").unwrap();
    drop((root, reader));
    volume.close().unwrap();
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
}

/// Makes a file, shuts the volume down while another thread changes it, and returns whether the
/// file is there afterwards.
fn is_kept_by(how: Shutdown, image: &Image) -> bool {
    let volume = open(&image.path);
    let root = volume.superuser();
    root.create_dir("/busy").unwrap();
    volume.sync().unwrap();
    let mut early = root.create("/early").unwrap();
    let going = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| work(&root, &going));
        while !going.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        early.write_all(b"early").unwrap();
        volume.shut_down(how).unwrap();
        let at_once = std::fs::read(&image.path).unwrap();
        assert_eq!(errno(early.write_at(b"late", 5)), Some(Errno::EIO));
        assert_eq!(errno(early.read_at(&mut [0; 1], 0)), Some(Errno::EIO));
        assert_eq!(errno(early.sync_all()), Some(Errno::EIO));
        assert_eq!(errno(root.create_dir("/late")), Some(Errno::EIO));
        assert_eq!(errno(root.open("/early")), Some(Errno::EIO));
        assert_eq!(errno(volume.sync()), Some(Errno::EIO));
        assert_eq!(errno(volume.set_read_only(true)), Some(Errno::EIO));
        assert_eq!(errno(volume.shut_down(how)), Some(Errno::EIO));
        std::thread::sleep(Duration::from_millis(300));
        assert!(
            std::fs::read(&image.path).unwrap() == at_once,
            "something was written after {how:?}"
        );
    });
    drop((root, early));
    assert!(volume.close().is_err());
    // The next program to open the volume recovers it.
    let volume = open(&image.path);
    let there = volume.superuser().exists("/early").unwrap();
    volume.close().unwrap();
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{how:?}: {e}"));
    there
}

/// Changes the volume until a change is refused.
fn work(root: &Session, going: &AtomicBool) {
    let end = Instant::now() + Duration::from_secs(60);
    for n in 0.. {
        let made = root
            .create(format!("/busy/{}", n % 10))
            .map(|file| file.write_all_at(&[1; 5000], 0));
        if made
            .and_then(|written| written)
            .and_then(|()| root.remove_file(format!("/busy/{}", n % 10)))
            .is_err()
        {
            return;
        }
        going.store(n > 20, Ordering::Relaxed);
        assert!(Instant::now() < end, "it was never refused");
    }
}

#[test]
fn a_shutdown_keeps_its_promise_and_nothing_is_written_after_it() {
    if !SPEC.can_run() {
        return;
    }
    assert!(is_kept_by(Shutdown::Flush, &SPEC.build()));
    assert!(is_kept_by(Shutdown::FlushLog, &SPEC.build()));
    assert!(!is_kept_by(Shutdown::Forget, &SPEC.build()));
}
