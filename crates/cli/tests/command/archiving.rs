//! `tar` next to GNU tar on the kernel's mount of the same volume.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use extern4_testkit::image::{Image, Plan};
use extern4_testkit::plan;
use extern4_testkit::tools::{Need, can_run, e2fsck, run, temporary};
use extern4_testkit::tree;

use crate::run::{command, extern4, extern4_in, failed, machine, ok, tool};

const PLANS: &[Plan] = &[
    plan::small_files,
    plan::holes,
    plan::modes_and_owners,
    plan::times,
    plan::many_links,
    plan::xattrs,
    plan::access_lists,
    plan::symlinks,
];

fn made(name: &'static str, plans: &[Plan]) -> Image {
    let image = Image::in_directory(temporary("extern4-tar-"), name);
    fs::File::create(&image.path)
        .and_then(|file| file.set_len(256 << 20))
        .expect("an image file");
    run(
        "mke2fs",
        [
            "-q",
            "-t",
            "ext4",
            "-I",
            "256",
            image.path.to_str().expect("a name in UTF-8"),
        ],
    );
    if !plans.is_empty() {
        let mount = image.mount("noatime");
        plans
            .iter()
            .for_each(|plan| plan(&mount.path).expect("a plan"));
        mount.unmount();
    }
    image
}

/// The tree that the kernel shows, as far as archives keep it.
fn kept(image: &Image) -> tree::Tree {
    let mount = image.mount("ro,noatime");
    let mut tree = tree::from_mount(&mount.path).as_built();
    mount.unmount();
    tree.entries
        .retain(|_, entry| entry.kind != tree::Kind::Socket);
    tree
}

fn can_compare() -> bool {
    can_run(&[
        Need::Mount,
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
        Need::Tool("tar"),
    ])
}

fn gnu_tar(dir: &Path, args: &[&str]) -> Vec<u8> {
    let all = [
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "--numeric-owner",
    ];
    tool(dir, "tar", all.iter().chain(args))
}

#[test]
fn archives_hold_what_gnu_tar_finds_in_the_mount() {
    if !can_compare() {
        return;
    }
    let old = made("old.img", PLANS);
    let new = made("new.img", &[]);
    let at = old.scratch();
    ok(extern4_in(at, ["tar", "cf", "all.tar", "old.img"]));
    let mount = new.mount("noatime");
    gnu_tar(
        &mount.path,
        &["-xpSf", at.join("all.tar").to_str().expect("UTF-8")],
    );
    mount.unmount();
    tree::assert_same("unpacked by GNU tar", &kept(&new), &kept(&old));
}

#[test]
fn archives_of_gnu_tar_become_what_gnu_tar_unpacks() {
    if !can_compare() {
        return;
    }
    let old = made("old.img", PLANS);
    let ours = made("ours.img", &[]);
    let theirs = made("theirs.img", &[]);
    let archive = ours.scratch().join("all.tar");
    let archive = archive.to_str().expect("UTF-8");
    let mount = old.mount("ro,noatime");
    gnu_tar(
        &mount.path,
        &[
            "--format=pax",
            "--exclude=./lost+found",
            "-cSf",
            archive,
            ".",
        ],
    );
    mount.unmount();
    // Files that are there already, of which some are in the way.
    for image in [&ours, &theirs] {
        let mount = image.mount("noatime");
        fs::create_dir_all(mount.path.join("files/own")).expect("a directory");
        fs::write(mount.path.join("files/own/file"), "own").expect("a file");
        fs::write(mount.path.join("files/100-bytes"), "other").expect("a file");
        fs::hard_link(
            mount.path.join("files/100-bytes"),
            mount.path.join("other-name"),
        )
        .expect("a link");
        mount.unmount();
    }
    let mount = theirs.mount("noatime");
    gnu_tar(&mount.path, &["-xpf", archive]);
    mount.unmount();
    ok(extern4_in(
        ours.scratch(),
        ["tar", "-xpf", "all.tar", "ours.img:/"],
    ));
    e2fsck(&ours.path).expect("a sound volume");
    let times = |mut tree: tree::Tree| {
        // The times of what the test itself made.
        for path in [&b"/files/own"[..], b"/files/own/file", b"/other-name"] {
            tree.entries.get_mut(path).expect("a file").mtime = None;
        }
        tree
    };
    tree::assert_same("unpacked", &times(kept(&ours)), &times(kept(&theirs)));
    // A second time, nothing changes.
    let before = fs::read(&ours.path).expect("an image");
    ok(extern4_in(
        ours.scratch(),
        ["tar", "-xpf", "all.tar", "ours.img:/"],
    ));
    assert!(fs::read(&ours.path).expect("an image") == before);
}

