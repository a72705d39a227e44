//! Ordinary programs work in a mount. Then `e2fsck` and the kernel's own mount of the same image
//! show the state of the volume.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use extern4_testkit::image::{Image, Plan};
use extern4_testkit::mounts::{EMPTY, can_mount, can_mount_as_root, sound, transports};
use extern4_testkit::tools::{Need, can_run, run_in as tool};
use extern4_testkit::{plan, tools, tree};

use crate::served::Served;

/// Asserts that the kernel's mount shows the same as ours of the same volume.
#[track_caller]
fn same_for_the_kernel(image: &Image, served: Served) {
    let ours = tree::from_mount(&served.dir);
    served.umount();
    sound(image);
    let theirs = tree::from_mount(&image.mount("ro,noatime").path);
    let differences = tree::diff(&ours, &theirs, 5);
    assert!(differences.is_none(), "{}", differences.unwrap_or_default());
}

#[test]
fn everything_that_is_made_in_a_mount_is_there_for_the_kernel() {
    if !can_mount() || !can_run(&[Need::Mount, Need::Tool("perl"), Need::Tool("setfacl")]) {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport, "-o", "noatime"]);
        for (at, plan) in plan::TREE
            .iter()
            .chain([&(plan::fragmented as Plan)])
            .enumerate()
        {
            plan(&served.dir).unwrap_or_else(|error| panic!("plan {at}: {error}"));
        }
        same_for_the_kernel(&image, served);
        // A new mount shows the same there, too.
        same_for_the_kernel(&image, Served::new(&image, &["-o", transport, "-o", "ro"]));
    }
}

#[test]
fn a_tree_is_copied_in_renamed_and_removed() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    tool(&served.dir, "cp", ["-a", "/usr/include/linux", "in"]);
    tool(&served.dir, "mv", ["in", "out"]);
    tool(
        &served.dir,
        "diff",
        ["-r", "--no-dereference", "/usr/include/linux", "out"],
    );
    tool(&served.dir, "tar", ["cf", "out.tar", "out"]);
    tool(&served.dir, "rm", ["-r", "out"]);
    tool(&served.dir, "tar", ["xf", "out.tar"]);
    tool(
        &served.dir,
        "diff",
        ["-r", "--no-dereference", "/usr/include/linux", "out"],
    );
    served.umount();
    sound(&image);
}

#[test]
fn open_files_outlive_their_names() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    let first = served.path("first");
    let second = served.path("second");
    fs::write(&first, "first").expect("a file");
    let mut kept = File::options()
        .read(true)
        .write(true)
        .open(&first)
        .expect("it opens");
    fs::write(&second, "second").expect("a file");
    fs::rename(&second, &first).expect("it is replaced");
    kept.seek(SeekFrom::End(0)).expect("it seeks");
    kept.write_all(b" and more").expect("it is written");
    kept.sync_all().expect("it is synced");
    let mut text = String::new();
    kept.rewind()
        .and_then(|()| kept.read_to_string(&mut text))
        .expect("it is read");
    assert_eq!(
        (text.as_str(), kept.metadata().expect("attributes").nlink()),
        ("first and more", 0)
    );
    assert_eq!(fs::read_to_string(&first).expect("a file"), "second");
    drop(kept);
    served.umount();
    sound(&image);
}

#[test]
fn a_removed_file_gives_its_space_back() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    let free = || rustix::fs::statvfs(&served.dir).expect("its space").f_bfree;
    // Once the kernel has opened a file, it knows whether opens are to be reported.
    fs::write(served.path("file"), "x")
        .and_then(|()| fs::read(served.path("file")))
        .expect("a file");
    let before = free();
    for _ in 0..3 {
        fs::write(served.path("large"), vec![b'x'; 8 << 20]).expect("a file");
        let kept = File::open(served.path("large")).expect("it opens");
        fs::remove_file(served.path("large")).expect("it is removed");
        drop(kept);
    }
    let start = Instant::now();
    // The kernel reports a forgotten file a moment after its last user has closed it.
    while free() < before && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(free() >= before, "{} of {before} blocks", free());
    served.umount();
    sound(&image);
}

/// The kernel reports forgotten files with FORGET, asynchronously. A program that has removed a
/// file may use its space at once.
///
/// In its own process: a process that another test starts has the files of all tests open,
/// until it executes its program.
#[test]
fn the_room_of_a_removed_file_is_there_at_once() {
    const DIR: &str = "EXTERN4_TEST_ROOM_OF";
    if let Some(dir) = std::env::var_os(DIR) {
        return take_room_again_and_again(Path::new(&dir));
    }
    if !can_mount() {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport]);
        let this = std::env::current_exe().expect("a program");
        let mut alone = std::process::Command::new(this);
        alone.args([
            "--exact",
            "mounting::the_room_of_a_removed_file_is_there_at_once",
            "--nocapture",
        ]);
        let output = alone.env(DIR, &served.dir).output().expect("it runs");
        let said = [&output.stdout[..], &output.stderr].concat();
        assert!(
            output.status.success(),
            "{transport}: {}",
            String::from_utf8_lossy(&said)
        );
        assert!(String::from_utf8_lossy(&said).contains("1 passed"));
        served.umount();
        sound(&image);
    }
}

