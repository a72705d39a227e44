//! Mounts of block devices: the device is the source, no other program can take it meanwhile, and
//! it is free when umount returns. Mounts whose process has ended.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use extern4_testkit::image::Image;
use extern4_testkit::tools::{LoopDevice, Need, can_run, try_run};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::mounting::{EMPTY, can_mount, in_foreground, is_mounted, patiently, sound};
use crate::run::{extern4, failed, ok, tool};

/// Mounts and unmounts of one test; the issue itself asks for 200.
fn rounds() -> usize {
    std::env::var("EXTERN4_REMOUNTS").map_or(8, |text| {
        text.parse().expect("EXTERN4_REMOUNTS is a number")
    })
}

/// A volume on a loop device, and a directory for its mount. The device is dropped first.
struct Disk {
    device: LoopDevice,
    dir: PathBuf,
    image: Image,
}

impl Disk {
    fn new() -> Option<Self> {
        if !can_mount() || !can_run(&[Need::Mount]) {
            return None;
        }
        let image = EMPTY.build();
        let dir = image.scratch().join("mnt");
        fs::create_dir(&dir).expect("a directory");
        Some(Self {
            device: LoopDevice::attach(&image.path),
            dir,
            image,
        })
    }

    fn node(&self) -> &str {
        self.device.path.to_str().expect("a plain name")
    }

    fn mount(&self, options: &str) {
        ok(extern4(
            &self.image,
            ["mount", "-o", options, self.node(), "mnt"],
        ));
    }

    /// Opens the device for exclusive use.
    fn open_alone(&self) -> std::io::Result<File> {
        let flags = OFlags::EXCL.bits().cast_signed();
        File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&self.device.path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if is_mounted(&self.image) {
            // The test has failed already.
            let _ = try_run("umount", ["-l".as_ref(), self.dir.as_os_str()]);
        }
    }
}

#[test]
fn a_device_is_the_source_of_its_mount() {
    let Some(disk) = Disk::new() else { return };
    for options in ["rw", "ro", "noatime,sync", "nodiratime,dirsync,lazytime"] {
        disk.mount(options);
        let found = tool(
            &disk.dir,
            "findmnt",
            ["-n", "-o", "FSTYPE,TARGET", "-S", disk.node()],
        );
        let found = String::from_utf8_lossy(&found).into_owned();
        assert!(
            found.starts_with("fuseblk.extern4 ") && found.contains("/mnt"),
            "{options}: {found}"
        );
        let shown = tool(
            &disk.dir,
            "findmnt",
            ["-n", "-o", "OPTIONS", "-S", disk.node()],
        );
        let shown = String::from_utf8_lossy(&shown).trim_end().to_owned();
        let shown: Vec<_> = shown.split(',').collect();
        assert!(
            options.split(',').all(|option| shown.contains(&option)),
            "{options}: {shown:?}"
        );
        let space = String::from_utf8_lossy(&tool(&disk.dir, "df", [disk.node()])).into_owned();
        assert!(space.contains("/mnt"), "{options}: {space}");
        let refused = disk.open_alone().expect_err("the kernel holds it");
        assert_eq!(refused.raw_os_error(), Some(16), "{options}");
        let said = failed(
            &extern4(&disk.image, ["mount", "-o", options, disk.node(), "mnt"]),
            1,
        );
        assert!(
            said.contains("is mounted on ") && said.contains("/mnt' already"),
            "{options}: {said}"
        );
        patiently(&["umount"], &disk.device.path);
        assert!(!is_mounted(&disk.image));
    }
    disk.mount("rw");
    ok(extern4(&disk.image, ["umount", disk.node()]));
    assert!(!is_mounted(&disk.image));
    sound(&disk.image);
}

/// Unmounts by umount(8) and by the command, by the device's name and by the directory's.
#[test]
fn a_device_is_free_when_umount_returns() {
    let Some(disk) = Disk::new() else { return };
    for round in 0..rounds() {
        disk.mount("rw");
        fs::write(disk.dir.join(format!("{}", round % 7)), vec![b'x'; 1 << 20]).expect("a file");
        let place: &Path = if round % 4 < 2 {
            &disk.device.path
        } else {
            &disk.dir
        };
        let extern4 = [env!("CARGO_BIN_EXE_extern4"), "umount"];
        patiently(
            if round % 2 == 0 {
                &["umount"]
            } else {
                &extern4
            },
            place,
        );
        drop(
            disk.open_alone()
                .unwrap_or_else(|error| panic!("round {round}: {error}")),
        );
    }
    sound(&disk.image);
}

