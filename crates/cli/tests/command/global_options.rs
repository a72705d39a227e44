//! The options that all subcommands take: for each subcommand each works, or is refused with exit
//! code 2.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{Need, can_run};

use crate::journals;
use crate::run::{command, extern4, failed, ok, wipe_superblock};

/// The fate of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It has the effect that it has for all subcommands.
    Works,
    /// Exit code 2, and the message names it.
    Refused,
    /// Exit code 3: it has its effect, and the resulting volume is read-only.
    ReadOnly,
}
use Fate::{ReadOnly, Refused, Works};

/// A subcommand with arguments that look at, or change, the closed directory `/dir` or a file in
/// it. Then the fates of `--as`, `--journal` and `--superblock`.
const ALL: &[(&[&str], [Fate; 3])] = &[
    (&["info", "disk.img"], [Refused, Works, Works]),
    (&["check", "disk.img"], [Refused, Works, Works]),
    (&["ls", "disk.img:/dir"], [Works, Works, Works]),
    (&["tree", "disk.img:/dir"], [Works, Works, Works]),
    (&["stat", "disk.img:/dir/file"], [Works, Works, Works]),
    (&["cat", "disk.img:/dir/file"], [Works, Works, Works]),
    (&["head", "disk.img:/dir/file"], [Works, Works, Works]),
    (&["tail", "disk.img:/dir/file"], [Works, Works, Works]),
    (&["grep", "x", "disk.img:/dir/file"], [Works, Works, Works]),
    (&["cmp", "disk.img:/dir/file", "-"], [Works, Works, Works]),
    (&["sha256sum", "disk.img:/dir/file"], [Works, Works, Works]),
    (
        &["cp", "disk.img:/dir/file", "copied"],
        [Works, Works, Works],
    ),
    (&["get", "disk.img:/dir/file"], [Works, Works, Works]),
    (&["put", "disk.img:/dir/put"], [Works, Works, ReadOnly]),
    (&["mkdir", "disk.img:/dir/made"], [Works, Works, ReadOnly]),
    (
        &["rm", "-f", "disk.img:/dir/none"],
        [Works, Works, ReadOnly],
    ),
    (&["rmdir", "disk.img:/dir/sub"], [Works, Works, ReadOnly]),
    (
        &["mv", "disk.img:/dir/file", "disk.img:/dir/file2"],
        [Works, Works, ReadOnly],
    ),
    (
        &["ln", "-s", "sub", "disk.img:/dir/link"],
        [Works, Works, ReadOnly],
    ),
    (
        &["readlink", "-v", "-e", "disk.img:/dir/file"],
        [Works, Works, Works],
    ),
    (
        &["mknod", "disk.img:/dir/node", "c", "1", "3"],
        [Works, Works, ReadOnly],
    ),
    (&["mkfifo", "disk.img:/dir/pipe"], [Works, Works, ReadOnly]),
    (
        &["touch", "disk.img:/dir/touched"],
        [Works, Works, ReadOnly],
    ),
    (
        &["truncate", "-s", "5", "disk.img:/dir/cut"],
        [Works, Works, ReadOnly],
    ),
    (
        &["chmod", "700", "disk.img:/dir/sub"],
        [Works, Works, ReadOnly],
    ),
    (
        &["chown", "0:0", "disk.img:/dir/sub"],
        [Works, Works, ReadOnly],
    ),
    (
        &["chgrp", "0", "disk.img:/dir/sub"],
        [Works, Works, ReadOnly],
    ),
    (
        &["lsattr", "-d", "disk.img:/dir/sub"],
        [Works, Works, Works],
    ),
    (
        &["chattr", "+d", "disk.img:/dir/sub"],
        [Works, Works, ReadOnly],
    ),
    (&["find", "disk.img:/dir"], [Works, Works, Works]),
    (&["du", "disk.img:/dir"], [Works, Works, Works]),
    (
        &["diff", "disk.img:/dir/sub", "disk.img:/dir/sub"],
        [Works, Works, Works],
    ),
    (&["df", "disk.img"], [Refused, Works, Works]),
    (&["stats", "disk.img:/dir"], [Works, Works, Works]),
    (&["top", "mnt"], [Refused, Refused, Refused]),
    (&["getfacl", "disk.img:/dir/sub"], [Works, Works, Works]),
    (&["getfattr", "disk.img:/dir/sub"], [Works, Works, Works]),
    (
        &["setfacl", "-m", "u:5:r", "disk.img:/dir/sub"],
        [Works, Works, ReadOnly],
    ),
    (
        &["setfattr", "-n", "user.a", "-v", "1", "disk.img:/dir/sub"],
        [Works, Works, ReadOnly],
    ),
    (&["script", "disk.img"], [Works, Works, ReadOnly]),
    (&["shell", "disk.img"], [Works, Works, ReadOnly]),
    (&["recover", "disk.img"], [Refused, Works, ReadOnly]),
    (
        &["tune", "disk.img", "--label", "new"],
        [Works, Works, ReadOnly],
    ),
    (&["quota", "disk.img"], [Refused, Works, Works]),
    (&["mkfs", "made.img", "1M"], [Refused, Refused, Refused]),
    (&["build", "built.img", "."], [Refused, Refused, Refused]),
    (
        &["export", "disk.img:/dir", "-F", "-o", "out.tar"],
        [Works, Works, Works],
    ),
    (
        &["tar", "-cf", "tar.tar", "disk.img:/dir"],
        [Works, Works, Works],
    ),
    // The tests of mounts cover their effects.
    (&["mount", "disk.img", "mnt"], [Refused, Works, Works]),
    (&["umount", "mnt"], [Refused, Refused, Refused]),
    (&["inode", "disk.img:/dir"], [Refused, Works, Works]),
    (&["block", "disk.img", "0"], [Refused, Works, Works]),
    (
        &["bench", "walk", "disk.img:/dir/sub", "--seconds", "0.01"],
        [Works, Works, Works],
    ),
    (
        &[
            "bench",
            "ops",
            "disk.img",
            "--op",
            "rename",
            "--seconds",
            "0.01",
        ],
        [Works, Refused, Refused],
    ),
    (
        &["bench", "disk.img", "--seconds", "0.01"],
        [Refused, Refused, Refused],
    ),
    (&["completions", "bash"], [Refused, Refused, Refused]),
    (&["man", "--dir", "."], [Refused, Refused, Refused]),
    (&["help", "ls"], [Refused, Refused, Refused]),
];

