//! Volumes that `build` makes, and archives that `export` writes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use extern4_testkit::image::Image;
use extern4_testkit::tools::{LoopDevice, Need, can_run, e2fsck, temporary};

use crate::interrupting::wait_until_listening;
use crate::run::{command, extern4_in, failed, ok, tool};
use crate::terminal::on_terminal;

#[test]
fn a_directory_an_archive_and_a_pipe_give_the_same_bytes() {
    if !can_run(&[Need::Tool("e2fsck"), Need::Tool("tar"), Need::Tool("zstd")]) {
        return;
    }
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/a/b")).expect("directories");
    fs::write(at.join("tree/a/file"), vec![7; 300_000]).expect("a file");
    fs::hard_link(at.join("tree/a/file"), at.join("tree/a/b/link")).expect("a link");
    std::os::unix::fs::symlink("a/file", at.join("tree/to")).expect("a link");
    tool(
        at,
        "tar",
        ["--format=pax", "-cf", "tree.tar", "-C", "tree", "."],
    );
    tool(at, "zstd", ["-q", "tree.tar"]);
    for (image, source) in [
        ("one.img", "tree"),
        ("two.img", "tree.tar"),
        ("three.img", "tree.tar.zst"),
    ] {
        let said = ok(extern4_in(at, ["build", "--no-journal", image, source]));
        let said = String::from_utf8(said).expect("UTF-8");
        assert!(
            said.starts_with("1 file, 3 directories, 1 other, 300000 bytes"),
            "{said}"
        );
    }
    let input = fs::File::open(at.join("tree.tar")).expect("an archive");
    let mut piped = command();
    piped
        .current_dir(at)
        .args(["build", "-q", "--no-journal", "four.img", "-"])
        .stdin(Stdio::from(input));
    ok(piped.output().expect("the command"));
    e2fsck(&at.join("one.img")).expect("a sound volume");
    let one = fs::read(at.join("one.img")).expect("an image");
    for other in ["two.img", "three.img", "four.img"] {
        assert!(
            fs::read(at.join(other)).expect("an image") == one,
            "{other} differs"
        );
    }
    // And back.
    ok(extern4_in(at, ["export", "one.img", "-o", "out.tar"]));
    ok(extern4_in(
        at,
        ["build", "-q", "--no-journal", "again.img", "out.tar"],
    ));
    assert!(fs::read(at.join("again.img")).expect("an image") == one);
    ok(extern4_in(
        at,
        ["export", "again.img", "-o", "again.tar.zst"],
    ));
    tool(at, "zstd", ["-dq", "again.tar.zst"]);
    assert_eq!(
        fs::read(at.join("again.tar")).expect("a tar"),
        fs::read(at.join("out.tar")).expect("a tar")
    );
    tool(at, "tar", ["-df", "out.tar", "-C", "tree"]);
}

#[test]
fn a_source_that_cannot_be_built_is_named_and_leaves_nothing() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), vec![7; 300_000]).expect("a file");
    tool(at, "tar", ["-cf", "tree.tar", "tree"]);
    let whole = fs::read(at.join("tree.tar")).expect("an archive");
    fs::write(at.join("cut.tar"), &whole[..10_000]).expect("an archive");
    fs::write(at.join("text"), "no archive at all").expect("a file");
    let build = |args: &[&str], code| {
        failed(
            &extern4_in(at, [&["build", "out.img"], args].concat()),
            code,
        )
    };
    let said = build(&["cut.tar"], 1);
    assert!(
        said.contains("cut.tar") && said.contains("tree/file"),
        "{said}"
    );
    assert!(build(&["text"], 1).contains("text"));
    assert_eq!(
        build(&["missing"], 1),
        "extern4: build: 'missing': No such file or directory\n"
    );
    assert!(build(&["--size", "300K", "tree"], 1).contains("the tree needs"));
    build(&["--size", "large", "tree"], 2);
    build(&["--owner", "root", "tree"], 2);
    assert!(build(&["-O", "bigalloc", "tree"], 1).contains("bigalloc"));
    build(&["tree:/../up"], 2);
    assert!(!at.join("out.img").exists());
    fs::write(at.join("out.img"), "mine").expect("a file");
    assert!(build(&["tree"], 1).contains("--force"));
    assert_eq!(fs::read(at.join("out.img")).expect("a file"), b"mine");
    ok(extern4_in(
        at,
        ["build", "-q", "--force", "out.img", "tree"],
    ));
    let export = |args: &[&str], code| {
        failed(
            &extern4_in(at, [&["export", "out.img"], args].concat()),
            code,
        )
    };
    assert!(export(&["-o", "tree.tar"], 1).contains("--force"));
    assert_eq!(fs::read(at.join("tree.tar")).expect("an archive"), whole);
    let names = fs::read_dir(at)
        .expect("a directory")
        .map(|entry| entry.expect("a name").file_name());
    assert_eq!(
        names
            .filter(|name| name.to_string_lossy().ends_with("partial"))
            .count(),
        0
    );
}

