//! The log of a mount without a terminal: `extern4 mount --log`, and the system's log.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use extern4_testkit::image::Image;
use extern4_testkit::tools::{Need, can_run};

use crate::mounting::{
    EMPTY, Served, can_mount, can_mount_as_root, in_foreground, sound, transports,
};
use crate::run::{command, extern4, failed, ok, tool};

/// Counts the lines of the log next to an image that have all of these words.
fn lines_with(image: &Image, words: &[&str]) -> usize {
    let log = fs::read_to_string(image.scratch().join("mount.log")).expect("a log");
    log.lines()
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .count()
}

#[test]
fn a_mount_in_the_background_keeps_a_log() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    for round in 1..=2 {
        for (done, transport) in transports().into_iter().enumerate() {
            Served::new(&image, &["-o", transport, "--log", "mount.log"]).umount();
            let way = if transport.ends_with("ring") {
                "io_uring"
            } else {
                "/dev/fuse"
            };
            assert_eq!(
                lines_with(
                    &image,
                    &[" INFO ", "disk.img is mounted on ", "/mnt; ", way]
                ),
                round
            );
            let ended = lines_with(&image, &[" INFO ", "disk.img is no longer mounted on "]);
            assert_eq!(ended, (round - 1) * transports().len() + done + 1);
        }
    }
    sound(&image);
}

#[test]
fn a_device_that_fails_is_in_the_log() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    fs::create_dir(served.path("dir"))
        .and_then(|()| fs::write(served.path("dir/file"), "text"))
        .expect("a file");
    served.umount();
    let served = Served::new(&image, &["-o", "ro", "--log", "mount.log"]);
    File::options()
        .write(true)
        .open(&image.path)
        .and_then(|disk| disk.set_len(4096))
        .expect("it is cut");
    assert_eq!(
        fs::metadata(served.path("dir/file"))
            .unwrap_err()
            .raw_os_error(),
        Some(5)
    );
    let log = fs::read_to_string(image.scratch().join("mount.log")).expect("a log");
    assert!(log.contains(" WARN Lookup: "), "{log}");
    served.umount();
}

#[test]
fn the_log_has_the_requested_level() {
    let image = EMPTY.build();
    let mount = |level: &str, log: &str| {
        let words = ["mount", "--log", log, "disk.img", "mnt"];
        command()
            .env("EXTERN4_LOG", level)
            .current_dir(image.scratch())
            .args(words)
            .output()
            .expect("it runs")
    };
    let said = failed(&mount("loud", "mount.log"), 2);
    assert!(said.contains("EXTERN4_LOG"), "{said}");
    let said = failed(&mount("info", "nowhere/mount.log"), 1);
    assert!(said.contains("log"), "{said}");
    if !can_mount() {
        return;
    }
    fs::create_dir(image.scratch().join("mnt")).expect("a directory");
    for (level, expected) in [("warn", 0), ("info", 1), ("debug", 2)] {
        ok(mount(level, "mount.log"));
        ok(extern4(&image, ["umount", "mnt"]));
        let said =
            lines_with(&image, &[" INFO ", " is mounted "]) + lines_with(&image, &["DEBUG init: "]);
        fs::remove_file(image.scratch().join("mount.log")).expect("a log");
        assert_eq!(said, expected, "{level}");
    }
}

#[test]
fn a_mount_in_the_foreground_tells_what_it_ends_on() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let child = in_foreground(&image, &image.scratch().join("mnt"), "transport=auto");
    tool(image.scratch(), "kill", ["-TERM", &child.id().to_string()]);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    let told =
        [" is mounted on ", "SIGTERM", " is no longer mounted on "].map(|words| said.find(words));
    assert!(told.is_sorted() && told[0].is_some(), "{said}");
}