fn run(image: &Image, args: &[&str]) -> Output {
    let mut command = command();
    command.current_dir(image.scratch()).args(args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    // A script of one line; a subcommand that is refused reads none.
    let _ = child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"mkdir /dir/by-script\n");
    child.wait_with_output().expect("it ends")
}

/// The subcommands that compare: 0 and 1 are their results, and 2 is any failure.
const COMPARING: [&str; 3] = ["diff", "cmp", "grep"];

/// Returns the exit code of a failed subcommand: that of others, but commands that compare have
/// their own.
fn code_of_failure(args: &[&str], others: i32) -> i32 {
    if COMPARING.contains(&args[0]) {
        2
    } else {
        others
    }
}

/// Returns whether the subcommand did its work.
fn worked(args: &[&str], output: &Output) -> bool {
    output.status.code() == Some(0)
        || COMPARING.contains(&args[0]) && output.status.code() == Some(1)
}

/// Returns whether to run the subcommand: a mount would stay, the volumes keep no quotas, and
/// `bench` measures more than the option.
fn is_tried(args: &[&str]) -> bool {
    !["mount", "quota"].contains(&args[0]) && args[..2] != ["bench", "ops"]
}

fn filled(image: &Image) {
    for args in [
        &["mkdir", "disk.img:/dir"][..],
        &["mkdir", "disk.img:/dir/sub"],
        &["touch", "disk.img:/dir/file"],
    ] {
        ok(extern4(image, args));
    }
    ok(extern4(image, ["chmod", "700", "disk.img:/dir"]));
}

