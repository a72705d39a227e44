//! The options of mke2fs, one by one: the volume is that of mke2fs, or the reason is said.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

use extern4_testkit::tools::{Need, can_run};

use crate::making::{CONFIG, described, mke2fs, mkfs};
use crate::run::{assert_same, command, extern4_in, failed, ok, tool};

/// Asserts that a run succeeded, with warnings or without.
#[track_caller]
fn made(output: &Output) {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Asserts that both programs make the same volume of 64 MiB, by dumpe2fs and e2fsck.
#[track_caller]
fn are_same(dir: &Path, theirs: &str, ours: &str) {
    let [theirs, ours] =
        [theirs, ours].map(|words| words.split(' ').map(str::to_owned).collect::<Vec<_>>());
    for name in ["ours", "theirs"] {
        File::create(dir.join(name))
            .and_then(|file| file.set_len(64 << 20))
            .expect("it is made");
    }
    made(&mkfs(dir, &ours, &["ours"]));
    made(&mke2fs(dir, &theirs, &["theirs"]));
    tool(dir, "e2fsck", ["-fn", "ours"]);
    assert_same(
        &ours.join(" "),
        &described(dir, "ours"),
        &described(dir, "theirs"),
    );
}

fn scratch() -> Option<tempfile::TempDir> {
    if !can_run(&[
        Need::Tool("mke2fs"),
        Need::Tool("dumpe2fs"),
        Need::Tool("e2fsck"),
        Need::Tool("debugfs"),
    ]) {
        return None;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    fs::write(scratch.path().join("mke2fs.conf"), CONFIG).expect("it is written");
    Some(scratch)
}

#[test]
fn each_option_makes_the_volume_of_mke2fs() {
    let Some(scratch) = scratch() else { return };
    let dir = scratch.path();
    fs::write(dir.join("bad"), "5000\n5001\n\n60000\n300\n").expect("it is written");
    for words in [
        "-F -F -t ext4 -m 0 -m 5 -b 1024 -b 4096 -L a -L b -i 4096 -i 8192 -e panic -e continue -j -j",
        "-t ext4 -O ^has_journal -O quota",
        "-t ext4 -J size=8 -J fast_commit_size=256 -O fast_commit",
        "-t ext4 -D",
        "-t ext4 -o linux",
        "-t ext2 -o hurd",
        "-t ext4 -o freebsd",
        "-t ext4 -o lites",
        "-t ext4 -o 7",
        "-t ext4 -b -4096",
        "-t ext4 -b -2048",
        "-t ext4 -b 4k",
        "-t ext4 -U null",
        "-t ext4 -U time",
        "-t ext4 -i 67108864",
        "-t ext4 -i 4k",
        "-t ext4 -b 4096 -i 1024",
        "-t ext4 -b 8192",
        "-t ext4 -b 65536",
        "-t ext4 -I 0",
        "-t ext4 -N 0",
        "-t ext4 -r 0",
        "-t ext4 -T unknown",
        "-t ext4 -E resize=99999999999",
        "-t ext4 -E resize=1G",
        "-t ext4 -E resize=100000",
        "-t ext4 -O ^resize_inode -E resize=2000000",
        "-t ext4 -G 4 -E packed_meta_blocks",
        "-t ext4 -E packed_meta_blocks=0",
        "-t ext4 -E packed_meta_blocks=1 -O ^flex_bg",
        "-t ext4 -E orphan_file_size=100K",
        "-t ext4 -b 4096 -E orphan_file_size=100",
        "-t ext4 -E desc_size=64",
        "-t ext4 -E encoding=utf8",
        "-t ext4 -O casefold -E encoding_flags=strict",
        "-t ext4 -E no_copy_xattrs,test_fs,discard,lazy_itable_init=0,lazy_journal_init,assume_storage_prezeroed=1",
        "-t ext4 -O mmp -E mmp_update_interval=0",
        "-t ext4 -J size=4,location=20000",
        "-t ext4 -J location=8M",
        "-t ext4 -J location=999999",
        "-t ext4 -l bad",
        "-t ext2 -l bad",
        "-t ext4 -c",
        "-t ext4 -R stride=4",
    ] {
        are_same(dir, words, words);
    }
    // Here words of several -E add up; mke2fs takes the words of the last one.
    are_same(
        dir,
        "-t ext4 -E stride=4,stripe_width=8",
        "-t ext4 -E stride=4 -E stripe_width=8",
    );
    // mke2fs says that the label is too long, and so does this command.
    let long = "m".repeat(70);
    let args = ["-t", "ext4", "-L", "sixteen bytes, and more", "-M", &long].map(str::to_owned);
    let told = mkfs(dir, &[&args[..], &["-F".to_owned()]].concat(), &["ours"]);
    made(&told);
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(
        said.contains("the label has 23 bytes, and is cut off: 'sixteen bytes, a'"),
        "{said}"
    );
    assert!(said.contains("the last mount point has 70 bytes"), "{said}");
    made(&mke2fs(dir, &args, &["theirs"]));
    assert_same(
        "a long label",
        &described(dir, "ours"),
        &described(dir, "theirs"),
    );
    // The bad blocks are in use.
    ok(mkfs(
        dir,
        &["-F", "-l", "bad"].map(str::to_owned),
        &["ours"],
    ));
    let blocks = tool(dir, "dumpe2fs", ["-b", "ours"]);
    assert_eq!(String::from_utf8_lossy(&blocks), "300\n5000\n5001\n60000\n");
}

/// The configuration of the tests of e2fsprogs, and one that has fewer bytes an inode than a block.
#[test]
fn the_words_of_a_configuration_are_those_of_mke2fs() {
    let Some(scratch) = scratch() else { return };
    let dir = scratch.path();
    let base = "[defaults]\nbase_features = sparse_super,filetype\nblocksize = 4096\ninode_size = 256\ninode_ratio = 1024\n";
    for words in [
        "^acl",
        "acl,^acl",
        "^acl,user_xattr",
        "journal_data_writeback,^journal_data",
        "debug",
    ] {
        fs::write(
            dir.join("mke2fs.conf"),
            format!("{base}default_mntopts = {words}\n"),
        )
        .expect("it is written");
        for name in ["ours", "theirs"] {
            File::create(dir.join(name))
                .and_then(|file| file.set_len(16 << 20))
                .expect("it is made");
        }
        let mut ours = command();
        ours.current_dir(dir)
            .env("MKE2FS_CONFIG", "mke2fs.conf")
            .args(["mkfs", "-q", "-t", "ext2", "ours"]);
        made(&ours.output().expect("the command runs"));
        made(&mke2fs(
            dir,
            &["-t", "ext2"].map(str::to_owned),
            &["theirs"],
        ));
        assert_same(words, &described(dir, "ours"), &described(dir, "theirs"));
    }
    fs::write(
        dir.join("mke2fs.conf"),
        format!("{base}default_mntopts = ^nonsense\n"),
    )
    .expect("it is written");
    let mut ours = command();
    ours.current_dir(dir)
        .env("MKE2FS_CONFIG", "mke2fs.conf")
        .args(["mkfs", "-F", "-t", "ext2", "ours"]);
    let told = failed(&ours.output().expect("the command runs"), 2);
    assert!(told.contains("there is no option 'nonsense'"), "{told}");
}

#[test]
fn options_that_cannot_be_fulfilled_say_why() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    fs::write(dir.join("bad"), "1\n").expect("it is written");
    fs::write(dir.join("words"), "7\nseven\n").expect("it is written");
    for (words, code, says) in [
        ("-C 4096", 2, "-C: clusters need the feature bigalloc"),
        ("-z undo", 2, "-z: a copy of the image"),
        ("-o dos", 2, "linux, hurd, freebsd and lites are known"),
        ("-t ext4 -o hurd", 2, "-t ext2 makes a volume for it"),
        ("-b -512", 2, "blocks of at least 512 bytes"),
        ("-i 1023", 2, "1024 to 67108864 are possible"),
        ("-i 67108865", 2, "1024 to 67108864 are possible"),
        (
            "-r 0 -J size=4",
            2,
            "revision 0 has no features and no journal",
        ),
        ("-r 0 -j", 2, "revision 0 has no features and no journal"),
        ("-r 2", 2, "2 is not in 0..=1"),
        ("-E resize=1", 2, "resize=1 is not more"),
        ("-E desc_size=128", 2, "descriptors have 64 bytes"),
        ("-E encoding=latin1", 2, "encoding=utf8"),
        ("-E encoding_flags=strict", 2, "needs -E encoding=utf8"),
        ("-E root_selinux=x", 2, "setfattr -n security.selinux"),
        ("-E root_perms=9", 2, "root_perms=0755"),
        ("-E nonsense", 2, "'nonsense' is not supported"),
        ("-O mmp -E mmp_update_interval=301", 2, "up to 300"),
        ("-E orphan_file_size=0", 2, "a block or more"),
        ("-E orphan_file_size=100M", 1, "no room for 102400 blocks"),
        ("-l bad", 1, "block 1 is bad"),
        ("-l words", 2, "'words', line 2: that is no number"),
        ("-l none", 1, "'none': No such file"),
        ("-S", 1, "it is not there"),
        ("--for debian1", 2, "debian12"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let told = failed(
            &extern4_in(dir, [&["mkfs"], &words[..], &["x.img", "64M"]].concat()),
            code,
        );
        assert!(told.contains(says), "{words:?}: {told}");
        assert!(!dir.join("x.img").exists(), "{words:?}");
    }
    let told = failed(
        &extern4_in(dir, ["mkfs", "-E", "offset=1024", "x.img@4096", "64M"]),
        2,
    );
    assert!(told.contains("and so does -E offset="), "{told}");
    let told = String::from_utf8(ok(extern4_in(dir, ["mkfs", "-V"]))).expect("text");
    assert!(told.contains(env!("CARGO_PKG_VERSION")), "{told}");
    let told =
        String::from_utf8(ok(extern4_in(dir, ["mkfs", "-v", "-n", "x.img", "64M"]))).expect("text");
    assert!(
        told.starts_with("Configuration: the built-in one, of e2fsprogs 1.47; types ext4, small\n"),
        "{told}"
    );
}

/// A file takes a block, so `build`, too, makes no more inodes than there are blocks.
#[test]
fn large_blocks_have_no_more_inodes_than_blocks() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).expect("a directory");
    for size in ["256M", "+200M"] {
        let args = [
            "build", "-n", "--json", "-b", "65536", "--size", size, "x.img", "tree",
        ];
        let json: serde_json::Value =
            serde_json::from_slice(&ok(extern4_in(dir, args))).expect("an object");
        let [inodes, blocks] =
            ["inodes", "blocks"].map(|key| json[key].as_u64().expect("a number"));
        assert!(inodes <= blocks + 64, "{size}: {json}");
    }
}

