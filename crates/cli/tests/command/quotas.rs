//! Quotas: `quota` shows, sets and checks them. `repquota` reads the same quota files, `e2fsck`
//! counts what their owners have, and `debugfs` shows single entries.

use std::collections::BTreeSet;
use std::fs;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{Need, can_run};

use crate::run::{extern4, failed, ok, tool};
use crate::writing::{fed, quietly, said, sound, untouched};

const ALL: &[&str] = &[
    "-t",
    "ext4",
    "-b",
    "1024",
    "-O",
    "quota,project",
    "-E",
    "quotatype=usrquota:grpquota:prjquota",
];

/// Makes a volume with quotas of everything, users in the volume, and files of theirs.
fn volume() -> Image {
    let image = ImageSpec::new("disk", 16 << 20, ALL).build();
    let script = "mkdir /etc /home; cp host:passwd /etc; cp host:group /etc; cp host:projid /etc\n\
                  mkdir /home/ann /home/bob; cp host:passwd /home/ann/a; cp host:group /home/ann/b\n\
                  truncate -s 50000 /home/bob/hole; cp host:large /home/bob\n\
                  chown -R ann:staff /home/ann; chown -R 2000:2000 /home/bob\n";
    let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
    for (name, text) in [
        ("passwd", passwd),
        ("group", "staff:x:50:\n"),
        ("projid", "build:77\n"),
    ] {
        fs::write(image.scratch().join(name), text).expect("a file");
    }
    fs::write(image.scratch().join("large"), [7; 40_000]).expect("a file");
    assert!(ok(fed(&image, &["script", "disk.img"], script.as_bytes())).is_empty());
    image
}

