//! Volumes that `mkfs` makes, next to the volumes that mke2fs makes of the same options.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::{Command, Output};

use extern4_testkit::tools::{Need, can_run};

use crate::run::{assert_same, command, extern4_in, failed, ok, tool};

/// The configuration that is built into the command, for mke2fs to read.
pub(crate) const CONFIG: &str = include_str!("../../../mkfs/src/mke2fs.conf");

/// A generator of numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % end
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }

    pub(crate) fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

const FEATURES: &[&str] = &[
    "^has_journal",
    "^extent,^64bit",
    "^64bit",
    "^flex_bg",
    "^metadata_csum",
    "^metadata_csum,uninit_bg",
    "^resize_inode",
    "meta_bg,^resize_inode",
    "sparse_super2",
    "^sparse_super",
    "inline_data",
    "ea_inode",
    "large_dir",
    "fast_commit",
    "^orphan_file",
    "^metadata_csum_seed",
    "^dir_index",
    "^filetype",
    "^huge_file",
    "^dir_nlink",
    "^large_file",
    "casefold",
    "stable_inodes",
    "mmp",
    "^extra_isize",
    "quota",
    "project",
    "quota,project",
    "none",
];

/// Returns random options, and the size of the device.
pub(crate) fn options(random: &mut Random) -> (Vec<String>, u64) {
    let mut args = vec![
        "-t".to_owned(),
        random.one_of(&["ext2", "ext3", "ext4", "ext4"]).to_owned(),
    ];
    let mut add = |name: &str, value: String| args.extend([name.to_owned(), value]);
    if random.happens(50) {
        add(
            "-b",
            random.one_of(&["1024", "2048", "4096", "-2048"]).to_owned(),
        );
    }
    if random.happens(30) {
        add(
            "-i",
            random
                .one_of(&["2048", "4096", "8192", "16384", "65536", "1048576"])
                .to_owned(),
        );
    }
    if random.happens(30) {
        add(
            "-I",
            random.one_of(&["128", "256", "512", "1024"]).to_owned(),
        );
    }
    if random.happens(20) {
        add("-N", (5 + random.below(30_000)).to_string());
    }
    if random.happens(15) {
        add("-g", (256 + random.below(992) * 8).to_string());
    }
    if random.happens(20) {
        add("-G", (1 << random.below(8)).to_string());
    }
    if random.happens(20) {
        add("-m", random.one_of(&["0", "1", "2.5", "10"]).to_owned());
    }
    if random.happens(20) {
        add("-L", format!("label {}", random.below(100)));
    }
    if random.happens(20) {
        add(
            "-J",
            random
                .one_of(&["size=4", "size=8", "size=16,location=3000", "size=32"])
                .to_owned(),
        );
    }
    if random.happens(10) {
        add(
            "-T",
            random
                .one_of(&["small", "news", "largefile", "default"])
                .to_owned(),
        );
    }
    if random.happens(10) {
        add(
            "-e",
            random
                .one_of(&["continue", "remount-ro", "panic"])
                .to_owned(),
        );
    }
    if random.happens(15) {
        let choices = [
            "stride=4",
            "stride=16,stripe_width=32",
            "num_backup_sb=1",
            "root_owner=7:8",
            "quotatype=usrquota",
            "quotatype=prjquota",
            "quotatype=grpquota:prjquota,root_owner=70000:3",
            "packed_meta_blocks=1",
            "resize=5000000,orphan_file_size=20",
            "orphan_file_size=64K,test_fs",
        ];
        add("-E", random.one_of(&choices).to_owned());
    }
    if random.happens(60) {
        let mut list = random.one_of(FEATURES).to_owned();
        if random.happens(50) {
            list = format!("{list},{}", random.one_of(FEATURES));
        }
        add("-O", list);
    }
    if random.happens(10) {
        args.push("-j".to_owned());
    }
    let mib = match random.below(3) {
        0 => 1 + random.below(16),
        1 => 16 + random.below(300),
        _ => 300 + random.below(2800),
    };
    (args, (mib << 20) + (random.below(1024) << 10))
}