/// The features that a system refuses are left out, and -O has the last word.
#[test]
fn a_volume_for_a_system_has_its_features() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).expect("a directory");
    let features = |args: &[&str]| -> Vec<String> {
        ok(extern4_in(dir, args));
        let json = ok(extern4_in(dir, ["info", "--json", "x.img"]));
        let json: serde_json::Value = serde_json::from_slice(&json).expect("an object");
        fs::remove_file(dir.join("x.img")).expect("it is removed");
        let names = json["features"].as_array().expect("features").iter();
        names
            .map(|name| name.as_str().expect("a name").to_owned())
            .collect()
    };
    for make in [
        &["mkfs", "-q", "x.img", "64M"][..],
        &["build", "-q", "--size", "64M", "x.img", "tree"],
    ] {
        let all = features(make);
        for (system, without) in [
            ("debian11", &["orphan_file", "metadata_csum_seed"][..]),
            ("debian12", &["orphan_file", "metadata_csum_seed"]),
            ("ubuntu20.04", &["orphan_file", "metadata_csum_seed"]),
            ("ubuntu22.04", &["orphan_file", "metadata_csum_seed"]),
            ("ubuntu24.04", &["orphan_file", "metadata_csum_seed"]),
            ("grub2.06", &["metadata_csum_seed"]),
            ("e2fsck1.46", &["orphan_file"]),
        ] {
            assert!(
                without
                    .iter()
                    .all(|name| all.iter().any(|known| known == name)),
                "{make:?}: {all:?}"
            );
            let expected: Vec<&String> = all
                .iter()
                .filter(|name| !without.contains(&name.as_str()))
                .collect();
            let made = features(&[make, &["--for", system]].concat());
            assert_eq!(
                made.iter().collect::<Vec<_>>(),
                expected,
                "{make:?} --for {system}"
            );
        }
        assert_eq!(
            features(
                &[
                    make,
                    &["--for", "debian12", "-O", "orphan_file,metadata_csum_seed"]
                ]
                .concat()
            ),
            all
        );
    }
    // Debian 12's own mke2fs makes the same.
    if Path::new("/etc/mke2fs.conf").exists()
        && can_run(&[Need::Tool("dumpe2fs"), Need::Tool("mke2fs")])
    {
        // Of a later Debian, /etc/mke2fs.conf has other defaults.
        let is_bookworm =
            fs::read_to_string("/etc/os-release").is_ok_and(|text| text.contains("bookworm"));
        if is_bookworm {
            for name in ["ours", "theirs"] {
                File::create(dir.join(name))
                    .and_then(|file| file.set_len(64 << 20))
                    .expect("it is made");
            }
            tool(dir, "mke2fs", ["-q", "-t", "ext4", "theirs"]);
            ok(extern4_in(dir, ["mkfs", "-q", "--for", "debian12", "ours"]));
            assert_same(
                "debian12",
                &described(dir, "ours"),
                &described(dir, "theirs"),
            );
        }
    }
}