#[test]
fn sources_lie_over_each_other() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir_all(at.join("lower/etc")).expect("directories");
    fs::create_dir_all(at.join("upper/etc")).expect("directories");
    fs::write(at.join("lower/etc/a"), "lower").expect("a file");
    fs::write(at.join("lower/etc/b"), "lower").expect("a file");
    fs::write(at.join("upper/etc/b"), "upper").expect("a file");
    ok(extern4_in(
        at,
        [
            "build",
            "-q",
            "out.img",
            "lower",
            "upper",
            "upper/etc:/srv/deep",
        ],
    ));
    let read = |path: &str| ok(extern4_in(at, ["cat", &format!("out.img:{path}")]));
    assert_eq!(read("/etc/a"), b"lower");
    assert_eq!(read("/etc/b"), b"upper");
    assert_eq!(read("/srv/deep/b"), b"upper");
    let said = ok(extern4_in(at, ["build", "--dry-run", "none.img", "lower"]));
    assert!(
        String::from_utf8(said)
            .expect("UTF-8")
            .contains("A volume of")
    );
    assert!(!at.join("none.img").exists());
}

#[test]
fn a_manifest_adds_devices_and_sets_owners() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), "text").expect("a file");
    fs::hard_link(at.join("tree/file"), at.join("tree/link")).expect("a link");
    let list = "dir /dev 0755 0 0\nnod /dev/console 0600 0 5 c 5 1\n";
    fs::write(at.join("devices"), list).expect("a list");
    fs::write(at.join("owners"), "#mtree\n./file uid=7 gid=8 mode=0640\n").expect("a manifest");
    ok(extern4_in(
        at,
        [
            "build",
            "-q",
            "--owner",
            "0:0",
            "--manifest",
            "devices",
            "--manifest",
            "owners",
            "out.img",
            "tree",
        ],
    ));
    let stat = |path: &str| {
        let said = ok(extern4_in(
            at,
            [
                "stat",
                "-c",
                "%F %a %u:%g %h %t,%T",
                &format!("out.img:{path}"),
            ],
        ));
        String::from_utf8(said).expect("UTF-8")
    };
    assert_eq!(
        stat("/dev/console"),
        "character special file 600 0:5 1 5,1\n"
    );
    assert_eq!(stat("/link"), "regular file 640 7:8 2 0,0\n");
    assert_eq!(ok(extern4_in(at, ["cat", "out.img:/link"])), b"text");
    fs::write(at.join("wrong"), "nod /x\n").expect("a list");
    let wrong = extern4_in(at, ["build", "--manifest", "wrong", "no.img", "tree"]);
    assert!(failed(&wrong, 1).contains("wrong, line 1"));
}

#[test]
fn a_device_is_filled() {
    if !can_run(&[Need::Mount, Need::Tool("e2fsck")]) {
        return;
    }
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), "text").expect("a file");
    fs::write(at.join("disk"), vec![0xa5; 24 << 20]).expect("a file");
    let device = LoopDevice::attach(&at.join("disk"));
    let path = device.path.to_str().expect("a name in UTF-8").to_owned();
    assert!(failed(&extern4_in(at, ["build", &path, "tree"]), 1).contains("--force"));
    let small = failed(
        &extern4_in(at, ["build", "--force", "--size", "32M", &path, "tree"]),
        1,
    );
    assert!(small.contains("more than its 25165824"), "{small}");
    let said =
        String::from_utf8(ok(extern4_in(at, ["build", "--force", &path, "tree"]))).expect("UTF-8");
    assert!(
        said.contains("A volume of 25165824 bytes with a journal of 4194304 bytes"),
        "{said}"
    );
    drop(device);
    e2fsck(&at.join("disk")).expect("a sound volume");
    assert_eq!(ok(extern4_in(at, ["cat", "disk:/file"])), b"text");
    assert!(failed(&extern4_in(at, ["build", "/dev/null", "tree"]), 1).contains("neither a file"));
}

#[test]
fn the_files_in_lost_found_come_along() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/lost+found/#13")).expect("directories");
    fs::write(at.join("tree/lost+found/#12"), "rescued").expect("a file");
    fs::set_permissions(
        at.join("tree/lost+found"),
        fs::Permissions::from_mode(0o750),
    )
    .expect("a mode");
    // More names than one block has room for, so that it is a hash tree.
    let many = (100..400).map(|number| format!("tree/lost+found/#{number}-{}", "x".repeat(80)));
    many.for_each(|name| fs::write(at.join(name), "").expect("a file"));
    ok(extern4_in(at, ["build", "-q", "old.img", "tree"]));
    ok(extern4_in(at, ["export", "old.img", "-o", "old.tar"]));
    for (how, out) in [
        (&["build", "-q", "volume.img", "old.img"][..], "volume.img"),
        (&["build", "-q", "archive.img", "old.tar"], "archive.img"),
        (
            &["build", "-q", "-O", "inline_data", "inline.img", "tree"],
            "inline.img",
        ),
        (
            &[
                "build",
                "-q",
                "-b",
                "1024",
                "-t",
                "ext2",
                "small.img",
                "tree",
            ],
            "small.img",
        ),
        (
            &[
                "build",
                "-q",
                "--stable-layout",
                "old.img",
                "stable.img",
                "old.img",
            ],
            "stable.img",
        ),
        (
            &["mkfs", "-q", "-d", "old.img", "mkfs.img", "16M"],
            "mkfs.img",
        ),
    ] {
        ok(extern4_in(at, how));
        e2fsck(&at.join(out)).expect("a sound volume");
        assert_eq!(
            ok(extern4_in(at, ["cat", &format!("{out}:/lost+found/#12")])),
            b"rescued",
            "{how:?}"
        );
        let found = ok(extern4_in(
            at,
            ["stat", "-c", "%a %i", &format!("{out}:/lost+found")],
        ));
        assert_eq!(String::from_utf8_lossy(&found), "750 11\n", "{how:?}");
        if out != "stable.img" {
            assert_eq!(
                ok(extern4_in(at, ["diff", "--no-times", "old.img", out])),
                b"",
                "{how:?}"
            );
        }
    }
    // Files that e2fsck has put there stay, next to the files of the sources.
    ok(extern4_in(at, ["mkfs", "-q", "update.img", "16M"]));
    ok(extern4_in(at, ["put", "update.img:/lost+found/#77"]));
    let update = ["build", "--update", "update.img", "tree"];
    ok(extern4_in(at, update));
    assert_eq!(
        ok(extern4_in(at, ["cat", "update.img:/lost+found/#12"])),
        b"rescued"
    );
    assert_eq!(
        ok(extern4_in(at, ["cat", "update.img:/lost+found/#77"])),
        b""
    );
    assert!(ok(extern4_in(at, update)).starts_with(b"0 created, 0 replaced, 0 changed, 0 removed"));
    ok(extern4_in(at, ["mkfs", "-q", "unpacked.img", "16M"]));
    ok(extern4_in(at, ["tar", "-xf", "old.tar", "unpacked.img:/"]));
    assert_eq!(
        ok(extern4_in(
            at,
            ["diff", "--no-times", "old.img", "unpacked.img"]
        )),
        b""
    );
}

