//! `diff`: trees of every kind and files, compared with what GNU's tools say.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::plan;
use extern4_testkit::tools::{Need, can_run, find, temporary};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

use crate::run::{command, everything, extern4, extern4_in, failed, machine, ok, tool};

/// Makes a tree with files of several kinds, all with one time.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("dir/sub")).expect("directories");
    fs::write(at.join("dir/file"), vec![7; 300_000]).expect("a file");
    fs::write(at.join("dir/sub/text"), "one\ntwo\n").expect("a file");
    fs::hard_link(at.join("dir/sub/text"), at.join("second")).expect("a link");
    fs::write(at.join("alone"), "one\ntwo\n").expect("a file");
    let sparse = fs::File::create(at.join("sparse")).expect("a file");
    sparse.set_len(64 << 20).expect("a size");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 40 << 20).expect("a write");
    symlink("dir/file", at.join("link")).expect("a link");
    mknodat(CWD, at.join("fifo"), FileType::Fifo, Mode::RUSR, 0).expect("a fifo");
    setxattr(at.join("alone"), "user.name", b"value", XattrFlags::empty()).expect("an attribute");
    settle(at);
}

/// Gives everything below a directory one time.
fn settle(at: &Path) {
    tool(
        at,
        "find",
        [
            ".",
            "-exec",
            "touch",
            "-h",
            "-d",
            "2024-02-29 12:00:00.123456789Z",
            "{}",
            ";",
        ],
    );
}