/// Describes a volume by dumpe2fs, without the parts that differ between two volumes: UUID, times,
/// checksums, write counts, and the places of the journal and lost+found.
pub(crate) fn described(dir: &Path, name: &str) -> Vec<String> {
    const OWN: [&str; 10] = [
        "Filesystem UUID",
        "Directory Hash Seed",
        "Filesystem created",
        "Last write time",
        "Last checked",
        "Lifetime writes",
        "Checksum",
        "MMP block number",
        "    mmp_",
        "  Free ",
    ];
    let text = tool(dir, "dumpe2fs", [name]);
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text
        .lines()
        .filter(|line| !OWN.iter().any(|start| line.starts_with(start)));
    let mut described: Vec<String> = lines.map(without_places).collect();
    for (kind, line) in [
        ("user", "User quota inode"),
        ("group", "Group quota inode"),
        ("project", "Project quota inode"),
    ] {
        if text.lines().any(|found| found.starts_with(line)) {
            described.extend(quotas(dir, name, kind));
        }
    }
    described
}

/// The quotas of one kind on a volume, with what is in use.
fn quotas(dir: &Path, name: &str, kind: &str) -> Vec<String> {
    let text = tool(dir, "debugfs", ["-R", &format!("list_quota {kind}"), name]);
    String::from_utf8_lossy(&text)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn without_places(line: &str) -> String {
    // Groups with the journal differ in their free blocks, and in whether their bitmaps are
    // written.
    let line = line
        .replace("BLOCK_UNINIT, ", "")
        .replace(", BLOCK_UNINIT", "");
    let line = match line.split_once(" free blocks, ") {
        Some((_, rest)) => rest.to_owned(),
        None => line,
    };
    let words = line
        .split(' ')
        .filter(|word| !word.starts_with("0x"))
        .map(|word| word.to_owned());
    words.collect::<Vec<_>>().join(" ")
}

pub(crate) fn mke2fs(dir: &Path, args: &[String], names: &[&str]) -> Output {
    let mut command = Command::new("mke2fs");
    command
        .current_dir(dir)
        .env("MKE2FS_CONFIG", "mke2fs.conf")
        .args(["-q", "-F"])
        .args(args)
        .args(names);
    command.output().expect("mke2fs runs")
}

pub(crate) fn mkfs(dir: &Path, args: &[String], names: &[&str]) -> Output {
    let mut command = command();
    command
        .current_dir(dir)
        .env_remove("MKE2FS_CONFIG")
        .args(["mkfs", "-q"])
        .args(args)
        .args(names);
    command.output().expect("the command runs")
}

/// How many sets of options are tried: some in CI, `EXTERN4_MKFS_SETS` in `make soak`.
pub(crate) fn sets(few: u64) -> u64 {
    std::env::var("EXTERN4_MKFS_SETS")
        .ok()
        .and_then(|sets| sets.parse().ok())
        .unwrap_or(few)
}

#[test]
fn volumes_are_made_as_mke2fs_makes_them() {
    if !can_run(&[
        Need::Tool("mke2fs"),
        Need::Tool("dumpe2fs"),
        Need::Tool("e2fsck"),
    ]) {
        return;
    }
    let sets = sets(40);
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    std::fs::write(dir.join("mke2fs.conf"), CONFIG).expect("it is written");
    let mut random = Random(4);
    let mut made = 0;
    for _ in 0..sets {
        let (args, bytes) = options(&mut random);
        for name in ["ours", "theirs"] {
            File::create(dir.join(name))
                .and_then(|file| file.set_len(bytes))
                .expect("it is made");
        }
        let size = random
            .happens(30)
            .then(|| format!("{}K", (bytes >> 10) - random.below(999)));
        let run = |make: fn(&Path, &[String], &[&str]) -> Output, name: &str| {
            let names: Vec<&str> = [Some(name), size.as_deref()]
                .into_iter()
                .flatten()
                .collect();
            make(dir, &args, &names)
        };
        let ours = run(mkfs, "ours");
        let theirs = run(mke2fs, "theirs");
        let told = String::from_utf8_lossy(&ours.stderr).into_owned();
        if ours.status.success() {
            tool(dir, "e2fsck", ["-fn", "ours"]);
        }
        // mke2fs makes too few inodes for lost+found, and then fails. It also asks for 50 blocks
        // for files; ours makes the small volumes that `build` needs.
        let told_by_it = String::from_utf8_lossy(&theirs.stderr);
        let fails = [
            "Illegal inode number",
            "Could not allocate inode",
            "Not enough space to build",
        ];
        if fails.iter().any(|text| told_by_it.contains(text)) {
            continue;
        }
        assert_eq!(
            ours.status.success(),
            theirs.status.success(),
            "{args:?} {size:?}, {bytes} bytes: {told}"
        );
        if ours.status.success() {
            let of = format!("{args:?} {size:?}, {bytes} bytes");
            assert_same(&of, &described(dir, "ours"), &described(dir, "theirs"));
            made += 1;
        }
    }
    assert!(made > sets / 2, "{made} of {sets}");
}

/// The sets of options that took a special rule.
#[test]
fn rare_divisions_into_groups_are_those_of_mke2fs() {
    if !can_run(&[Need::Tool("mke2fs"), Need::Tool("dumpe2fs")]) {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    std::fs::write(dir.join("mke2fs.conf"), CONFIG).expect("it is written");
    for (words, size) in [
        // Descriptors that take more than three quarters of a group go to meta groups.
        (
            "-t ext4 -O ^extra_isize,^metadata_csum,uninit_bg -g 296",
            "6281K",
        ),
        (
            "-t ext4 -O ^extra_isize,^metadata_csum,uninit_bg -g 336",
            "6281K",
        ),
        (
            "-t ext4 -O ^extra_isize,^metadata_csum,uninit_bg -g 344",
            "6281K",
        ),
        ("-t ext2 -b 1024 -g 344", "64M"),
        ("-t ext2 -b 1024 -g 352", "64M"),
        ("-t ext4 -b 1024 -g 256 -O ^resize_inode -N 4000", "786400K"),
        ("-t ext4 -b 1024 -g 256 -O ^resize_inode -N 4000", "786500K"),
        ("-t ext2 -b 1024 -g 352 -N 25300", "24M"),
        // Groups get smaller for more inodes than one can have.
        ("-t ext3 -b 2048 -g 6696 -N 18374", "13049K"),
        // One copy of the superblock leaves the last group room.
        (
            "-t ext2 -b 1024 -N 22371 -O sparse_super2 -E num_backup_sb=1",
            "16091K",
        ),
        // The inode table of a short last group has its place in another.
        ("-t ext4 -b 1024 -G 128", "1048796K"),
    ] {
        let args: Vec<String> = words.split(' ').map(str::to_owned).collect();
        for name in ["ours", "theirs"] {
            File::create(dir.join(name))
                .and_then(|file| file.set_len(2 << 30))
                .expect("it is made");
        }
        ok(mkfs(dir, &args, &["ours", size]));
        ok(mke2fs(dir, &args, &["theirs", size]));
        assert_same(
            &format!("{words} {size}"),
            &described(dir, "ours"),
            &described(dir, "theirs"),
        );
    }
    // Neither makes a volume whose inodes leave a group no room.
    let args = ["-t", "ext2", "-b", "1024", "-g", "344", "-i", "1024"].map(str::to_owned);
    assert!(failed(&mkfs(dir, &args, &["none", "16M"]), 2).contains("too many for a group"));
    assert!(!mke2fs(dir, &args, &["none", "16M"]).status.success());
    // Nor does either make one whose journal takes more than half of what is free.
    let args = ["-t", "ext2", "-b", "1024", "-g", "2896", "-J", "size=16"].map(str::to_owned);
    assert!(failed(&mkfs(dir, &args, &["none", "36443K"]), 2).contains("half of the"));
    assert!(!mke2fs(dir, &args, &["none", "36443K"]).status.success());
}

#[test]
fn a_made_volume_is_sound_and_can_be_used() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    for kind in ["ext2", "ext3", "ext4"] {
        let name = format!("{kind}.img");
        let text = ok(extern4_in(
            dir,
            ["mkfs", "-t", kind, "-L", "made", &name, "64M"],
        ));
        assert!(
            String::from_utf8_lossy(&text)
                .starts_with("65536 blocks of 1024 bytes, 16384 inodes\n")
        );
        assert_eq!(
            File::open(dir.join(&name))
                .and_then(|file| file.metadata())
                .unwrap()
                .len(),
            64 << 20
        );
        ok(extern4_in(dir, ["mkdir", &format!("{name}:/dir")]));
        ok(extern4_in(dir, ["check", &name]));
        if can_run(&[Need::Tool("e2fsck")]) {
            tool(dir, "e2fsck", ["-fn", &name]);
        }
    }
}

/// extern4 goes on counting where `mkfs` began.
#[test]
fn quotas_count_from_the_start() {
    if !can_run(&[Need::Tool("e2fsck"), Need::Tool("debugfs")]) {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let options = [
        "-O",
        "quota",
        "-E",
        "quotatype=usrquota:grpquota:prjquota,root_owner=70000:7",
    ];
    ok(extern4_in(
        dir,
        [
            &["mkfs", "-q", "-b", "1024"],
            &options[..],
            &["disk.img", "64M"],
        ]
        .concat(),
    ));
    let used = |kind: &str| -> Vec<String> {
        tool(dir, "e2fsck", ["-fn", "disk.img"]);
        let words = |line: &String| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words.len() == 7).then(|| [words[0], words[1], words[4]].join(" "))
        };
        let mut used: Vec<String> = quotas(dir, "disk.img", kind)
            .iter()
            .filter_map(words)
            .collect();
        used.sort();
        used
    };
    assert_eq!(used("user"), ["0 12288 1", "70000 1024 1"]);
    assert_eq!(used("group"), ["0 12288 1", "7 1024 1"]);
    assert_eq!(used("project"), ["0 13312 2"]);
    std::fs::write(dir.join("text"), [1; 3000]).expect("it is written");
    ok(extern4_in(dir, ["cp", "text", "disk.img:/text"]));
    ok(extern4_in(dir, ["chown", "5:70000", "disk.img:/text"]));
    assert_eq!(used("user"), ["0 12288 1", "5 3072 1", "70000 1024 1"]);
    assert_eq!(used("group"), ["0 12288 1", "7 1024 1", "70000 3072 1"]);
    assert_eq!(used("project"), ["0 16384 3"]);
}

