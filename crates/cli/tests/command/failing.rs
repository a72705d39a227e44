//! Failures: their messages and exit codes.

use std::os::unix::fs::FileExt as _;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{LoopDevice, Need, can_run};
use extern4_testkit::zoo;

use crate::run::{command, extern4, failed, machine, ok, partitioned, wipe_superblock};

#[test]
fn failures_have_their_codes() {
    let image = machine();
    std::fs::write(image.scratch().join("zeroes"), vec![0; 1 << 20]).expect("a file");
    let check = |args: &[&str], code: i32, says: &str| {
        let errors = failed(&extern4(&image, args), code);
        assert!(errors.contains(says), "{args:?} says {errors}");
    };
    check(
        &["ls", "disk.img:/gone"],
        1,
        "extern4: ls: 'disk.img:/gone': No such file or directory\n",
    );
    check(
        &["ls", "gone.img"],
        1,
        "extern4: ls: 'gone.img': No such file or directory",
    );
    check(
        &["cat", "disk.img:/etc"],
        1,
        "extern4: cat: 'disk.img:/etc': Is a directory\n",
    );
    check(&["cat", "disk.img:/etc/hostname/x"], 1, "Not a directory\n");
    check(&["tree", "disk.img:/etc/hostname"], 1, "Not a directory");
    check(&["ls", "disk.img#1"], 1, "partition");
    check(&["ls"], 2, "required");
    check(&["ls", "--nonsense", "disk.img"], 2, "--nonsense");
    check(&["nonsense"], 2, "nonsense");
    check(&["find", "-name", "x"], 2, "name a directory to search");
    check(&["find", "disk.img", "-nonsense"], 2, "-nonsense");
    check(
        &["find", "disk.img", "-user", "nobody-there"],
        2,
        "is not a user of disk.img",
    );
    check(&["--as", "ann:", "ls", "disk.img"], 2, "1000:1000");
    check(
        &["--as", "joe", "ls", "disk.img"],
        1,
        "'disk.img' has no user joe in its /etc/passwd",
    );
    check(
        &["bench", "disk.img", "--superblock", "32768"],
        2,
        "for walk",
    );
    check(
        &[
            "--journal",
            "x",
            "bench",
            "ops",
            "--op",
            "chmod",
            "disk.img",
        ],
        2,
        "for walk",
    );
    check(&["info", "zeroes"], 3, "zeroes");
    check(&["ls", "zeroes:/etc", "disk.img:/gone"], 3, "gone");
}

#[test]
fn the_rest_is_done_and_the_worst_counts() {
    let image = machine();
    let output = extern4(
        &image,
        [
            "ls",
            "-d",
            "disk.img:/gone",
            "disk.img:/etc",
            "gone.img",
            "disk.img:/bin",
        ],
    );
    failed(&output, 1);
    assert_eq!(output.stdout, b"disk.img:/bin\ndisk.img:/etc\n");
}

#[test]
fn a_caller_sees_what_he_may() {
    let image = machine();
    let as_ann = |args: &[&str]| extern4(&image, [&["--as", "1000:1000,50"], args].concat());
    assert_eq!(
        ok(as_ann(&["cat", "disk.img:/home/ann/notes.txt"])),
        b"buy milk\n"
    );
    let errors = failed(&as_ann(&["ls", "disk.img:/root"]), 1);
    assert_eq!(errors, "extern4: ls: 'disk.img:/root': Permission denied\n");
    for ann in ["ann", "1000"] {
        assert_eq!(
            ok(extern4(
                &image,
                ["--as", ann, "cat", "disk.img:/home/ann/notes.txt"]
            )),
            b"buy milk\n"
        );
        let errors = failed(&extern4(&image, ["--as", ann, "ls", "disk.img:/root"]), 1);
        assert_eq!(errors, "extern4: ls: 'disk.img:/root': Permission denied\n");
    }
    // The group of ann in the volume's /etc/group.
    ok(extern4(&image, ["chown", "0:50", "disk.img:/bin/true"]));
    ok(extern4(&image, ["chmod", "040", "disk.img:/bin/true"]));
    assert_eq!(
        ok(extern4(
            &image,
            ["--as", "ann", "cat", "disk.img:/bin/true"]
        )),
        b"#!/bin/sh\n"
    );
    failed(
        &extern4(&image, ["--as", "1000:1000", "cat", "disk.img:/bin/true"]),
        1,
    );
    let errors = failed(
        &extern4(
            &image,
            ["cat", "disk.img:/home/ann/notes.txt", "--as", "7:7"],
        ),
        1,
    );
    assert_eq!(
        errors,
        "extern4: cat: 'disk.img:/home/ann/notes.txt': Permission denied\n"
    );
    let output = as_ann(&["find", "disk.img:/root"]);
    assert_eq!(
        failed(&output, 1),
        "extern4: find: 'disk.img:/root': Permission denied\n"
    );
    assert_eq!(output.stdout, b"disk.img:/root\n");
}