/// Returns the lines that `diff` prints for two operands, which must differ.
fn differences(dir: &Path, args: &[&str]) -> Vec<String> {
    let output = extern4_in(dir, [&["diff"], args].concat());
    assert_eq!(failed(&output, 1), "");
    String::from_utf8(output.stdout)
        .expect("UTF-8")
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn trees_of_every_kind_are_the_same() {
    if !can_run(&[Need::Tool("tar"), Need::Tool("zstd")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    tree(&at.join("tree"));
    ok(extern4_in(
        at,
        ["build", "-q", "--no-journal", "tree.img", "tree"],
    ));
    tool(
        at,
        "tar",
        [
            "--format=pax",
            "--xattrs",
            "-cSf",
            "tree.tar",
            "-C",
            "tree",
            ".",
        ],
    );
    tool(at, "zstd", ["-q", "tree.tar"]);
    ok(extern4_in(at, ["export", "tree.img", "-o", "oci:layout"]));
    let operands = [
        "tree",
        "tree.img",
        "tree.img:/",
        "tree.tar",
        "tree.tar.zst",
        "oci:layout",
    ];
    for old in operands {
        for new in operands {
            let said = ok(extern4_in(at, ["diff", old, new]));
            assert_eq!(String::from_utf8_lossy(&said), "", "{old} {new}");
        }
    }
    assert_eq!(
        ok(extern4_in(at, ["diff", "tree.img:/dir", "tree/dir"])),
        b""
    );
    // An archive without fractions of seconds.
    tool(
        at,
        "tar",
        ["--format=gnu", "-cf", "old.tar", "-C", "tree", "."],
    );
    assert_eq!(
        ok(extern4_in(
            at,
            ["diff", "--no-xattrs", "tree.img", "old.tar"]
        )),
        b""
    );
}

#[test]
fn the_kernels_view_of_a_volume_is_the_same() {
    let Some(all) = everything() else { return };
    let mount = all.mount.path.to_str().expect("UTF-8");
    let said = ok(extern4(&all.image, ["diff", "disk.img", mount]));
    assert_eq!(String::from_utf8_lossy(&said), "");
}

/// A change of a tree, and the line that `diff` prints about it.
type Case = (&'static str, fn(&Path), &'static str);

const CASES: &[Case] = &[
    (
        "a new file",
        |at| fs::write(at.join("dir/new"), "").expect("a file"),
        "Only in NEW/dir: new",
    ),
    (
        "a file less",
        |at| fs::remove_file(at.join("alone")).expect("a file"),
        "Only in OLD: alone",
    ),
    (
        "a directory",
        |at| fs::create_dir_all(at.join("dir/more/deep")).expect("directories"),
        "Only in NEW/dir: more",
    ),
    (
        "equal size",
        |at| fs::write(at.join("alone"), "one\nTwo\n").expect("a file"),
        "Files OLD/alone and NEW/alone differ: contents",
    ),
    (
        "another size",
        |at| fs::write(at.join("alone"), "one").expect("a file"),
        "Files OLD/alone and NEW/alone differ: size 8 -> 3, contents",
    ),
    (
        "a byte in a hole",
        |at| {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(at.join("sparse"))
                .expect("a file");
            std::os::unix::fs::FileExt::write_all_at(&file, b"x", 50 << 20).expect("a write");
        },
        "Files OLD/sparse and NEW/sparse differ: contents",
    ),
    (
        "a mode",
        |at| {
            let mode = fs::Permissions::from_mode(0o4711);
            fs::set_permissions(at.join("alone"), mode).expect("a mode");
        },
        "Files OLD/alone and NEW/alone differ: mode 0644 -> 4711",
    ),
    (
        "a type",
        |at| {
            fs::remove_file(at.join("fifo")).expect("a fifo");
            fs::create_dir(at.join("fifo")).expect("a directory");
            fs::write(at.join("fifo/below"), "").expect("a file");
        },
        "Files OLD/fifo and NEW/fifo differ: type fifo -> directory",
    ),
    (
        "a target",
        |at| {
            fs::remove_file(at.join("link")).expect("a link");
            symlink("dir/sub", at.join("link")).expect("a link");
        },
        "Files OLD/link and NEW/link differ: target dir/file -> dir/sub",
    ),
    (
        "an attribute",
        |at| {
            setxattr(at.join("alone"), "user.name", b"other", XattrFlags::empty())
                .expect("an attribute")
        },
        "Files OLD/alone and NEW/alone differ: user.name changed",
    ),
    (
        "an attribute more",
        |at| setxattr(at.join("dir"), "user.dir", b"", XattrFlags::empty()).expect("an attribute"),
        "Files OLD/dir and NEW/dir differ: user.dir added",
    ),
    (
        "an ACL",
        |at| drop(tool(at, "setfacl", ["-m", "u:77:r", "alone"])),
        "Files OLD/alone and NEW/alone differ: system.posix_acl_access added",
    ),
    (
        "a link less",
        |at| {
            fs::remove_file(at.join("second")).expect("a link");
            fs::write(at.join("second"), "one\ntwo\n").expect("a file");
        },
        "Files OLD/second and NEW/second differ: first of its names dir/sub/text -> second",
    ),
    (
        "a link more",
        |at| {
            setxattr(
                at.join("second"),
                "user.name",
                b"value",
                XattrFlags::empty(),
            )
            .expect("an attribute");
            fs::remove_file(at.join("alone")).expect("a file");
            fs::hard_link(at.join("second"), at.join("alone")).expect("a link");
        },
        "Files OLD/dir/sub/text and NEW/dir/sub/text differ: user.name added, first of its names dir/sub/text -> alone",
    ),
];

/// Replaces the operands' names in a line of `diff`.
fn neutral(line: &str, old: &str, new: &str) -> String {
    let line = line.replace(new, "NEW/").replace(old, "OLD/");
    let line = line.replace("OLD/: ", "OLD: ").replace("NEW/: ", "NEW: ");
    line.replace("Only in old: ", "Only in OLD: ")
        .replace("Only in new: ", "Only in NEW: ")
}

#[test]
fn every_change_is_named() {
    if !can_run(&[Need::Tool("setfacl"), Need::Tool("tar")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    tree(&at.join("old"));
    ok(extern4_in(
        at,
        ["build", "-q", "--no-journal", "old.img", "old"],
    ));
    for (name, change, expected) in CASES {
        tool(at, "rm", ["-rf", "new", "new.img"]);
        tool(at, "cp", ["-a", "old", "new"]);
        change(&at.join("new"));
        settle(&at.join("new"));
        ok(extern4_in(
            at,
            ["build", "-q", "--no-journal", "new.img", "new"],
        ));
        for (old, new, shown) in [
            ("old", "new", ("old/", "new/")),
            ("old.img", "new", ("old.img:/", "new/")),
            ("old", "new.img", ("old/", "new.img:/")),
            ("old.img", "new.img", ("old.img:/", "new.img:/")),
        ] {
            let said = differences(at, &[old, new]);
            let said: Vec<_> = said
                .iter()
                .map(|line| neutral(line, shown.0, shown.1))
                .collect();
            assert!(
                said.iter().any(|line| line == expected),
                "{name}: {old} {new}: {said:#?}"
            );
            // The link more changes all of its names.
            assert!(
                said.len() == 1 || *name == "a link more",
                "{name}: {old} {new}: {said:#?}"
            );
        }
    }
}

#[test]
fn owners_devices_and_times_are_compared() {
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    let entries = |owner: u32, device: u32, secs: u32| {
        let file = format!("./f type=file uid={owner} gid=5 mode=0644 time={secs}.500000000\n");
        let node =
            format!("./n type=char uid=0 gid=0 mode=0600 device=linux,1,{device} time=1.0\n");
        format!("#mtree\n. type=dir uid=0 gid=0 mode=0755 time=1.0\n{file}{node}")
    };
    fs::create_dir(at.join("none")).expect("a directory");
    fs::write(at.join("none/f"), "").expect("a file");
    for (name, text) in [("old", entries(7, 3, 1)), ("new", entries(8, 5, 2))] {
        fs::write(at.join(name), text).expect("a manifest");
        let image = format!("{name}.img");
        ok(extern4_in(
            at,
            [
                "build",
                "-q",
                "--no-journal",
                "--manifest",
                name,
                &image,
                "none",
            ],
        ));
    }
    // The directory that every volume has is as young as its youngest file.
    let said = |options: &[&str]| {
        let mut said = differences(at, &[options, &["old.img", "new.img"]].concat());
        said.retain(|line| !line.contains("lost+found"));
        said
    };
    let time =
        "modified 1970-01-01 00:00:01.500000000 +0000 -> 1970-01-01 00:00:02.500000000 +0000";
    assert_eq!(
        said(&[]),
        [
            format!("Files old.img:/f and new.img:/f differ: owner 7 -> 8, {time}"),
            "Files old.img:/n and new.img:/n differ: device 1,3 -> 1,5".to_owned(),
        ]
    );
    assert_eq!(
        said(&["--no-owner", "--no-times"]),
        ["Files old.img:/n and new.img:/n differ: device 1,3 -> 1,5"]
    );
    assert_eq!(
        said(&["--json"]),
        [
            concat!(
                r#"{"path":"f","differs":["uid","mtime"],"#,
                r#""old":{"uid":7,"mtime":"1.500000000","mtime_rfc3339":"1970-01-01T00:00:01.500000000Z"},"#,
                r#""new":{"uid":8,"mtime":"2.500000000","mtime_rfc3339":"1970-01-01T00:00:02.500000000Z"}}"#
            ),
            r#"{"path":"n","differs":["rdev"],"old":{"rdev":[1,3]},"new":{"rdev":[1,5]}}"#,
        ]
    );
}

/// Makes a copy of a volume and changes it.
fn changed_copy(image: &Image, commands: &[&[&str]]) -> std::path::PathBuf {
    let copy = image.scratch().join("copy.img");
    fs::copy(&image.path, &copy).expect("a copy");
    for command in commands {
        ok(extern4(image, *command));
    }
    copy
}

#[test]
fn a_copy_of_a_volume_differs_where_it_was_changed() {
    let image = machine();
    let settled = ["touch", "-d", "@7.5", "copy.img:/var/log/old.gz"];
    ok(extern4(
        &image,
        ["touch", "-d", "@7.5", "disk.img:/var/log/old.gz"],
    ));
    changed_copy(&image, &[]);
    assert_eq!(ok(extern4(&image, ["diff", "disk.img", "copy.img"])), b"");
    let put = |place: &str, text: &[u8]| {
        let mut run = command();
        run.current_dir(image.scratch())
            .args(["put", place])
            .stdin(std::process::Stdio::piped());
        let mut child = run.spawn().expect("the command");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), text).expect("a write");
        assert!(child.wait().expect("the command").success());
    };
    put("copy.img:/var/log/old.gz", &[b'y'; 4000]);
    ok(extern4(&image, settled));
    ok(extern4(&image, ["chmod", "600", "copy.img:/etc/hostname"]));
    ok(extern4(&image, ["rm", "copy.img:/home/ann/todo"]));
    let expected = [
        "Files disk.img:/etc/hostname and copy.img:/etc/hostname differ: mode 0644 -> 0600",
        "Only in disk.img:/home/ann: todo",
        "Files disk.img:/var/log/old.gz and copy.img:/var/log/old.gz differ: contents",
    ];
    assert_eq!(
        differences(image.scratch(), &["--no-times", "disk.img", "copy.img"]),
        expected
    );
    // With another UUID the images are not compared by their blocks.
    ok(extern4(&image, ["tune", "--uuid", "random", "copy.img"]));
    assert_eq!(
        differences(image.scratch(), &["--no-times", "disk.img", "copy.img"]),
        expected
    );
    // Subtrees of two volumes.
    let said = differences(
        image.scratch(),
        &["--no-times", "disk.img:/home", "copy.img:/home"],
    );
    assert_eq!(said, ["Only in disk.img:/home/ann: todo"]);
    // The same volume: one tree in it against another.
    let said = differences(
        image.scratch(),
        &["--no-times", "disk.img:/home/ann", "disk.img:/root"],
    );
    assert!(
        said.contains(&"Only in disk.img:/home/ann: notes.txt".to_owned()),
        "{said:#?}"
    );
}

#[test]
fn a_copy_differs_as_any_other_volume_does() {
    let image = machine();
    let at = image.scratch();
    let base = "mkdir -p /many/a /many/b /gone/deep /moved/below\ncp host:file /many/a/linked\n\
                ln /many/a/linked /many/b/second\nln /many/a/linked /third\nln -s /etc /many/link\n\
                cp host:file /moved/below/f\ncp host:file /gone/deep/f\nsetfattr -n user.big -v 0 /many/a\n\
                touch /touched\ncp host:file /grown\n";
    let changes = "rm /third\nmv /moved /other\nrm -r /gone\nmkdir /gone\ncp host:file /gone/deep\n\
                   setfattr -n user.big -v 1 /many/a\ntouch -d @5 /touched\nchmod 700 /many/b\n\
                   rm /many/link\nln -s /var /many/link\ntruncate -s 9000 /grown\n\
                   mv /many/b/second /many/b/renamed\ncp host:file /many/new\nln /many/new /many/a/new\n\
                   chown 5:6 /etc/passwd\nsetfacl -m u:7:r /etc/group\n";
    fs::write(at.join("file"), vec![3; 9000]).expect("a file");
    fs::write(at.join("base"), base).expect("a script");
    fs::write(at.join("changes"), changes).expect("a script");
    ok(extern4(&image, ["script", "disk.img", "base"]));
    changed_copy(&image, &[&["script", "copy.img", "changes"]]);
    let short = differences(at, &["disk.img", "copy.img"]);
    let back = differences(at, &["copy.img", "disk.img"]);
    assert!(short.len() > 15 && short.len() == back.len(), "{short:#?}");
    for line in [
        "Only in disk.img:/many/b: second",
        "Only in copy.img:/: other",
        "Only in disk.img:/: third",
        "Files disk.img:/gone/deep and copy.img:/gone/deep differ: type directory -> file",
    ] {
        assert!(
            short.iter().any(|found| found == line),
            "{line}: {short:#?}"
        );
    }
    assert!(
        !short
            .iter()
            .any(|found| found.contains("hostname") || found.contains("home")),
        "{short:#?}"
    );
    // With another UUID everything is listed.
    ok(extern4(&image, ["tune", "--uuid", "random", "copy.img"]));
    assert_eq!(differences(at, &["disk.img", "copy.img"]), short);
    assert_eq!(differences(at, &["copy.img", "disk.img"]), back);
    for (old, new) in [
        ("disk.img:/many", "copy.img:/many"),
        ("disk.img:/many/a", "copy.img:/many/b"),
    ] {
        let long = differences(at, &[old, new]);
        ok(extern4(
            &image,
            [
                "tune",
                "--uuid",
                "6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11",
                "copy.img",
            ],
        ));
        assert_eq!(differences(at, &[old, new]), long);
        ok(extern4(&image, ["tune", "--uuid", "random", "copy.img"]));
    }
}

#[test]
fn one_changed_byte_in_a_block_of_both_volumes_is_found() {
    let image = machine();
    let copy = changed_copy(&image, &[]);
    let mut bytes = fs::read(&copy).expect("an image");
    let at = bytes
        .windows(100)
        .position(|window| window == [b'x'; 100])
        .expect("the contents");
    bytes[at + 99] = b'z';
    fs::write(&copy, bytes).expect("an image");
    let said = differences(image.scratch(), &["disk.img", "copy.img"]);
    assert_eq!(
        said,
        ["Files disk.img:/var/log/old.gz and copy.img:/var/log/old.gz differ: contents"]
    );
}

#[test]
fn what_cannot_be_read_is_no_difference_and_no_sameness() {
    use extern4_testkit::unreadable::{DIRECTORIES, FILES, UNREADABLE};
    if !UNREADABLE.can_run() {
        return;
    }
    let image = UNREADABLE.build();
    changed_copy(&image, &[&["tune", "--uuid", "random", "copy.img"]]);
    let output = extern4(&image, ["diff", "disk.img", "copy.img"]);
    let said = failed(&output, 2);
    for name in FILES
        .iter()
        .chain(DIRECTORIES)
        .filter(|name| !name.ends_with("-empty"))
    {
        assert!(said.contains(name), "{name}: {said}");
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

#[test]
fn files_whose_blocks_are_the_same_need_no_reading() {
    const SPEC: ImageSpec = ImageSpec::new(
        "disk",
        64 << 20,
        &["-t", "ext4", "-b", "4096", "-O", "encrypt"],
    )
    .mounted(&[plan::encrypted])
    .needing(&[Need::KernelFeature("encryption")]);
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    changed_copy(&image, &[&["touch", "copy.img:/new"]]);
    let only = ["Only in copy.img:/: new"];
    // Without the key, the encrypted files can be compared by their blocks only.
    assert_eq!(
        differences(image.scratch(), &["--no-times", "disk.img", "copy.img"]),
        only
    );
    ok(extern4(&image, ["tune", "--uuid", "random", "copy.img"]));
    let output = extern4(&image, ["diff", "--no-times", "disk.img", "copy.img"]);
    assert!(failed(&output, 2).contains("Required key not available"));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), only[0]);
}

/// The blocks of two copies are the same, whatever the caller may read.
#[test]
fn a_caller_learns_nothing_of_what_is_closed() {
    let image = machine();
    changed_copy(&image, &[]);
    let output = extern4(
        &image,
        [
            "diff",
            "--as",
            "1000:1000",
            "disk.img:/root",
            "copy.img:/root",
        ],
    );
    assert!(
        failed(&output, 2).contains("Permission denied"),
        "{output:?}"
    );
    ok(extern4(
        &image,
        ["diff", "disk.img:/root", "copy.img:/root"],
    ));
}

#[test]
fn trouble_ends_with_2() {
    let image = machine();
    let at = image.scratch();
    fs::write(at.join("text"), "no volume\n").expect("a file");
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/f"), vec![1; 3000]).expect("a file");
    tool(at, "tar", ["-cf", "whole.tar", "tree"]);
    let whole = fs::read(at.join("whole.tar")).expect("an archive");
    fs::write(at.join("cut.tar"), &whole[..2000]).expect("an archive");
    ok(extern4(
        &image,
        ["export", "disk.img:/home", "-o", "oci:layout"],
    ));
    for (args, expected) in [
        (
            ["missing", "disk.img"],
            "extern4: diff: 'missing': No such file or directory\n",
        ),
        (
            ["disk.img:/missing", "disk.img"],
            "extern4: diff: 'disk.img:/missing': No such file or directory\n",
        ),
        (
            ["oci:layout", "disk.img:/etc/passwd"],
            "this is a tree, and the other operand is a file",
        ),
        (
            ["disk.img:/home", "disk.img:/etc/passwd"],
            "extern4: diff: 'disk.img:/home/passwd': No such file or directory\n",
        ),
        (["disk.img", "text"], "not an ext2, ext3 or ext4"),
        (["disk.img", "cut.tar"], "cut.tar: "),
        (["disk.img", "oci:nowhere"], "nowhere"),
    ] {
        let output = extern4(&image, ["diff", args[0], args[1]]);
        let said = failed(&output, 2);
        assert!(said.contains(expected), "{args:?}: {said}");
        assert_eq!(output.stdout, b"", "{args:?}");
    }
    failed(&extern4(&image, ["diff", "disk.img"]), 2);
}

#[test]
fn texts_are_compared_as_gnu_diff_does() {
    if find("diff").is_none() {
        return;
    }
    let image = machine();
    let at = image.scratch();
    let numbers = |skip: u32| -> String {
        (1..60)
            .filter(|n| *n != skip && *n != skip + 20)
            .map(|n| format!("{n}\n"))
            .collect()
    };
    let cases = [
        ("a\nb\n".to_owned(), "a\nc\n".to_owned()),
        (String::new(), "a\n".to_owned()),
        ("a\nb".to_owned(), "a\nb\n".to_owned()),
        ("a\rb\r\nc\n".to_owned(), "a\rb\nc\n".to_owned()),
        ("x\n".to_owned() + &numbers(10), numbers(30) + "y\n"),
        ("caf\u{e9}\n".to_owned(), "cafe\n".to_owned()),
    ];
    for (old, new) in &cases {
        fs::write(at.join("old"), old).expect("a file");
        fs::write(at.join("new"), new).expect("a file");
        fs::copy(at.join("new"), at.join("put")).expect("a file");
        ok(extern4(&image, ["cp", "put", "disk.img:/put"]));
        let theirs = std::process::Command::new("diff")
            .args(["-u", "old", "new"])
            .current_dir(at)
            .output()
            .expect("diff runs");
        let hunks = |output: &[u8]| -> Vec<u8> {
            output
                .split_inclusive(|byte| *byte == b'\n')
                .skip(2)
                .collect::<Vec<_>>()
                .concat()
        };
        for new in ["new", "disk.img:/put"] {
            let ours = extern4(&image, ["diff", "old", new]);
            assert_eq!(failed(&ours, 1), "");
            assert_eq!(
                hunks(&ours.stdout).escape_ascii().to_string(),
                hunks(&theirs.stdout).escape_ascii().to_string()
            );
            assert!(
                ours.stdout.starts_with(b"--- old\t20"),
                "{}",
                ours.stdout.escape_ascii()
            );
        }
    }
    assert_eq!(
        ok(extern4(
            &image,
            ["diff", "disk.img:/etc/passwd", "disk.img:/etc/passwd"]
        )),
        b""
    );
    for option in ["--brief", "-q"] {
        let said = differences(at, &[option, "old", "disk.img:/put"]);
        assert_eq!(said, ["Files old and disk.img:/put differ"]);
    }
    fs::write(at.join("binary"), b"a\0b").expect("a file");
    assert_eq!(
        differences(at, &["old", "binary"]),
        ["Binary files old and binary differ"]
    );
    assert_eq!(
        differences(at, &["--json", "old", "binary"]),
        [r#"{"old":"old","new":"binary","differs":["contents"]}"#]
    );
}