#[test]
fn lost_found_is_a_directory_of_every_volume() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    ok(extern4_in(
        at,
        ["build", "-q", "--owner", "5:6", "out.img", "tree"],
    ));
    let found = ok(extern4_in(
        at,
        ["stat", "-c", "%A %u:%g %h %s", "out.img:/lost+found"],
    ));
    assert_eq!(String::from_utf8_lossy(&found), "drwx------ 0:0 2 16384\n");
    fs::write(at.join("tree/lost+found"), "no directory").expect("a file");
    let refused =
        "'/lost+found': a volume needs it as a directory, for the files that e2fsck finds";
    let says = failed(&extern4_in(at, ["build", "no.img", "tree"]), 1);
    assert!(
        says.contains(refused) && !at.join("no.img").exists(),
        "{says}"
    );
    let says = failed(&extern4_in(at, ["build", "--update", "out.img", "tree"]), 1);
    assert_eq!(
        says,
        "extern4: build: 'out.img:/lost+found': Is a directory\n"
    );
    ok(extern4_in(
        at,
        ["build", "-q", "--exclude", "/lost+found", "no.img", "tree"],
    ));
}

/// Makes `v.img`: files with flags, in a project, and in a directory without regard to case that is
/// a hash tree.
fn volume_with_flags(at: &Path) {
    ok(extern4_in(
        at,
        ["mkfs", "-q", "-O", "project,casefold,quota", "v.img", "32M"],
    ));
    ok(extern4_in(
        at,
        ["mkdir", "v.img:/p", "v.img:/cf", "v.img:/T"],
    ));
    for (change, file) in [("+F", "cf"), ("+P", "p"), ("+TD", "T")] {
        ok(extern4_in(
            at,
            ["chattr", change, &format!("v.img:/{file}")],
        ));
    }
    ok(extern4_in(at, ["chattr", "-p", "5", "v.img:/p"]));
    fs::create_dir(at.join("names")).expect("a directory");
    for number in 0..300 {
        fs::write(
            at.join(format!("names/N\u{e4}me-{number}-{}", "Y".repeat(40))),
            "text",
        )
        .expect("a file");
    }
    ok(extern4_in(at, ["cp", "-r", "names/.", "v.img:/cf"]));
    ok(extern4_in(at, ["touch", "v.img:/p/in"]));
    for flag in ["i", "a", "d", "A", "S", "j"] {
        ok(extern4_in(at, ["touch", &format!("v.img:/{flag}")]));
        ok(extern4_in(
            at,
            ["chattr", &format!("+{flag}"), &format!("v.img:/{flag}")],
        ));
    }
}