/// A configuration of the caller's counts in place of the built-in one.
#[test]
fn the_callers_configuration_counts() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let own = CONFIG.replace("inode_ratio = 4096", "inode_ratio = 65536");
    std::fs::write(dir.join("own.conf"), own).expect("it is written");
    let run = |config: &str| {
        let mut command = command();
        command
            .current_dir(dir)
            .env("MKE2FS_CONFIG", config)
            .args(["mkfs", "-n", "x.img", "64M"]);
        command.output().expect("the command runs")
    };
    let text = ok(run("own.conf"));
    assert!(
        String::from_utf8_lossy(&text).starts_with("65536 blocks of 1024 bytes, 1024 inodes\n")
    );
    std::fs::write(dir.join("wrong.conf"), "[defaults]\nblocksize\n").expect("it is written");
}

#[test]
fn a_configuration_that_cannot_be_read_is_named() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    std::fs::write(dir.join("wrong.conf"), "[defaults]\nblocksize\n").expect("it is written");
    std::fs::write(dir.join("bytes.conf"), b"[defaults]\n\xff\n").expect("it is written");
    std::fs::create_dir(dir.join("tree")).expect("a directory");
    for args in [
        &["mkfs", "x.img", "64M"][..],
        &["mkfs", "x.img", "-d", "tree"],
        &["build", "x.img", "tree"],
    ] {
        for (config, says) in [
            (
                "wrong.conf",
                "'wrong.conf': mke2fs.conf, line 2: a relation is written 'name = value'\n",
            ),
            ("none.conf", "'none.conf': No such file or directory\n"),
            ("tree", "'tree': Is a directory\n"),
            (
                "bytes.conf",
                "'bytes.conf': stream did not contain valid UTF-8\n",
            ),
        ] {
            let mut command = command();
            let output = command
                .current_dir(dir)
                .env("MKE2FS_CONFIG", config)
                .args(args)
                .output();
            let said = failed(&output.expect("the command runs"), 1);
            assert_eq!(said, format!("extern4: {}: {says}", args[0]), "{args:?}");
            assert!(!dir.join("x.img").exists(), "{args:?}");
        }
    }
}

