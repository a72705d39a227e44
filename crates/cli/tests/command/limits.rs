//! Mounts where the system allows little: each works, or ends with an error and leaves nothing
//! behind.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use extern4_testkit::image::Image;

use crate::mounting::{
    EMPTY, as_user, can_mount_as_root, copy_command, is_mounted, patiently, sound, transports,
    users_can_mount,
};
use crate::run::{extern4, failed, ok};

/// Runs a script of bash in which `$0` is the command; a minute without an end counts as a hang.
fn limited(image: &Image, script: &str) -> Output {
    let script = format!("{script}; exec timeout 60 \"$0\" mount $* disk.img mnt");
    let mut bash = Command::new("bash");
    bash.current_dir(image.scratch())
        .args(["-c", &script, env!("CARGO_BIN_EXE_extern4")]);
    bash.output().expect("bash runs")
}

/// Returns whether the mount serves; asserts that it has given the reason if not.
#[track_caller]
fn serves_or_says_why_not(image: &Image, said: &Output, what: &str) -> bool {
    let dir = image.scratch().join("mnt");
    let errors = String::from_utf8_lossy(&said.stderr);
    assert_ne!(said.status.code(), Some(124), "{what}: it hangs: {errors}");
    assert_eq!(said.status.success(), is_mounted(image), "{what}: {errors}");
    if !said.status.success() {
        assert!(!errors.is_empty(), "{what}: {:?}", said.status);
        return false;
    }
    fs::write(dir.join("file"), what).expect("it is written");
    patiently(&[env!("CARGO_BIN_EXE_extern4"), "umount"], &dir);
    assert_eq!(
        ok(extern4(image, ["cat", "disk.img:/file"])),
        what.as_bytes()
    );
    true
}

#[test]
fn few_file_descriptors_are_an_error() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    fs::create_dir(image.scratch().join("mnt")).expect("a directory");
    for transport in transports() {
        for descriptors in [5, 8, 10, 11, 12, 13, 15, 20, 23, 26, 64] {
            let said = limited(
                &image,
                &format!("ulimit -n {descriptors}; set -- -o {transport}"),
            );
            let what = format!("{transport}, {descriptors} descriptors");
            let serves = serves_or_says_why_not(&image, &said, &what);
            assert!(
                serves || descriptors < 64,
                "{what}: {}",
                String::from_utf8_lossy(&said.stderr)
            );
            assert!(!serves || descriptors > 13, "{what}");
        }
    }
    sound(&image);
}

#[test]
fn little_memory_is_an_error() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    fs::create_dir(image.scratch().join("mnt")).expect("a directory");
    // In small steps, where the least memory lies: it depends on the size of the command.
    for mebibytes in (32..80).step_by(4).chain([80, 96, 128, 192, 256]) {
        let said = limited(&image, &format!("ulimit -v {}", mebibytes << 10));
        serves_or_says_why_not(&image, &said, &format!("{mebibytes} MiB"));
    }
    sound(&image);
}