#[test]
fn listings_are_those_of_gnu_tar() {
    if !can_run(&[Need::Tool("tar")]) {
        return;
    }
    let dir = temporary("extern4-tar-");
    let at = dir.path();
    fs::create_dir_all(at.join("d/e")).expect("a directory");
    fs::write(at.join("d/f"), vec![1; 12345]).expect("a file");
    fs::write(at.join("d/odd\nname\\ \u{1}"), "x").expect("a file");
    fs::hard_link(at.join("d/f"), at.join("d/g")).expect("a link");
    std::os::unix::fs::symlink("f", at.join("d/l")).expect("a link");
    tool(at, "mkfifo", ["d/p"]);
    tool(
        at,
        "tar",
        ["--format=pax", "--sort=name", "-cf", "a.tar", "d"],
    );
    tool(at, "tar", ["-czf", "a.tgz", "d"]);
    for options in [&["-t"][..], &["-tv"], &["-tv", "--full-time"]] {
        for archive in ["a.tar", "a.tgz"] {
            let all = [options, &["--numeric-owner", "-f", archive]].concat();
            let ours = ok(extern4_in(at, [&["tar"], &all[..]].concat()));
            assert_eq!(
                ours.escape_ascii().to_string(),
                tool(at, "tar", all).escape_ascii().to_string()
            );
        }
    }
    let chosen = ok(extern4_in(at, ["tar", "tf", "a.tar", "d/e", "d/l"]));
    assert_eq!(chosen, tool(at, "tar", ["-tf", "a.tar", "d/e", "d/l"]));
    let said = failed(&extern4_in(at, ["tar", "tf", "a.tar", "d/l", "gone"]), 1);
    assert_eq!(said, "extern4: tar: 'gone': Not found in archive\n");
    let said = failed(&extern4_in(at, ["tar", "tf", "gone.tar"]), 1);
    assert!(
        said.contains("gone.tar") && said.contains("No such file or directory"),
        "{said}"
    );
}

#[test]
fn archives_go_through_pipes_in_every_compression() {
    if !can_run(&[
        Need::Tool("tar"),
        Need::Tool("xz"),
        Need::Tool("bzip2"),
        Need::Tool("zstd"),
    ]) {
        return;
    }
    let image = machine();
    let plain = ok(extern4(
        &image,
        ["tar", "c", "disk.img:/etc", "disk.img:/home"],
    ));
    for option in ["-z", "-j", "-J", "--zstd"] {
        let packed = ok(extern4(
            &image,
            ["tar", "-c", option, "disk.img:/etc", "disk.img:/home"],
        ));
        assert_ne!(packed, plain, "{option}");
        fs::write(image.scratch().join("packed"), &packed).expect("a file");
        let names = tool(image.scratch(), "tar", ["-tf", "packed"]);
        fs::write(image.scratch().join("plain"), &plain).expect("a file");
        assert_eq!(
            names,
            tool(image.scratch(), "tar", ["-tf", "plain"]),
            "{option}"
        );
        // From a pipe into a volume.
        ok(extern4(&image, ["mkfs", "-qF", "new.img", "16M"]));
        let mut unpack = command();
        unpack
            .current_dir(image.scratch())
            .args(["tar", "x", "new.img"]);
        unpack.stdin(Stdio::from(
            fs::File::open(image.scratch().join("packed")).expect("a file"),
        ));
        ok(unpack.output().expect("the command"));
        ok(extern4(&image, ["diff", "disk.img:/home", "new.img:/home"]));
        let suffix = option.trim_start_matches('-');
        let suffix = match suffix {
            "z" => "gz",
            "j" => "bz2",
            "J" => "xz",
            other => &other[..3],
        };
        let name = format!("by-name.tar.{suffix}");
        ok(extern4(
            &image,
            ["tar", "caf", &name, "disk.img:/etc", "disk.img:/home"],
        ));
        assert!(
            fs::read(image.scratch().join(name)).expect("an archive") == packed,
            "{option}"
        );
    }
    let mut piped = Command::new("sh");
    let line = format!(
        "{0} tar c disk.img:/etc | {0} tar t",
        env!("CARGO_BIN_EXE_extern4")
    );
    let output = piped
        .args(["-c", &line])
        .current_dir(image.scratch())
        .output()
        .expect("a shell");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("etc/hostname\n"),
        "{output:?}"
    );
}