/// The root directory, the attributes of a source, and a volume at an offset.
#[test]
fn extended_options_reach_the_tree() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).expect("a directory");
    fs::write(dir.join("tree/file"), "text").expect("a file");
    fs::set_permissions(dir.join("tree"), fs::Permissions::from_mode(0o750)).expect("a mode");
    let has_xattr = rustix::fs::setxattr(
        dir.join("tree/file"),
        "user.key",
        b"value",
        rustix::fs::XattrFlags::empty(),
    )
    .is_ok();
    let stat = |place: &str, what: &str| {
        String::from_utf8(ok(extern4_in(dir, ["stat", "-c", what, place])))
            .expect("text")
            .trim()
            .to_owned()
    };
    ok(extern4_in(
        dir,
        ["mkfs", "-q", "-E", "root_perms=1711", "x.img", "64M"],
    ));
    assert_eq!(stat("x.img:/", "%a"), "1711");
    ok(extern4_in(
        dir,
        [
            "mkfs",
            "-q",
            "-F",
            "-E",
            "root_perms=1711",
            "-d",
            "tree",
            "x.img",
            "64M",
        ],
    ));
    assert_eq!(stat("x.img:/", "%a"), "1711");
    let xattrs =
        || String::from_utf8(ok(extern4_in(dir, ["getfattr", "-d", "x.img:/file"]))).expect("text");
    assert_eq!(xattrs().contains("user.key"), has_xattr);
    ok(extern4_in(
        dir,
        [
            "mkfs",
            "-q",
            "-F",
            "-E",
            "no_copy_xattrs",
            "-d",
            "tree",
            "x.img",
            "64M",
        ],
    ));
    assert_eq!(
        (stat("x.img:/", "%a"), xattrs().contains("user.key")),
        ("750".to_owned(), false)
    );
    ok(extern4_in(dir, ["check", "x.img"]));
    // At an offset, in a file that is there and in a new one, with a tree and without.
    for source in [&[][..], &["-d", "tree"]] {
        let make = [
            &["mkfs", "-q", "-E", "offset=1048576", "at.img", "16M"],
            source,
        ]
        .concat();
        ok(extern4_in(dir, &make));
        assert_eq!(
            fs::metadata(dir.join("at.img")).expect("a file").len(),
            17 << 20
        );
        ok(extern4_in(dir, ["check", "at.img@1M"]));
        let told = failed(&extern4_in(dir, &make), 1);
        assert!(
            told.contains("at.img@1048576") && told.contains("holds an ext2"),
            "{told}"
        );
        ok(extern4_in(dir, [&make[..], &["-F"]].concat()));
        fs::remove_file(dir.join("at.img")).expect("it is removed");
    }
}