fn take_room_again_and_again(dir: &Path) {
    let space = rustix::fs::statvfs(dir).expect("its space");
    let most = space.f_bavail * space.f_frsize / 3 * 2;
    let path = dir.join("large");
    for round in 0..100 {
        let file = File::create_new(&path).expect("a file");
        let taken = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, most);
        assert_eq!(taken, Ok(()), "round {round}");
        drop(file);
        fs::remove_file(&path).expect("it is removed");
        if round % 2 == 0 {
            let free = rustix::fs::statvfs(dir).expect("its space").f_bfree;
            assert!(
                free >= space.f_bfree,
                "round {round}: {free} of {} blocks",
                space.f_bfree
            );
        }
    }
}

#[test]
fn a_program_that_runs_is_not_written_to() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    let program = served.path("sleep");
    fs::copy(tools::find("sleep").expect("a program"), &program).expect("a copy");
    let mut running = std::process::Command::new(&program)
        .arg("60")
        .spawn()
        .expect("it runs");
    for open in [
        File::options().write(true),
        File::options().write(true).truncate(true),
    ] {
        assert_eq!(open.open(&program).unwrap_err().raw_os_error(), Some(26));
    }
    assert!(fs::metadata(&program).expect("attributes").len() > 0);
    running
        .kill()
        .and_then(|()| running.wait())
        .expect("it ends");
    served.umount();
    sound(&image);
}

#[test]
fn holes_are_found_and_made() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    let path = served.path("sparse");
    let file = File::create(&path).expect("a file");
    file.write_all_at(b"end", 3 << 20).expect("it is written");
    drop(file);
    tool(&served.dir, "fallocate", ["-l", "1M", "-o", "1M", "sparse"]);
    tool(
        &served.dir,
        "fallocate",
        ["-p", "-l", "4096", "-o", "3145728", "sparse"],
    );
    let found = fs::metadata(&path).expect("attributes");
    assert_eq!((found.len(), found.blocks()), ((3 << 20) + 3, 2048));
    tool(&served.dir, "cp", ["--sparse=always", "sparse", "copy"]);
    assert_eq!(
        fs::metadata(served.path("copy"))
            .expect("attributes")
            .blocks(),
        0
    );
    served.umount();
    sound(&image);
}

#[test]
fn names_that_are_too_long_are_refused() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    let longest = served.path(&"n".repeat(255));
    File::create(&longest).expect("a file");
    for len in [256, 1000] {
        let path = served.path(&"n".repeat(len));
        let too_long = |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == Some(36);
        assert!(too_long(File::create(&path).map(drop)), "{len}");
        assert!(too_long(fs::create_dir(&path)), "{len}");
        assert!(too_long(fs::rename(&longest, &path)), "{len}");
        assert!(too_long(fs::metadata(&path).map(drop)), "{len}");
    }
    served.umount();
    sound(&image);
}

#[test]
fn users_have_the_rights_that_the_volume_gives_them() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("setpriv"), Need::Tool("setfacl")]) {
        return;
    }
    let image = EMPTY.build();
    // Users come there only if they may pass the directories above.
    fs::set_permissions(image.scratch(), fs::Permissions::from_mode(0o755)).expect("its mode");
    let served = Served::new(&image, &[]);
    fs::set_permissions(&served.dir, fs::Permissions::from_mode(0o1777)).expect("its mode");
    let user = |uid: u32, script: &str| {
        let ids = [
            format!("--reuid={uid}"),
            format!("--regid={uid}"),
            "--groups=50".to_owned(),
        ];
        let words = ids.iter().map(String::as_str).chain(["sh", "-c", script]);
        let run = std::process::Command::new("setpriv")
            .args(words)
            .current_dir(&served.dir)
            .output();
        run.expect("setpriv").status.success()
    };
    assert!(user(
        1000,
        "umask 027; echo mine > mine; mkdir dir; ln -s mine link; mkfifo pipe"
    ));
    assert!(user(
        1000,
        "cat mine && test -O mine && test $(stat -c %a mine) = 640"
    ));
    assert!(!user(2000, "cat mine") && !user(2000, "rm -f mine") && !user(2000, "chmod 777 mine"));
    assert!(!user(2000, "mknod device c 1 3") && !user(2000, "ls dir"));
    // A group that only the process knows of; an ACL; a default ACL in place of the umask.
    tool(&served.dir, "chgrp", ["50", "mine"]);
    assert!(user(2000, "cat mine") && !user(2000, "echo more >> mine"));
    tool(&served.dir, "setfacl", ["-m", "u:2000:rw", "mine"]);
    assert!(user(2000, "echo more >> mine"));
    tool(
        &served.dir,
        "setfacl",
        ["-m", "u:2000:rwx,d:u:2000:rwx", "dir"],
    );
    assert!(user(1000, "umask 077; echo x > dir/file"));
    assert!(user(
        2000,
        "cat dir/file && echo y >> dir/file && rm dir/file"
    ));
    // A write by an unprivileged process clears the set-id bits.
    assert!(user(1000, "cp /bin/true suid && chmod 4777 suid") && user(2000, "echo >> suid"));
    assert_eq!(
        fs::metadata(served.path("suid"))
            .expect("attributes")
            .mode()
            & 0o7777,
        0o777
    );
    served.umount();
    sound(&image);
}