#[test]
fn a_disk_with_partitions_says_so() {
    let image = machine();
    partitioned(&image);
    let errors = failed(&extern4(&image, ["ls", "sdcard.img"]), 3);
    let expected = "extern4: ls: 'sdcard.img': this is a disk with partitions; name one of them: sdcard.img#1, sdcard.img#2\n";
    assert_eq!(errors, expected);
    for place in [
        "sdcard.img#2:/etc/hostname",
        "sdcard.img@1M:/etc/hostname",
        "sdcard.img@1048576:/etc/hostname",
    ] {
        assert_eq!(ok(extern4(&image, ["cat", place])), b"tiny\n", "{place}");
    }
    let errors = failed(&extern4(&image, ["ls", "sdcard.img#7"]), 1);
    assert!(errors.contains("there is no partition 7"), "{errors}");
    let text = String::from_utf8(ok(extern4(&image, ["info", "sdcard.img"]))).expect("text");
    assert!(
        text.contains("sdcard.img#2") && text.contains("tiny") && text.contains("ext4"),
        "{text}"
    );
    let json = ok(extern4(&image, ["info", "--json", "sdcard.img"]));
    let json: serde_json::Value = serde_json::from_slice(&json).expect("an object");
    assert_eq!(json["partitions"][1]["start_bytes"], 1 << 20);
    assert_eq!(json["partitions"][1]["label"], "tiny");
}

#[test]
fn images_that_have_to_be_unwrapped_first_are_named() {
    let image = machine();
    let cases: [(&str, &[u8], &str); 3] = [
        (
            "a.qcow2",
            b"QFI\xfb\0\0\0\x03",
            "this is a qcow2 image; make a plain one of it with qemu-img convert -O raw",
        ),
        (
            "a.gz",
            b"\x1f\x8b\x08",
            "this is a compressed image; make a plain one of it with gzip -d",
        ),
        ("short", b"Q", "not an ext2, ext3 or ext4 file system"),
    ];
    for (name, start, says) in cases {
        std::fs::write(image.scratch().join(name), start).expect("a file");
        for command in ["ls", "info", "recover", "mkdir"] {
            let errors = failed(&extern4(&image, [command, name]), 3);
            let expected = format!("extern4: {command}: '{name}': {says}");
            assert!(errors.starts_with(&expected), "{errors}");
        }
    }
}

#[test]
fn a_partition_can_be_written_while_the_kernel_has_another() {
    if !can_run(&[Need::Mount, Need::Tool("losetup")]) {
        return;
    }
    let image = machine();
    let disk = partitioned(&image);
    let mkdir = |name: &str| extern4(&image, ["mkdir", &format!("sdcard.img#2:/{name}")]);
    {
        let _before = LoopDevice::attach_part(&disk, 64 * 512, 1024 * 512);
        assert_eq!(ok(mkdir("beside")), b"");
    }
    for (offset, len) in [(0, (1 << 20) + 512), (1 << 20, 1 << 20), (2 << 20, 1 << 20)] {
        let _part = LoopDevice::attach_part(&disk, offset, len);
        let errors = failed(&mkdir("through"), 1);
        assert!(
            errors.contains("the kernel has it in use, through /dev/loop"),
            "{offset}: {errors}"
        );
    }
}