#[test]
fn a_volume_keeps_inode_flags_and_projects_as_a_source() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    volume_with_flags(at);
    let features = "project,casefold,quota";
    for (how, out) in [
        (
            &["build", "-q", "-O", features, "build.img", "v.img"][..],
            "build.img",
        ),
        (
            &[
                "mkfs", "-q", "-O", features, "-d", "v.img", "mkfs.img", "32M",
            ],
            "mkfs.img",
        ),
    ] {
        ok(extern4_in(at, how));
        e2fsck(&at.join(out)).expect("a sound volume");
        assert_eq!(ok(extern4_in(at, ["diff", "v.img", out])), b"", "{how:?}");
        let name = format!("{out}:/cf/n\u{c4}ME-77-{}", "y".repeat(40));
        assert_eq!(ok(extern4_in(at, ["cat", &name])), b"text");
    }
    // Flags that the volume cannot have are an error, unless they are not wanted.
    for (features, says) in [
        (
            "^metadata_csum",
            "'/cf': its names are without regard to case (F), which needs the feature casefold",
        ),
        (
            "casefold",
            "'/p': it belongs to the project 5, which needs the feature project",
        ),
    ] {
        let refused = failed(
            &extern4_in(at, ["build", "-O", features, "no.img", "v.img"]),
            1,
        );
        assert_eq!(refused, format!("extern4: build: {says}\n"));
        assert!(!at.join("no.img").exists());
    }
    fs::create_dir_all(at.join("two/cf")).expect("directories");
    ["A", "a"]
        .iter()
        .for_each(|name| fs::write(at.join("two/cf").join(name), "").expect("a file"));
    let refused = failed(
        &extern4_in(at, ["build", "-O", features, "no.img", "v.img", "two"]),
        1,
    );
    assert!(
        refused.contains("'/cf': 'A' and 'a' are one name where the case does not count"),
        "{refused}"
    );
    ok(extern4_in(
        at,
        ["build", "-q", "--no-flags", "none.img", "v.img"],
    ));
    let differences = extern4_in(at, ["diff", "v.img", "none.img"]);
    let said = String::from_utf8_lossy(&differences.stdout).into_owned();
    assert!(
        said.contains("Files v.img:/i and none.img:/i differ: flags i -> -\n"),
        "{said}"
    );
    assert!(
        said.contains("differ: flags P -> -, project 5 -> 0\n"),
        "{said}"
    );
    assert_eq!(
        ok(extern4_in(at, ["diff", "--no-flags", "v.img", "none.img"])),
        b""
    );
    let json = extern4_in(at, ["diff", "--json", "v.img:/p", "none.img:/p"]).stdout;
    let json = String::from_utf8_lossy(&json).into_owned();
    let old = r#""old":{"flags":536870912,"project":5}"#;
    let new = r#""new":{"flags":0,"project":0}"#;
    assert!(
        json.contains(&format!(
            r#"{{"path":".","differs":["flags","project"],{old},{new}}}"#
        )),
        "{json}"
    );
}

#[test]
fn an_update_sets_inode_flags_and_projects() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    volume_with_flags(at);
    ok(extern4_in(
        at,
        ["mkfs", "-q", "-O", "project,casefold,quota", "u.img", "32M"],
    ));
    let update = ["build", "--update", "u.img", "v.img"];
    ok(extern4_in(at, update));
    assert_eq!(ok(extern4_in(at, ["diff", "v.img", "u.img"])), b"");
    assert!(ok(extern4_in(at, update)).starts_with(b"0 created, 0 replaced, 0 changed, 0 removed"));
    ok(extern4_in(at, ["chattr", "-i", "u.img:/i"]));
    ok(extern4_in(at, ["chattr", "+i", "u.img:/d"]));
    assert!(ok(extern4_in(at, update)).starts_with(b"0 created, 0 replaced, 2 changed, 0 removed"));
    assert_eq!(ok(extern4_in(at, ["diff", "v.img", "u.img"])), b"");
    e2fsck(&at.join("u.img")).expect("a sound volume");
    ok(extern4_in(at, ["mkfs", "-q", "w.img", "32M"]));
    let says = failed(&extern4_in(at, ["build", "--update", "w.img", "v.img"]), 1);
    for (file, feature) in [("cf", "casefold"), ("p/in", "project")] {
        let says_so =
            format!("'w.img:/{file}': Operation not supported without the feature {feature}\n");
        assert!(says.contains(&says_so), "{says}");
    }
}

#[test]
fn archives_and_copies_keep_inode_flags_and_projects() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    volume_with_flags(at);
    let features = "project,casefold,quota";
    ok(extern4_in(at, ["export", "v.img", "-o", "v.tar"]));
    ok(extern4_in(
        at,
        ["build", "-q", "-O", features, "tar.img", "v.tar"],
    ));
    for name in ["x.img", "cp.img"] {
        ok(extern4_in(at, ["mkfs", "-q", "-O", features, name, "32M"]));
    }
    ok(extern4_in(
        at,
        ["tar", "-cf", "again.tar", "-C", "v.img:/", "."],
    ));
    ok(extern4_in(at, ["tar", "-xf", "again.tar", "x.img:/"]));
    ok(extern4_in(at, ["cp", "-a", "v.img:/.", "cp.img:/"]));
    for image in ["tar.img", "x.img", "cp.img"] {
        e2fsck(&at.join(image)).expect("a sound volume");
        // An export has no empty lost+found.
        assert_eq!(
            ok(extern4_in(at, ["diff", "--no-times", "v.img", image])),
            b"",
            "{image}"
        );
    }
    if can_run(&[Need::Tool("bsdtar")]) {
        let listed = tool(
            at,
            "bsdtar",
            [
                "-cf",
                "-",
                "--format=mtree",
                "--options=mtree:flags",
                "@again.tar",
            ],
        );
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let line = listed
            .lines()
            .find(|line| line.starts_with("./i "))
            .expect("a line");
        assert!(line.contains("flags=schg"), "{listed}");
    }
    // A volume that cannot have them says so of each file, and gets the rest.
    ok(extern4_in(at, ["mkfs", "-q", "plain.img", "32M"]));
    let said = failed(&extern4_in(at, ["cp", "-a", "v.img:/.", "plain.img:/"]), 1);
    for feature in ["casefold", "project"] {
        assert!(
            said.contains(&format!(
                "Operation not supported without the feature {feature}"
            )),
            "{said}"
        );
    }
    assert_eq!(
        ok(extern4_in(at, ["lsattr", "plain.img:/i"])),
        b"----i---------e------- /i\n"
    );
    ok(extern4_in(at, ["cp", "-r", "v.img:/i", "plain.img:/copy"]));
    assert_eq!(
        ok(extern4_in(at, ["lsattr", "plain.img:/copy"])),
        b"--------------e------- /copy\n"
    );
}