/// A volume of twenty gigabytes takes only the space of its metadata.
#[test]
fn large_volumes_are_sparse() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    ok(extern4_in(dir, ["mkfs", "-q", "large.img", "20G"]));
    let taken = || dir.join("large.img").metadata().unwrap().blocks() * 512;
    assert!(taken() < 16 << 20, "{} bytes", taken());
    ok(extern4_in(dir, ["mkfs", "-q", "--force", "large.img"]));
    assert!(taken() < 16 << 20, "made again: {} bytes", taken());
}

#[test]
fn the_same_options_make_the_same_bytes() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let uuid = "6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11";
    for name in ["one", "two"] {
        let mut command = command();
        let seed = format!("hash_seed={uuid}");
        command
            .current_dir(dir)
            .env("SOURCE_DATE_EPOCH", "1700000000");
        ok(command
            .args(["mkfs", "-q", "-U", uuid, "-E", &seed, name, "64M"])
            .output()
            .unwrap());
    }
    assert!(std::fs::read(dir.join("one")).unwrap() == std::fs::read(dir.join("two")).unwrap());
}

#[test]
fn an_existing_volume_is_not_overwritten() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    ok(extern4_in(dir, ["mkfs", "-q", "disk.img", "64M"]));
    let before = std::fs::read(dir.join("disk.img")).unwrap();
    let told = failed(&extern4_in(dir, ["mkfs", "disk.img"]), 1);
    assert!(
        told.contains("holds an ext2, ext3 or ext4 volume"),
        "{told}"
    );
    ok(extern4_in(dir, ["mkfs", "-n", "disk.img", "32M"]));
    assert!(std::fs::read(dir.join("disk.img")).unwrap() == before);
    ok(extern4_in(
        dir,
        ["mkfs", "-q", "--force", "-t", "ext2", "disk.img"],
    ));
    ok(extern4_in(dir, ["check", "disk.img"]));

    // A volume in use stays as it is.
    let _open = extern4::Volume::options()
        .write(true)
        .open(dir.join("disk.img"))
        .expect("it opens");
    let told = failed(&extern4_in(dir, ["mkfs", "--force", "disk.img"]), 1);
    assert!(told.contains("has it open"), "{told}");
}