#[test]
fn odd_names_of_images_are_reached() {
    let image = machine();
    for name in ["a:b.img", "c#2", "d@512", "e:/f"] {
        let path = image.scratch().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::copy(&image.path, &path).expect("a copy");
        let place = format!("{name}:/etc/hostname");
        assert_eq!(ok(extern4(&image, ["cat", &place])), b"tiny\n", "{name}");
    }
}

#[test]
fn an_unknown_feature_is_refused_by_name() {
    let image = machine();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .expect("an image");
    // s_feature_incompat of the superblock, with a bit that nothing has ever used.
    let mut features = [0; 4];
    let read = std::fs::File::open(&image.path).expect("an image");
    read.read_exact_at(&mut features, 1024 + 0x60)
        .expect("a superblock");
    features[3] |= 0x80;
    file.write_all_at(&features, 1024 + 0x60)
        .expect("a superblock");
    let errors = failed(&extern4(&image, ["ls", "disk.img"]), 3);
    assert!(errors.contains("FEATURE_I31"), "{errors}");
}

#[test]
fn a_journal_elsewhere_is_missed_without_blame() {
    let spec = zoo::spec("ext4_external_journal");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let name = image
        .path
        .file_name()
        .expect("a name")
        .to_str()
        .expect("text");
    ok(extern4(&image, ["ls", name]));
    let said = failed(&extern4(&image, ["mkdir", &format!("{name}:/new")]), 3);
    assert!(
        said.contains("its journal is on another device, which was not given"),
        "{said}"
    );
    assert!(
        !said.contains("was not cleanly unmounted"),
        "it was: {said}"
    );
}

#[test]
fn corruption_is_told_with_its_place() {
    let image = machine();
    let json = ok(extern4(&image, ["inode", "--json", "disk.img:/etc"]));
    let json: serde_json::Value = serde_json::from_slice(&json).expect("an object");
    let block = json["blocks"][0]["physical"].as_u64().expect("a block");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .expect("an image");
    file.write_all_at(&[0xff; 64], block * 4096 + 100)
        .expect("a directory block");
    let errors = failed(&extern4(&image, ["ls", "disk.img:/etc"]), 4);
    assert!(
        errors.starts_with("extern4: ls: 'disk.img:/etc': "),
        "{errors}"
    );
    assert!(errors.contains(&block.to_string()), "{errors}");
    let output = extern4(&image, ["find", "disk.img"]);
    failed(&output, 4);
    assert!(String::from_utf8_lossy(&output.stdout).contains("/home/ann/notes.txt"));
}

#[test]
fn a_volume_without_a_root_directory_is_corrupt() {
    for damage in ["clri <2>", "sif <2> links_count 0", "sif <2> mode 0100755"] {
        let image = machine();
        image.debugfs(&format!("{damage}\n"));
        for command in [
            &["ls", "disk.img"][..],
            &["check", "disk.img"],
            &["touch", "disk.img:/new"],
        ] {
            let errors = failed(&extern4(&image, command), 4);
            assert!(
                errors.contains("there is no root directory"),
                "{damage}: {errors}"
            );
        }
    }
}

#[test]
fn a_volume_without_its_superblock_is_read_by_a_copy_of_it() {
    for (bytes, mke2fs, backup) in [
        (16 << 20, &["-t", "ext4", "-b", "1024"], "8193"),
        (64 << 20, &["-t", "ext3", "-b", "2048"], "16384"),
        (160 << 20, &["-t", "ext4", "-b", "4096"], "32768"),
    ] {
        let spec = ImageSpec::new("disk", bytes, mke2fs);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        ok(extern4(&image, ["mkdir", "disk.img:/dir"]));
        wipe_superblock(&image);
        let said = failed(&extern4(&image, ["ls", "disk.img"]), 3);
        assert!(
            said.contains("there is no ext superblock (bad magic number)"),
            "{said}"
        );
        assert!(said.contains(&format!("--superblock {backup}\n")), "{said}");
        let by =
            |block: &str, args: &[&str]| extern4(&image, [&["--superblock", block], args].concat());
        assert_eq!(ok(by(backup, &["ls", "disk.img"])), b"dir\nlost+found\n");
        let said = failed(&by("5", &["ls", "disk.img"]), 3);
        assert!(
            said.contains("there is no backup superblock there"),
            "{said}"
        );
        assert!(said.contains(&format!("--superblock {backup}\n")), "{said}");
        let said = failed(&by(backup, &["mkdir", "disk.img:/new"]), 3);
        assert!(said.contains("a backup superblock was asked for"), "{said}");
    }
    // The command suggests no copy for a volume without copies.
    let image = ImageSpec::new("disk", 4 << 20, &["-t", "ext4", "-b", "1024"]).build();
    wipe_superblock(&image);
    assert!(!failed(&extern4(&image, ["ls", "disk.img"]), 3).contains("--superblock"));
}

