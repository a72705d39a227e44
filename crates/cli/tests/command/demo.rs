//! `make run` demonstrates the command: on trees of any kind, and for an ordinary user, where there
//! is FUSE for users.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use extern4_testkit::tools::{self, Need, can_run};

use crate::mounting::{EMPTY, as_user, copy_command, users_can_mount};

const USER: u32 = 1000;

/// Makes awkward names, unreadable files, and files that are not regular.
fn fill(tree: &Path) {
    fs::create_dir_all(tree.join("d:r #1@2")).expect("a directory");
    fs::create_dir(tree.join("closed")).expect("a directory");
    for name in [
        "x y",
        "new\nline.h",
        "-f",
        "quote'\"$x",
        "d:r #1@2/file",
        "unreadable",
    ] {
        fs::write(tree.join(name), "text").expect("a file");
    }
    symlink("nowhere", tree.join("dangling")).expect("a link");
    drop(UnixListener::bind(tree.join("socket")).expect("a socket"));
    tools::run("mkfifo", [tree.join("fifo")]);
    for name in ["closed", "unreadable"] {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o0)).expect("its mode");
    }
}

fn demo(scratch: &Path, is_user: bool, tree: &str) -> Output {
    let script = format!("XDG_RUNTIME_DIR=$PWD/run TMPDIR=$PWD ./demo ./extern4 '{tree}'");
    let mut command = if is_user {
        as_user(USER, scratch, &script)
    } else {
        let mut command = Command::new("sh");
        command.args(["-ec", &script]).current_dir(scratch);
        command
    };
    command.output().expect("a shell")
}

#[test]
fn trees_of_any_kind_are_shown() {
    if !can_run(&[
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
        Need::Tool("mkfifo"),
    ]) {
        return;
    }
    let is_user = users_can_mount();
    let image = EMPTY.build();
    let scratch = image.scratch();
    copy_command(scratch);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo");
    fs::copy(script, scratch.join("demo")).expect("the script");
    for dir in ["run", "empty"] {
        fs::create_dir(scratch.join(dir)).expect("a directory");
    }
    fill(&scratch.join("odd na:me#2@1M"));
    symlink("odd na:me#2@1M", scratch.join("link")).expect("a link");
    if is_user {
        fs::set_permissions(scratch, fs::Permissions::from_mode(0o777)).expect("its mode");
        chown(scratch.join("run"), Some(USER), None).expect("its owner");
        tools::run(
            "chown",
            [
                "-hR".as_ref(),
                "1000".as_ref(),
                scratch.join("odd na:me#2@1M").as_os_str(),
            ],
        );
    }
    let has_fuse = is_user || can_run(&[Need::Root, Need::Fuse]);
    for (tree, equal) in [
        ("empty/", "the copy is equal to"),
        ("link", "the copy is equal to"),
        ("demo", "is not a directory"),
    ] {
        let run = demo(scratch, is_user, tree);
        let said = [run.stdout, run.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(
            run.status.code(),
            Some(if tree == "demo" { 2 } else { 0 }),
            "{tree}: {said}"
        );
        assert!(said.contains(equal), "{tree}: {said}");
        for part in [
            "(this volume was there ",
            "extern4 check my.img",
            "extern4 recover my.img",
        ] {
            assert!(
                tree == "demo" || said.contains(part),
                "{tree}: {part}: {said}"
            );
        }
        assert!(!said.contains("Killed"), "{tree}: {said}");
        let mount = if is_user {
            "extern4 mount -o fakeroot my.img mnt"
        } else {
            "extern4 mount my.img mnt"
        };
        assert!(
            !has_fuse || tree == "demo" || said.contains(mount),
            "{tree}: {said}"
        );
        // Where users can mount, the demonstration includes the mount.
        let has_mounted = said.contains("extern4 umount mnt");
        assert!(!is_user || tree == "demo" || has_mounted, "{tree}: {said}");
    }
    let left = fs::read_dir(scratch)
        .expect("it is read")
        .filter_map(Result::ok);
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("tmp."))
        .collect();
    assert!(left.is_empty(), "it cleans up: {left:?}");
}
