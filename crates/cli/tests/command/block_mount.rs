//! Mounts for which a loop device is made: `sync(2)` and `umount(8)` wait for the volume.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4_testkit::tools::{self, LoopDevice, Need, can_run};

use crate::mounting::{
    EMPTY, Served, as_user, can_mount, copy_command, in_foreground, patiently, sound, transports,
    users_can_mount,
};
use crate::run::{extern4, failed, ok, partitioned};

/// Returns a mount's entry in the mount table: its type, and its source.
fn mounted(dir: &Path) -> (String, String) {
    let table = fs::read_to_string("/proc/self/mounts").expect("the mount table");
    let dir = dir.to_str().expect("a plain name");
    let line = table
        .lines()
        .find(|line| line.split(' ').nth(1) == Some(dir))
        .expect("it is mounted");
    let word = |at| line.split(' ').nth(at).expect("a word").to_owned();
    (word(2), word(0))
}

/// Returns the loop devices of a file, as the kernel lists them.
fn loop_devices(image: &Path) -> Vec<fs::DirEntry> {
    let devices = fs::read_dir("/sys/block")
        .expect("block devices")
        .map(|entry| entry.expect("an entry"));
    let stands_for_it = |entry: &fs::DirEntry| {
        fs::read(entry.path().join("loop/backing_file"))
            .is_ok_and(|file| file.trim_ascii_end() == image.as_os_str().as_bytes())
    };
    devices.filter(stands_for_it).collect()
}

fn can_make_loop_devices() -> bool {
    can_mount() && can_run(&[Need::Mount])
}

#[test]
fn all_of_a_volume_is_synced() {
    if !can_make_loop_devices() {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let dir = image.scratch().join("mnt");
        let mut child = in_foreground(&image, &dir, &format!("{transport},commit=3600"));
        fs::write(dir.join("file"), "synced").expect("a file");
        // This syncs the file system, not the file.
        rustix::fs::syncfs(File::open(&dir).expect("a directory")).expect("it is synced");
        fs::write(dir.join("later"), "lost").expect("a file");
        child
            .kill()
            .and_then(|()| child.wait())
            .expect("it is killed");
        // It is still mounted, but no process serves it.
        assert_eq!(loop_devices(&image.path).len(), 1);
        ok(extern4(&image, ["recover", "disk.img"]));
        assert_eq!(
            ok(extern4(&image, ["ls", "disk.img:/"])),
            b"file\nlost+found\n"
        );
        assert_eq!(ok(extern4(&image, ["cat", "disk.img:/file"])), b"synced");
        patiently(&["umount"], &dir);
        sound(&image);
    }
}

/// Returns whether the journal is to be replayed: `RECOVER` among the incompatible features.
fn needs_recovery(image: &Path) -> bool {
    fs::read(image).expect("an image")[1024 + 0x60] & 4 != 0
}

#[test]
fn umount_waits_for_the_volume() {
    if !can_make_loop_devices() {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        for round in 0..10 {
            let served = Served::new(&image, &["-o", transport]);
            let (kind, source) = mounted(&served.dir);
            assert!(
                kind == "fuseblk.extern4" && source.starts_with("/dev/loop"),
                "{kind} {source}"
            );
            let open = File::create(served.path("removed")).expect("a file");
            fs::remove_file(served.path("removed")).expect("its name goes");
            drop(open);
            fs::write(served.path(&format!("{round}")), vec![b'x'; 1 << 20]).expect("a file");
            let refused = failed(&extern4(&image, ["mkdir", "disk.img:/dir"]), 1);
            assert!(refused.contains(" has it open"), "{refused}");
            patiently(&["umount"], &served.dir);
            assert!(!needs_recovery(&image.path), "round {round}");
            // No process has it open any more.
            ok(extern4(&image, ["touch", "disk.img:/touched"]));
            served.forget();
        }
        assert!(loop_devices(&image.path).is_empty());
        sound(&image);
    }
}

#[test]
fn a_write_protected_device_is_mounted_for_reading() {
    if !can_make_loop_devices() {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    fs::create_dir(&dir).expect("a directory");
    ok(extern4(&image, ["touch", "disk.img:/file"]));
    let before = fs::read(&image.path).expect("an image");
    let device = LoopDevice::attach_read_only(&image.path);
    let node = device.path.to_str().expect("a name");
    for (options, told) in [
        (&[][..], true),
        (&["-o", "rw"], true),
        (&["-o", "ro"], false),
    ] {
        let said = extern4(&image, [&["mount"], options, &[node, "mnt"]].concat());
        assert!(said.status.success(), "{said:?}");
        let text = String::from_utf8_lossy(&said.stderr);
        assert_eq!(text.contains("write-protected"), told, "{text}");
        let refused = fs::write(dir.join("file"), "").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(30), "{options:?}");
        patiently(&["umount"], &dir);
    }
    drop(device);
    assert!(fs::read(&image.path).expect("an image") == before);
}

#[test]
fn partitions_are_mounted_as_block_devices() {
    if !can_make_loop_devices() {
        return;
    }
    let image = EMPTY.build();
    let disk = partitioned(&image);
    fs::rename(&disk, &image.path).expect("it takes the image's place");
    let dir = image.scratch().join("mnt");
    fs::create_dir(&dir).expect("a directory");
    ok(extern4(&image, ["mount", "disk.img#2", "mnt"]));
    let devices = loop_devices(&image.path);
    let said = |name: &str| fs::read_to_string(devices[0].path().join(name)).expect("a number");
    assert_eq!(
        (said("loop/offset").trim(), said("size").trim()),
        ("1048576", "131072")
    );
    fs::write(dir.join("file"), "text").expect("a file");
    patiently(&["umount"], &dir);
    assert_eq!(ok(extern4(&image, ["cat", "disk.img#2:/file"])), b"text");
}

#[test]
fn loop_devices_are_made_where_they_may_be() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    for plain in ["nofuseblk", "ro"] {
        let served = Served::new(&image, &["-o", plain]);
        assert_eq!(
            mounted(&served.dir),
            (
                "fuse.extern4".to_owned(),
                image.path.to_string_lossy().into_owned()
            )
        );
        served.umount();
    }
    if can_run(&[Need::Mount]) {
        let served = Served::new(&image, &["-o", "fuseblk,ro"]);
        assert_eq!(mounted(&dir).0, "fuseblk.extern4");
        assert_eq!(
            fs::write(dir.join("file"), "").unwrap_err().raw_os_error(),
            Some(30)
        );
        served.umount();
    }
    if users_can_mount() {
        copy_command(image.scratch());
        tools::run(
            "chmod",
            ["-R".as_ref(), "777".as_ref(), image.scratch().as_os_str()],
        );
        let run = as_user(
            1000,
            image.scratch(),
            "./extern4 mount -o fuseblk disk.img mnt",
        )
        .output();
        let said = failed(&run.expect("setpriv"), 1);
        assert!(said.contains("loop device"), "{said}");
    }
    sound(&image);
}
