//! `diff` with the options of GNU diff: trees and files, next to GNU diff on the same ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use extern4_testkit::image::Image;
use extern4_testkit::tools::{Need, can_run, debugfs, temporary};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::run::{extern4_in, failed, ok, plain, tool};

const LONG: &str = "int main(void) /* a comment that is longer than forty characters in all */\n{\n  one\n  two\n  \
                    three\n  four\n  five\n  six\n}\n\n  static void indented(void)\n{\n  a\n  b\n  c\n  d\n  e\n}\n";

/// Makes two trees that differ in all ways that GNU diff knows and an ordinary user can make.
fn trees(at: &Path) {
    for (name, old, new) in [
        ("plain", "a\nb\n", "a\nc\n"),
        ("same", "a\n", "a\n"),
        ("no-end", "a\nb", "a\nb\n"),
        ("neither-end", "a", "b"),
        ("emptied", "a\n", ""),
        ("filled", "", "a\n"),
        ("cr", "a\r\nb\r\n", "a\nb\n"),
        ("last-cr", "a\r", "a"),
        ("case", "Alpha\nBeta\n", "alpha\nbeta\ngamma\n"),
        ("space", "a b\n c\nd \n", "a  b\nc\nd\n"),
        ("tabs", "a\tb\nx\n", "a       b\nx\n"),
        ("blank", "a\nb\n", "a\n\n\nb\n"),
        ("blank-space", "a\nb\n", "a\n  \nb\n"),
        (
            "blank-near",
            "1\n2\n3\n4\n5\n6\n7\n8\n",
            "X\n2\n3\n4\n\n5\n6\n7\n8\n",
        ),
        (
            "blank-far",
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
            "\n1\n2\n3\n4\n5\n6\n7\n8\nX\n",
        ),
        ("marks", "$Id: 1$\na\n", "$Id: 2$\na\n"),
        ("sub/deep/text", "x\n", "y\n"),
        ("Upper", "1\n", "2\n"),
        (".dot", "1\n", "2\n"),
        ("x y", "1\n", "2\n"),
        ("tab\there", "1\n", "2\n"),
        ("qu\"ote", "1\n", "2\n"),
        ("back\\slash", "1\n", "2\n"),
        ("ap'ostrophe", "1\n", "2\n"),
        ("caf\u{e9}", "1\n", "2\n"),
        ("binary", "a\0b", "a\0c"),
        (
            "code.c",
            LONG,
            &LONG.replace("five", "FIVE").replace("  e\n", "  E\n"),
        ),
        ("repeated", "x\nx\ny\nx\nx\n", "x\nx\nx\ny\nx\n"),
        (
            "later-nul",
            &format!("{}\0\n", "line\n".repeat(2000)),
            &format!("{}\0!\n", "line\n".repeat(2000)),
        ),
    ] {
        for (tree, text) in [("old", old), ("new", new)] {
            let path = at.join(tree).join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
            fs::write(path, text).expect("a file");
        }
    }
    for (tree, only) in [("old", "gone"), ("new", "more")] {
        fs::create_dir_all(at.join(tree).join(only).join("in")).expect("directories");
        fs::create_dir(at.join(tree).join(only).join("empty")).expect("a directory");
        fs::write(at.join(tree).join(only).join("in/f"), "text\n").expect("a file");
        fs::write(at.join(tree).join(format!("file-{only}")), "text\n").expect("a file");
        fs::write(at.join(tree).join(format!("empty-{only}")), "").expect("a file");
    }
    symlink("plain", at.join("old/link")).expect("a link");
    symlink("same", at.join("new/link")).expect("a link");
    symlink("sub", at.join("old/to-directory")).expect("a link");
    symlink("sub", at.join("new/to-directory")).expect("a link");
    fs::write(at.join("old/kind"), "text\n").expect("a file");
    fs::create_dir(at.join("new/kind")).expect("a directory");
    for (path, kind) in [
        ("old/fifo", FileType::Fifo),
        ("new/fifo", FileType::Fifo),
        ("old/pipe", FileType::Fifo),
    ] {
        mknodat(CWD, at.join(path), kind, Mode::RUSR, 0).expect("a fifo");
    }
    fs::write(at.join("new/pipe"), "").expect("a file");
}

/// Makes volumes of both trees.
fn volumes(at: &Path) {
    for tree in ["old", "new"] {
        ok(extern4_in(
            at,
            ["build", "-q", "--no-journal", &format!("{tree}.img"), tree],
        ));
        ok(extern4_in(
            at,
            ["rmdir", &format!("{tree}.img:/lost+found")],
        ));
    }
}

fn gnu(at: &Path, args: &[&str]) -> Output {
    let mut diff = Command::new("diff");
    plain(&mut diff);
    diff.current_dir(at).args(args).output().expect("diff runs")
}