#[test]
fn options_say_what_is_unpacked_and_where() {
    let image = machine();
    let new = |args: &[&str]| extern4(&image, [&["tar"], args].concat());
    let cat = |path: &str| ok(extern4(&image, ["cat", &format!("new.img:{path}")]));
    ok(extern4(&image, ["mkfs", "-q", "new.img", "16M"]));
    ok(new(&["cf", "a.tar", "-C", "disk.img:/home", "ann"]));
    ok(extern4(&image, ["script", "new.img", "-"]));
    ok(new(&[
        "xf",
        "a.tar",
        "--strip-components=1",
        "new.img:/",
        "ann/notes.txt",
    ]));
    assert_eq!(cat("/notes.txt"), b"buy milk\n");
    assert!(
        String::from_utf8(ok(extern4(&image, ["ls", "new.img"])))
            .expect("UTF-8")
            .contains("notes.txt")
    );
    // Of -k, --skip-old-files and --keep-newer-files, each spares a file that is there.
    let mut put = command();
    put.current_dir(image.scratch())
        .args(["put", "new.img:/notes.txt"])
        .stdin(Stdio::null());
    ok(put.output().expect("the command"));
    let strip = [
        "--strip-components",
        "1",
        "-f",
        "a.tar",
        "new.img:/",
        "ann/notes.txt",
    ];
    let said = failed(&new(&[&["-xk"], &strip[..]].concat()), 1);
    assert_eq!(said, "extern4: tar: 'new.img:/notes.txt': File exists\n");
    for option in ["--skip-old-files", "--keep-newer-files"] {
        ok(new(&[&["-x", option], &strip[..]].concat()));
        assert_eq!(cat("/notes.txt"), b"", "{option}");
    }
    ok(new(&[&["-x"], &strip[..]].concat()));
    assert_eq!(cat("/notes.txt"), b"buy milk\n");
    // Patterns, a user, and what is refused.
    ok(new(&[
        "x",
        "--exclude",
        "*.txt",
        "-f",
        "a.tar",
        "-C",
        "new.img:/",
    ]));
    assert_eq!(
        ok(extern4(&image, ["ls", "-A", "new.img:/ann"])),
        b".profile\ntodo\n"
    );
    ok(extern4(&image, ["mkdir", "new.img:/own"]));
    ok(extern4(&image, ["chown", "5:5", "new.img:/own"]));
    ok(extern4(
        &image,
        ["--as", "5:5", "tar", "xf", "a.tar", "new.img:/own"],
    ));
    let stat = ok(extern4(
        &image,
        ["stat", "-c", "%u:%g", "new.img:/own/ann/notes.txt"],
    ));
    assert_eq!(stat, b"5:5\n");
    assert!(failed(&new(&["xf", "a.tar"]), 2).contains("-C IMAGE:/PATH"));
    assert!(failed(&new(&["c"]), 2).contains("name the files"));
    assert!(
        failed(&new(&["xf", "a.tar", "new.img:/gone"]), 1).contains("No such file or directory")
    );
    assert!(
        failed(&new(&["--append", "-f", "a.tar", "x"]), 2)
            .contains("an archive is made as a whole")
    );
    let said = failed(&new(&["cf", "b.tar", "disk.img:/etc", "disk.img:/gone"]), 1);
    assert_eq!(
        said,
        "extern4: tar: 'disk.img:/gone': No such file or directory\n"
    );
}

#[test]
fn a_file_that_is_left_out_at_one_name_is_whole_at_the_next() {
    let image = machine();
    ok(extern4(
        &image,
        ["ln", "disk.img:/etc/hostname", "disk.img:/etc/name"],
    ));
    ok(extern4(
        &image,
        ["ln", "disk.img:/etc/hostname", "disk.img:/home/name"],
    ));
    let list = |args: &[&str]| {
        ok(extern4(&image, [&["tar", "-cf", "a.tar"], args].concat()));
        let lines = tool(image.scratch(), "tar", ["-tvf", "a.tar"]);
        let lines = String::from_utf8(lines).expect("UTF-8");
        let kind = |line: &str| {
            Some((
                line.chars().next()?,
                line.split(' ').next_back()?.to_owned(),
            ))
        };
        lines
            .lines()
            .filter(|line| line.contains("name"))
            .filter_map(kind)
            .collect::<Vec<_>>()
    };
    let all = ["disk.img:/etc", "disk.img:/home"];
    let line = |kind, path: &str| (kind, path.to_owned());
    let first = line('-', "etc/hostname");
    let last = line('h', "etc/hostname");
    assert_eq!(list(&all), [first.clone(), last.clone(), last.clone()]);
    assert_eq!(
        list(&[&["--exclude", "/etc/name"], &all[..]].concat()),
        [first, last]
    );
    let next = [line('-', "etc/name"), line('h', "etc/name")];
    assert_eq!(list(&[&["--exclude", "hostname"], &all[..]].concat()), next);
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let image = made("disk.img", &[]);
    let scratch = image.scratch();
    fs::create_dir(scratch.join("d")).expect("a directory");
    fs::write(scratch.join("d/f"), "text").expect("a file");
    gnu_tar(scratch, &["-cf", "d.tar", "d"]);
    let full = fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("a full device");
    let mut unpack = command();
    unpack
        .current_dir(scratch)
        .args(["tar", "-xvf", "d.tar", "disk.img:/"])
        .stdout(full);
    let errors = failed(&unpack.output().expect("the command runs"), 1);
    assert!(errors.contains("No space left on device"), "{errors}");
}
