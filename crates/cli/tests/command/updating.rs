//! Volumes that `build --update` brings to the state of their sources.

use std::fs;
use std::path::Path;

use extern4_testkit::tools::{Need, can_run, e2fsck, temporary};

use crate::run::{extern4_in, failed, ok, tool};

fn tree(at: &Path) {
    for (name, contents) in [
        ("etc/hostname", "web\n"),
        ("etc/passwd", "root\n"),
        ("srv/old", "old\n"),
    ] {
        let path = at.join("tree").join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, contents).expect("a file");
    }
    std::os::unix::fs::symlink("hostname", at.join("tree/etc/name")).expect("a link");
    fs::hard_link(at.join("tree/etc/passwd"), at.join("tree/etc/passwd-")).expect("a link");
}

fn text(output: std::process::Output) -> String {
    String::from_utf8(ok(output)).expect("UTF-8")
}

#[test]
fn a_volume_becomes_its_sources() {
    if !can_run(&[Need::Tool("e2fsck"), Need::Tool("tar")]) {
        return;
    }
    let dir = temporary("extern4-update-");
    let at = dir.path();
    tree(at);
    ok(extern4_in(
        at,
        ["build", "-q", "--size", "16M", "a.img", "tree"],
    ));
    fs::write(at.join("tree/etc/hostname"), "other\n").expect("a file");
    fs::write(at.join("tree/new"), "new\n").expect("a file");
    fs::remove_dir_all(at.join("tree/srv")).expect("a directory");
    tool(
        at,
        "tar",
        ["--format=pax", "-cf", "tree.tar", "-C", "tree", "."],
    );
    let before = fs::read(at.join("a.img")).expect("an image");
    let update = |more: &[&str]| {
        text(extern4_in(
            at,
            [&["build", "--update", "a.img", "tree"], more].concat(),
        ))
    };
    let said = update(&["--dry-run"]);
    let expected = "would remove 'a.img:/srv'\nwould replace 'a.img:/etc/hostname'\nwould create 'a.img:/new'\n\
                    would change 'a.img:/'\n1 created, 1 replaced, 1 changed, 2 removed, 4 kept, 10 bytes to write\n";
    assert_eq!(said, expected);
    assert!(
        fs::read(at.join("a.img")).expect("an image") == before,
        "a dry run writes"
    );
    let said = update(&["-v"]);
    let expected = "removed 'a.img:/srv'\nreplaced 'a.img:/etc/hostname'\ncreated 'a.img:/new'\n\
                    changed 'a.img:/'\n1 created, 1 replaced, 1 changed, 2 removed, 4 kept, 10 bytes written\n";
    assert_eq!(said, expected);
    e2fsck(&at.join("a.img")).expect("a sound volume");
    ok(extern4_in(at, ["diff", "a.img", "tree"]));
    // From an archive of the same tree, nothing is left to do, and nothing is written.
    let before = fs::read(at.join("a.img")).expect("an image");
    let said = text(extern4_in(at, ["build", "--update", "a.img", "tree.tar"]));
    assert_eq!(
        said,
        "0 created, 0 replaced, 0 changed, 0 removed, 7 kept, 0 bytes written\n"
    );
    assert!(
        fs::read(at.join("a.img")).expect("an image") == before,
        "an update without a change writes"
    );
}

#[test]
fn options_about_files_count_and_others_are_refused() {
    let dir = temporary("extern4-update-");
    let at = dir.path();
    tree(at);
    fs::create_dir(at.join("upper")).expect("a directory");
    fs::write(at.join("upper/x"), "x").expect("a file");
    fs::write(at.join("list"), "nod /console 0600 0 5 c 5 1\n").expect("a list");
    let options = [
        "--owner",
        "7:8",
        "--chmod",
        "D750",
        "--exclude",
        "passwd*",
        "--manifest",
        "list",
        "--source-date-epoch",
        "1700000000",
    ];
    let sources = ["tree", "upper:/srv/deep"];
    ok(extern4_in(
        at,
        [
            &["build", "-q", "--size", "16M", "b.img"],
            &sources[..],
            &options,
        ]
        .concat(),
    ));
    let empty = [
        "build",
        "-q",
        "--size",
        "16M",
        "--source-date-epoch",
        "1700000000",
        "a.img",
        "upper",
    ];
    ok(extern4_in(at, empty));
    ok(extern4_in(
        at,
        [
            &["build", "-q", "--update", "a.img"],
            &sources[..],
            &options,
        ]
        .concat(),
    ));
    ok(extern4_in(at, ["diff", "a.img", "b.img"]));
    for refused in [
        &["--size", "1G"][..],
        &["--stable-layout", "a.img"],
        &["--fs-verity", "*"],
        &["--features", "64bit"],
        &["--partition"],
        &["--verity"],
        &["--read-only"],
        &["--label", "x"],
        &["-b", "1024"],
        &["--uuid", "random"],
        &["--no-journal"],
        &["--force"],
        &["-m", "5"],
        &["-t", "ext3"],
    ] {
        let said = failed(
            &extern4_in(
                at,
                [&["build", "--update", "a.img", "tree"], refused].concat(),
            ),
            2,
        );
        assert!(
            said.contains("--update") && said.contains("cannot be used with"),
            "{refused:?}: {said}"
        );
    }
    let said = failed(
        &extern4_in(at, ["build", "--update", "gone.img", "tree"]),
        1,
    );
    assert_eq!(
        said,
        "extern4: build: 'gone.img': No such file or directory\n"
    );
    let said = failed(
        &extern4_in(at, ["build", "--update", "a.img:/etc", "tree"]),
        2,
    );
    assert!(said.contains("name the image alone"), "{said}");
}

#[test]
fn a_full_volume_keeps_whole_files() {
    if !can_run(&[Need::Tool("e2fsck")]) {
        return;
    }
    let dir = temporary("extern4-update-");
    let at = dir.path();
    tree(at);
    ok(extern4_in(
        at,
        ["build", "-q", "--size", "4M", "a.img", "tree"],
    ));
    fs::write(at.join("tree/etc/hostname"), vec![7; 8 << 20]).expect("a file");
    let said = failed(&extern4_in(at, ["build", "--update", "a.img", "tree"]), 1);
    assert!(
        said.starts_with("extern4: build: 'a.img:/etc/hostname': No space left on device\n"),
        "{said}"
    );
    e2fsck(&at.join("a.img")).expect("a sound volume");
    assert_eq!(ok(extern4_in(at, ["cat", "a.img:/etc/hostname"])), b"web\n");
    assert_eq!(
        text(extern4_in(at, ["ls", "-A", "a.img:/etc"])),
        "hostname\nname\npasswd\npasswd-\n"
    );
}