/// Compares the outputs and the exit codes of both, as if the volumes were directories.
fn compare(at: &Path, options: &[&str], operands: [&str; 2], theirs: &Output) {
    let ours = extern4_in(at, [&["diff"], options, &operands[..]].concat());
    let mut said = ours.stdout.escape_ascii().to_string();
    for tree in ["old", "new"] {
        said = said.replace(&format!("{tree}.img:/: "), &format!("{tree}: "));
        said = said.replace(&format!("{tree}.img:/"), &format!("{tree}/"));
    }
    let lines = |text: &str| text.split("\\n").map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        lines(&said),
        lines(&theirs.stdout.escape_ascii().to_string()),
        "{options:?} {operands:?}"
    );
    let errors = String::from_utf8_lossy(&ours.stderr);
    assert_eq!(
        ours.status.code(),
        theirs.status.code(),
        "{options:?} {operands:?} {errors}"
    );
}

#[test]
fn trees_are_compared_as_gnu_diff_does() {
    if !can_run(&[Need::Tool("diff")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    trees(at);
    fs::write(at.join("patterns"), "c*\nsub\n\n").expect("a file");
    volumes(at);
    for options in [
        &["-r", "--normal"][..],
        &["-r"],
        &["-ru"],
        &["-ruN"],
        &["-Naur"],
        &["-rq"],
        &["-rqN"],
        &["-rs"],
        &["-rsN"],
        &["-r", "--unidirectional-new-file"],
        &["-q"],
        &["-s"],
        &["-u"],
        &["-uN"],
        &["-r", "-S", "binary"],
        &["-r", "-x", "c*", "-x", ".dot", "-x", "sub"],
        &["-r", "-X", "patterns"],
        &["-ru", "--label", "A", "--label=B b"],
        &["-r", "--no-dereference"],
        &["-rs", "--no-dereference"],
        &["-ru", "-a"],
        &["-ru", "-w"],
        &["-ru", "-b"],
        &["-ru", "-Z"],
        &["-ru", "-E"],
        &["-ru", "-i"],
        &["-ru", "-B"],
        &["-ru", "-wB"],
        &["-rB"],
        &["-rq", "-w"],
        &["-rs", "-i"],
        &["-ru", "-I", "^.Id", "-I", "^[0-9]*$"],
        &["-ru", "--strip-trailing-cr"],
        &["-rup"],
        &["-ru", "-F", "^{"],
        &["-r", "-U0"],
        &["-r", "-U", "1", "--unified=2"],
        &["-rud"],
    ] {
        let theirs = gnu(at, &[options, &["old", "new"]].concat());
        assert_eq!(theirs.status.code(), Some(1), "{options:?}");
        for operands in [
            ["old", "new"],
            ["old.img", "new.img:/"],
            ["old", "new.img"],
            ["old.img:/", "new"],
        ] {
            compare(at, options, operands, &theirs);
        }
    }
}

#[test]
fn the_empty_directory_of_every_volume_is_no_difference() {
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    ok(extern4_in(
        at,
        ["build", "-q", "--no-journal", "tree.img", "tree"],
    ));
    assert_eq!(ok(extern4_in(at, ["diff", "-r", "tree.img", "tree"])), b"");
    assert_eq!(ok(extern4_in(at, ["diff", "-r", "tree", "tree.img"])), b"");
    fs::write(at.join("f"), "").expect("a file");
    ok(extern4_in(at, ["cp", "f", "tree.img:/lost+found"]));
    let output = extern4_in(at, ["diff", "-r", "tree.img", "tree"]);
    assert_eq!(failed(&output, 1), "");
    assert_eq!(output.stdout, b"Only in tree.img:/: lost+found\n");
}

#[test]
fn links_that_lead_nowhere_or_in_a_circle_are_trouble() {
    if !can_run(&[Need::Tool("diff")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    for tree in ["old", "new"] {
        fs::create_dir_all(at.join(tree).join("sub")).expect("directories");
        symlink("gone", at.join(tree).join("dangling")).expect("a link");
        symlink(".", at.join(tree).join("sub/loop")).expect("a link");
    }
    symlink("gone", at.join("old/only")).expect("a link");
    volumes(at);
    for options in [&["-r"][..], &["-rN"], &["-rs"]] {
        let theirs = gnu(at, &[options, &["old", "new"]].concat());
        assert_eq!(theirs.status.code(), Some(2), "{options:?}");
        compare(at, options, ["old", "new"], &theirs);
        compare(at, options, ["old.img", "new.img"], &theirs);
    }
    tool(at, "tar", ["-cf", "old.tar", "-C", "old", "."]);
    let said = failed(&extern4_in(at, ["diff", "-r", "old.tar", "new"]), 2);
    assert!(
        said.contains("'old.tar:/dangling': No such file or directory"),
        "{said}"
    );
    assert!(
        said.contains("'old.tar:/sub/loop': recursive directory loop"),
        "{said}"
    );
}

#[test]
fn devices_are_the_same_by_their_numbers() {
    if !can_run(&[Need::Tool("diff")]) || !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    for (path, kind, minor) in [
        ("old/same", FileType::CharacterDevice, 3),
        ("new/same", FileType::CharacterDevice, 3),
        ("old/other", FileType::CharacterDevice, 3),
        ("new/other", FileType::CharacterDevice, 5),
        ("old/kind", FileType::CharacterDevice, 3),
        ("new/kind", FileType::BlockDevice, 3),
    ] {
        fs::create_dir_all(at.join(path).parent().expect("a directory")).expect("directories");
        mknodat(CWD, at.join(path), kind, Mode::RUSR, makedev(1, minor)).expect("a device");
    }
    volumes(at);
    let theirs = gnu(at, &["-rs", "old", "new"]);
    compare(at, &["-rs"], ["old", "new"], &theirs);
    compare(at, &["-rs"], ["old.img", "new.img"], &theirs);
}

#[test]
fn a_patch_of_trees_makes_the_old_one_the_new_one() {
    if !can_run(&[Need::Tool("patch"), Need::Tool("diff"), Need::Tool("tar")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    trees(at);
    for path in ["old/pipe", "new/pipe", "old/fifo", "new/fifo", "old/kind"] {
        fs::remove_file(at.join(path)).expect("a file");
    }
    for path in [
        "old/binary",
        "new/binary",
        "old/link",
        "new/link",
        "old/to-directory",
        "new/to-directory",
    ] {
        fs::remove_file(at.join(path)).expect("a file");
    }
    volumes(at);
    tool(at, "tar", ["-cf", "old.tar", "-C", "old", "."]);
    for (operands, depth) in [
        (["old.img", "new.img"], "-p1"),
        (["old", "new.img"], "-p1"),
        (["old.tar", "new.img"], "-p1"),
        (["old.img:/sub/deep", "new.img:/sub/deep"], "-p1"),
    ] {
        let patch = extern4_in(at, [&["diff", "-ruN"], &operands[..]].concat());
        assert_eq!(failed(&patch, 1), "");
        fs::write(at.join("patch"), &patch.stdout).expect("a file");
        tool(at, "rm", ["-rf", "copy"]);
        tool(at, "cp", ["-a", "old", "copy"]);
        tool(at, "patch", ["-s", "-d", "copy", depth, "-i", "../patch"]);
        let left = gnu(at, &["-r", "copy", "new"]);
        let left = String::from_utf8_lossy(&left.stdout).into_owned();
        if operands[0] == "old.img:/sub/deep" {
            assert!(!left.contains("deep"), "{left}");
            continue;
        }
        // As GNU diff, it says nothing about empty files and directories.
        let ends = ["empty", "empty-gone", "empty-more", " kind", " gone"];
        let empty = |line: &str| ends.iter().any(|end| line.ends_with(end));
        assert!(left.lines().all(empty), "{operands:?}: {left}");
    }
}

#[test]
fn files_are_compared_as_gnu_diff_does() {
    if !can_run(&[Need::Tool("diff")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    trees(at);
    volumes(at);
    for (options, operands) in [
        (&["-u"][..], ["old/plain", "new/plain"]),
        (&["--normal"], ["old/code.c", "new/code.c"]),
        (&["-u"], ["old/x y", "new/x y"]),
        (&["-u"], ["old/plain", "new"]),
        (&["-u"], ["old", "new/plain"]),
        (&["-s"], ["old/same", "new/same"]),
        (&["-q"], ["old/x y", "new/x y"]),
        (&["-uN"], ["old/plain", "new/missing"]),
        (&["-uN"], ["old/missing", "new/missing"]),
        (&["-u"], ["old/missing", "new/plain"]),
        (&["-u", "-L", "A"], ["old/plain", "new/plain"]),
        (&["-u", "-L", "A", "-L", "B"], ["old/plain", "new/plain"]),
        (
            &["-u", "-L", "A", "-L", "B", "-L", "C"],
            ["old/plain", "new/plain"],
        ),
        (&["-q", "-L", "A"], ["old/plain", "new/plain"]),
        (&["-qw"], ["old/space", "new/space"]),
        (&["-u", "-w"], ["old/space", "new/space"]),
    ] {
        let theirs = gnu(at, &[options, &operands[..]].concat());
        compare(at, options, operands, &theirs);
        let inside = operands.map(|path| match path.split_once('/') {
            Some((tree, path)) => format!("{tree}.img:/{path}"),
            None => format!("{path}.img:/"),
        });
        compare(at, options, [&inside[0], &inside[1]], &theirs);
    }
    let theirs = gnu(
        at,
        &[
            "-u",
            "--from-file=old/plain",
            "new/plain",
            "new/same",
            "old/plain",
        ],
    );
    let ours = extern4_in(
        at,
        [
            "diff",
            "--from-file=old/plain",
            "new/plain",
            "new/same",
            "old/plain",
        ],
    );
    assert_eq!(
        String::from_utf8_lossy(&ours.stdout),
        String::from_utf8_lossy(&theirs.stdout)
    );
    let theirs = gnu(at, &["-u", "--to-file=new", "old/plain", "old/same"]);
    let ours = extern4_in(at, ["diff", "--to-file=new", "old/plain", "old/same"]);
    assert_eq!(
        String::from_utf8_lossy(&ours.stdout),
        String::from_utf8_lossy(&theirs.stdout)
    );
    let said = failed(
        &extern4_in(at, ["diff", "old/plain", "new/plain", "old/same"]),
        2,
    );
    assert!(
        said.contains("'old/same': two operands are compared"),
        "{said}"
    );
}

/// Holes of both files are not read, and a text has to fit in memory.
#[test]
fn huge_files_are_compared_without_memory_for_them() {
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    ok(extern4_in(
        at,
        ["mkfs", "-q", "-b", "4096", "disk.img", "64M"],
    ));
    fs::write(at.join("a"), "x").expect("a file");
    for name in ["one", "same", "longer"] {
        ok(extern4_in(at, ["cp", "a", &format!("disk.img:/{name}")]));
        let size = if name == "longer" { "15T" } else { "14T" };
        ok(extern4_in(
            at,
            ["truncate", "-s", size, &format!("disk.img:/{name}")],
        ));
    }
    assert_eq!(
        ok(extern4_in(at, ["diff", "disk.img:/one", "disk.img:/same"])),
        b""
    );
    assert_eq!(
        ok(extern4_in(
            at,
            ["diff", "-a", "disk.img:/one", "disk.img:/same"]
        )),
        b""
    );
    let output = extern4_in(at, ["diff", "disk.img:/one", "disk.img:/longer"]);
    assert_eq!(failed(&output, 1), "");
    assert_eq!(
        output.stdout,
        b"Binary files disk.img:/one and disk.img:/longer differ\n"
    );
    let output = extern4_in(at, ["diff", "-a", "disk.img:/one", "disk.img:/longer"]);
    let said = failed(&output, 2);
    assert!(
        said.contains("'disk.img:/one': larger than 128 MiB"),
        "{said}"
    );
    assert_eq!(output.stdout, b"");
}

#[test]
fn the_kernels_mounts_differ_in_the_same_way() {
    if !can_run(&[Need::Mount, Need::Tool("diff")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    trees(at);
    let image = |tree: &str| {
        let image = Image::in_directory(temporary("extern4-diff-"), "disk.img");
        let path = image.path.to_str().expect("UTF-8").to_owned();
        ok(extern4_in(at, ["build", "-q", "--no-journal", &path, tree]));
        let mount = image.mount("ro");
        (image, path, mount)
    };
    let (_old_image, old, old_mount) = image("old");
    let (_new_image, new, new_mount) = image("new");
    let mounts =
        [&old_mount, &new_mount].map(|mount| mount.path.to_str().expect("UTF-8").to_owned());
    for options in [&["-rs"][..], &["-ruN"], &["-rq", "--no-dereference"]] {
        let theirs = gnu(at, &[options, &[&*mounts[0], &*mounts[1]]].concat());
        let ours = extern4_in(at, [&["diff"], options, &[&*old, &*new]].concat());
        let mut said = ours.stdout.escape_ascii().to_string();
        for (image, mount) in [&old, &new].into_iter().zip(&mounts) {
            said = said.replace(&format!("{image}:/: "), &format!("{mount}: "));
            said = said.replace(&format!("{image}:/"), &format!("{mount}/"));
        }
        assert_eq!(
            said,
            theirs.stdout.escape_ascii().to_string(),
            "{options:?}"
        );
        assert_eq!(ours.status.code(), theirs.status.code(), "{options:?}");
    }
    old_mount.unmount();
    new_mount.unmount();
}

#[test]
fn a_directory_with_two_names_is_damage() {
    if !can_run(&[Need::Tool("debugfs")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/a/b")).expect("directories");
    for name in ["one.img", "other.img"] {
        ok(extern4_in(
            at,
            ["build", "-q", "--no-journal", name, "tree"],
        ));
        debugfs(&at.join(name), true, "ln /a/b /again\n");
    }
    let said = failed(&extern4_in(at, ["diff", "-r", "one.img", "other.img"]), 2);
    assert!(said.contains("has two names"), "{said}");
}
