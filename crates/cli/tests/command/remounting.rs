//! `mount -o remount,rw` of mounts that were made for reading.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use extern4_testkit::image::Image;
use extern4_testkit::tools::{LoopDevice, Need, can_run, run};

use crate::mounting::{
    EMPTY, Served, as_user, can_mount, can_mount_as_root, copy_command, patiently, sound,
    transports, users_can_mount,
};
use crate::run::{extern4, failed, ok};

/// Remounts; returns the reason for a refusal.
fn remount(image: &Image, source: &str, options: &str) -> Option<String> {
    let options = format!("remount,{options}");
    let run = extern4(image, ["mount", "-o", &*options, source, "mnt"]);
    (!run.status.success()).then(|| failed(&run, 1))
}

fn is_read_only(dir: &Path) -> bool {
    fs::write(dir.join("tried"), "text").is_err_and(|error| error.raw_os_error() == Some(30))
}

#[test]
fn a_mount_made_for_reading_becomes_writable() {
    if !can_mount_as_root() {
        return;
    }
    for transport in transports() {
        for (options, words) in [
            ("ro", "rw"),
            ("ro,nofuseblk", "nosuid"),
            ("ro,fuseblk", "rw,nodev"),
        ] {
            let image = EMPTY.build();
            let from = image.scratch().join("contents");
            fs::write(&from, "contents").expect("a file");
            image.debugfs(&format!("write {} file\n", from.display()));
            let served = Served::new(&image, &["-o", &format!("{options},{transport}")]);
            let file = File::open(served.path("file")).expect("it opens");
            let mut text = [0; 8];
            assert!(is_read_only(&served.dir), "{options}");
            for round in 0..2 {
                assert_eq!(remount(&image, "disk.img", words), None, "{options}");
                fs::write(served.path(&format!("new{round}")), "new").expect("it can be changed");
                file.read_exact_at(&mut text, 0).expect("it is still open");
                assert_eq!(&text, b"contents");
                assert_eq!(remount(&image, "disk.img", "ro"), None, "{options}");
                assert!(is_read_only(&served.dir), "{options}");
            }
            assert_eq!(remount(&image, "disk.img", "rw"), None, "{options}");
            let table = fs::read_to_string("/proc/self/mounts").expect("the mount table");
            let dir = served.dir.to_str().expect("a plain name");
            let line = table
                .lines()
                .find(|line| line.split(' ').nth(1) == Some(dir))
                .expect("it is mounted");
            assert!(line.contains(" rw,"), "{line}");
            fs::remove_file(served.path("file")).expect("it can be changed");
            drop(file);
            served.umount();
            sound(&image);
            assert_eq!(ok(extern4(&image, ["cat", "disk.img:/new1"])), b"new");
        }
    }
}

/// A journal from the kernel's mount is replayed: only the journal holds the durable changes.
#[test]
fn a_journal_that_was_only_read_is_replayed() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let mount = image.mount("noatime");
        for name in 0..300 {
            fs::write(mount.path.join(format!("{name}")), "text").expect("a file");
        }
        File::open(&mount.path)
            .and_then(|dir| dir.sync_all())
            .expect("it is synced");
        let crashed = fs::read(&image.path).expect("the image is read");
        mount.unmount();
        fs::write(&image.path, &crashed).expect("the image is written");
        let served = Served::new(&image, &["-o", &format!("ro,{transport}")]);
        let names = || fs::read_dir(&served.dir).expect("it is read").count();
        assert_eq!(names(), 301);
        assert!(
            crashed == fs::read(&image.path).expect("the image is read"),
            "nothing is written"
        );
        assert_eq!(remount(&image, "disk.img", "rw"), None);
        for name in 0..100 {
            fs::remove_file(served.path(&format!("{name}"))).expect("it is there");
        }
        fs::write(served.path("new"), "text").expect("it can be changed");
        assert_eq!(names(), 202);
        served.umount();
        sound(&image);
    }
}

#[test]
fn a_remount_says_why_a_mount_stays_read_only() {
    if !can_mount() || !can_run(&[Need::Mount, Need::Tool("blockdev")]) {
        return;
    }
    let image = EMPTY.build();
    let device = LoopDevice::attach(&image.path);
    let node = device.path.to_str().expect("a plain name");
    let dir = image.scratch().join("mnt");
    fs::create_dir(&dir).expect("a directory");
    for options in ["ro", "ro,nofuseblk"] {
        run("blockdev", [OsStr::new("--setro"), device.path.as_os_str()]);
        ok(extern4(&image, ["mount", "-o", options, node, "mnt"]));
        let why = remount(&image, node, "rw").expect("it is write-protected");
        assert!(
            why.contains(node) && why.contains("Read-only file system"),
            "{options}: {why}"
        );
        assert!(is_read_only(&dir), "{options}");
        run("blockdev", [OsStr::new("--setrw"), device.path.as_os_str()]);
        assert_eq!(remount(&image, node, "rw"), None, "{options}");
        fs::write(dir.join("file"), "text").expect("it can be changed");
        // Unlike umount(8), this waits for the process that serves the mount.
        patiently(&[env!("CARGO_BIN_EXE_extern4"), "umount"], &dir);
        sound(&image);
    }
    drop(device);
    // While another process reads it, and with options that cannot change any more.
    let served = Served::new(&image, &["-o", "ro"]);
    let other = image.scratch().join("other");
    fs::create_dir(&other).expect("a directory");
    ok(extern4(&image, ["mount", "-o", "ro", "disk.img", "other"]));
    let why = remount(&image, "disk.img", "rw").expect("another has it");
    assert!(why.contains("has it open"), "{why}");
    assert!(is_read_only(&served.dir));
    patiently(&["umount"], &other);
    let why = remount(&image, "disk.img", "rw,data=journal").expect("it cannot be changed");
    assert!(
        why.contains("data mode") && is_read_only(&served.dir),
        "{why}"
    );
    assert_eq!(remount(&image, "disk.img", "rw"), None);
    fs::write(served.path("file"), "more").expect("it can be changed");
    served.umount();
    sound(&image);
}

/// The process that serves the mount may not write to the image.
#[test]
fn an_image_that_its_user_may_only_read_stays_so() {
    if !users_can_mount() {
        return;
    }
    let image = EMPTY.build();
    fs::set_permissions(image.scratch(), fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(image.scratch());
    fs::create_dir(image.scratch().join("mnt")).expect("a directory");
    let user = |mode, script: &str| {
        fs::set_permissions(&image.path, fs::Permissions::from_mode(mode)).expect("its mode");
        let script = format!(
            "mkdir -pm 700 run; export XDG_RUNTIME_DIR=$PWD/run
                unshare -Urm sh -c './extern4 mount -o ro disk.img mnt
                {script}
                ls mnt; ./extern4 umount mnt'"
        );
        as_user(1000, image.scratch(), &script)
            .output()
            .expect("setpriv")
    };
    let run = user(0o444, "./extern4 mount -o remount,rw disk.img mnt");
    let why = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(why.contains("'disk.img': Permission denied"), "{why}");
    assert_eq!(run.stdout, b"lost+found\n", "{why}");
    let run = user(
        0o666,
        "./extern4 mount -o remount,rw disk.img mnt && touch mnt/file",
    );
    assert_eq!(ok(run), b"file\nlost+found\n");
    sound(&image);
}
