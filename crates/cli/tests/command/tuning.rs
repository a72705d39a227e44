//! Changes of a volume as a whole: `tune`.

use extern4_testkit::image::{Image, ImageSpec};

use crate::run::{extern4, failed, tool};
use crate::writing::{quietly, sound, untouched};

/// Returns the superblock in a block as `dumpe2fs` shows it, without the fields that each opening
/// changes.
fn header(image: &Image, superblock: &[&str]) -> Vec<String> {
    let mut args = vec!["-h"];
    args.extend(superblock);
    args.push(image.path.to_str().expect("a path"));
    let text = tool(image.scratch(), "dumpe2fs", args);
    let changing = [
        "Last mount time",
        "Last write time",
        "Mount count",
        "Lifetime writes",
        "Checksum:",
        "Journal",
    ];
    let text = String::from_utf8_lossy(&text);
    let lines = text
        .lines()
        .filter(|line| !changing.iter().any(|start| line.starts_with(start)));
    lines.map(ToOwned::to_owned).collect()
}

#[test]
fn volumes_are_tuned_as_tune2fs_does() {
    const UUID: &str = "11111111-2222-3333-4444-555555555555";
    let image = ImageSpec::new(
        "disk",
        32 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "metadata_csum,metadata_csum_seed",
            "-L",
            "old",
        ],
    )
    .build();
    for (ours, theirs) in [
        (&["--label", "new label"][..], &["-L", "new label"][..]),
        (&["--label", ""], &["-L", ""]),
        (&["--uuid", UUID], &["-U", UUID]),
        (&["--uuid", "clear"], &["-U", "clear"]),
        (&["--errors", "continue"], &["-e", "continue"]),
        (&["--errors", "remount-ro"], &["-e", "remount-ro"]),
        (&["--errors", "panic"], &["-e", "panic"]),
        (&["--reserved-blocks", "1234"], &["-r", "1234"]),
        (&["--reserved-percent", "3.7"], &["-m", "3.7"]),
        (&["--reserved-blocks", "0"], &["-r", "0"]),
        (
            &["--label", "both", "--errors", "panic"],
            &["-L", "both", "-e", "panic"],
        ),
    ] {
        let oracle = image.copy();
        let tuned = image.copy();
        tool(
            oracle.scratch(),
            "tune2fs",
            [theirs, &["disk.img"]].concat(),
        );
        quietly(&tuned, &[&["tune", "disk.img"], ours].concat());
        assert_eq!(header(&tuned, &[]), header(&oracle, &[]), "{ours:?}");
        let backup = ["-o", "superblock=8193", "-o", "blocksize=1024"];
        let label = |image: &Image| {
            let of_backup = header(image, &backup).into_iter();
            of_backup
                .filter(|line| line.starts_with("Filesystem volume name"))
                .collect::<Vec<_>>()
        };
        assert_eq!(label(&tuned), label(&oracle), "{ours:?}");
        sound(&tuned);
    }
    quietly(&image, &["tune", "disk.img", "--uuid", "random"]);
    sound(&image);
    untouched(&image, || {
        failed(&extern4(&image, ["tune", "disk.img"]), 2);
        failed(
            &extern4(&image, ["tune", "disk.img", "--label", "seventeen bytes n"]),
            2,
        );
        failed(&extern4(&image, ["tune", "disk.img", "--uuid", "1"]), 2);
        failed(
            &extern4(&image, ["tune", "disk.img", "--reserved-percent", "51"]),
            2,
        );
    });
    let errors = failed(
        &extern4(&image, ["tune", "disk.img", "--reserved-blocks", "20000"]),
        1,
    );
    assert!(errors.contains("half of them can, "), "{errors}");
    sound(&image);
}

#[test]
fn the_count_of_mounts_is_that_of_tune2fs() {
    let image = ImageSpec::new("disk", 16 << 20, &["-t", "ext4"]).build();
    let counts = |image: &Image| {
        let text = tool(image.scratch(), "dumpe2fs", ["-h", "disk.img"]);
        let text = String::from_utf8_lossy(&text).into_owned();
        let value = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.expect("a line").trim().to_owned()
        };
        (value("Mount count"), value("Maximum mount count"))
    };
    for count in ["7", "0", "16000"] {
        let oracle = image.copy();
        tool(
            oracle.scratch(),
            "tune2fs",
            ["-C", count, "-c", "9", "disk.img"],
        );
        quietly(&image, &["tune", "-C", count, "-c", "9", "disk.img"]);
        assert_eq!(counts(&image), (count.to_owned(), "9".to_owned()));
        assert_eq!(counts(&image), counts(&oracle));
        sound(&image);
    }
    failed(&extern4(&image, ["tune", "-C", "65536", "disk.img"]), 2);
}