/// Makes an image that `user` mounts, with the command next to it.
fn image_of(user: u32) -> Image {
    let image = EMPTY.build();
    fs::set_permissions(image.scratch(), fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(image.scratch());
    chown(&image.path, Some(user), None).expect("its owner");
    image
}

#[test]
fn few_threads_are_an_error() {
    // A user that every system has, and no other test uses: the limit counts all processes of a
    // user.
    const USER: u32 = 3;
    if !users_can_mount() {
        return;
    }
    let image = image_of(USER);
    let run = |script: &str| {
        as_user(USER, image.scratch(), script)
            .output()
            .expect("setpriv")
    };
    assert!(run("mkdir mnt").status.success());
    for threads in 1..=12 {
        let said = run(&format!(
            "ulimit -u {threads}; exec timeout 60 ./extern4 mount disk.img mnt"
        ));
        let errors = String::from_utf8_lossy(&said.stderr);
        assert_ne!(
            said.status.code(),
            Some(124),
            "{threads} threads: it hangs: {errors}"
        );
        assert_eq!(
            said.status.success(),
            is_mounted(&image),
            "{threads} threads: {errors}"
        );
        assert!(
            said.status.success() || !errors.is_empty(),
            "{threads} threads: {:?}",
            said.status
        );
        if said.status.success() {
            let used = run("ls mnt && sync -f mnt && ./extern4 umount mnt");
            let errors = String::from_utf8_lossy(&used.stderr);
            assert!(
                used.status.success() && !is_mounted(&image),
                "{threads} threads: {errors}"
            );
        }
    }
    sound(&image);
}

/// `RLIMIT_FSIZE` applies to the daemon, whose image is larger.
#[test]
fn a_write_beyond_the_size_limit_fails() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    fs::create_dir(&dir).expect("a directory");
    let said = limited(&image, "ulimit -f 20000");
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let mut file = File::create(dir.join("big")).expect("a file");
    let block = vec![b'x'; 1 << 20];
    let result = (0..48)
        .try_for_each(|_| file.write_all(&block))
        .and_then(|()| file.sync_all());
    let errno = result.expect_err("there is a limit").raw_os_error();
    assert!(matches!(errno, Some(5 | 27)), "{errno:?}");
    drop(file);
    assert!(fs::read_dir(&dir).expect("it is served").count() > 0);
    patiently(&["umount"], &dir);
    // Commands without a mount report that, too.
    fs::write(image.scratch().join("large"), vec![b'x'; 40 << 20]).expect("a file");
    let put = "ulimit -f 20000; exec \"$0\" cp large disk.img:/large";
    let mut bash = Command::new("bash");
    bash.current_dir(image.scratch())
        .args(["-c", put, env!("CARGO_BIN_EXE_extern4")]);
    let said = failed(&bash.output().expect("bash runs"), 1);
    assert!(said.contains("large"), "{said}");
    ok(extern4(&image, ["recover", "disk.img"]));
    sound(&image);
}

/// As after su(1), from cron, or in a container.
#[test]
fn a_mount_can_be_looked_into_without_a_runtime_directory() {
    const USER: u32 = 2;
    if !users_can_mount() {
        return;
    }
    let image = image_of(USER);
    let own = Path::new("/tmp/extern4-2");
    // Another name, for where that one is taken.
    let others = || {
        let names = fs::read_dir("/tmp")
            .expect("a directory")
            .flatten()
            .map(|entry| entry.path());
        names
            .filter(|path| path.to_string_lossy().starts_with("/tmp/extern4-2."))
            .collect::<Vec<_>>()
    };
    let clear = || {
        let _ = fs::remove_dir_all(own).or_else(|_| fs::remove_file(own));
        others()
            .iter()
            .for_each(|dir| fs::remove_dir_all(dir).expect("a directory"));
    };
    clear();
    let run = |script: &str| {
        let script = format!("unset XDG_RUNTIME_DIR; {script}");
        as_user(USER, image.scratch(), &script)
            .output()
            .expect("setpriv")
    };
    ok(run("mkdir mnt; ./extern4 mount disk.img mnt"));
    let found = fs::symlink_metadata(own).expect("a directory");
    assert_eq!(
        (found.is_dir(), found.uid(), found.mode() & 0o7777),
        (true, USER, 0o700)
    );
    assert!(!ok(run("./extern4 stats mnt")).is_empty());
    ok(run("./extern4 umount mnt"));
    clear();
    // A directory or link that another user put there is not used.
    let elsewhere = image.scratch().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    chown(&elsewhere, Some(USER), None).expect("its owner");
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).expect("its mode");
    let squats: [&dyn Fn(); 3] = [
        &|| fs::create_dir(own).expect("a directory"),
        &|| symlink(&elsewhere, own).expect("a link"),
        &|| {
            fs::create_dir(own)
                .and_then(|()| chown(own, Some(USER), None))
                .expect("a directory");
            fs::set_permissions(own, fs::Permissions::from_mode(0o777)).expect("its mode");
        },
    ];
    for squat in squats {
        squat();
        ok(run("./extern4 mount disk.img mnt"));
        assert!(!ok(run("./extern4 stats mnt")).is_empty());
        let dirs = others();
        let found = fs::symlink_metadata(&dirs[0]).expect("a directory");
        assert_eq!(
            (dirs.len(), found.uid(), found.mode() & 0o7777),
            (1, USER, 0o700)
        );
        assert_eq!(fs::read_dir(own).expect("a directory").count(), 0);
        ok(run("./extern4 umount mnt"));
        assert_eq!(fs::read_dir(&elsewhere).expect("a directory").count(), 0);
        clear();
    }
    sound(&image);
}