/// Returns the lines of a report of repquota, without the name of the device and the order.
fn lines(report: &str) -> BTreeSet<String> {
    // `repquota -v` adds statistics of the file.
    let left_out = [
        "***",
        "Statistics:",
        "Total blocks:",
        "Data blocks:",
        "Entries:",
        "Used average:",
    ];
    let is_left_out =
        |line: &str| line.is_empty() || left_out.iter().any(|start| line.starts_with(start));
    let lines = report.lines().filter(|line| !is_left_out(line));
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// Returns what `repquota` says of the quota files of a volume. It reads them where a volume of the
/// old kind has them.
fn repquota(image: &Image, args: &[&str]) -> String {
    let old = ImageSpec::new("old", 8 << 20, &["-t", "ext4", "-b", "1024"]).build();
    let mount = old.mount("usrquota,grpquota");
    for (ino, name) in [(3, "aquota.user"), (4, "aquota.group")] {
        let to = mount.path.join(name);
        image.debugfs(&format!("dump <{ino}> {}\n", to.display()));
    }
    let point = mount.path.to_str().expect("a path");
    let report = tool(old.scratch(), "repquota", [args, &[point]].concat());
    String::from_utf8(report).expect("text")
}

#[test]
fn quotas_are_shown_as_repquota_does() {
    if !can_run(&[Need::Mount, Need::Tool("repquota")]) {
        return;
    }
    let image = volume();
    let set = |args: &[&str]| quietly(&image, &[&["quota", "set", "disk.img"], args].concat());
    set(&["-u", "ann", "--block-soft", "2", "--block-hard", "10M"]);
    set(&[
        "-u",
        "2000",
        "-g",
        "2000",
        "--inode-soft",
        "2",
        "--inode-hard",
        "7",
    ]);
    set(&[
        "-u",
        "1000000",
        "--block-soft",
        "1000000",
        "--block-hard",
        "2G",
        "--inode-hard",
        "3k",
    ]);
    set(&[
        "-g",
        "staff",
        "--block-soft",
        "1",
        "--block-hard",
        "1",
        "--inode-soft",
        "1",
    ]);
    quietly(
        &image,
        &[
            "quota", "grace", "disk.img", "--users", "--block", "25h", "--inode", "3w",
        ],
    );
    for (ours, theirs) in [
        (&["-n"][..], &["-n", "-u", "-g"][..]),
        (&["-nv"], &["-n", "-v", "-u", "-g"]),
        (
            &["-n", "-u", "1000", "-u", "0", "-u", "2000"],
            &["-n", "-u"],
        ),
    ] {
        let shown = said(&image, &[&["quota", "disk.img"], ours].concat());
        let shown = shown
            .split("*** Report for project")
            .next()
            .expect("a report");
        assert_eq!(lines(shown), lines(&repquota(&image, theirs)), "{ours:?}");
    }
    let shown = said(&image, &["quota", "disk.img"]);
    for line in [
        "ann       +- ",
        "#2000     -+ ",
        "staff     ++ ",
        "Block grace time: 25:00; Inode grace time: 21days",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    sound(&image);
}

#[test]
fn limits_hold_for_the_next_change() {
    let image = volume();
    quietly(
        &image,
        &[
            "quota",
            "set",
            "disk.img",
            "-u",
            "ann",
            "--inode-hard",
            "4",
            "-P",
            "build",
        ],
    );
    let numbers = |kind: &str, id: u32| {
        let said = image.debugfs(&format!("get_quota {kind} {id}\n"));
        let numbers = said
            .lines()
            .last()
            .unwrap_or_default()
            .split_whitespace()
            .map(ToOwned::to_owned);
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(numbers("user", 1000)[2..], ["0", "0", "3", "0", "4"]);
    assert_eq!(numbers("project", 77)[2..], ["0", "0", "0", "0", "4"]);
    // A limit that is not named stays.
    quietly(
        &image,
        &[
            "quota",
            "set",
            "disk.img",
            "-u",
            "1000",
            "--block-hard",
            "1M",
        ],
    );
    assert_eq!(numbers("user", 1000)[2..], ["0", "1024", "3", "0", "4"]);
    quietly(&image, &["--as", "ann", "touch", "disk.img:/home/ann/c"]);
    let errors = failed(
        &extern4(&image, ["--as", "ann", "touch", "disk.img:/home/ann/d"]),
        1,
    );
    assert!(errors.contains("Disk quota exceeded"), "{errors}");
    let errors = failed(
        &extern4(
            &image,
            [
                "--as",
                "ann",
                "truncate",
                "-s",
                "2M",
                "disk.img:/home/ann/d",
            ],
        ),
        1,
    );
    assert!(errors.contains("Disk quota exceeded"), "{errors}");
    sound(&image);
}

#[test]
fn quotas_are_json() {
    let image = volume();
    quietly(
        &image,
        &[
            "quota",
            "set",
            "disk.img",
            "-u",
            "ann",
            "--block-soft",
            "1",
            "--block-hard",
            "1G",
        ],
    );
    let text = said(&image, &["quota", "--json", "disk.img", "-u", "ann"]);
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(
        (&lines[0]["kind"], &lines[0]["block_grace"]),
        (&"user".into(), &604_800.into())
    );
    let ann = &lines[1];
    assert_eq!(
        (&ann["name"], &ann["id"], &ann["inodes"]),
        (&"ann".into(), &1000.into(), &3.into())
    );
    assert_eq!(
        (&ann["bytes"], &ann["block_soft"]),
        (&3072.into(), &1024.into())
    );
    assert!(
        ann["block_until"].is_u64() && ann["inode_until"].is_null(),
        "{text}"
    );
}

#[test]
fn wrong_quotas_are_found_and_corrected() {
    let image = volume();
    quietly(
        &image,
        &[
            "quota",
            "set",
            "disk.img",
            "-u",
            "2000",
            "--block-hard",
            "9M",
        ],
    );
    assert!(
        said(&image, &["quota", "check", "disk.img"]).contains("nothing is wrong with the quotas")
    );
    untouched(&image, || {
        said(
            &image,
            &["quota", "check", "--repair", "--quiet", "disk.img"],
        )
    });
    // debugfs does not count its changes.
    image.debugfs(
        "set_inode_field /home/ann/a uid 2000\nset_inode_field /home/bob/hole uid 4000\n\
         set_inode_field /home/bob/hole gid 50\nset_inode_field /home/ann projid 5\n",
    );
    let output = untouched(&image, || extern4(&image, ["quota", "check", "disk.img"]));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(failed(&output, 4), "");
    for line in [
        "user 1000 has ",
        "user 4000 has files, but no entry",
        "group 50 has 4 inodes, but 3",
        "faults of the",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let output = extern4(&image, ["quota", "check", "--json", "disk.img"]);
    let json = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        json.lines()
            .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
        "{json}"
    );
    let shown = said(&image, &["quota", "check", "--repair", "disk.img"]);
    assert!(shown.contains("faults of the quotas, corrected"), "{shown}");
    sound(&image);
    let shown = said(&image, &["quota", "-n", "disk.img", "-u", "2000"]);
    assert!(shown.contains("9216"), "limits stay: {shown}");
    assert!(
        said(&image, &["quota", "check", "disk.img"]).contains("nothing is wrong with the quotas")
    );
}

/// A volume with other damage is one for `e2fsck`.
#[test]
fn damaged_volumes_are_not_corrected() {
    let image = volume();
    image.debugfs(
        "set_inode_field /home/ann/a uid 2000\nset_inode_field /home/ann/a links_count 7\n",
    );
    let errors = untouched(&image, || {
        failed(
            &extern4(&image, ["quota", "check", "--repair", "disk.img"]),
            4,
        )
    });
    assert!(errors.contains("nothing is corrected"), "{errors}");
}

#[test]
fn a_script_sets_quotas() {
    let image = volume();
    let script = "cd /home\nbegin\nquota set -u ann --block-hard 1M\nquota grace --inode 1h\ncommit\n\
                  quota -u ann\nquota check\n";
    let said = String::from_utf8(ok(fed(&image, &["script", "disk.img"], script.as_bytes())))
        .expect("text");
    assert!(
        said.contains(" 1024 ") && said.contains("Inode grace time: 01:00"),
        "{said}"
    );
    sound(&image);
    let script = "begin\nquota set -u ann --block-hard 7M\nmkdir /a/b\ncommit\n";
    failed(&fed(&image, &["script", "disk.img"], script.as_bytes()), 1);
    let shown = crate::writing::said(&image, &["quota", "disk.img", "-u", "ann"]);
    assert!(
        shown.contains(" 1024 ") && !shown.contains("7168"),
        "{shown}"
    );
    sound(&image);
}

#[test]
fn quotas_that_cannot_be_set_are_refused() {
    let image = volume();
    let refused = |args: &[&str], code: i32, says: &str| {
        let errors = untouched(&image, || failed(&extern4(&image, args), code));
        assert!(errors.contains(says), "{args:?}: {errors}");
    };
    refused(
        &["quota", "set", "disk.img", "-u", "eve", "--block-hard", "1"],
        1,
        "eve is not a user of 'disk.img'",
    );
    refused(
        &[
            "quota",
            "set",
            "disk.img",
            "-P",
            "logs",
            "--block-hard",
            "1",
        ],
        1,
        "logs is not a project of",
    );
    refused(
        &["quota", "set", "disk.img", "-u", "ann"],
        2,
        "--block-soft",
    );
    refused(
        &["quota", "set", "disk.img", "--block-hard", "1"],
        2,
        "--user",
    );
    refused(
        &[
            "quota",
            "set",
            "disk.img",
            "-u",
            "ann",
            "--block-hard",
            "1x",
        ],
        2,
        "--block-hard",
    );
    refused(
        &[
            "quota",
            "set",
            "disk.img:/etc",
            "-u",
            "ann",
            "--block-hard",
            "1",
        ],
        2,
        "name the image alone",
    );
    refused(&["quota", "grace", "disk.img"], 2, "--block");
    refused(&["quota"], 2, "IMAGE");
    refused(
        &["--as", "ann", "quota", "disk.img"],
        2,
        "--as has no effect",
    );
    let plain = ImageSpec::new("disk", 8 << 20, &["-t", "ext4", "-b", "1024"]).build();
    for args in [
        &["quota", "disk.img"][..],
        &["quota", "set", "disk.img", "-u", "0", "--block-hard", "1"],
        &["quota", "check", "disk.img"],
    ] {
        let errors = failed(&extern4(&plain, args), 1);
        assert!(
            errors.contains("the volume keeps no quotas"),
            "{args:?}: {errors}"
        );
    }
    let some = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "quota",
        "-E",
        "quotatype=usrquota",
    ];
    let some = ImageSpec::new("disk", 8 << 20, some).build();
    let errors = failed(&extern4(&some, ["quota", "disk.img", "-g", "0"]), 1);
    assert!(
        errors.contains("the volume keeps no quotas of groups"),
        "{errors}"
    );
}