/// A volume whose checksums depend on the UUID gets another UUID. `e2fsck` and the kernel find
/// nothing wrong, and the copies of the superblock get it, too.
#[test]
fn a_uuid_that_checksums_hang_on_is_changed() {
    const UUID: &str = "11111111-2222-3333-4444-555555555555";
    const SPECS: [ImageSpec; 7] = [
        ImageSpec::new(
            "disk",
            32 << 20,
            &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum_seed"],
        ),
        ImageSpec::new(
            "disk",
            32 << 20,
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-O",
                "^metadata_csum_seed,^has_journal,ea_inode",
            ],
        ),
        ImageSpec::new(
            "disk",
            32 << 20,
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-O",
                "^metadata_csum_seed,orphan_file",
            ],
        ),
        ImageSpec::new(
            "disk",
            32 << 20,
            &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
        ),
        ImageSpec::new(
            "disk",
            64 << 20,
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-O",
                "^metadata_csum,uninit_bg,meta_bg,^resize_inode,^has_journal",
            ],
        ),
        ImageSpec::new(
            "disk",
            32 << 20,
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-O",
                "^metadata_csum,^uninit_bg",
            ],
        ),
        ImageSpec::new(
            "disk",
            32 << 20,
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-O",
                "mmp,^metadata_csum_seed",
                "-E",
                "mmp_update_interval=1",
            ],
        ),
    ];
    for spec in SPECS {
        let image = spec.build();
        image.debugfs("mkdir d\nsymlink s target\n");
        let before = header(&image, &[]);
        let has = |lines: &[String], what: &str| lines.iter().any(|line| line.contains(what));
        quietly(
            &image,
            &["tune", "disk.img", "--uuid", UUID, "--label", "both"],
        );
        let after = header(&image, &[]);
        assert!(has(&after, UUID) && has(&after, "both"), "{after:#?}");
        let keeps = has(&before, " metadata_csum");
        assert_eq!(has(&after, "metadata_csum_seed"), keeps, "{after:#?}");
        assert!(has(
            &header(&image, &["-o", "superblock=8193", "-o", "blocksize=1024"]),
            UUID
        ));
        sound(&image);
        // By its backup. With multiple mount protection, e2fsck works by no backup.
        if !has(&before, " mmp") {
            let copy = image.copy();
            crate::run::wipe_superblock(&copy);
            let mut e2fsck = std::process::Command::new("e2fsck");
            let mended = e2fsck
                .args(["-fy", "-b", "8193"])
                .arg(&copy.path)
                .output()
                .expect("it runs");
            assert!(
                mended.status.code().is_some_and(|code| code < 4),
                "{before:#?}: {mended:?}"
            );
            assert!(has(&header(&copy, &[]), UUID));
        }
        // A second change, in one step now.
        quietly(&image, &["tune", "disk.img", "--uuid", "random"]);
        assert!(!has(&header(&image, &[]), UUID));
        quietly(&image, &["mkdir", "disk.img:/after"]);
        sound(&image);
        if extern4_testkit::tools::can_run(&[extern4_testkit::tools::Need::Mount]) {
            let mount = image.mount("rw,noatime");
            std::fs::write(mount.path.join("written"), b"by Linux").expect("a file");
            mount.unmount();
            sound(&image);
        }
    }
}

/// `tune` changes the superblock as `tune2fs` does, and `e2fsck` finds nothing afterwards.
#[test]
fn features_are_switched_as_tune2fs_does() {
    for (spec, changes) in [
        (
            &["-t", "ext4", "-b", "1024"][..],
            &["^huge_file", "^dir_nlink", "^dir_index", "stable_inodes"][..],
        ),
        (
            &["-t", "ext4", "-b", "4096", "-O", "^resize_inode"],
            &["^large_file", "^huge_file,^dir_nlink"],
        ),
        (
            &["-t", "ext2", "-b", "1024", "-O", "^dir_index"],
            &["extents", "dir_index", "large_file,huge_file"],
        ),
    ] {
        let image = ImageSpec::new("disk", 16 << 20, spec).build();
        for change in changes {
            let oracle = image.copy();
            let tuned = image.copy();
            // tune2fs asks twice before some changes.
            tool(
                oracle.scratch(),
                "tune2fs",
                ["-f", "-O", change, "disk.img"],
            );
            quietly(&tuned, &["tune", "disk.img", "-O", change]);
            // tune2fs leaves a volume that e2fsck has to look at.
            let state = |line: &String| line.starts_with("Filesystem state");
            let [ours, theirs] = [&tuned, &oracle].map(|image| {
                header(image, &[])
                    .into_iter()
                    .filter(|line| !state(line))
                    .collect::<Vec<_>>()
            });
            assert_eq!(ours, theirs, "{spec:?} {change}");
            sound(&tuned);
            quietly(&tuned, &["mkdir", "disk.img:/after"]);
            sound(&tuned);
        }
    }
}