#[test]
fn patterns_leave_out_a_part_of_every_source() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    for name in [
        "src/a.c",
        "src/a.o",
        "src/keep.o",
        "target/x",
        "sub/target/y",
    ] {
        let path = at.join("tree").join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, name).expect("a file");
    }
    tool(at, "tar", ["-cf", "tree.tar", "-C", "tree", "."]);
    let rules = [
        "--include",
        "keep.o",
        "--exclude=*.o",
        "--exclude",
        "/target/",
        "--include=a.o",
    ];
    for source in ["tree", "tree.tar"] {
        let args = [&["build", "-qF", "out.img", source], &rules[..]].concat();
        ok(extern4_in(at, args));
        let found = String::from_utf8(ok(extern4_in(at, ["find", "out.img", "-type", "f"])))
            .expect("UTF-8");
        let mut found: Vec<&str> = found.lines().collect();
        found.sort_unstable();
        assert_eq!(
            found,
            [
                "out.img:/src/a.c",
                "out.img:/src/keep.o",
                "out.img:/sub/target/y"
            ],
            "{source}"
        );
    }
    // The place in the volume counts.
    ok(extern4_in(
        at,
        [
            "build",
            "-qF",
            "--exclude",
            "/srv/src",
            "out.img",
            "tree:/srv",
            "tree/src",
        ],
    ));
    let found =
        String::from_utf8(ok(extern4_in(at, ["ls", "out.img", "out.img:/srv"]))).expect("UTF-8");
    assert!(
        found.contains("a.c") && found.contains("target") && !found.contains("src"),
        "{found}"
    );
}

#[test]
fn modes_and_ids_of_every_source_are_changed() {
    if !can_run(&[
        Need::Tool("tar"),
        Need::Tool("setfacl"),
        Need::Tool("e2fsck"),
    ]) {
        return;
    }
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/d")).expect("a directory");
    fs::write(at.join("tree/d/file"), "text").expect("a file");
    // These have no names, which an archive would have in place of numbers.
    tool(at, "setfacl", ["-m", "u:4007:rwx,g:4008:r", "tree/d/file"]);
    let list = "dir /dev 0700 9 9\n";
    fs::write(at.join("list"), list).expect("a list");
    tool(
        at,
        "tar",
        [
            "--acls",
            "--numeric-owner",
            "--owner=5",
            "--group=6",
            "-cf",
            "tree.tar",
            "tree",
        ],
    );
    let uids = [
        "--uid-map",
        "5:1005:1",
        "--uid-map=0:100000:5",
        "--uid-map",
        "4007:2007:10",
    ];
    let args = [
        &[
            "build",
            "-q",
            "out.img",
            "tree.tar",
            "--manifest",
            "list",
            "--chmod",
            "D2750,Fg-wx,o=",
        ],
        &uids[..],
        &["--gid-map", "0:200000:100", "--gid-map", "4008:200008:1"],
    ];
    ok(extern4_in(at, args.concat()));
    e2fsck(&at.join("out.img")).expect("a sound volume");
    let stat = |path: &str| {
        let said = ok(extern4_in(
            at,
            ["stat", "-c", "%a %u:%g", &format!("out.img:{path}")],
        ));
        String::from_utf8(said).expect("UTF-8")
    };
    assert_eq!(stat("/tree/d"), "2750 1005:200006\n");
    assert_eq!(stat("/tree/d/file"), "640 1005:200006\n");
    // A manifest has the last word.
    assert_eq!(stat("/dev"), "700 9:9\n");
    let acl = String::from_utf8(ok(extern4_in(
        at,
        ["getfacl", "-n", "out.img:/tree/d/file"],
    )))
    .expect("UTF-8");
    assert!(
        acl.contains("user:2007:rwx\t") && acl.contains("group:200008:r--"),
        "{acl}"
    );
    assert!(acl.contains("mask::r--"), "{acl}");
    let missing = extern4_in(at, ["build", "no.img", "tree.tar", "--uid-map", "0:1:1"]);
    let said = failed(&missing, 1);
    assert!(
        said.contains("tree.tar") && said.contains("no range maps the user 5"),
        "{said}"
    );
    for wrong in [
        &["--uid-map", "0:1"][..],
        &["--uid-map", "0:1:2", "--uid-map", "1:5:1"],
        &["--gid-map", "0:0:0"],
        &["--chmod", "u+q"],
        &["--owner", "0:0", "--uid-map", "0:1:1"],
    ] {
        failed(
            &extern4_in(at, [&["build", "no.img", "tree"], wrong].concat()),
            2,
        );
    }
    // As /etc/subuid says it: the user's own id becomes 0, and the first of the range 1.
    ok(extern4_in(
        at,
        [
            "build",
            "-qF",
            "out.img",
            "tree.tar",
            "--uid-map=root:5:10",
            "--uid-map=4007:7:1",
        ],
    ));
    assert_eq!(stat("/tree/d"), "755 1:6\n");
}