/// A preallocated file keeps its blocks.
#[test]
fn nodiscard_keeps_the_blocks_of_a_file() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).expect("a directory");
    fs::write(dir.join("tree/file"), [7; 100_000]).expect("a file");
    let len = 32 << 20;
    let file = File::create(dir.join("x.img")).expect("a file");
    if rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len).is_err() {
        return;
    }
    let taken = || fs::metadata(dir.join("x.img")).expect("a file").blocks() * 512;
    assert!(taken() >= len);
    for options in [
        &["-K"][..],
        &["-E", "nodiscard"],
        &["-K", "-d", "tree"],
        &["-E", "discard,nodiscard"],
    ] {
        ok(extern4_in(
            dir,
            [&["mkfs", "-q", "-F"], options, &["x.img"]].concat(),
        ));
        assert!(taken() >= len, "{options:?}: {} bytes", taken());
        ok(extern4_in(dir, ["check", "x.img"]));
    }
    ok(extern4_in(dir, ["mkfs", "-q", "-F", "x.img"]));
    assert!(taken() < len / 2, "{} bytes", taken());
}

/// With all superblocks lost, the superblocks of a plan with the same options bring the files back.
#[test]
fn superblocks_alone_bring_a_volume_back() {
    let Some(scratch) = scratch() else { return };
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).expect("a directory");
    for number in 0..100 {
        fs::write(dir.join(format!("tree/{number}")), [7; 5000]).expect("a file");
    }
    let uuid = "6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11";
    for kind in ["ext2", "ext3", "ext4"] {
        let options = ["-q", "-F", "-t", kind, "-U", uuid];
        ok(extern4_in(
            dir,
            [&["mkfs"], &options[..], &["-d", "tree", "x.img", "64M"]].concat(),
        ));
        let disk = File::options()
            .write(true)
            .open(dir.join("x.img"))
            .expect("the image");
        for block in [1, 8193, 24577, 40961, 57345] {
            std::os::unix::fs::FileExt::write_all_at(&disk, &[0x5a; 2048], block << 10)
                .expect("hurt");
        }
        assert!(!extern4_in(dir, ["ls", "x.img"]).status.success());
        ok(extern4_in(
            dir,
            [&["mkfs", "-S"], &options[..], &["x.img"]].concat(),
        ));
        let mended = Command::new("e2fsck")
            .current_dir(dir)
            .args(["-fy", "x.img"])
            .output();
        let mended = mended.expect("e2fsck runs");
        assert!(
            mended.status.code().is_some_and(|code| code < 4),
            "{kind}: {mended:?}"
        );
        tool(dir, "e2fsck", ["-fn", "x.img"]);
        for number in 0..100 {
            assert_eq!(
                ok(extern4_in(dir, ["cat", &format!("x.img:/{number}")])),
                [7; 5000],
                "{kind}"
            );
        }
    }
}