/// A mount that meets an umount waits for it, whichever way the volume is served.
#[test]
fn a_mount_waits_for_an_umount_under_way() {
    let Some(disk) = Disk::new() else { return };
    for options in ["rw", "nofuseblk", "nofuseblk,ro"] {
        for round in 0..rounds() {
            disk.mount(options);
            if !options.contains("ro") {
                fs::write(disk.dir.join("file"), vec![b'x'; 4 << 20]).expect("a file");
            }
            let start = || {
                std::process::Command::new("umount")
                    .arg(&disk.dir)
                    .spawn()
                    .expect("umount")
            };
            let mut umount = start();
            while is_mounted(&disk.image) {
                // A process that looks through all mounts keeps this one busy for a moment.
                if umount
                    .try_wait()
                    .expect("umount")
                    .is_some_and(|status| !status.success())
                {
                    umount = start();
                }
                std::thread::yield_now();
            }
            let mounted = extern4(&disk.image, ["mount", disk.node(), "mnt"]);
            let unmounted = umount.wait_with_output().expect("it ends");
            assert!(unmounted.status.success(), "{options}, round {round}");
            ok(mounted);
            patiently(&["umount"], &disk.dir);
        }
    }
    sound(&disk.image);
}

/// Kills the process that serves a mount.
fn kill(mut daemon: std::process::Child) {
    kill_process(Pid::from_child(&daemon), Signal::KILL).expect("it is told");
    daemon.wait().expect("it ends");
}

#[test]
fn a_dead_mount_is_named_and_taken_away() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    for options in ["rw", "nofuseblk"] {
        for name in ["mnt", "disk.img", "./disk.img"] {
            kill(in_foreground(&image, &dir, options));
            assert!(is_mounted(&image));
            for place in ["mnt", "mnt/below"] {
                let said = failed(&extern4(&image, ["mount", "disk.img", place]), 1);
                assert!(
                    said.contains("has ended") && said.contains("extern4 umount"),
                    "{place}: {said}"
                );
            }
            ok(extern4(&image, ["umount", name]));
            assert!(!is_mounted(&image), "{options} {name}");
        }
        // A program that uses a dead mount does not keep it.
        let daemon = in_foreground(&image, &dir, options);
        let used = File::open(&dir).expect("a directory");
        kill(daemon);
        ok(extern4(&image, ["umount", "mnt"]));
        assert!(!is_mounted(&image), "{options}");
        drop(used);
    }
    ok(extern4(&image, ["recover", "disk.img"]));
    sound(&image);
}

/// The kernel still holds the device for the dead mount, wherever the next mount is to be.
#[test]
fn a_dead_mount_of_a_device_is_named_and_taken_away() {
    let Some(disk) = Disk::new() else { return };
    fs::create_dir(disk.image.scratch().join("other")).expect("a directory");
    disk.mount("rw");
    let daemon = tool(
        &disk.dir,
        "getfattr",
        ["--only-values", "-n", "extern4.daemon", "."],
    );
    let daemon = String::from_utf8_lossy(&daemon)
        .parse()
        .ok()
        .and_then(Pid::from_raw)
        .expect("a number");
    kill_process(daemon, Signal::KILL).expect("it is told");
    while fs::read_dir(&disk.dir).is_ok() {
        std::thread::yield_now();
    }
    let said = failed(&extern4(&disk.image, ["mount", disk.node(), "other"]), 1);
    assert!(
        said.contains("has ended") && said.contains("/mnt"),
        "{said}"
    );
    ok(extern4(&disk.image, ["umount", disk.node()]));
    disk.mount("rw");
    patiently(&["umount"], &disk.dir);
    sound(&disk.image);
}

#[test]
fn umount_takes_the_name_of_an_image() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let disk = crate::run::partitioned(&image);
    fs::create_dir(image.scratch().join("mnt")).expect("a directory");
    for (options, name) in [
        ("rw", "disk.img"),
        ("ro", "disk.img"),
        ("nofuseblk", "disk.img"),
        ("rw", "sdcard.img#2"),
    ] {
        let offset = "sdcard.img@1M";
        ok(extern4(&image, ["mount", "-o", options, name, "mnt"]));
        for other in ["sdcard.img", "sdcard.img@2M", "nothing.img"] {
            failed(&extern4(&image, ["umount", other]), 1);
        }
        assert!(is_mounted(&image));
        let name = if name.contains('#') && can_run(&[Need::Mount]) {
            offset
        } else {
            name
        };
        ok(extern4(&image, ["umount", name]));
        assert!(!is_mounted(&image), "{options} {name}");
    }
    assert!(disk.exists());
}