#[test]
fn volumes_and_partitions_are_sources() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/etc")).expect("directories");
    fs::write(at.join("tree/etc/file"), vec![7; 300_000]).expect("a file");
    fs::hard_link(at.join("tree/etc/file"), at.join("tree/link")).expect("a link");
    fs::write(at.join("tree/mode"), "0").expect("a file");
    ok(extern4_in(
        at,
        ["build", "-q", "--owner", "7:8", "old.img", "tree"],
    ));
    let old = fs::read(at.join("old.img")).expect("an image");
    let mut disk = vec![0; 1 << 20];
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&u32::to_le_bytes(2048));
    disk[446 + 12..446 + 16].copy_from_slice(&u32::to_le_bytes(old.len() as u32 / 512));
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend_from_slice(&old);
    fs::write(at.join("disk.img"), disk).expect("a disk");
    for source in ["old.img", "disk.img#1", "disk.img@1M"] {
        ok(extern4_in(at, ["build", "-qF", "new.img", source]));
        assert!(
            fs::read(at.join("new.img")).expect("an image") == old,
            "{source}"
        );
    }
    // Over a directory, at another place, and seen by a user.
    fs::create_dir(at.join("upper")).expect("a directory");
    fs::write(at.join("upper/mode"), "1").expect("a file");
    ok(extern4_in(
        at,
        [
            "build",
            "-qF",
            "new.img",
            "disk.img#1:/srv",
            "old.img",
            "upper",
        ],
    ));
    assert_eq!(
        ok(extern4_in(
            at,
            ["cat", "new.img:/srv/mode", "new.img:/mode"]
        )),
        b"01"
    );
    // A volume can take the place of its source.
    ok(extern4_in(
        at,
        ["build", "-qF", "new.img", "new.img", "upper:/more"],
    ));
    assert_eq!(
        ok(extern4_in(
            at,
            ["cat", "new.img:/more/mode", "new.img:/srv/mode"]
        )),
        b"10"
    );
    let build =
        |args: &[&str], code| failed(&extern4_in(at, [&["build", "no.img"], args].concat()), code);
    assert!(
        build(&["disk.img"], 1).contains("a disk with partitions; name one of them: disk.img#1")
    );
    assert!(build(&["disk.img#2"], 1).contains("there is no partition 2"));
    let mut damaged = old.clone();
    // The inode table's checksums hold no longer.
    let table = damaged
        .windows(2)
        .position(|pair| pair == 0o40755_u16.to_le_bytes())
        .expect("an inode");
    damaged[table + 4] ^= 1;
    fs::write(at.join("damaged.img"), &damaged).expect("an image");
    let said = build(&["damaged.img"], 4);
    assert!(said.starts_with("extern4: build: 'damaged.img"), "{said}");
    assert!(!at.join("no.img").exists());
}

#[test]
fn a_signal_ends_a_build_and_leaves_nothing() {
    if !can_run(&[Need::Tool("perl")]) {
        return;
    }
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::write(at.join("out.img"), "mine").expect("a file");
    for (signal, code) in [(2, 130), (15, 143)] {
        // The archive never comes.
        let mut child = command()
            .current_dir(at)
            .args(["build", "-F", "out.img", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command");
        wait_until_listening(&child);
        tool(
            at,
            "perl",
            [
                "-e",
                "kill $ARGV[0], $ARGV[1]",
                &signal.to_string(),
                &child.id().to_string(),
            ],
        );
        let input = child.stdin.take();
        let output = child.wait_with_output().expect("a child");
        drop(input);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    assert_eq!(fs::read_dir(at).expect("a directory").count(), 1);
    assert_eq!(fs::read(at.join("out.img")).expect("a file"), b"mine");
}

#[test]
fn the_progress_is_shown_on_demand() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), vec![7; 30 << 20]).expect("a file");
    let built = extern4_in(
        at,
        [
            "build",
            "--progress=always",
            "--threads=1",
            "out.img",
            "tree",
        ],
    );
    let said = String::from_utf8(built.stderr).expect("UTF-8");
    assert!(
        said.starts_with("extern4: build: ")
            && said.contains(" % of 30.")
            && said.lines().count() >= 8,
        "{said}"
    );
    for quiet in [&["--progress=never"][..], &[], &["-q", "--progress=always"]] {
        ok(extern4_in(
            at,
            [&["build", "-F", "out.img", "tree"], quiet].concat(),
        ));
    }
    // The reader waits until the bar is there.
    if let Some(output) = on_terminal(at, "build - tree | (sleep 2; cat > out.img)") {
        assert!(
            String::from_utf8_lossy(&output).contains("B/30."),
            "{output:?}"
        );
    }
}

#[test]
fn files_are_labelled_by_their_paths() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/bin")).expect("directories");
    fs::write(at.join("tree/bin/sh"), "x").expect("a file");
    fs::write(
        at.join("contexts"),
        "/.* u:r:default\n/bin/.* -- u:r:bin\n/bin -d u:r:dir\n",
    )
    .expect("a file");
    fs::write(at.join("list"), "nod /null 0666 0 0 c 1 3\n").expect("a file");
    let manifest = ["--manifest", "list", "--selinux", "contexts"];
    ok(extern4_in(
        at,
        [
            &["build", "-q", "out.img", "tree:/opt/deep", "tree"][..],
            &manifest,
        ]
        .concat(),
    ));
    let labels = [
        ("/bin/sh", "bin"),
        ("/bin", "dir"),
        ("/opt/deep/bin/sh", "default"),
    ];
    // Files that no source gives have labels, too.
    for (path, label) in labels
        .into_iter()
        .chain(["/", "/lost+found", "/opt", "/null"].map(|path| (path, "default")))
    {
        let value = ok(extern4_in(
            at,
            [
                "getfattr",
                "-n",
                "security.selinux",
                &format!("out.img:{path}"),
            ],
        ));
        let value = String::from_utf8(value).expect("text");
        assert!(
            value.contains(&format!("security.selinux=\"u:r:{label}\"")),
            "{path}: {value}"
        );
        // As libselinux stores it, with a NUL at its end.
        let path = format!("out.img:{path}");
        let raw = ok(extern4_in(
            at,
            ["getfattr", "-n", "security.selinux", "--only-values", &path],
        ));
        assert_eq!(raw, format!("u:r:{label}\0").as_bytes(), "{path}");
    }
    fs::write(at.join("contexts"), "/.* -q u:r:x\n").expect("a file");
    let refused = extern4_in(
        at,
        ["build", "-q", "no.img", "tree", "--selinux", "contexts"],
    );
    assert!(
        failed(&refused, 2).contains("'contexts', line 1: '-q'"),
        "{refused:?}"
    );
    assert!(!at.join("no.img").exists());
}