/// A file with old contents becomes the same volume as a new file.
#[test]
fn rubbish_does_not_shine_through() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let rubbish = File::create(dir.join("disk.img")).unwrap();
    for chunk in 0..48 {
        rubbish
            .write_all_at(&vec![0xa5; 1 << 20], chunk << 20)
            .unwrap();
    }
    for kind in ["ext2", "ext3", "ext4"] {
        ok(extern4_in(
            dir,
            ["mkfs", "-q", "--force", "-t", kind, "disk.img"],
        ));
        ok(extern4_in(dir, ["check", "disk.img"]));
        if can_run(&[Need::Tool("e2fsck")]) {
            tool(dir, "e2fsck", ["-fn", "disk.img"]);
        }
    }
}

/// A partition of a disk becomes a volume, and the rest of the disk stays as it was.
#[test]
fn partitions_and_devices_become_volumes() {
    if !can_run(&[Need::Tool("sfdisk"), Need::Tool("e2fsck"), Need::Mount]) {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let disk = File::create(dir.join("disk.img")).unwrap();
    disk.set_len(96 << 20).unwrap();
    disk.write_all_at(&[0x5a; 4096], 80 << 20).unwrap();
    std::fs::write(dir.join("table"), "label: gpt\nstart=2048, size=131072\n").unwrap();
    tool(dir, "sh", ["-c", "sfdisk -q disk.img < table"]);
    let told = failed(&extern4_in(dir, ["mkfs", "disk.img"]), 1);
    assert!(told.contains("partition table"), "{told}");
    ok(extern4_in(dir, ["mkfs", "-q", "disk.img#1"]));
    ok(extern4_in(dir, ["check", "disk.img#1"]));
    let mut kept = [0; 4096];
    File::open(dir.join("disk.img"))
        .unwrap()
        .read_exact_at(&mut kept, 80 << 20)
        .unwrap();
    assert!(kept == [0x5a; 4096]);
    let told = failed(&extern4_in(dir, ["mkfs", "-F", "disk.img#1", "65M"]), 1);
    assert!(told.contains("more than its"), "{told}");

    let device = tool(
        dir,
        "losetup",
        ["-f", "--show", "-o", "1M", "--sizelimit", "64M", "disk.img"],
    );
    let device = String::from_utf8(device).unwrap().trim().to_owned();
    let made = extern4_in(dir, ["mkfs", "-q", "-F", "-t", "ext3", &device]);
    let checked = extern4_in(dir, ["check", &device]);
    tool(dir, "losetup", ["-d", &device]);
    ok(made);
    ok(checked);
}

#[test]
fn wrong_options_are_named_and_leave_nothing_behind() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    for (args, code, word) in [
        (&["x.img"][..], 1, "a size has to be given"),
        (&["x.img", "64X"], 2, "'X' is no unit"),
        (&["x.img", "2K"], 1, "too few"),
        (
            &["-O", "bigalloc", "x.img", "64M"],
            1,
            "'bigalloc' is not supported",
        ),
        (
            &["-O", "nonsense", "x.img", "64M"],
            2,
            "there is no feature 'nonsense'",
        ),
        (
            &[
                "-O",
                "^metadata_csum,metadata_csum_seed",
                "-t",
                "ext2",
                "x.img",
                "64M",
            ],
            2,
            "needs metadata_csum",
        ),
        (&["-O", "^extent", "x.img", "64M"], 2, "64bit needs extent"),
        (
            &["-O", "project", "-I", "128", "x.img", "64M"],
            2,
            "project needs inodes of at least 256",
        ),
        (
            &["-E", "quotatype=usrquota:all", "x.img", "64M"],
            2,
            "'all' is none of usrquota",
        ),
        (
            &["-O", "journal_dev", "-b", "4096", "x.img", "3M"],
            1,
            "a journal of 768 blocks",
        ),
        (
            &["-J", "device=none.img", "x.img", "64M"],
            1,
            "its journal none.img: No such file",
        ),
        (
            &["-J", "device=UUID=7", "x.img", "64M"],
            1,
            "no device has an external journal with UUID=7",
        ),
        (&["-b", "3000", "x.img", "64M"], 2, "3000 bytes"),
        (&["-I", "100", "x.img", "64M"], 2, "100 bytes"),
        (&["-m", "51", "x.img", "64M"], 2, "51 %"),
        (&["-t", "ext5", "x.img", "64M"], 2, "'ext5'"),
        (&["-J", "size=900", "x.img", "64M"], 2, "a journal of"),
        (&["none/x.img", "64M"], 1, "none/x.img"),
        (&["x.img:/dir", "64M"], 2, "name the image alone"),
    ] {
        let told = failed(&extern4_in(dir, [&["mkfs"], args].concat()), code);
        assert!(told.contains(word), "{args:?}: {told}");
        assert!(!dir.join("x.img").exists(), "{args:?}");
    }
}