/// A damage by `debugfs`, the exit code of reading the volume, and the message where it cannot be
/// opened.
type Damage = (&'static str, i32, &'static str);

/// Damage to each structure that opening a volume needs. A structure that only changes need does
/// not prevent reading.
const DAMAGE: [Damage; 14] = [
    ("clri <8>", 0, "the journal is not a file that is in use"),
    (
        "sif <8> mode 040755",
        0,
        "the journal is not a file that is in use",
    ),
    (
        "sif <8> links_count 0",
        0,
        "the journal is not a file that is in use",
    ),
    (
        "punch <8> 100 200",
        0,
        "the journal is shorter than its superblock says",
    ),
    ("zap_block -f <8> 0", 0, "journal superblock, block"),
    ("ssv journal_inum 9999999", 4, "s_journal_inum"),
    (
        "ssv journal_inum 300",
        0,
        "the journal: inode, inode 300: no such inode is in use",
    ),
    (
        "clri <3>",
        0,
        "the quota file of users: quota file, inode 3",
    ),
    (
        "zap_block -f <4> 0",
        0,
        "the quota file of groups: quota file, inode 4",
    ),
    (
        "ssv prj_quota_inum 300",
        0,
        "the quota file of projects: inode, inode 300: no such inode is in use",
    ),
    ("clri <2>", 4, "there is no root directory"),
    ("sif <2> mode 0100644", 4, "there is no root directory"),
    ("sif <2> links_count 0", 4, "there is no root directory"),
    (
        "set_bg 0 inode_table 99999999\nset_bg 0 checksum calc",
        0,
        "group descriptor, group 0",
    ),
];

#[test]
fn damage_that_keeps_a_volume_from_being_opened_is_corruption() {
    const MADE: &[&str] = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "quota,project,orphan_file",
    ];
    let spec = ImageSpec::new("disk", 16 << 20, MADE);
    if !spec.can_run() {
        return;
    }
    let ends = |image: &Image, args: &[&str], code: i32, says: &str, what: &str| {
        let output = extern4(image, args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{what}, {args:?}: {said}");
        assert!(said.contains(says), "{what}, {args:?}: {said}");
    };
    for (script, reading, says) in DAMAGE {
        let image = spec.build();
        image.debugfs(script);
        ends(
            &image,
            &["ls", "disk.img"],
            reading,
            if reading == 0 { "" } else { says },
            script,
        );
        ends(&image, &["mkdir", "disk.img:/new"], 4, says, script);
        ends(&image, &["check", "disk.img"], 4, "", script);
    }
    let image = spec.build();
    let script = "feature orphan_present\nssv orphan_file_inum 300";
    image.debugfs(script);
    let says =
        "the orphan file: orphan list, inode 300: the orphan file is not a file that is in use";
    ends(&image, &["mkdir", "disk.img:/new"], 0, says, script);
    ends(&image, &["check", "disk.img"], 4, "", script);
    // debugfs does not leave this behind.
    let image =
        ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-b", "1024", "-O", "mmp"]).build();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&image.path)
        .expect("the image opens");
    let mut number = [0; 8];
    file.read_exact_at(&mut number, 1024 + 0x168)
        .expect("s_mmp_block");
    file.write_all_at(&[0; 1024], u64::from_le_bytes(number) * 1024)
        .expect("it is written");
    ends(&image, &["ls", "disk.img"], 0, "MMP block, block", "mmp");
    for args in [&["mkdir", "disk.img:/new"], &["check", "disk.img"][..]] {
        ends(&image, args, 4, "MMP block, block", "mmp");
    }
}