#[test]
fn a_read_only_volume_is_compact_and_stays_as_it_is() {
    if !can_run(&[Need::Mount, Need::Tool("e2fsck")]) {
        return;
    }
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), vec![7; 30 << 20]).expect("a file");
    ok(extern4_in(at, ["build", "-q", "usual.img", "tree"]));
    let said = String::from_utf8(ok(extern4_in(
        at,
        ["build", "--read-only", "out.img", "tree"],
    )));
    assert!(
        said.expect("UTF-8")
            .ends_with("without a journal, 0 bytes are free\n")
    );
    let size = |name: &str| fs::metadata(at.join(name)).expect("an image").len();
    assert!(
        size("out.img") < size("usual.img") && size("out.img") < 31 << 20,
        "{}",
        size("out.img")
    );
    e2fsck(&at.join("out.img")).expect("a sound volume");
    let image = Image::in_directory(dir, "out.img");
    let at = image.scratch();
    // Linux mounts it for reading, whatever it is asked for.
    let mount = image.mount("rw");
    assert_eq!(
        fs::read(mount.path.join("file")).expect("a file").len(),
        30 << 20
    );
    let refused = fs::write(mount.path.join("new"), "x").expect_err("it is read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    mount.unmount();
    let refused = extern4_in(at, ["touch", "out.img:/new"]);
    assert!(failed(&refused, 3).contains("read-only"), "{refused:?}");
    failed(
        &extern4_in(
            at,
            ["build", "--read-only", "--size", "1G", "no.img", "tree"],
        ),
        2,
    );
}

#[test]
fn a_volume_is_put_into_a_partition() {
    if !can_run(&[Need::Tool("e2fsck"), Need::Tool("sfdisk")]) {
        return;
    }
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), "text").expect("a file");
    ok(extern4_in(
        at,
        ["build", "-q", "-L", "root fs", "plain.img", "tree"],
    ));
    ok(extern4_in(
        at,
        [
            "build",
            "-q",
            "-L",
            "root fs",
            "--partition",
            "disk.img",
            "tree",
        ],
    ));
    let plain = fs::read(at.join("plain.img"));
    let disk = fs::read(at.join("disk.img"));
    let plain = plain.expect("an image");
    let disk = disk.expect("a disk");
    assert!(disk[1 << 20..][..plain.len()] == plain[..]);
    assert_eq!(disk.len() % (1 << 20), 0);
    for place in [
        "disk.img#1:/file",
        "disk.img#root fs:/file",
        "disk.img@1M:/file",
    ] {
        assert_eq!(ok(extern4_in(at, ["cat", place])), b"text", "{place}");
    }
    failed(&extern4_in(at, ["cat", "disk.img#other:/file"]), 1);
    let said = String::from_utf8(tool(at, "sfdisk", ["--verify", "disk.img"])).expect("UTF-8");
    assert!(
        said.contains("No errors detected") && said.contains("Header version: 1.0"),
        "{said}"
    );
    let said = String::from_utf8(tool(at, "sfdisk", ["--dump", "disk.img"])).expect("UTF-8");
    assert!(
        said.contains("label: gpt") && said.contains("start=        2048"),
        "{said}"
    );
    assert!(
        said.contains("name=\"root fs\"") && said.contains("0FC63DAF-8483-4772-8E79-3D69D8477DE4"),
        "{said}"
    );
    // The same bytes each time.
    ok(extern4_in(
        at,
        [
            "build",
            "-qF",
            "-L",
            "root fs",
            "--partition",
            "again.img",
            "tree",
        ],
    ));
    assert!(fs::read(at.join("again.img")).expect("a disk") == disk);
    // A disk can be a source, and a partition of it can be filled again; a partition has no table.
    ok(extern4_in(
        at,
        ["build", "-q", "copy.img", "disk.img#root fs"],
    ));
    ok(extern4_in(at, ["build", "-qF", "disk.img#1", "tree"]));
    let refused = extern4_in(at, ["build", "-qF", "--partition", "disk.img#1", "tree"]);
    assert!(failed(&refused, 2).contains("need OUT to be a new file"));
}