#[test]
fn every_subcommand_is_in_the_table() {
    let image = ImageSpec::new("disk", 4 << 20, &["-t", "ext4"]).build();
    let help = String::from_utf8(ok(extern4(&image, ["--help"]))).expect("text");
    let names = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names: BTreeSet<_> = names
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 30, "{help}");
    let table: BTreeSet<_> = ALL.iter().map(|(args, _)| args[0]).collect();
    assert_eq!(names, table);
}

#[test]
fn options_without_a_use_are_refused() {
    let image = ImageSpec::new("disk", 4 << 20, &["-t", "ext4"]).build();
    let before = fs::read(&image.path).expect("the image is read");
    for (args, fates) in ALL {
        let options: [&[&str]; 3] = [
            &["--as", "1000:1000"],
            &["--journal", "journal.img"],
            &["--superblock", "8193"],
        ];
        for (option, fate) in options.iter().zip(fates) {
            if *fate == Refused {
                let said = failed(&run(&image, &[option, *args].concat()), 2);
                assert!(said.contains(option[0]), "{args:?} {option:?}: {said}");
            }
        }
        if args[0] == "bench" {
            continue;
        }
        // The subcommand prints JSON, or does not know the option.
        let json = run(&image, &[*args, &["--json"]].concat());
        let is_known =
            !String::from_utf8_lossy(&json.stderr).contains("unexpected argument '--json'");
        assert!(
            is_known || json.status.code() == Some(2),
            "{args:?}: {json:?}"
        );
        let prints = json.stdout.is_empty() || json.stdout.starts_with(b"{");
        assert!(!is_known || prints, "{args:?}: {json:?}");
    }
    assert!(
        before == fs::read(&image.path).expect("the image is read"),
        "nothing is changed"
    );
}

#[test]
fn as_another_user_the_closed_is_closed() {
    let image = ImageSpec::new("disk", 8 << 20, &["-t", "ext4"]).build();
    filled(&image);
    for (args, [fate, ..]) in ALL.iter().filter(|(args, _)| is_tried(args)) {
        if *fate == Works {
            let output = run(&image, &[&["--as", "1000:1000"], *args].concat());
            let said = failed(&output, code_of_failure(args, 1));
            assert!(
                said.contains("ermi") || said.contains("superuser"),
                "denied or not permitted: {args:?}: {said}"
            );
        }
    }
}

#[test]
fn a_copy_of_the_superblock_is_read_by_all_that_read() {
    let image = ImageSpec::new("disk", 32 << 20, &["-t", "ext4", "-b", "1024"]).build();
    filled(&image);
    wipe_superblock(&image);
    for (args, [_, _, fate]) in ALL.iter().filter(|(args, _)| is_tried(args)) {
        let with = run(&image, &[&["--superblock", "8193"], *args].concat());
        if *fate == ReadOnly {
            // There is nothing to recover.
            let said = if args[0] == "recover" {
                String::new()
            } else {
                failed(&with, 3)
            };
            assert!(
                said.is_empty() || said.contains("a backup superblock was asked for"),
                "{args:?}: {said}"
            );
        }
        if *fate == Works {
            failed(&run(&image, args), code_of_failure(args, 3));
            // `check` reports the damage of the first superblock.
            let expected = if args[0] == "check" { Some(4) } else { Some(0) };
            assert!(
                with.status.code() == expected || worked(args, &with),
                "{args:?}: {with:?}"
            );
        }
    }
}

#[test]
fn a_journal_elsewhere_is_replayed_by_all_that_open_the_volume() {
    if !journals::can_use() || !can_run(&[Need::Fuse]) {
        return;
    }
    let image = journals::crashed_with_journal_elsewhere(&|mnt| {
        fs::create_dir_all(mnt.join("dir/sub")).expect("directories");
        fs::write(mnt.join("dir/file"), "text").expect("a file");
    });
    for (args, [_, fate, _]) in ALL.iter().filter(|(args, _)| is_tried(args)) {
        if *fate == Works {
            failed(&run(&image, args), code_of_failure(args, 3));
            // Each starts from the crash: the first that writes empties the journal.
            let crashed = journals::crashed(&image);
            let with = run(&crashed, &[&["--journal", "journal.img"], *args].concat());
            assert!(worked(args, &with), "{args:?}: {with:?}");
        }
    }
}