#[test]
fn a_closed_pipe_is_quiet() {
    let image = machine();
    for args in [
        &["find", "disk.img"][..],
        &["cat", "disk.img:/etc/passwd"],
        &["ls", "-lR", "disk.img"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command()
            .current_dir(image.scratch())
            .args(args)
            .stdout(writer)
            .output();
        let output = output.expect("the command runs");
        assert_eq!(failed(&output, 141), "", "{args:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let image = machine();
    let cases = [
        &["ls", "disk.img"][..],
        &["cat", "disk.img:/etc/passwd"],
        &["--help"],
        &["ls", "--help"],
        &["-V"],
    ];
    for args in cases {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("a device");
        let output = command()
            .current_dir(image.scratch())
            .args(args)
            .stdout(full)
            .output();
        let errors = failed(&output.expect("the command runs"), 1);
        assert!(
            errors.contains("cannot write: No space left on device"),
            "{args:?}: {errors}"
        );
    }
}

#[test]
fn nothing_is_written_to_the_image() {
    let image = machine();
    let before = std::fs::read(&image.path).expect("an image");
    for args in [
        &["ls", "-lR", "disk.img"][..],
        &["cat", "disk.img:/etc/passwd"],
        &["info", "disk.img"],
    ] {
        ok(extern4(&image, args));
    }
    assert!(before == std::fs::read(&image.path).expect("an image"));
}

/// A volume of four groups, in which the first has a wrong block bitmap.
fn with_damaged_group() -> Image {
    let image = ImageSpec::new("disk", 32 << 20, &["-t", "ext4", "-b", "1024"]).build();
    let volume = extern4::Volume::open(&image.path).expect("the volume opens");
    let bitmap = volume.ext4().group(0).expect("a descriptor").block_bitmap();
    drop(volume);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .expect("an image");
    file.write_all_at(&[0xa5; 8], bitmap * 1024 + 1000)
        .expect("it is written");
    image
}

#[test]
fn damage_of_one_group_is_a_warning_where_changes_go_on() {
    let image = with_damaged_group();
    let output = extern4(&image, ["mkdir", "disk.img:/a", "disk.img:/b"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    let warns = |line: &str| {
        line.contains("'disk.img': block bitmap, group 0") && line.contains("set aside")
    };
    assert!(
        said.lines().filter(|line| warns(line)).count() == 1,
        "{said}"
    );
    assert_eq!(
        ok(extern4(&image, ["ls", "disk.img:/"])),
        b"a\nb\nlost+found\n"
    );
}

#[test]
fn changes_that_damage_has_ended_are_corrupt() {
    for policy in ["remount-ro", "panic"] {
        let image = with_damaged_group();
        crate::run::tool(image.scratch(), "tune2fs", ["-e", policy, "disk.img"]);
        let errors = failed(&extern4(&image, ["mkdir", "disk.img:/a", "disk.img:/b"]), 4);
        assert!(
            errors.contains("group 0")
                && errors.contains("'disk.img:/b': Read-only file system: damage has been found"),
            "{errors}"
        );
        assert_eq!(
            ok(extern4(&image, ["ls", "disk.img:/"])),
            b"a\nlost+found\n"
        );
    }
}

#[test]
fn a_mount_passes_over_damage_or_ends_changes() {
    if !crate::mounting::can_mount() {
        return;
    }
    for policy in ["continue", "remount-ro", "panic"] {
        let image = with_damaged_group();
        let mount = crate::mounting::Served::new(&image, &["-o", &format!("errors={policy}")]);
        std::fs::create_dir(mount.path("a")).expect("the other groups have room");
        let second = std::fs::create_dir(mount.path("b")).map_err(|error| error.raw_os_error());
        match policy {
            "continue" => assert_eq!(second, Ok(()), "{policy}"),
            _ => assert_eq!(second, Err(Some(30)), "{policy}: EROFS"),
        }
        assert_eq!(
            std::fs::read_dir(mount.path("a"))
                .expect("it can be read")
                .count(),
            0
        );
        mount.umount();
        assert!(
            ok(extern4(&image, ["ls", "disk.img:/"])).starts_with(b"a\n"),
            "{policy}"
        );
    }
}