#[test]
fn a_hash_tree_of_verity_is_appended() {
    if !can_run(&[Need::Tool("e2fsck"), Need::Tool("veritysetup")]) {
        return;
    }
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), vec![7; 3 << 20]).expect("a file");
    // One level of the tree and two; blocks of data that are smaller and larger than the blocks of
    // the tree; space without contents.
    for (name, size, more) in [
        ("small.img", "+0", &["--read-only", "-b", "4096"][..]),
        ("two.img", "80M", &[]),
        ("kib.img", "auto", &["-b", "1024", "--no-journal"]),
        ("large.img", "32M", &["-b", "65536"]),
    ] {
        let size: &[&str] = if name == "small.img" {
            &[]
        } else {
            &["--size", size]
        };
        let args = [&["build", "--verity", name, "tree"], size, more].concat();
        let said = String::from_utf8(ok(extern4_in(at, &args))).expect("UTF-8");
        let quiet = [
            &[
                "build",
                "-qF",
                "--threads=1",
                "--verity",
                "again.img",
                "tree",
            ],
            size,
            more,
        ]
        .concat();
        let root = String::from_utf8(ok(extern4_in(at, quiet))).expect("UTF-8");
        let line = said.lines().last().expect("a line");
        assert!(
            line.ends_with(&format!("root hash {}", root.trim())),
            "{line}"
        );
        assert!(
            fs::read(at.join("again.img")).expect("a file")
                == fs::read(at.join(name)).expect("a file")
        );
        let offset = line
            .split_whitespace()
            .find_map(|word| word.strip_suffix(','))
            .expect("an offset");
        e2fsck(&at.join(name)).expect("a sound volume");
        let verify = ["verify", name, name, root.trim(), "--hash-offset", offset];
        tool(at, "veritysetup", verify);
        // The tree is that of veritysetup.
        let dump = String::from_utf8(tool(
            at,
            "veritysetup",
            ["dump", name, "--hash-offset", offset],
        ));
        let dump = dump.expect("UTF-8");
        let field = |name: &str| {
            let line = dump
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .expect("a field");
            line.trim_start_matches(':')
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let volume = fs::read(at.join(name)).expect("a file");
        fs::write(
            at.join("data"),
            &volume[..offset.parse().expect("a number")],
        )
        .expect("a file");
        let options = [
            format!("--salt={}", field("Salt")),
            format!("--uuid={}", field("UUID")),
            format!("--data-block-size={}", field("Data block size")),
            format!("--data-blocks={}", field("Data blocks")),
            format!("--hash-offset={offset}"),
        ];
        let format = ["format", "data", "data"].map(str::to_owned);
        let made = tool(at, "veritysetup", format.iter().chain(&options));
        assert!(
            String::from_utf8_lossy(&made).contains(root.trim()),
            "{name}"
        );
        assert!(
            fs::read(at.join("data")).expect("a file") == volume,
            "{name}"
        );
        // A changed byte is found.
        let mut changed = volume;
        changed[2000] ^= 1;
        fs::write(at.join(name), &changed).expect("a file");
        let mut verifier = std::process::Command::new("veritysetup");
        let refused = verifier
            .current_dir(at)
            .args(verify)
            .output()
            .expect("veritysetup");
        assert!(!refused.status.success());
    }
    // In a partition, the offset counts from the start of that.
    let said = ok(extern4_in(
        at,
        ["build", "--verity", "--partition", "disk.img", "tree"],
    ));
    let said = String::from_utf8(said).expect("UTF-8");
    let line = said.lines().last().expect("a line").to_owned();
    let offset = line
        .split_whitespace()
        .find_map(|word| word.strip_suffix(','))
        .expect("an offset");
    assert_eq!(
        ok(extern4_in(at, ["cat", "disk.img#1:/file"])).len(),
        3 << 20
    );
    let disk = fs::read(at.join("disk.img")).expect("a disk");
    assert_eq!(
        disk[(1 << 20) + offset.parse::<usize>().expect("a number")..][..6],
        *b"verity"
    );
    failed(
        &extern4_in(at, ["build", "-F", "--verity", "disk.img#1", "tree"]),
        2,
    );
}

#[test]
fn files_with_fs_verity_are_read_and_not_changed() {
    if !can_run(&[Need::Tool("e2fsck")]) {
        return;
    }
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at / 13) as u8).collect();
    fs::write(at.join("tree/sealed"), &bytes).expect("a file");
    fs::write(at.join("tree/open"), "open").expect("a file");
    let args = [
        "build",
        "-q",
        "--fs-verity",
        "/sealed",
        "--fs-verity",
        "nothing",
        "sealed.img",
        "tree",
    ];
    ok(extern4_in(at, args));
    e2fsck(&at.join("sealed.img")).expect("a sound volume");
    ok(extern4_in(at, ["check", "sealed.img"]));
    assert!(ok(extern4_in(at, ["cat", "sealed.img:/sealed"])) == bytes);
    let listed = String::from_utf8(ok(extern4_in(at, ["lsattr", "sealed.img:/"]))).expect("UTF-8");
    let sealed: Vec<_> = listed.lines().filter(|line| line.contains('V')).collect();
    assert!(
        sealed.len() == 1 && sealed[0].ends_with("/sealed"),
        "{listed}"
    );
    assert!(failed(&extern4_in(at, ["touch", "sealed.img:/open"]), 3).contains("verity"));
    // A pattern that matches nothing leaves the feature out.
    ok(extern4_in(
        at,
        ["build", "-q", "--fs-verity", "nothing", "open.img", "tree"],
    ));
    ok(extern4_in(at, ["touch", "open.img:/open"]));
}