#[test]
fn a_mount_in_the_background_tells_the_system() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("unshare")]) {
        return;
    }
    let image = EMPTY.build();
    // A `/dev` for the mount alone, with a log socket of the test.
    let dev = image.scratch().join("dev");
    fs::create_dir_all(&dev)
        .and_then(|()| fs::create_dir(image.scratch().join("mnt")))
        .expect("directories");
    let system = UnixDatagram::bind(dev.join("log")).expect("a socket");
    system
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time");
    let script = "touch dev/null dev/fuse; mkdir dev/shm
        for name in null fuse shm; do mount --rbind /dev/$name dev/$name; done
        mount --rbind dev /dev; \"$0\" mount disk.img mnt; \"$0\" umount mnt";
    tool(
        image.scratch(),
        "unshare",
        ["-m", "sh", "-ec", script, env!("CARGO_BIN_EXE_extern4")],
    );
    // It has no loop devices either.
    for words in [
        "there is no loop device",
        " is mounted on ",
        " is no longer mounted on ",
    ] {
        let mut space = [0; 1024];
        let len = system.recv(&mut space).expect("a line");
        let line = String::from_utf8_lossy(&space[..len]);
        assert!(
            line.starts_with("<30>") && line.contains(" extern4[") && line.contains(words),
            "{line}"
        );
        assert!(!line.ends_with('\n'), "{line}");
    }
    sound(&image);
}

/// In some mounts, flags that forbid opening a file for writing do not work; the log of such a
/// mount tells so once.
#[test]
fn that_immutable_files_can_be_opened_is_in_the_log() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("chattr")]) {
        return;
    }
    let image = EMPTY.build();
    for (options, told) in [("noopens", 1), ("opens", 0), ("writeback_cache", 0)] {
        let served = Served::new(&image, &["-o", options, "--log", "mount.log"]);
        for (name, flag) in [("first", "i"), ("second", "a")] {
            fs::write(served.path(name), "text").expect("a file");
            tool(&served.dir, "chattr", [&format!("+{flag}"), name]);
            let opened = File::options()
                .write(true)
                .append(flag == "i")
                .open(served.path(name));
            assert_eq!(
                opened.err().map(|error| error.raw_os_error()),
                (told == 0).then_some(Some(1)),
                "{options}"
            );
            tool(&served.dir, "chattr", [&format!("-{flag}"), name]);
        }
        served.umount();
        assert_eq!(
            lines_with(&image, &[" WARN ", "chattr +i", "option 'opens'"]),
            told,
            "{options}"
        );
        fs::remove_file(image.scratch().join("mount.log")).expect("a log");
    }
    sound(&image);
}

/// Damage makes the volume read-only. Later messages about that name the damage.
#[test]
fn the_reason_for_a_read_only_volume_is_in_the_log() {
    if !can_mount() || !can_run(&[Need::Tool("dumpe2fs")]) {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        tool(image.scratch(), "tune2fs", ["-e", "remount-ro", "disk.img"]);
        let told =
            String::from_utf8(tool(image.scratch(), "dumpe2fs", ["disk.img"])).expect("text");
        let (_, rest) = told.split_once("Block bitmap at ").expect("a group");
        let block: u64 = rest
            .split([' ', ','])
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a block");
        let disk = File::options()
            .write(true)
            .open(&image.path)
            .expect("an image");
        disk.write_all_at(&[0x5a; 4096], block * 4096)
            .expect("it is damaged");
        let served = Served::new(&image, &["-o", transport, "--log", "mount.log"]);
        assert_eq!(
            fs::write(served.path("file"), "text")
                .unwrap_err()
                .raw_os_error(),
            Some(30)
        );
        assert_eq!(
            fs::create_dir(served.path("dir"))
                .unwrap_err()
                .raw_os_error(),
            Some(30)
        );
        // Its exit status does not matter here.
        extern4(&image, ["umount", "mnt"]);
        served.forget();
        let log = fs::read_to_string(image.scratch().join("mount.log")).expect("a log");
        let line = log
            .lines()
            .find(|line| line.contains("nothing is changed any more"))
            .expect(&log);
        assert!(line.contains("block bitmap, group 0"), "{line}");
    }
}