#[test]
fn features_that_files_use_stay() {
    let spec = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-I",
        "256",
        "-O",
        "ea_inode,^resize_inode",
    ];
    let image = ImageSpec::new("disk", 32 << 20, spec).build();
    let value = format!("0x{}", "61".repeat(30_000));
    quietly(&image, &["touch", "disk.img:/f"]);
    quietly(
        &image,
        &["setfattr", "-n", "user.long", "-v", &value, "disk.img:/f"],
    );
    quietly(&image, &["truncate", "-s", "3G", "disk.img:/large"]);
    quietly(&image, &["mkdir", "disk.img:/d"]);
    let names: Vec<String> = (0..200)
        .map(|number| format!("disk.img:/d/a-rather-long-name-{number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    quietly(&image, &[&["touch"], &names[..]].concat());
    for (feature, path) in [
        ("ea_inode", "/f"),
        ("large_file", "/large"),
        ("dir_index", "/d"),
    ] {
        let change = format!("^{feature}");
        let before = header(&image, &[]);
        let errors = failed(
            &extern4(&image, ["tune", "disk.img", "-O", &change, "-L", "x"]),
            3,
        );
        assert!(
            errors.contains(&format!("use what is to be taken away: {feature}")),
            "{errors}"
        );
        assert_eq!(header(&image, &[]), before);
        quietly(&image, &["rm", "-r", &format!("disk.img:{path}")]);
        quietly(&image, &["tune", "disk.img", "-O", &change]);
        assert!(
            !header(&image, &[])
                .iter()
                .any(|line| line.starts_with("Filesystem features") && line.contains(feature))
        );
        sound(&image);
    }
    // tune2fs takes none of these away.
    quietly(&image, &["tune", "disk.img", "-O", "encrypt,stable_inodes"]);
    quietly(
        &image,
        &[
            "tune",
            "disk.img",
            "-O",
            "^encrypt,^stable_inodes,^large_file",
        ],
    );
    assert!(
        !header(&image, &[])
            .iter()
            .any(|line| line.contains("encrypt") || line.contains("stable_inodes"))
    );
    sound(&image);
    failed(
        &extern4(&image, ["tune", "disk.img", "-O", "^large_dir"]),
        2,
    );
}

/// `tune` adds and takes away the volume's own files as `tune2fs` does.
#[test]
fn journals_and_quotas_come_and_go_as_with_tune2fs() {
    type Lines = &'static [&'static [&'static str]];
    const CASES: [(&[&str], Lines); 9] = [
        (
            &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
            &[
                &["-j"],
                &["-O", "has_journal"],
                &["-J", "size=5"],
                &["-O", "^has_journal"],
                &["-O", "quota", "-j"],
            ],
        ),
        (
            &["-t", "ext4", "-O", "^has_journal,fast_commit"],
            &[&["-j", "-L", "label"]],
        ),
        (
            &["-t", "ext2", "-b", "1024"],
            &[&["-j"], &["-Q", "usrquota"]],
        ),
        (&["-t", "ext3", "-b", "1024"], &[&["-O", "^has_journal"]]),
        (
            &["-t", "ext4", "-b", "4096"],
            &[
                &["-O", "^has_journal"],
                &["-O", "has_journal"],
                &["-O", "quota"],
                &["-O", "project"],
                &["-O", "quota", "-Q", "prjquota"],
                &["-Q", "usr,grp,prj"],
                &["-O", "^quota"],
            ],
        ),
        (
            &["-t", "ext4", "-b", "1024", "-O", "quota,project"],
            &[
                &["-O", "^quota"],
                &["-O", "^project"],
                &["-Q", "^usrquota"],
                &["-Q", "^usr,^grp,^prj"],
                &["-O", "quota"],
            ],
        ),
        (
            &["-t", "ext4", "-O", "project"],
            &[
                &["-Q", "usrquota"],
                &["-Q", "^usrquota"],
                &["-Q", "prjquota"],
                &["-O", "^project"],
            ],
        ),
        (
            &["-t", "ext4", "-O", "quota", "-E", "quotatype=usrquota"],
            &[&["-Q", "^usrquota,prjquota"]],
        ),
        (
            &["-t", "ext4", "-O", "quota", "-E", "quotatype=prjquota"],
            &[&["-O", "^project"]],
        ),
    ];
    for (spec, lines) in CASES {
        let image = ImageSpec::new("disk", 32 << 20, spec).build();
        for uid in ["7", "1000", "100000"] {
            let path = format!("disk.img:/{uid}");
            quietly(&image, &["mkdir", &path]);
            quietly(&image, &["chown", &format!("{uid}:3"), &path]);
        }
        for line in lines {
            let oracle = image.copy();
            let tuned = image.copy();
            tool(oracle.scratch(), "tune2fs", [*line, &["disk.img"]].concat());
            quietly(&tuned, &[&["tune", "disk.img"], *line].concat());
            assert_eq!(
                header(&tuned, &[]),
                header(&oracle, &[]),
                "{spec:?} {line:?}"
            );
            let backup = |image: &Image| {
                let block = if header(image, &[])
                    .iter()
                    .any(|line| line == "Block size:               1024")
                {
                    ["-o", "superblock=8193", "-o", "blocksize=1024"]
                } else {
                    return Vec::new();
                };
                let wanted =
                    |line: &String| line.contains("features") || line.contains("quota inode");
                header(image, &block)
                    .into_iter()
                    .filter(wanted)
                    .collect::<Vec<_>>()
            };
            assert_eq!(backup(&tuned), backup(&oracle), "{spec:?} {line:?}");
            sound(&tuned);
            quietly(&tuned, &["mkdir", "disk.img:/after"]);
            quietly(&tuned, &["rm", "-r", "disk.img:/1000"]);
            sound(&tuned);
        }
    }
}

#[test]
fn a_volume_that_cannot_have_a_journal_stays() {
    let image = ImageSpec::new(
        "disk",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    )
    .build();
    untouched(&image, || {
        for (args, status, says) in [
            (
                &["-J", "device=/dev/null"][..],
                2,
                "only mkfs gives a volume a journal on another device",
            ),
            (
                &["-j", "-O", "^has_journal"],
                2,
                "a journal cannot be added and taken away at once",
            ),
            (
                &["-Q", "users"],
                2,
                "'users' is none of usrquota, grpquota and prjquota",
            ),
        ] {
            let errors = failed(
                &extern4(&image, [&["tune", "disk.img"], args].concat()),
                status,
            );
            assert!(errors.contains(says), "{args:?}: {errors}");
        }
    });
    let errors = failed(&extern4(&image, ["tune", "disk.img", "-J", "size=9"]), 1);
    assert!(
        errors.contains("a journal of 9216 blocks: 1024 to half of the volume's 16384"),
        "{errors}"
    );
    quietly(&image, &["tune", "disk.img", "-j"]);
    let errors = failed(
        &extern4(&image, ["tune", "disk.img", "-j", "-L", "not set"]),
        1,
    );
    assert!(
        errors.contains("'disk.img': it has a journal already"),
        "{errors}"
    );
    assert!(
        !header(&image, &[])
            .iter()
            .any(|line| line.contains("not set"))
    );
    sound(&image);
    let small = ImageSpec::new(
        "disk",
        1 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    )
    .build();
    let errors = failed(&extern4(&small, ["tune", "disk.img", "-j"]), 1);
    assert!(
        errors.contains("the volume is too small for a journal"),
        "{errors}"
    );
    sound(&small);
}

#[test]
fn a_uuid_that_more_than_checksums_hangs_on_stays() {
    for (features, says) in [
        (&["-t", "ext4", "-O", "stable_inodes"], "stable_inodes"),
        (&["-t", "ext4", "-O", "ea_inode,^metadata_csum"], "ea_inode"),
    ] {
        let image = ImageSpec::new("disk", 16 << 20, features).build();
        let before = header(&image, &[]);
        let errors = failed(
            &extern4(
                &image,
                ["tune", "disk.img", "--uuid", "random", "--label", "x"],
            ),
            3,
        );
        assert!(errors.contains(says), "{errors}");
        assert_eq!(header(&image, &[]), before);
        sound(&image);
    }
}

/// The list of the volumes that use an external journal gets the new UUID.
#[test]
fn an_external_journal_learns_the_new_uuid() {
    use extern4_testkit::tools::{LoopDevice, Need, can_run};
    const UUID: &str = "11111111-2222-3333-4444-555555555555";
    if !can_run(&[Need::Mount, Need::Tool("losetup")]) {
        return;
    }
    let image = ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-b", "1024"]).build();
    let journal = image.scratch().join("journal.img");
    std::fs::File::create(&journal)
        .and_then(|file| file.set_len(8 << 20))
        .expect("a file");
    tool(
        image.scratch(),
        "mke2fs",
        ["-q", "-b", "1024", "-O", "journal_dev", "journal.img"],
    );
    {
        let device = LoopDevice::attach(&journal);
        let device = format!("device={}", device.path.display());
        tool(
            image.scratch(),
            "mke2fs",
            ["-q", "-t", "ext4", "-b", "1024", "-J", &device, "disk.img"],
        );
    }
    quietly(
        &image,
        &[
            "--journal",
            "journal.img",
            "tune",
            "disk.img",
            "--uuid",
            UUID,
        ],
    );
    let said = tool(image.scratch(), "dumpe2fs", ["journal.img"]);
    let said = String::from_utf8_lossy(&said);
    assert!(
        said.lines()
            .any(|line| line.starts_with("Journal users:") && line.ends_with(UUID)),
        "{said}"
    );
    let taken = extern4(
        &image,
        [
            "--journal",
            "journal.img",
            "tune",
            "disk.img",
            "-O",
            "^has_journal",
        ],
    );
    let errors = failed(&taken, 3);
    assert!(
        errors.contains("its journal is on another device"),
        "{errors}"
    );
    quietly(
        &image,
        &["--journal", "journal.img", "mkdir", "disk.img:/after"],
    );
    let device = LoopDevice::attach(&journal);
    let device = device.path.to_str().expect("a path");
    tool(image.scratch(), "e2fsck", ["-fn", "-j", device, "disk.img"]);
}

/// `--rewrite` leaves a volume that readers without `metadata_csum_seed` can read.
#[test]
fn checksums_are_rewritten_for_a_new_uuid() {
    const UUID: &str = "11111111-2222-3333-4444-555555555555";
    let image = ImageSpec::new(
        "disk",
        32 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum_seed"],
    )
    .build();
    image.debugfs("mkdir d\nsymlink s target\n");
    let has = |image: &Image, what: &str| header(image, &[]).iter().any(|line| line.contains(what));
    for _ in 0..2 {
        quietly(
            &image,
            &[
                "tune",
                "disk.img",
                "--uuid",
                UUID,
                "--rewrite",
                "--label",
                "new",
            ],
        );
        assert!(has(&image, UUID) && has(&image, "new") && !has(&image, "metadata_csum_seed"));
        sound(&image);
    }
    // The seed that an earlier change kept goes away.
    quietly(&image, &["tune", "disk.img", "--uuid", "random"]);
    assert!(has(&image, "metadata_csum_seed"));
    quietly(&image, &["tune", "disk.img", "--uuid", UUID, "--rewrite"]);
    assert!(has(&image, UUID) && !has(&image, "metadata_csum_seed"));
    sound(&image);
    let damaged = image.copy();
    damaged.debugfs("sif /d links_count 7\n");
    untouched(&damaged, || {
        let errors = failed(
            &extern4(
                &damaged,
                ["tune", "disk.img", "--uuid", "random", "--rewrite"],
            ),
            4,
        );
        assert!(
            errors.contains("its checksums are not rewritten: check finds"),
            "{errors}"
        );
    });
    failed(&extern4(&image, ["tune", "disk.img", "--rewrite"]), 2);
}

#[test]
fn a_feature_that_ends_the_writing_says_so() {
    let image = ImageSpec::new("disk", 16 << 20, &["-t", "ext4"]).build();
    let tuned = extern4(&image, ["tune", "-O", "verity", "disk.img"]);
    let said = String::from_utf8_lossy(&tuned.stderr).into_owned();
    assert!(tuned.status.success() && said.contains("verity"), "{said}");
    assert!(
        said.contains("from now on extern4 only reads this volume"),
        "{said}"
    );
    failed(&extern4(&image, ["touch", "disk.img:/x"]), 3);
    sound(&image);
}
